// SPDX-License-Identifier: Apache-2.0
// A few threads on which models load.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace npud {

// Thread-safe. Tasks start in the order in which they came. The destructor runs what is queued to its end.
class LoadPool {
 public:
  explicit LoadPool(std::uint32_t threads);
  ~LoadPool();
  LoadPool(const LoadPool&) = delete;
  LoadPool& operator=(const LoadPool&) = delete;

  void submit(std::move_only_function<void()> task);
  // Runs all tasks and waits for them. Not from a task.
  void run_all(std::vector<std::move_only_function<void()>> tasks);

 private:
  void work();

  std::mutex mutex_;  // below
  std::condition_variable wake_;
  std::deque<std::move_only_function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace npud
