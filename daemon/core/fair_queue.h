// SPDX-License-Identifier: Apache-2.0
// Who is next on a device: start-time fair queueing of jobs over tenants, inside priority classes, aware of what a
// switch costs. A plain state machine: no thread, no lock, no clock.
//
// Order. Class realtime goes first while its budget (a share of the device's core time) lasts, then it competes as
// interactive; batch goes last, but once a tenant's batch jobs were passed over for batch_age, one of them goes before
// class interactive. Inside a class each tenant has a virtual time, which advances by cost ÷ weight with every job; the
// lowest is next. Cost is charged when a job starts (estimate) and put right when it ends (measured). What a tenant
// uses in a class counts in the lower classes too, up to max_debt.
//
// Switches. Among tenants that are no further ahead of the lowest than `slack` of core time of their own, and among a
// tenant's jobs as long as its oldest was overtaken by no more than `slack`, the job whose program costs least to have
// resident (divided by the jobs that wait for it) is taken. Hence, for tenants f and g that have jobs which could run
// in one class all the time, with L their dearest jobs,
//     |work_f ÷ weight_f − work_g ÷ weight_g| ≤ (slack + L_f) ÷ weight_f + (slack + L_g) ÷ weight_g
// where estimates are right. slack follows the device's measured switch cost, so that a device that switches for free
// is exactly fair.
//
// A job whose program can't come, because what would have to leave is running, holds nobody up until it is `slack`
// behind; then it is named in Choice::wait_for, and the caller keeps the room that comes free for it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "core/clock.h"
#include "core/request.h"

namespace npud {

using JobId = std::uint64_t;       // unique, growing with age
using ProgramKey = std::uint64_t;  // 0: none

struct FairQueueSettings {
  double realtime_share = 0.5;          // of all cores' time, 0 … 1; beyond it realtime is interactive
  Duration realtime_window{1'000'000};  // the budget can be saved up for so long
  Duration batch_age{2'000'000};
  double slack_per_switch = 6.0;  // slack ÷ measured switch cost
  Duration max_slack{500'000};
  Duration max_debt{2'000'000};
};

struct QueuedJob {
  JobId id = 0;
  TenantId tenant;
  double weight = 1.0;  // the tenant's, > 0
  PriorityClass priority_class = PriorityClass::interactive;
  ProgramKey program = 0;
  Duration estimate{0};  // of its run
  TimePoint deadline = TimePoint::never();
};

// What it would take to run a job of a program right now.
struct Placement {
  enum class Kind : std::uint8_t {
    ready,    // resident
    cold,     // can be brought in at once, at `cost`
    coming,   // it, or room for it, is on its way: nothing to do but wait
    blocked,  // what would have to leave is running, or the room is kept for another
    barred,   // resident, but it shall leave for the program that room is kept for
  };
  Kind kind = Kind::ready;
  Duration cost{0};    // bringing it in
  Duration regret{0};  // bringing back what leaves for it, times the likelihood that it will be wanted
};

class FairQueue {
 public:
  FairQueue(FairQueueSettings settings, std::uint32_t cores);

  void push(const QueuedJob& job, TimePoint now);
  bool remove(JobId id);                     // false: it isn't waiting
  std::vector<JobId> expire(TimePoint now);  // removes and names those whose deadline is over
  TimePoint next_deadline() const;

  struct Choice {
    JobId job = 0;            // to run now; 0: none
    Placement placement;      // of its program
    ProgramKey wait_for = 0;  // room that comes free belongs to this one; 0: to nobody in particular
  };
  using Place = std::function<Placement(ProgramKey)>;
  // Call while a core is free. `place` is asked for programs with waiting jobs. A program for which room is kept
  // (`kept_for`; 0: none) is next as soon as it can come. Changes nothing.
  Choice choose(TimePoint now, const Place& place, ProgramKey kept_for = 0) const;

  // The job starts: it leaves the queue and its tenant is charged estimate + switch cost.
  QueuedJob take(const Choice& choice, TimePoint now);
  // push(), choose() and take() of a job that can run, while none waits.
  void pass(const QueuedJob& job, const Placement& placement, TimePoint now);
  // The job that was taken is over: it took `actual` of a core, switch included.
  void finished(JobId id, Duration actual, TimePoint now);

  void switch_measured(Duration took);  // slack follows, smoothed
  Duration slack() const;
  Duration switch_cost() const { return switch_cost_; }

  std::size_t size() const { return jobs_.size(); }
  std::size_t waiting_for(ProgramKey program) const;
  std::vector<JobId> waiting() const;  // by age
  const QueuedJob* find(JobId id) const;

 private:
  static constexpr std::size_t levels = 3;  // as PriorityClass

  // A tenant's jobs of one class.
  struct Flow {
    std::set<JobId> jobs;
    std::map<ProgramKey, std::set<JobId>> by_program;
    Duration overtaken{0};  // work of younger jobs that was taken since the oldest became it
    TimePoint last_taken;
  };
  struct Tenant {
    double weight = 1.0;
    std::array<double, levels> tag{};  // virtual time in each class, µs ÷ weight
    std::array<Flow, levels> flows;
  };
  struct Waiting {
    QueuedJob job;
    TimePoint arrived;
  };
  struct Running {
    QueuedJob job;
    Duration charged;
    bool in_budget;  // taken as realtime
  };
  struct Candidate;
  struct Contender;

  Tenant& arrive(const QueuedJob& job, TimePoint now);
  void start(const QueuedJob& job, const Placement& placement, TimePoint now);
  double budget_us(TimePoint now) const;
  void refill(TimePoint now);
  void charge(Tenant& tenant, std::size_t level, Duration cost);
  bool of_age(const Tenant& tenant, TimePoint now) const;
  Contender contend(const Tenant& tenant, std::size_t first, std::size_t last, bool ready_only,
                    const Place& place) const;
  static Choice only_choice(const QueuedJob& job, const Place& place);
  void choose_aged(TimePoint now, const Place& place, Choice& choice) const;
  void choose_in_level(std::size_t first, std::size_t last, const Place& place, Choice& choice) const;

  const FairQueueSettings settings_;
  const std::uint32_t cores_;
  std::map<JobId, Waiting> jobs_;
  std::map<TenantId, Tenant> tenants_;
  std::array<double, levels> virtual_time_{};
  std::unordered_map<JobId, Running> running_;
  std::unordered_map<ProgramKey, std::set<JobId>> waiting_for_;
  std::set<std::pair<TimePoint, JobId>> deadlines_;
  double realtime_budget_us_;
  TimePoint refilled_at_;
  Duration switch_cost_{0};
  bool switch_known_ = false;
};

}  // namespace npud
