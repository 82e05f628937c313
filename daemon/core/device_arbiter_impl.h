// SPDX-License-Identifier: Apache-2.0
// Inside of DeviceArbiter: its state, and the two halves of its code. device_arbiter.cc is what callers see;
// device_arbiter_run.cc is a job's way: waiting for a core, bringing its program in, running.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <format>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/device_arbiter.h"

namespace npud {

struct DeviceArbiter::Impl {
  struct Waiter {
    enum class State : std::uint8_t { waiting, granted, failed };

    Job job;
    JobId id = 0;
    ProgramKey key = 0;
    TimePoint arrived;
    std::condition_variable_any changed;

    State state = State::waiting;
    Error error;             // failed
    std::uint32_t core = 0;  // granted
    bool bring_in = false;   // granted: evict these first, then make the program resident
    std::vector<ProgramKey> victims;
    TimePoint granted_at;
  };

  struct Known {
    std::shared_ptr<Program> program;  // while it waits, runs or is resident
    std::weak_ptr<Program> identity;   // tells a new program at an old address
    std::string name;
    Duration mean_run{0};
    std::uint32_t users = 0;  // submits that are inside
    bool forgotten = false;   // nothing new starts
  };

  struct TenantAccount {
    std::uint64_t jobs = 0;
    Duration charged{0};
    Duration waited{0};
  };

  Impl(DeviceArbiterSettings settings_in, Clock& clock_in, const TenantTable& tenants_in, EventBus& events_in)
      : settings(std::move(settings_in)),
        clock(clock_in),
        tenants(tenants_in),
        events(events_in),
        queue(settings.fairness, std::max(settings.cores, 1u)),
        residency({std::max(settings.slots, 1u), settings.aperture_bytes, ResidencySettings{}.reuse_half_life}) {
    settings.cores = std::max(settings.cores, 1u);
    settings.slots = std::max(settings.slots, 1u);
    core_busy.resize(settings.cores, nullptr);
  }

  // --- with the lock held
  std::uint32_t cores_busy() const {
    return static_cast<std::uint32_t>(std::ranges::count_if(core_busy, [](const Waiter* w) { return w != nullptr; }));
  }
  void set_waiting(ProgramKey key) { residency.set_waiting(key, queue.waiting_for(key)); }
  Error dead_error() const {
    return Error{ErrorCode::unavailable, std::format("device '{}' is dead: {}", settings.device, *dead), {}, {}, {}};
  }

  void fail_waiter(Waiter& waiter, Error error);
  Error deadline_error(const Waiter& waiter, TimePoint now) const;
  // Removes a job that waits; false: it doesn't any more.
  bool withdraw(Waiter& waiter);
  // Gives free cores to whoever is next.
  void schedule();
  // When it came there was room, but a pinned program has taken that since. True: its jobs were failed.
  bool fail_if_it_never_fits(ProgramKey key);
  Error no_room_error(ProgramKey key, Error error) const;
  void grant(Waiter& waiter, const FairQueue::Choice& choice, std::uint32_t core, TimePoint now);
  void occupy(Waiter& waiter, std::uint32_t core, TimePoint now);
  // What schedule() would come to at once for a job that meets a free core, its program resident and nobody waiting.
  bool pass(Waiter& waiter, const QueuedJob& job, TimePoint now);

  // A submit is inside until leave(). 0: the program is being forgotten.
  ProgramKey enter(const std::shared_ptr<Program>& program, const std::string& name, Footprint footprint, bool pinned,
                   Duration bring_back);
  // What nobody uses and isn't resident is only remembered for its statistics: the reference goes.
  void leave(ProgramKey key);
  void drop_if_unused(ProgramKey key);
  void erase(ProgramKey key, Program* address);

  Event event(EventKind kind, ProgramKey key) const;
  // The waiter's core is free again.
  void release(Waiter& waiter, bool still_runs_program, TimePoint now);
  std::optional<Error> over(const Waiter& waiter, TimePoint now) const;

  // --- with the lock held on entry and on return, released meanwhile
  // The program is in state leaving.
  void evict(std::unique_lock<std::mutex>& lock, ProgramKey key);
  void evict_idle(std::unique_lock<std::mutex>& lock);
  // The bytes add up, but the device has no room: another program leaves, the least valuable that nobody waits for.
  // False: there is none.
  bool evict_for(std::unique_lock<std::mutex>& lock, ProgramKey key);
  // Evicts what has to leave and makes the waiter's program resident. On failure it is cold again. False: it takes more
  // than it said and than there is room for, and has left again.
  Result<bool> bring_in(std::unique_lock<std::mutex>& lock, Waiter& waiter, JobReport& report);
  void wait(std::unique_lock<std::mutex>& lock, Waiter& waiter);
  // Waits for a turn, brings the program in and runs it.
  Result<JobReport> submit(std::unique_lock<std::mutex>& lock, Waiter& waiter, double weight);
  Result<JobReport> run(std::unique_lock<std::mutex>& lock, Waiter& waiter, JobReport report);
  // Only what is the device's or the program's fault: not a cancelled, late or wrong request.
  void publish_fault(std::unique_lock<std::mutex>& lock, const Waiter& waiter, const Error& error);

  // Ends a submit: what it dropped is let go without the lock.
  void unlock(std::unique_lock<std::mutex>& lock);
  // The engine's code may throw what a library throws; here it becomes an error.
  template <class Function>
  static Result<> guarded(Function&& function) {
    try {
      return function();
    } catch (const std::exception& e) {
      return fail(ErrorCode::internal, std::format("a job or program threw an exception: {}", e.what()));
    }
  }

  DeviceArbiterSettings settings;
  Clock& clock;
  const TenantTable& tenants;
  EventBus& events;

  mutable std::mutex mutex;             // everything below
  std::condition_variable_any changed;  // a program's state, a core, the drain
  FairQueue queue;
  Residency residency;
  std::unordered_map<Program*, ProgramKey> keys;
  std::map<ProgramKey, Known> known;
  std::map<JobId, Waiter*> waiters;
  std::vector<Waiter*> core_busy;  // by core, null: free
  std::map<TenantId, TenantAccount> accounts;
  JobId next_id = 1;
  ProgramKey next_key = 1;
  bool draining = false;
  std::optional<std::string> dead;
  std::uint64_t jobs_done = 0, jobs_failed = 0, brought_in = 0, evicted = 0;
  Duration busy{0}, switching{0};
  // Let go once the lock is released: their destructors are the engine's.
  std::vector<std::shared_ptr<Program>> dropped;
};

}  // namespace npud
