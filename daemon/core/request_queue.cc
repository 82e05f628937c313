// SPDX-License-Identifier: Apache-2.0
#include "core/request_queue.h"

#include <algorithm>
#include <cassert>
#include <format>
#include <limits>
#include <tuple>

namespace npud {

RequestQueue::RequestQueue(const QueueSettings& settings, std::int64_t max_batch_size)
    : settings_(settings), max_batch_size_(max_batch_size) {}

Result<> RequestQueue::push(const QueuedRequest& request, TimePoint now) {
  assert(request.key != 0 && !waiting_.contains(request.key));
  if (waiting_.size() >= settings_.max_queued) {
    return fail(ErrorCode::resource_exhausted, std::format("its queue is full ({} requests wait)", waiting_.size()));
  }
  std::uint64_t priority = request.priority != 0 ? request.priority : settings_.default_priority;
  // Without levels all are equal; a number beyond the last level is the last.
  priority = settings_.priority_levels == 0
                 ? 1
                 : std::clamp<std::uint64_t>(priority == 0 ? 1 : priority, 1, settings_.priority_levels);
  waiting_.emplace(request.key, Waiting{request, now, priority});
  if (++waiting_of_[request.tenant] == 1) {
    double& served = served_[request.tenant];
    served = std::max(served, virtual_time_);
  }
  if (!request.deadline.is_never()) deadlines_.emplace(request.deadline, request.key);
  peak_ = std::max(peak_, waiting_.size());
  return {};
}

bool RequestQueue::remove(RequestKey key) {
  const auto at = waiting_.find(key);
  if (at == waiting_.end()) return false;
  const QueuedRequest& request = at->second.request;
  deadlines_.erase({request.deadline, key});
  if (const auto count = waiting_of_.find(request.tenant); --count->second == 0) waiting_of_.erase(count);
  waiting_.erase(at);
  // Whoever doesn't wait and isn't ahead needs no account: coming back it would start at the virtual time anyhow.
  if (waiting_.empty()) {
    for (const auto& [tenant, served] : served_) virtual_time_ = std::max(virtual_time_, served);
    served_.clear();
  }
  return true;
}

std::vector<RequestKey> RequestQueue::expire(TimePoint now) {
  std::vector<RequestKey> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    expired.push_back(deadlines_.begin()->second);
    remove(expired.back());
  }
  return expired;
}

std::int64_t RequestQueue::batch_target() const {
  if (max_batch_size_ <= 1) return 1;
  std::int64_t target = 0;
  for (const std::int64_t size : settings_.preferred_batch_sizes) {
    if (size <= max_batch_size_) target = std::max(target, size);
  }
  return target > 0 ? target : max_batch_size_;
}

// How many of `elements` waiting ones to take; 0: wait for more.
std::int64_t RequestQueue::best_size(std::int64_t elements, bool timed_out) const {
  const std::int64_t target = batch_target();
  if (elements >= target) return target;
  if (!timed_out) return 0;
  std::int64_t best = 0;
  for (const std::int64_t size : settings_.preferred_batch_sizes) {
    if (size <= elements) best = std::max(best, size);
  }
  return best > 0 ? best : elements;
}

// What peek() comes to when one request waits.
std::optional<RequestQueue::Batch> RequestQueue::only_batch(TimePoint now, PriorityClass at_least) const {
  const Waiting& only = waiting_.begin()->second;
  const QueuedRequest& request = only.request;
  const bool timed_out = now - only.arrived >= settings_.max_queue_delay;
  if (request.priority_class > at_least || best_size(request.elements, timed_out) == 0) return std::nullopt;
  return Batch{{request.key}, request.tenant, request.priority_class, only.arrived};
}

std::optional<RequestQueue::Batch> RequestQueue::peek(TimePoint now, PriorityClass at_least) const {
  if (waiting_.size() == 1) return only_batch(now, at_least);
  // Groups that could become a batch: a tenant's requests of one shape, each group at the place of its first request.
  struct Group {
    std::tuple<PriorityClass, std::uint64_t, double, RequestKey> order{};
    std::vector<const Waiting*> members;  // by priority, then age
    std::int64_t elements = 0;
    TimePoint oldest = TimePoint::never();
  };
  const auto effective = [&](const Waiting& w) { return now - w.arrived >= passed_over_limit ? 1 : w.priority; };
  std::map<std::pair<TenantId, std::uint64_t>, Group> groups;
  for (const auto& [key, waiting] : waiting_) {
    if (waiting.request.priority_class > at_least) continue;
    Group& group = groups[{waiting.request.tenant, waiting.request.shape}];
    const std::tuple order(waiting.request.priority_class, effective(waiting), served_.at(waiting.request.tenant), key);
    if (group.members.empty() || order < group.order) group.order = order;
    group.members.push_back(&waiting);
    group.elements += waiting.request.elements;
    group.oldest = std::min(group.oldest, waiting.arrived);
  }
  const Group* best = nullptr;
  std::int64_t size = 0;
  for (auto& [id, group] : groups) {
    const bool timed_out = now - group.oldest >= settings_.max_queue_delay;
    const std::int64_t group_size = best_size(group.elements, timed_out);
    if (group_size == 0) continue;
    if (best == nullptr || group.order < best->order) {
      best = &group;
      size = group_size;
    }
  }
  if (best == nullptr) return std::nullopt;

  std::vector<const Waiting*> members = best->members;
  std::ranges::stable_sort(members, [&](const Waiting* a, const Waiting* b) {
    return std::tuple(a->request.priority_class, effective(*a), a->request.key) <
           std::tuple(b->request.priority_class, effective(*b), b->request.key);
  });
  Batch batch;
  batch.tenant = members.front()->request.tenant;
  batch.priority_class = members.front()->request.priority_class;
  batch.oldest = TimePoint::never();
  std::int64_t taken = 0;
  for (const Waiting* member : members) {
    // The first goes whatever its size (it was checked against max_batch_size); the rest as long as they fit.
    if (taken > 0 && taken + member->request.elements > std::max(size, std::int64_t{1})) break;
    batch.requests.push_back(member->request.key);
    batch.oldest = std::min(batch.oldest, member->arrived);
    taken += member->request.elements;
    if (max_batch_size_ <= 1) break;
  }
  std::ranges::sort(batch.requests);
  return batch;
}

void RequestQueue::take(const Batch& batch) {
  double lowest = std::numeric_limits<double>::max();
  for (const auto& [tenant, count] : waiting_of_) lowest = std::min(lowest, served_.at(tenant));
  if (!waiting_of_.empty()) virtual_time_ = std::max(virtual_time_, lowest);
  double& served = served_[batch.tenant];
  for (const RequestKey key : batch.requests) {
    const QueuedRequest& request = waiting_.at(key).request;
    served +=
        static_cast<double>(std::max<std::int64_t>(request.elements, 1)) / (request.weight > 0 ? request.weight : 1.0);
  }
  for (const RequestKey key : batch.requests) remove(key);
}

TimePoint RequestQueue::next_event(TimePoint now) const {
  TimePoint next = deadlines_.empty() ? TimePoint::never() : deadlines_.begin()->first;
  if (settings_.max_queue_delay.count() > 0 && batch_target() > 1) {
    for (const auto& [key, waiting] : waiting_) {
      const TimePoint end = waiting.arrived + settings_.max_queue_delay;
      if (end > now) next = std::min(next, end);
    }
  }
  return next;
}

TimePoint RequestQueue::oldest() const {
  // Keys grow with age.
  return waiting_.empty() ? TimePoint::never() : waiting_.begin()->second.arrived;
}

}  // namespace npud
