// SPDX-License-Identifier: Apache-2.0
#include "core/device_arbiter.h"

#include <algorithm>
#include <condition_variable>
#include <format>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/next_job.h"

namespace npud {
namespace {

// A wait on a clock that may be the system's or stand still: long waits are cut, so that the clock is looked at again.
constexpr Duration longest_wait{60'000'000};

// How often a program whose footprint grew while it came in is tried again.
constexpr int max_bring_in_attempts = 3;

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

}  // namespace

struct DeviceArbiter::Impl {
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

  // --- with the lock held
  // ---------------------------------------------------------------------------------------------------

  std::uint32_t cores_busy() const {
    return static_cast<std::uint32_t>(std::ranges::count_if(core_busy, [](const Waiter* w) { return w != nullptr; }));
  }

  void set_waiting(ProgramKey key) { residency.set_waiting(key, queue.waiting_for(key)); }

  Error dead_error() const {
    return Error{ErrorCode::unavailable, std::format("device '{}' is dead: {}", settings.device, *dead), {}, {}, {}};
  }

  void fail_waiter(Waiter& waiter, Error error) {
    waiter.state = Waiter::State::failed;
    waiter.error = std::move(error);
    waiters.erase(waiter.id);
    waiter.changed.notify_all();
  }

  Error deadline_error(const Waiter& waiter, TimePoint now) const {
    return Error{ErrorCode::deadline_exceeded,
                 std::format("its time was over after {} ms of waiting for device '{}'; give it more time or send less",
                             (now - waiter.arrived).count() / 1000, settings.device),
                 {},
                 {},
                 {}};
  }

  // Removes a job that waits; false: it doesn't any more.
  bool withdraw(Waiter& waiter) {
    if (waiter.state != Waiter::State::waiting || !queue.remove(waiter.id)) return false;
    set_waiting(waiter.key);
    return true;
  }

  // Gives free cores to whoever is next.
  void schedule() {
    const TimePoint now = clock.now();
    for (const JobId id : queue.expire(now)) {
      Waiter& waiter = *waiters.at(id);
      set_waiting(waiter.key);
      fail_waiter(waiter, deadline_error(waiter, now));
    }
    if (draining || dead) return;
    for (std::uint32_t core = 0; core < core_busy.size(); ++core) {
      if (core_busy[core] != nullptr) continue;
      const FairQueue::Choice choice = next_job(queue, residency, now);
      if (choice.wait_for != 0 && fail_if_it_never_fits(choice.wait_for)) {
        --core;  // decide again
        continue;
      }
      if (choice.job == 0) break;
      grant(*waiters.at(choice.job), choice, core, now);
    }
  }

  // When it came there was room, but a pinned program has taken that since. True: its jobs were failed.
  bool fail_if_it_never_fits(ProgramKey key) {
    const auto fits = residency.can_ever_fit(key);
    if (fits) return false;
    std::vector<Waiter*> hopeless;
    for (const auto& [id, waiter] : waiters) {
      if (waiter->key == key) hopeless.push_back(waiter);
    }
    for (Waiter* waiter : hopeless) {
      if (withdraw(*waiter)) fail_waiter(*waiter, no_room_error(key, fits.error()));
    }
    return !hopeless.empty();
  }

  Error no_room_error(ProgramKey key, Error error) const {
    error.message =
        std::format("program '{}' doesn't fit on device '{}': {}", known.at(key).name, settings.device, error.message);
    return error;
  }

  void grant(Waiter& waiter, const FairQueue::Choice& choice, std::uint32_t core, TimePoint now) {
    queue.take(choice, now);
    set_waiting(waiter.key);
    waiter.bring_in = choice.placement.kind == Placement::Kind::cold;
    if (waiter.bring_in) waiter.victims = residency.begin_bring_in(waiter.key, now);
    occupy(waiter, core, now);
    waiters.erase(waiter.id);
    waiter.changed.notify_all();
  }

  void occupy(Waiter& waiter, std::uint32_t core, TimePoint now) {
    waiter.state = Waiter::State::granted;
    waiter.core = core;
    waiter.granted_at = now;
    residency.run_started(waiter.key, now);
    core_busy[core] = &waiter;
  }

  // What schedule() would come to at once for a job that meets a free core, its program resident and nobody waiting.
  bool pass(Waiter& waiter, const QueuedJob& job, TimePoint now) {
    if (draining || queue.size() != 0 || residency.reserved() != 0) return false;
    const auto core = std::ranges::find(core_busy, nullptr);
    if (core == core_busy.end()) return false;
    const Placement placement = residency.place(waiter.key, now);
    if (placement.kind != Placement::Kind::ready) return false;
    queue.pass(job, placement, now);
    waiter.bring_in = false;
    occupy(waiter, static_cast<std::uint32_t>(core - core_busy.begin()), now);
    return true;
  }

  // A submit is inside until leave(). 0: the program is being forgotten.
  ProgramKey enter(const std::shared_ptr<Program>& program, const std::string& name, Footprint footprint, bool pinned,
                   Duration bring_back) {
    auto at = keys.find(program.get());
    if (at != keys.end() && known.at(at->second).identity.expired()) {
      erase(at->second, program.get());
      at = keys.end();
    }
    if (at == keys.end()) {
      at = keys.emplace(program.get(), next_key++).first;
      Known& entry = known[at->second];
      entry.identity = program;
      entry.name = name;
      residency.add(at->second, footprint, pinned, bring_back);
    } else {
      residency.update(at->second, footprint, pinned, bring_back);
    }
    Known& entry = known.at(at->second);
    if (entry.forgotten) return 0;
    entry.program = program;
    ++entry.users;
    return at->second;
  }

  // What nobody uses and isn't resident is only remembered for its statistics: the reference goes.
  void leave(ProgramKey key) {
    Known& entry = known.at(key);
    if (--entry.users == 0) {
      drop_if_unused(key);
      changed.notify_all();
    }
  }

  void drop_if_unused(ProgramKey key) {
    Known& entry = known.at(key);
    if (entry.users == 0 && residency.entry(key).state == ResidencyState::cold)
      dropped.push_back(std::move(entry.program));
  }

  void erase(ProgramKey key, Program* address) {
    residency.remove(key);
    dropped.push_back(std::move(known.at(key).program));
    known.erase(key);
    keys.erase(address);
  }

  std::vector<std::shared_ptr<Program>>
      dropped;  // let go once the lock is released: their destructors are the engine's

  Event event(EventKind kind, ProgramKey key) const {
    Event e;
    e.kind = kind;
    e.device = settings.device;
    e.program = known.at(key).name;
    e.bytes = residency.entry(key).footprint.bytes;
    return e;
  }

  // --- with the lock held on entry and on return, released meanwhile
  // ------------------------------------------------------------

  // The program is in state leaving.
  void evict(std::unique_lock<std::mutex>& lock, ProgramKey key) {
    const std::shared_ptr<Program> program = known.at(key).program;
    lock.unlock();
    const TimePoint from = clock.now();
    program->evict();
    const Duration took = clock.now() - from;
    lock.lock();
    residency.eviction_done(key);
    ++evicted;
    switching += took;
    Event e = event(EventKind::evicted, key);
    e.took = took;
    e.message = std::format("Program '{}' left device '{}'.", e.program, e.device);
    drop_if_unused(key);
    changed.notify_all();
    schedule();
    lock.unlock();
    events.publish(std::move(e));
    lock.lock();
  }

  void evict_idle(std::unique_lock<std::mutex>& lock) {
    for (bool again = true; again;) {
      again = false;
      for (const auto& [key, entry] : known) {
        if (!residency.begin_eviction(key)) continue;
        evict(lock, key);
        again = true;  // the map may have changed
        break;
      }
    }
  }

  // Evicts what has to leave and makes the waiter's program resident. On failure it is cold again. False: it takes more
  // than it said and than there is room for, and has left again.
  Result<bool> bring_in(std::unique_lock<std::mutex>& lock, Waiter& waiter, JobReport& report) {
    const TimePoint from = clock.now();
    for (const ProgramKey victim : waiter.victims) {
      evict(lock, victim);
      ++report.evicted;
    }
    waiter.victims.clear();
    Program& program = *waiter.job.program;
    lock.unlock();
    const TimePoint create_from = clock.now();
    Result<> made = guarded([&] { return program.make_resident(); });
    const TimePoint until = clock.now();
    const Footprint footprint = made ? program.footprint() : Footprint{};
    lock.lock();
    switching += until - create_from;
    if (!made) {
      residency.bring_in_failed(waiter.key);
      changed.notify_all();
      return std::unexpected(made.error());
    }
    ++brought_in;
    queue.switch_measured(until - from);
    if (!residency.bring_in_done(waiter.key, footprint, until - create_from)) {
      residency.run_ended(waiter.key);
      residency.begin_eviction(waiter.key);
      evict(lock, waiter.key);
      return false;
    }
    report.brought_in = true;
    Event e = event(EventKind::brought_in, waiter.key);
    e.took = until - create_from;
    e.tenant = waiter.job.tenant;
    e.message = std::format("Program '{}' was brought in to device '{}'.", e.program, e.device);
    changed.notify_all();
    schedule();  // others may have waited for it to come
    lock.unlock();
    events.publish(std::move(e));
    lock.lock();
    return true;
  }

  // The engine's code may throw what a library throws; here it becomes an error.
  template <class Function>
  static Result<> guarded(Function&& function) {
    try {
      return function();
    } catch (const std::exception& e) {
      return fail(ErrorCode::internal, std::format("a job or program threw an exception: {}", e.what()));
    }
  }

  // The waiter's core is free again.
  void release(Waiter& waiter, bool still_runs_program, TimePoint now) {
    queue.finished(waiter.id, now - waiter.granted_at, now);
    if (still_runs_program) residency.run_ended(waiter.key);
    core_busy[waiter.core] = nullptr;
    TenantAccount& account = accounts[waiter.job.tenant];
    account.charged += now - waiter.granted_at;
    changed.notify_all();
  }

  std::optional<Error> over(const Waiter& waiter, TimePoint now) const {
    if (waiter.job.cancelled.stop_requested()) {
      return Error{ErrorCode::cancelled,
                   std::format("the job was cancelled before it ran on device '{}'", settings.device),
                   {},
                   {},
                   {}};
    }
    if (waiter.job.deadline <= now) return deadline_error(waiter, now);
    return std::nullopt;
  }

  void wait(std::unique_lock<std::mutex>& lock, Waiter& waiter) {
    while (waiter.state == Waiter::State::waiting) {
      const TimePoint now = clock.now();
      if (const auto error = over(waiter, now); error && withdraw(waiter)) {
        fail_waiter(waiter, *error);
        schedule();  // room may have been kept for it
        return;
      }
      const Duration left = waiter.job.deadline.is_never()
                                ? longest_wait
                                : std::clamp(waiter.job.deadline - now, Duration{1}, longest_wait);
      waiter.changed.wait_for(lock, waiter.job.cancelled, left, [&] { return waiter.state != Waiter::State::waiting; });
    }
  }

  // Ends a submit: what it dropped is let go without the lock.
  void unlock(std::unique_lock<std::mutex>& lock) {
    std::vector<std::shared_ptr<Program>> garbage;
    garbage.swap(dropped);
    lock.unlock();
  }

  // Waits for a turn, brings the program in and runs it.
  Result<JobReport> submit(std::unique_lock<std::mutex>& lock, Waiter& waiter, double weight) {
    JobReport report;
    for (int attempt = 1;; ++attempt) {
      if (auto fits = residency.can_ever_fit(waiter.key); !fits) {
        return std::unexpected(no_room_error(waiter.key, fits.error()));
      }
      if (attempt > max_bring_in_attempts) {
        return fail(
            ErrorCode::resource_exhausted,
            std::format(
                "program '{}' took more of device '{}' than it said {} times in a row; try again when less is resident",
                known.at(waiter.key).name, settings.device, max_bring_in_attempts));
      }
      if (dead) return std::unexpected(dead_error());
      waiter.state = Waiter::State::waiting;
      const Duration estimate = waiter.job.estimate.count() > 0 ? waiter.job.estimate : known.at(waiter.key).mean_run;
      const QueuedJob queued{waiter.id, waiter.job.tenant,  weight, waiter.job.priority_class, waiter.key,
                             estimate,  waiter.job.deadline};
      if (const TimePoint now = clock.now(); !pass(waiter, queued, now)) {
        waiters.emplace(waiter.id, &waiter);
        queue.push(queued, now);
        set_waiting(waiter.key);
        schedule();
        wait(lock, waiter);
      }
      report.waited += clock.now() - waiter.arrived;
      if (waiter.state == Waiter::State::failed) return std::unexpected(waiter.error);
      if (waiter.bring_in) {
        const Result<bool> resident = bring_in(lock, waiter, report);
        if (!resident || !*resident) {
          release(waiter, !resident, clock.now());
          if (!resident) {
            ++jobs_failed;
            publish_fault(lock, waiter, resident.error());
            schedule();
            return std::unexpected(resident.error());
          }
          schedule();
          waiter.arrived = clock.now();
          continue;
        }
      }
      return run(lock, waiter, report);
    }
  }

  Result<JobReport> run(std::unique_lock<std::mutex>& lock, Waiter& waiter, JobReport report) {
    const TimePoint from = clock.now();
    std::optional<Error> error = over(waiter, from);
    if (dead && !error) error = dead_error();
    if (!error) {
      lock.unlock();
      Result<> result =
          guarded([&] { return waiter.job.run ? waiter.job.run() : waiter.job.run_on_core(waiter.core); });
      lock.lock();
      if (!result) error = result.error();
      const TimePoint until = clock.now();
      report.ran = until - from;
      busy += report.ran;
      Known& entry = known.at(waiter.key);
      entry.mean_run = entry.mean_run.count() == 0 ? report.ran : (entry.mean_run * 7 + report.ran) / 8;
      ++accounts[waiter.job.tenant].jobs;
    }
    accounts[waiter.job.tenant].waited += report.waited;
    release(waiter, true, clock.now());
    if (error) {
      ++jobs_failed;
    } else {
      ++jobs_done;
    }
    if (dead && residency.begin_eviction(waiter.key)) evict(lock, waiter.key);
    schedule();
    if (!error) return report;
    publish_fault(lock, waiter, *error);
    return std::unexpected(std::move(*error));
  }

  // Only what is the device's or the program's fault: not a cancelled, late or wrong request.
  void publish_fault(std::unique_lock<std::mutex>& lock, const Waiter& waiter, const Error& error) {
    if (error.code != ErrorCode::internal && error.code != ErrorCode::data_loss && error.code != ErrorCode::unavailable)
      return;
    Event e = event(EventKind::fault, waiter.key);
    e.tenant = waiter.job.tenant;
    e.message = std::format("A job of program '{}' failed on device '{}': {}", e.program, e.device, error.message);
    lock.unlock();
    events.publish(std::move(e));
    lock.lock();
  }
};

DeviceArbiter::DeviceArbiter(DeviceArbiterSettings settings, Clock& clock, const TenantTable& tenants, EventBus& events)
    : impl_(std::make_unique<Impl>(std::move(settings), clock, tenants, events)) {}

DeviceArbiter::~DeviceArbiter() {
  std::unique_lock lock(impl_->mutex);
  impl_->draining = true;
  impl_->evict_idle(lock);
}

const std::string& DeviceArbiter::device() const { return impl_->settings.device; }

Result<JobReport> DeviceArbiter::submit_and_wait(Job job) {
  Impl& impl = *impl_;
  if (job.program == nullptr || (!job.run && !job.run_on_core))
    return fail(ErrorCode::internal, "a job was handed over without a program or without work");
  // The engine's code, hence before the lock.
  std::shared_ptr<Program> program = job.program;
  const std::string& name = program->name();
  const Footprint footprint = program->footprint();
  const bool pinned = program->pinned();
  const Duration bring_back = program->bring_back_estimate();
  const double weight = impl.tenants.settings(job.tenant).weight;

  Waiter waiter;
  waiter.job = std::move(job);
  std::unique_lock lock(impl.mutex);
  if (impl.dead) return std::unexpected(impl.dead_error());
  waiter.arrived = impl.clock.now();
  if (auto error = impl.over(waiter, waiter.arrived)) return std::unexpected(std::move(*error));
  waiter.key = impl.enter(program, name, footprint, pinned, bring_back);
  if (waiter.key == 0) return fail(ErrorCode::failed_precondition, std::format("program '{}' is being unloaded", name));
  waiter.id = impl.next_id++;
  Result<JobReport> result = impl.submit(lock, waiter, weight);
  impl.leave(waiter.key);
  impl.unlock(lock);
  return result;
}

void DeviceArbiter::forget(Program& program) {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  const auto at = impl.keys.find(&program);
  if (at == impl.keys.end()) return;
  const ProgramKey key = at->second;
  impl.known.at(key).forgotten = true;
  std::vector<Waiter*> waiting;
  for (const auto& [id, waiter] : impl.waiters) {
    if (waiter->key == key) waiting.push_back(waiter);
  }
  for (Waiter* waiter : waiting) {
    if (impl.withdraw(*waiter)) {
      impl.fail_waiter(*waiter, Error{ErrorCode::failed_precondition,
                                      std::format("program '{}' is being unloaded", impl.known.at(key).name),
                                      {},
                                      {},
                                      {}});
    }
  }
  // Another forget() of the same program may be at it; whoever comes second finds it gone.
  impl.changed.wait(lock, [&] {
    const auto known = impl.known.find(key);
    if (known == impl.known.end()) return true;
    const Residency::Entry& entry = impl.residency.entry(key);
    return known->second.users == 0 && entry.running == 0 &&
           (entry.state == ResidencyState::cold || entry.state == ResidencyState::resident);
  });
  if (impl.known.contains(key)) {
    if (impl.residency.begin_eviction(key)) impl.evict(lock, key);
    if (impl.known.contains(key)) impl.erase(key, &program);
    impl.changed.notify_all();
    impl.schedule();
  }
  impl.unlock(lock);
}

Result<> DeviceArbiter::drain(TimePoint until) {
  Impl& impl = *impl_;
  {
    std::unique_lock lock(impl.mutex);
    impl.draining = true;
    while (impl.cores_busy() != 0) {
      const TimePoint now = impl.clock.now();
      if (until <= now) {
        return fail(ErrorCode::deadline_exceeded,
                    std::format("{} jobs still run on device '{}'; it takes no new ones, ask again or resume it",
                                impl.cores_busy(), impl.settings.device));
      }
      impl.changed.wait_for(lock, until.is_never() ? longest_wait : std::min(until - now, longest_wait));
    }
  }
  Event e;
  e.kind = EventKind::drained;
  e.device = impl.settings.device;
  e.message = std::format("Device '{}' is drained.", e.device);
  impl.events.publish(std::move(e));
  return {};
}

void DeviceArbiter::resume() {
  Impl& impl = *impl_;
  {
    const std::lock_guard lock(impl.mutex);
    if (!std::exchange(impl.draining, false)) return;
    impl.schedule();
  }
  Event e;
  e.kind = EventKind::resumed;
  e.device = impl.settings.device;
  e.message = std::format("Device '{}' takes jobs again.", e.device);
  impl.events.publish(std::move(e));
}

Result<std::uint32_t> DeviceArbiter::reset(std::move_only_function<Result<>()> reset) {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  if (!impl.draining || impl.cores_busy() != 0) {
    return fail(ErrorCode::failed_precondition,
                std::format("device '{}' isn't drained; drain it first", impl.settings.device));
  }
  const std::uint64_t before = impl.evicted;
  impl.evict_idle(lock);
  const auto left = static_cast<std::uint32_t>(impl.evicted - before);
  impl.unlock(lock);
  if (Result<> done = Impl::guarded([&] { return reset(); }); !done) {
    set_dead(std::format("its reset failed: {}", done.error().message));
    return std::unexpected(done.error());
  }
  return left;
}

void DeviceArbiter::set_dead(std::string reason) {
  Impl& impl = *impl_;
  Event e;
  e.kind = EventKind::device_health;
  e.device = impl.settings.device;
  e.message = reason;
  std::unique_lock lock(impl.mutex);
  impl.dead = std::move(reason);
  while (!impl.waiters.empty()) {
    Waiter& waiter = *impl.waiters.begin()->second;
    impl.queue.remove(waiter.id);
    impl.set_waiting(waiter.key);
    impl.fail_waiter(waiter, impl.dead_error());
  }
  impl.evict_idle(lock);
  impl.unlock(lock);
  impl.events.publish(std::move(e));
}

void DeviceArbiter::set_alive() {
  Impl& impl = *impl_;
  {
    const std::lock_guard lock(impl.mutex);
    if (!impl.dead) return;
    impl.dead.reset();
    impl.schedule();
  }
  Event e;
  e.kind = EventKind::device_health;
  e.device = impl.settings.device;
  e.message = "ok";
  impl.events.publish(std::move(e));
}

ArbiterSnapshot DeviceArbiter::snapshot() const {
  const Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  const TimePoint now = impl.clock.now();
  const Footprint used = impl.residency.used();
  ArbiterSnapshot snapshot;
  snapshot.device = impl.settings.device;
  snapshot.cores = impl.settings.cores;
  snapshot.cores_busy = impl.cores_busy();
  snapshot.slots = impl.settings.slots;
  snapshot.slots_used = used.slots;
  snapshot.aperture_bytes = impl.settings.aperture_bytes;
  snapshot.used_bytes = used.bytes;
  snapshot.draining = impl.draining;
  snapshot.dead = impl.dead.has_value();
  snapshot.dead_reason = impl.dead.value_or("");
  snapshot.jobs_done = impl.jobs_done;
  snapshot.jobs_failed = impl.jobs_failed;
  snapshot.brought_in = impl.brought_in;
  snapshot.evicted = impl.evicted;
  snapshot.busy = impl.busy;
  snapshot.switching = impl.switching;
  snapshot.switch_cost = impl.queue.switch_cost();
  snapshot.upload_bytes_per_second = impl.residency.upload_bytes_per_second();
  snapshot.fairness_slack = impl.queue.slack();
  for (const auto& [key, known] : impl.known) {
    const Residency::Entry& entry = impl.residency.entry(key);
    ProgramSnapshot program;
    program.name = known.name;
    program.state = entry.state;
    program.footprint = entry.footprint;
    program.pinned = entry.pinned;
    program.running = entry.running;
    program.waiting = static_cast<std::uint32_t>(entry.waiting);
    program.runs = entry.runs;
    program.brought_in = entry.brought_in;
    program.evicted = entry.evicted;
    program.bring_back = impl.residency.bring_back_cost(entry);
    program.idle = entry.running > 0 || entry.runs == 0 ? Duration{0} : now - entry.last_use;
    snapshot.programs.push_back(std::move(program));
  }
  for (const auto& [tenant, account] : impl.accounts) {
    snapshot.tenants.push_back({tenant, account.jobs, account.charged, account.waited});
  }
  for (std::uint32_t core = 0; core < impl.core_busy.size(); ++core) {
    const Waiter* waiter = impl.core_busy[core];
    if (waiter == nullptr) continue;
    snapshot.running.push_back({core, impl.known.at(waiter->key).name, waiter->job.tenant, waiter->job.priority_class,
                                now - waiter->granted_at});
  }
  for (const auto& [id, waiter] : impl.waiters) {
    snapshot.waiting.push_back(
        {impl.known.at(waiter->key).name, waiter->job.tenant, waiter->job.priority_class, now - waiter->arrived});
  }
  return snapshot;
}

void DeviceArbiter::wake() {
  Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  impl.schedule();
  impl.changed.notify_all();
}

}  // namespace npud
