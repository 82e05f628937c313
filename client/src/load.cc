// SPDX-License-Identifier: Apache-2.0
#include "load.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace npud::client {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostErrorKinds = 16;

std::chrono::microseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
}

// Each worker is a thread with one call at a time: this is what a client program does, and it keeps the load
// generator's own cost (no queues, no hand-over between threads) out of what is measured.
class Load {
 public:
  Load(const Client& client, const LoadOptions& options) : client_(client), options_(options) {}

  LoadReport run(const std::function<bool()>& stop) {
    for (std::uint64_t i = 0; i < options_.warm_up_requests; ++i) {
      auto result = client_.infer(options_.make(0));
      if (!result && result.error().code == Code::unavailable) break;
    }
    start_ = Clock::now();
    std::vector<std::jthread> workers;
    running_ = std::max(1u, options_.in_flight);
    for (unsigned worker = 0; worker < std::max(1u, options_.in_flight); ++worker) {
      workers.emplace_back([this, worker] { work(worker); });
    }
    auto next_progress = Clock::now() + options_.progress_every;
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, std::chrono::milliseconds(50), [&] { return running_ == 0; })) {
      lock.unlock();
      if (stop && stop()) stopping_ = true;
      if (options_.progress && Clock::now() >= next_progress) {
        next_progress += options_.progress_every;
        options_.progress(done_, since(start_));
      }
      lock.lock();
    }
    lock.unlock();
    workers.clear();
    report_.elapsed = since(start_);
    std::ranges::sort(report_.latencies_us);
    return std::move(report_);
  }

 private:
  bool over() const {
    if (stopping_) return true;
    return options_.duration.count() > 0 && Clock::now() - start_ >= options_.duration;
  }

  void work(unsigned worker) {
    LoadReport own;
    while (!over() && (options_.requests == 0 || sent_.fetch_add(1) < options_.requests)) {
      auto begin = Clock::now();
      auto result = client_.infer(options_.make(worker));
      auto took = since(begin);
      ++done_;
      if (result) {
        ++own.succeeded;
        own.latencies_us.push_back(static_cast<std::uint32_t>(std::min<std::int64_t>(took.count(), UINT32_MAX)));
        ++own.paths[result->path];
      } else {
        ++own.failed;
        count_error(own, result.error(), 1);
        if (result.error().code == Code::unavailable) stopping_ = true;
        if (result.error().retry_after)
          std::this_thread::sleep_for(
              std::min<std::chrono::microseconds>(*result.error().retry_after, std::chrono::seconds(1)));
      }
    }
    std::lock_guard lock(mutex_);
    report_.succeeded += own.succeeded;
    report_.failed += own.failed;
    report_.latencies_us.insert(report_.latencies_us.end(), own.latencies_us.begin(), own.latencies_us.end());
    for (const auto& [path, count] : own.paths) report_.paths[path] += count;
    for (const auto& [error, count] : own.errors) add(report_.errors, error, count);
    if (--running_ == 0) ended_.notify_all();
  }

  static void add(std::map<std::string, std::uint64_t>& errors, const std::string& text, std::uint64_t count) {
    errors[errors.contains(text) || errors.size() < kMostErrorKinds ? text : "others"] += count;
  }
  static void count_error(LoadReport& report, const Error& error, std::uint64_t count) {
    add(report.errors, std::string(code_name(error.code)) + ": " + error.message, count);
  }

  const Client& client_;
  const LoadOptions& options_;
  Clock::time_point start_;
  std::atomic<std::uint64_t> sent_{0}, done_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  unsigned running_ = 0;  // guarded by mutex_
  LoadReport report_;     // guarded by mutex_
};

}  // namespace

std::uint32_t LoadReport::percentile_us(double p) const {
  if (latencies_us.empty()) return 0;
  auto rank = static_cast<std::size_t>(std::ceil(p / 100 * static_cast<double>(latencies_us.size())));
  return latencies_us[std::clamp<std::size_t>(rank, 1, latencies_us.size()) - 1];
}

LoadReport run_load(const Client& client, const LoadOptions& options, const std::function<bool()>& stop) {
  return Load(client, options).run(stop);
}

}  // namespace npud::client
