// SPDX-License-Identifier: Apache-2.0
#include "models/load_pool.h"

#include <algorithm>
#include <latch>

namespace npud {

LoadPool::LoadPool(std::uint32_t threads) {
  for (std::uint32_t i = 0; i < std::max(1u, threads); ++i) threads_.emplace_back([this] { work(); });
}

LoadPool::~LoadPool() {
  {
    std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
}

void LoadPool::submit(std::move_only_function<void()> task) {
  {
    std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void LoadPool::run_all(std::vector<std::move_only_function<void()>> tasks) {
  std::latch done(static_cast<std::ptrdiff_t>(tasks.size()));
  for (auto& task : tasks) {
    submit([&done, task = std::move(task)]() mutable {
      task();
      done.count_down();
    });
  }
  done.wait();
}

void LoadPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it holds goes without the lock
    lock.lock();
  }
}

}  // namespace npud
