// SPDX-License-Identifier: Apache-2.0
#include "core/fair_queue.h"

#include <algorithm>
#include <cassert>
#include <tuple>

namespace npud {
namespace {

constexpr auto realtime = static_cast<std::size_t>(PriorityClass::realtime);
constexpr auto interactive = static_cast<std::size_t>(PriorityClass::interactive);
constexpr auto batch = static_cast<std::size_t>(PriorityClass::batch);

std::size_t level_of(PriorityClass priority_class) { return static_cast<std::size_t>(priority_class); }
double us(Duration d) { return static_cast<double>(d.count()); }

// Even a job that costs nothing advances its tenant, else it would be next for ever.
Duration cost_of(const QueuedJob& job, const Placement& placement) {
  return std::max(job.estimate + (placement.kind == Placement::Kind::cold ? placement.cost : Duration{0}), Duration{1});
}

bool can_run(const Placement& placement, bool ready_only) {
  return placement.kind == Placement::Kind::ready || (placement.kind == Placement::Kind::cold && !ready_only);
}

}  // namespace

// A job that could run now.
struct FairQueue::Candidate {
  JobId job = 0;
  Placement placement;
  double switch_us = 0;  // what the switch costs each of the jobs that wait for it
};

// A tenant with jobs in the class that is being decided.
struct FairQueue::Contender {
  double tag = 0;
  double weight = 1;
  std::optional<Candidate> candidate;  // none: nothing of it can run now
  ProgramKey blocked = 0;              // the program of its oldest job, which can't come
  bool urgent = false;                 // that job was overtaken by its tenant's own as far as may be
};

FairQueue::FairQueue(FairQueueSettings settings, std::uint32_t cores)
    : settings_(settings),
      cores_(std::max(cores, 1u)),
      realtime_budget_us_(settings.realtime_share * us(settings.realtime_window) * cores_) {}

// The tenant of a job that comes, its account put right.
FairQueue::Tenant& FairQueue::arrive(const QueuedJob& job, TimePoint now) {
  const std::size_t level = level_of(job.priority_class);
  Tenant& tenant = tenants_[job.tenant];
  tenant.weight = job.weight > 0 ? job.weight : 1.0;
  Flow& flow = tenant.flows[level];
  if (flow.jobs.empty()) {
    // Time that a tenant didn't want isn't saved up.
    tenant.tag[level] = std::max(tenant.tag[level], virtual_time_[level]);
    // Realtime jobs may have to compete as interactive ones.
    if (level == realtime) tenant.tag[interactive] = std::max(tenant.tag[interactive], virtual_time_[interactive]);
    flow.overtaken = Duration{0};
    flow.last_taken = now;
  }
  return tenant;
}

void FairQueue::push(const QueuedJob& job, TimePoint now) {
  assert(job.id != 0 && !jobs_.contains(job.id));
  Flow& flow = arrive(job, now).flows[level_of(job.priority_class)];
  flow.jobs.insert(job.id);
  flow.by_program[job.program].insert(job.id);
  jobs_.emplace(job.id, Waiting{job, now});
  waiting_for_[job.program].insert(job.id);
  if (!job.deadline.is_never()) deadlines_.emplace(job.deadline, job.id);
}

void FairQueue::pass(const QueuedJob& job, const Placement& placement, TimePoint now) {
  assert(job.id != 0 && jobs_.empty());
  arrive(job, now);
  start(job, placement, now);
}

bool FairQueue::remove(JobId id) {
  const auto at = jobs_.find(id);
  if (at == jobs_.end()) return false;
  const QueuedJob& job = at->second.job;
  Flow& flow = tenants_.at(job.tenant).flows[level_of(job.priority_class)];
  if (*flow.jobs.begin() == id) flow.overtaken = Duration{0};
  flow.jobs.erase(id);
  const auto same = flow.by_program.find(job.program);
  same->second.erase(id);
  if (same->second.empty()) flow.by_program.erase(same);
  const auto waiting = waiting_for_.find(job.program);
  waiting->second.erase(id);
  if (waiting->second.empty()) waiting_for_.erase(waiting);
  deadlines_.erase({job.deadline, id});
  jobs_.erase(at);
  return true;
}

std::vector<JobId> FairQueue::expire(TimePoint now) {
  std::vector<JobId> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    expired.push_back(deadlines_.begin()->second);
    remove(expired.back());
  }
  return expired;
}

TimePoint FairQueue::next_deadline() const {
  return deadlines_.empty() ? TimePoint::never() : deadlines_.begin()->first;
}

double FairQueue::budget_us(TimePoint now) const {
  const double full = settings_.realtime_share * us(settings_.realtime_window) * cores_;
  const double grown = realtime_budget_us_ + settings_.realtime_share * cores_ * us(now - refilled_at_);
  return std::clamp(grown, -full, full);
}

void FairQueue::refill(TimePoint now) {
  realtime_budget_us_ = budget_us(now);
  refilled_at_ = now;
}

bool FairQueue::of_age(const Tenant& tenant, TimePoint now) const {
  const Flow& flow = tenant.flows[batch];
  if (flow.jobs.empty()) return false;
  return now - std::max(jobs_.at(*flow.jobs.begin()).arrived, flow.last_taken) >= settings_.batch_age;
}

// The tenant's cheapest job that may go now, of its classes first … last. Once its oldest job was overtaken far enough
// that one is next; if it can't run, only what is resident may go meanwhile.
FairQueue::Contender FairQueue::contend(const Tenant& tenant, std::size_t first, std::size_t last, bool ready_only,
                                        const Place& place) const {
  Contender contender{tenant.tag[last], tenant.weight, {}, 0, false};
  for (std::size_t level = first; level <= last; ++level) {
    const Flow& flow = tenant.flows[level];
    if (flow.jobs.empty()) continue;
    const ProgramKey first_program = jobs_.at(*flow.jobs.begin()).job.program;
    const Placement first_placement = place(first_program);
    const bool first_can = can_run(first_placement, ready_only);
    const bool may_overtake = slack().count() > 0 && flow.overtaken <= slack();
    if (first_placement.kind == Placement::Kind::blocked && contender.blocked == 0) {
      contender.blocked = first_program;
      contender.urgent = !may_overtake;
    }
    for (const auto& [program, jobs] : flow.by_program) {
      if (!may_overtake && first_can && program != first_program) continue;
      const Placement placement = place(program);
      if (!can_run(placement, ready_only || (!may_overtake && !first_can))) continue;
      Candidate candidate{*jobs.begin(), placement, 0};
      if (placement.kind == Placement::Kind::cold) {
        candidate.switch_us = us(placement.cost + placement.regret) / static_cast<double>(waiting_for(program));
      }
      if (!contender.candidate || std::tie(candidate.switch_us, candidate.job) <
                                      std::tie(contender.candidate->switch_us, contender.candidate->job)) {
        contender.candidate = candidate;
      }
    }
  }
  return contender;
}

void FairQueue::choose_aged(TimePoint now, const Place& place, Choice& choice) const {
  const Tenant* lowest = nullptr;
  for (const auto& [id, tenant] : tenants_) {
    if (of_age(tenant, now) && (lowest == nullptr || tenant.tag[batch] < lowest->tag[batch])) lowest = &tenant;
  }
  if (lowest == nullptr) return;
  const QueuedJob& oldest = jobs_.at(*lowest->flows[batch].jobs.begin()).job;
  const Placement placement = place(oldest.program);
  if (can_run(placement, choice.wait_for != 0)) {
    choice.job = oldest.id;
    choice.placement = placement;
  } else if (placement.kind == Placement::Kind::blocked && choice.wait_for == 0) {
    choice.wait_for = oldest.program;
  }
}

// Among the jobs of classes first … last, by the virtual times of `last`.
void FairQueue::choose_in_level(std::size_t first, std::size_t last, const Place& place, Choice& choice) const {
  std::vector<Contender> contenders;
  for (const auto& [id, tenant] : tenants_) {
    bool waits = false;
    for (std::size_t level = first; level <= last; ++level) waits |= !tenant.flows[level].jobs.empty();
    if (waits) contenders.push_back(contend(tenant, first, last, choice.wait_for != 0, place));
  }
  const Contender* lowest = nullptr;   // of those that can run
  const Contender* blocked = nullptr;  // lowest of those that can't
  for (const Contender& contender : contenders) {
    if (contender.candidate && (lowest == nullptr || contender.tag < lowest->tag)) lowest = &contender;
    if (contender.blocked != 0 && (blocked == nullptr || contender.tag < blocked->tag)) blocked = &contender;
  }
  if (blocked != nullptr && choice.wait_for == 0) {
    const bool too_far = lowest == nullptr || (lowest->tag - blocked->tag) * lowest->weight > us(slack()) ||
                         (blocked->urgent && blocked->tag <= lowest->tag);
    if (too_far) choice.wait_for = blocked->blocked;
  }

  const Contender* best = nullptr;
  const auto order = [](const Contender& contender) {
    return std::tuple(contender.candidate->switch_us, contender.tag, contender.candidate->job);
  };
  for (const Contender& contender : contenders) {
    if (!contender.candidate || !can_run(contender.candidate->placement, choice.wait_for != 0)) continue;
    if ((contender.tag - lowest->tag) * contender.weight > us(slack())) continue;
    if (best == nullptr || order(contender) < order(*best)) best = &contender;
  }
  if (best == nullptr) return;
  choice.job = best->candidate->job;
  choice.placement = best->candidate->placement;
}

// What the order comes to without competitors.
FairQueue::Choice FairQueue::only_choice(const QueuedJob& job, const Place& place) {
  const Placement placement = place(job.program);
  if (can_run(placement, false)) return {job.id, placement, 0};
  return {0, {}, placement.kind == Placement::Kind::blocked ? job.program : 0};
}

FairQueue::Choice FairQueue::choose(TimePoint now, const Place& place, ProgramKey kept_for) const {
  if (jobs_.size() <= 1) return jobs_.empty() ? Choice{} : only_choice(jobs_.begin()->second.job, place);
  // One answer for each program and decision.
  std::unordered_map<ProgramKey, Placement> known;
  const Place place_once = [&](ProgramKey program) {
    const auto at = known.find(program);
    return at != known.end() ? at->second : known.emplace(program, place(program)).first->second;
  };
  Choice choice;
  // It was named because its turn had come. To weigh it against the others again could let two programs wait for each
  // other.
  if (const auto kept = waiting_for_.find(kept_for); kept != waiting_for_.end()) {
    const Placement placement = place_once(kept_for);
    if (placement.kind == Placement::Kind::cold) {
      choice.job = *kept->second.begin();
      choice.placement = placement;
      return choice;
    }
  }
  const bool in_budget = budget_us(now) > 0;
  if (in_budget) choose_in_level(realtime, realtime, place_once, choice);
  if (choice.job == 0) choose_aged(now, place_once, choice);
  if (choice.job == 0) choose_in_level(in_budget ? interactive : realtime, interactive, place_once, choice);
  if (choice.job == 0) choose_in_level(batch, batch, place_once, choice);
  return choice;
}

// In its own class and in those below.
void FairQueue::charge(Tenant& tenant, std::size_t level, Duration cost) {
  const double advance = us(cost) / tenant.weight;
  tenant.tag[level] += advance;
  for (std::size_t lower = level + 1; lower < levels; ++lower) {
    double& tag = tenant.tag[lower];
    const double limit = std::max(tag, virtual_time_[lower] + us(settings_.max_debt) / tenant.weight);
    tag = std::min(tag + advance, limit);
  }
}

// A job that has left the queue, or never was in it.
void FairQueue::start(const QueuedJob& job, const Placement& placement, TimePoint now) {
  refill(now);
  const std::size_t level = level_of(job.priority_class);
  Tenant& tenant = tenants_.at(job.tenant);
  const Duration cost = cost_of(job, placement);
  const bool in_budget = level == realtime && realtime_budget_us_ > 0;
  const std::size_t served_level = level == realtime && !in_budget ? interactive : level;

  // Virtual time of a class: the lowest of those that wait in it, this one included. Whoever comes later starts there.
  double lowest = tenant.tag[served_level];
  for (const auto& [id, other] : tenants_) {
    if (!other.flows[served_level].jobs.empty()) lowest = std::min(lowest, other.tag[served_level]);
  }
  virtual_time_[served_level] = std::max(virtual_time_[served_level], lowest);

  tenant.flows[level].last_taken = now;
  charge(tenant, level, cost);
  if (in_budget) realtime_budget_us_ -= us(cost);
  running_.emplace(job.id, Running{job, cost, in_budget});
}

QueuedJob FairQueue::take(const Choice& choice, TimePoint now) {
  const QueuedJob job = jobs_.at(choice.job).job;
  Flow& flow = tenants_.at(job.tenant).flows[level_of(job.priority_class)];
  const bool was_oldest = *flow.jobs.begin() == job.id;
  const Duration overtaken = flow.overtaken;
  remove(job.id);
  flow.overtaken = was_oldest ? Duration{0} : overtaken + cost_of(job, choice.placement);
  start(job, choice.placement, now);
  return job;
}

void FairQueue::finished(JobId id, Duration actual, TimePoint now) {
  const auto at = running_.find(id);
  if (at == running_.end()) return;
  const Running& running = at->second;
  const Duration difference = std::max(actual, Duration{1}) - running.charged;
  charge(tenants_.at(running.job.tenant), level_of(running.job.priority_class), difference);
  refill(now);
  if (running.in_budget) realtime_budget_us_ -= us(difference);
  running_.erase(at);
}

void FairQueue::switch_measured(Duration took) {
  if (!switch_known_) {
    switch_cost_ = took;
    switch_known_ = true;
    return;
  }
  switch_cost_ = Duration{(switch_cost_.count() * 7 + took.count()) / 8};
}

Duration FairQueue::slack() const {
  const double wanted = us(switch_cost_) * settings_.slack_per_switch;
  return std::min(Duration{static_cast<Duration::rep>(std::min(wanted, 1e15))}, settings_.max_slack);
}

std::size_t FairQueue::waiting_for(ProgramKey program) const {
  const auto at = waiting_for_.find(program);
  return at == waiting_for_.end() ? 0 : at->second.size();
}

std::vector<JobId> FairQueue::waiting() const {
  std::vector<JobId> ids;
  ids.reserve(jobs_.size());
  for (const auto& [id, waiting] : jobs_) ids.push_back(id);
  return ids;
}

const QueuedJob* FairQueue::find(JobId id) const {
  const auto at = jobs_.find(id);
  return at == jobs_.end() ? nullptr : &at->second.job;
}

}  // namespace npud
