// SPDX-License-Identifier: Apache-2.0
#include "api/blocking_pool.h"

#include <format>

namespace npud::api {

BlockingPool::BlockingPool(std::size_t threads, std::size_t max_queued) : max_queued_(max_queued) {
  for (std::size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this](std::stop_token stop) { loop(stop); });
  }
}

BlockingPool::~BlockingPool() {
  for (std::jthread& thread : threads_) {
    thread.request_stop();
  }
}

Result<> BlockingPool::run(std::move_only_function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= max_queued_) {
      Error error{ErrorCode::resource_exhausted,
                  std::format("{} administrative calls are waiting already: retry in a second", queue_.size()),
                  std::chrono::seconds(1),
                  {},
                  {}};
      return std::unexpected(error);
    }
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
  return {};
}

void BlockingPool::loop(std::stop_token stop) {
  for (;;) {
    std::move_only_function<void()> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, stop, [this] { return !queue_.empty(); });
      if (queue_.empty()) {
        return;  // asked to stop
      }
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace npud::api
