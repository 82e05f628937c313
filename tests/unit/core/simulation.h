// SPDX-License-Identifier: Apache-2.0
// A device simulated by discrete events: the arbiter's own FairQueue and Residency decide, time is a number. Shared by
// the unit tests and by bench/arbiter.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "core/next_job.h"

namespace npud::simulation {

struct SimProgram {
  ProgramKey key = 0;
  Footprint footprint;
  Duration bring_in{0};
  bool pinned = false;
};

struct SimJob {
  TimePoint arrives;
  TenantId tenant;
  double weight = 1.0;
  PriorityClass priority_class = PriorityClass::interactive;
  ProgramKey program = 0;
  Duration run{0};
  std::optional<Duration> estimate;  // none: exact
};

struct SimDone {
  JobId id = 0;
  SimJob job;
  TimePoint started, finished;
  Duration charged{0};  // run, and the switch made for it
  bool brought_in = false;
};

struct Device {
  std::uint32_t cores = 1, slots = 1;
  std::uint64_t bytes = 0;
};

// Runs until nothing waits or runs. `on_done` may answer jobs that arrive later (a closed loop). `check` is called
// after every step.
class ArbiterSimulation {
 public:
  ArbiterSimulation(Device device, FairQueueSettings settings, std::vector<SimProgram> programs)
      : device_(device),
        queue(settings, device.cores),
        residency({device.slots, device.bytes, ResidencySettings{}.reuse_half_life}) {
    for (const SimProgram& program : programs) {
      programs_[program.key] = program;
      residency.add(program.key, program.footprint, program.pinned, program.bring_in);
    }
    free_cores_ = device.cores;
  }

  void add(const SimJob& job) { schedule(job.arrives, {Event::Kind::arrival, next_id_++, job}); }

  void run(TimePoint until = TimePoint::never()) {
    while (!events_.empty() && events_.top().at <= until) {
      now = events_.top().at;
      while (!events_.empty() && events_.top().at == now) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
      }
      start_jobs();
      if (check) check(*this);
    }
  }

  std::function<std::vector<SimJob>(const SimDone&)> on_done = [](const SimDone&) { return std::vector<SimJob>{}; };
  std::function<void(const ArbiterSimulation&)> check;
  std::function<void(const SimDone&)> on_start;
  std::function<void(ProgramKey)> on_evict;

 private:
  const Device device_;

 public:
  FairQueue queue;
  Residency residency;
  TimePoint now;
  std::uint64_t switches = 0;

 private:
  struct Event {
    enum class Kind { arrival, came_in, finished } kind;
    JobId id;
    SimJob job;
    TimePoint started;
    bool brought_in = false;
    TimePoint at;
    std::uint64_t order = 0;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const { return std::tie(a.at, a.order) > std::tie(b.at, b.order); }
  };

  void schedule(TimePoint at, Event event) {
    event.at = at;
    event.order = next_order_++;
    events_.push(std::move(event));
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Event::Kind::arrival: {
        jobs_[event.id] = event.job;
        queue.push({event.id, event.job.tenant, event.job.weight, event.job.priority_class, event.job.program,
                    event.job.estimate.value_or(event.job.run), TimePoint::never()},
                   now);
        residency.set_waiting(event.job.program, queue.waiting_for(event.job.program));
        break;
      }
      case Event::Kind::came_in: {
        const SimProgram& program = programs_.at(event.job.program);
        residency.bring_in_done(program.key, program.footprint, program.bring_in);
        queue.switch_measured(program.bring_in);
        break;
      }
      case Event::Kind::finished: {
        residency.run_ended(event.job.program);
        queue.finished(event.id, now - event.started, now);
        ++free_cores_;
        for (const SimJob& next :
             on_done({event.id, event.job, event.started, now, now - event.started, event.brought_in}))
          add(next);
        break;
      }
    }
  }

  void start_jobs() {
    while (free_cores_ > 0) {
      const FairQueue::Choice choice = next_job(queue, residency, now);
      if (choice.job == 0) return;
      queue.take(choice, now);
      const SimJob job = jobs_.at(choice.job);
      jobs_.erase(choice.job);
      residency.set_waiting(job.program, queue.waiting_for(job.program));
      Duration took = job.run;
      const bool cold = choice.placement.kind == Placement::Kind::cold;
      if (cold) {
        for (const ProgramKey victim : residency.begin_bring_in(job.program, now)) {
          if (on_evict) on_evict(victim);
          residency.eviction_done(victim);
        }
        took += programs_.at(job.program).bring_in;
        ++switches;
        schedule(now + programs_.at(job.program).bring_in, {Event::Kind::came_in, choice.job, job});
      }
      residency.run_started(job.program, now);
      --free_cores_;
      if (on_start) on_start({choice.job, job, now, now + took, took, cold});
      schedule(now + took, {Event::Kind::finished, choice.job, job, now, cold});
    }
  }

  std::map<ProgramKey, SimProgram> programs_;
  std::map<JobId, SimJob> jobs_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::uint32_t free_cores_ = 1;
  JobId next_id_ = 1;
  std::uint64_t next_order_ = 1;
};

}  // namespace npud::simulation
