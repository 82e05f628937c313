// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"

namespace npud::api {

// A few threads for administrators' calls that wait (load, unload, drain), so that gRPC's own threads never do.
// Bounded: when all are busy and the queue is full, run() fails and the caller is told to come back. Thread-safe.
class BlockingPool {
 public:
  explicit BlockingPool(std::size_t threads = 2, std::size_t max_queued = 32);
  ~BlockingPool();  // runs what is queued, then ends

  Result<> run(std::move_only_function<void()> work);

 private:
  void loop(std::stop_token stop);

  const std::size_t max_queued_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::move_only_function<void()>> queue_;  // under mutex_
  std::vector<std::jthread> threads_;
};

}  // namespace npud::api
