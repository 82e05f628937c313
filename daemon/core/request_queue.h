// SPDX-License-Identifier: Apache-2.0
// The queue of one model version: which requests form the next batch. A plain state machine: no thread, no lock, no
// clock, and no requests, only what is to be known of them.
//
// Order: priority (1 first), then the tenant that got least for its weight, then age. A request that waited for
// `passed_over_limit` counts as the highest priority, so that nobody starves. A batch holds one tenant's requests of
// one shape; it is ready when it reaches the largest preferred size (or max_batch_size), or when its first request has
// waited max_queue_delay.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/request.h"
#include "core/servable.h"

namespace npud {

using RequestKey = std::uint64_t;  // unique, growing with age

struct QueuedRequest {
  RequestKey key = 0;
  TenantId tenant;
  double weight = 1.0;
  PriorityClass priority_class = PriorityClass::interactive;
  std::uint64_t priority = 0;  // 0: the model's default
  TimePoint deadline = TimePoint::never();
  std::uint64_t shape = 0;    // equal: may share a batch
  std::int64_t elements = 1;  // along the batch dimension
};

class RequestQueue {
 public:
  static constexpr Duration passed_over_limit{1'000'000};

  RequestQueue(const QueueSettings& settings, std::int64_t max_batch_size);

  // resource_exhausted when it is full; the caller adds retry_after.
  Result<> push(const QueuedRequest& request, TimePoint now);
  bool remove(RequestKey key);  // false: it isn't waiting
  std::vector<RequestKey> expire(TimePoint now);

  struct Batch {
    std::vector<RequestKey> requests;  // by age
    TenantId tenant;
    PriorityClass priority_class = PriorityClass::interactive;  // the best of them
    TimePoint oldest;                                           // when its oldest came
  };
  // The next batch if one is ready; it stays queued until take(). With a limit on the class, only requests at least as
  // good count.
  std::optional<Batch> peek(TimePoint now, PriorityClass at_least = PriorityClass::batch) const;
  void take(const Batch& batch);

  // When peek() or expire() may answer differently although nothing came: a deadline, or the end of a delay.
  TimePoint next_event(TimePoint now) const;

  std::size_t size() const { return waiting_.size(); }
  std::size_t peak() const { return peak_; }
  TimePoint oldest() const;  // never: empty

 private:
  struct Waiting {
    QueuedRequest request;
    TimePoint arrived;
    std::uint64_t priority;  // effective
  };
  std::optional<Batch> only_batch(TimePoint now, PriorityClass at_least) const;
  std::int64_t batch_target() const;
  std::int64_t best_size(std::int64_t elements, bool timed_out) const;

  const QueueSettings settings_;
  const std::int64_t max_batch_size_;
  std::map<RequestKey, Waiting> waiting_;
  std::map<TenantId, double> served_;  // elements ÷ weight, of tenants with requests waiting or lately
  std::map<TenantId, std::size_t> waiting_of_;
  double virtual_time_ = 0;
  std::set<std::pair<TimePoint, RequestKey>> deadlines_;
  std::size_t peak_ = 0;
};

}  // namespace npud
