// SPDX-License-Identifier: Apache-2.0
#include "core/statistics.h"

namespace npud {

void ModelStatisticsCounter::add_run(std::uint64_t batch_size, const Timings& timings) {
  ++sums_.execution_count;
  BatchStatistics& batch = sums_.batches[batch_size];
  batch.compute_input.add(timings.compute_input);
  batch.compute_infer.add(timings.compute);
  batch.compute_output.add(timings.compute_output);
}

void ModelStatisticsCounter::add_success(std::uint64_t elements, const Timings& timings) {
  sums_.inference_count += elements;
  sums_.success.add(timings.finished - timings.received);
  sums_.queue.add(timings.started - timings.received);
  sums_.compute_input.add(timings.compute_input);
  sums_.compute_infer.add(timings.compute);
  sums_.compute_output.add(timings.compute_output);
  last_inference_ = timings.finished;
}

void ModelStatisticsCounter::add_failure(const Timings& timings) {
  sums_.fail.add(timings.finished - timings.received);
}

ModelStatisticsSnapshot ModelStatisticsCounter::snapshot(TimePoint now) const {
  ModelStatisticsSnapshot snapshot = sums_;
  if (last_inference_) snapshot.last_inference_age = now - *last_inference_;
  return snapshot;
}

}  // namespace npud
