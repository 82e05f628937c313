// SPDX-License-Identifier: Apache-2.0
// What a model version has done, in the terms of Triton's statistics extension.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/clock.h"
#include "core/request.h"

namespace npud {

struct DurationSum {
  std::uint64_t count = 0;
  Duration total{0};
  void add(Duration d, std::uint64_t times = 1) {
    count += times;
    total += d * static_cast<Duration::rep>(times);
  }
};

struct BatchStatistics {
  DurationSum compute_input, compute_infer, compute_output;  // count: runs of that size
};

struct ModelStatisticsSnapshot {
  std::string model;
  std::int64_t version = 0;
  std::optional<Duration> last_inference_age;  // none: it never ran
  std::uint64_t inference_count = 0;           // elements along the batch dimension, of successful requests
  std::uint64_t execution_count = 0;           // runs
  DurationSum success;                         // received to finished
  DurationSum fail;                            // every request that reached the queue and didn't succeed
  DurationSum queue;                           // received to started; of requests that ran
  DurationSum compute_input, compute_infer, compute_output;
  std::map<std::uint64_t, BatchStatistics> batches;  // by batch size
};

// Sums it up. A value; not thread-safe.
class ModelStatisticsCounter {
 public:
  // A run of `batch_size` elements ended well; called once a run, with the timings of its first request.
  void add_run(std::uint64_t batch_size, const Timings& timings);
  // A request of `elements` ended well.
  void add_success(std::uint64_t elements, const Timings& timings);
  void add_failure(const Timings& timings);
  // A run that failed still was one.
  void add_failed_run() { ++sums_.execution_count; }

  ModelStatisticsSnapshot snapshot(TimePoint now) const;

 private:
  ModelStatisticsSnapshot sums_;
  std::optional<TimePoint> last_inference_;
};

}  // namespace npud
