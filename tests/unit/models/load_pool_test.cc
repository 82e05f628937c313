// SPDX-License-Identifier: Apache-2.0
#include "models/load_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

namespace npud {
namespace {

TEST(LoadPool, RunsAtMostSoManyAtOnceAndAllOfThem) {
  std::atomic<int> now = 0, most = 0, done = 0;
  {
    LoadPool pool(3);
    std::vector<std::move_only_function<void()>> tasks;
    for (int i = 0; i < 100; ++i) {
      tasks.push_back([&] {
        const int running = ++now;
        for (int seen = most; running > seen && !most.compare_exchange_weak(seen, running);) {
        }
        std::this_thread::yield();
        --now;
        ++done;
      });
    }
    pool.run_all(std::move(tasks));
    EXPECT_EQ(done, 100);
    pool.run_all({});
    for (int i = 0; i < 10; ++i) pool.submit([&] { ++done; });
  }
  EXPECT_EQ(done, 110) << "the destructor runs what is queued";
  EXPECT_LE(most, 3);
}

TEST(LoadPool, RunsSideBySide) {
  LoadPool pool(2);
  std::latch both(2);
  std::vector<std::move_only_function<void()>> tasks;
  for (int i = 0; i < 2; ++i) tasks.push_back([&] { both.arrive_and_wait(); });
  pool.run_all(std::move(tasks));
}

}  // namespace
}  // namespace npud
