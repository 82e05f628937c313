// SPDX-License-Identifier: Apache-2.0
// A job's way through the arbiter: waiting for a core, bringing its program in, running.
#include <algorithm>
#include <format>
#include <utility>

#include "core/device_arbiter_impl.h"
#include "core/next_job.h"

namespace npud {
namespace {

// How often a program whose footprint grew while it came in is tried again.
constexpr int max_bring_in_attempts = 3;

}  // namespace

void DeviceArbiter::Impl::fail_waiter(Waiter& waiter, Error error) {
  waiter.state = Waiter::State::failed;
  waiter.error = std::move(error);
  waiters.erase(waiter.id);
  waiter.changed.notify_all();
}

Error DeviceArbiter::Impl::deadline_error(const Waiter& waiter, TimePoint now) const {
  return Error{ErrorCode::deadline_exceeded,
               std::format("its time was over after {} ms of waiting for device '{}'; give it more time or send less",
                           (now - waiter.arrived).count() / 1000, settings.device),
               {},
               {},
               {}};
}

bool DeviceArbiter::Impl::withdraw(Waiter& waiter) {
  if (waiter.state != Waiter::State::waiting || !queue.remove(waiter.id)) return false;
  set_waiting(waiter.key);
  return true;
}

void DeviceArbiter::Impl::schedule() {
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

bool DeviceArbiter::Impl::fail_if_it_never_fits(ProgramKey key) {
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

Error DeviceArbiter::Impl::no_room_error(ProgramKey key, Error error) const {
  error.message =
      std::format("program '{}' doesn't fit on device '{}': {}", known.at(key).name, settings.device, error.message);
  return error;
}

void DeviceArbiter::Impl::grant(Waiter& waiter, const FairQueue::Choice& choice, std::uint32_t core, TimePoint now) {
  queue.take(choice, now);
  set_waiting(waiter.key);
  waiter.bring_in = choice.placement.kind == Placement::Kind::cold;
  if (waiter.bring_in) waiter.victims = residency.begin_bring_in(waiter.key, now);
  occupy(waiter, core, now);
  waiters.erase(waiter.id);
  waiter.changed.notify_all();
}

void DeviceArbiter::Impl::occupy(Waiter& waiter, std::uint32_t core, TimePoint now) {
  waiter.state = Waiter::State::granted;
  waiter.core = core;
  waiter.granted_at = now;
  residency.run_started(waiter.key, now);
  core_busy[core] = &waiter;
}

bool DeviceArbiter::Impl::pass(Waiter& waiter, const QueuedJob& job, TimePoint now) {
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

ProgramKey DeviceArbiter::Impl::enter(const std::shared_ptr<Program>& program, const std::string& name,
                                      Footprint footprint, bool pinned, Duration bring_back) {
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

void DeviceArbiter::Impl::leave(ProgramKey key) {
  Known& entry = known.at(key);
  if (--entry.users == 0) {
    drop_if_unused(key);
    changed.notify_all();
  }
}

void DeviceArbiter::Impl::drop_if_unused(ProgramKey key) {
  Known& entry = known.at(key);
  if (entry.users == 0 && residency.entry(key).state == ResidencyState::cold)
    dropped.push_back(std::move(entry.program));
}

void DeviceArbiter::Impl::erase(ProgramKey key, Program* address) {
  residency.remove(key);
  dropped.push_back(std::move(known.at(key).program));
  known.erase(key);
  keys.erase(address);
}

Event DeviceArbiter::Impl::event(EventKind kind, ProgramKey key) const {
  Event e;
  e.kind = kind;
  e.device = settings.device;
  e.program = known.at(key).name;
  e.bytes = residency.entry(key).footprint.bytes;
  return e;
}

void DeviceArbiter::Impl::evict(std::unique_lock<std::mutex>& lock, ProgramKey key) {
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

void DeviceArbiter::Impl::evict_idle(std::unique_lock<std::mutex>& lock) {
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

bool DeviceArbiter::Impl::evict_for(std::unique_lock<std::mutex>& lock, ProgramKey key) {
  const ProgramKey victim = residency.least_valuable_idle(clock.now());
  if (victim == 0 || !residency.begin_eviction(victim)) return false;
  residency.leaves_for(victim, key);
  evict(lock, victim);
  return true;
}

Result<bool> DeviceArbiter::Impl::bring_in(std::unique_lock<std::mutex>& lock, Waiter& waiter, JobReport& report) {
  const TimePoint from = clock.now();
  for (const ProgramKey victim : waiter.victims) {
    evict(lock, victim);
    ++report.evicted;
  }
  waiter.victims.clear();
  Program& program = *waiter.job.program;
  lock.unlock();
  const TimePoint create_from = clock.now();
  Result<> made;
  for (;;) {
    made = guarded([&] { return program.make_resident(); });
    if (made || made.error().code != ErrorCode::resource_exhausted) break;
    lock.lock();
    const bool more_room = evict_for(lock, waiter.key);
    lock.unlock();
    if (!more_room) break;
    ++report.evicted;
  }
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

void DeviceArbiter::Impl::release(Waiter& waiter, bool still_runs_program, TimePoint now) {
  queue.finished(waiter.id, now - waiter.granted_at, now);
  if (still_runs_program) residency.run_ended(waiter.key);
  core_busy[waiter.core] = nullptr;
  TenantAccount& account = accounts[waiter.job.tenant];
  account.charged += now - waiter.granted_at;
  changed.notify_all();
}

std::optional<Error> DeviceArbiter::Impl::over(const Waiter& waiter, TimePoint now) const {
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

void DeviceArbiter::Impl::wait(std::unique_lock<std::mutex>& lock, Waiter& waiter) {
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

void DeviceArbiter::Impl::unlock(std::unique_lock<std::mutex>& lock) {
  std::vector<std::shared_ptr<Program>> garbage;
  garbage.swap(dropped);
  lock.unlock();
}

Result<JobReport> DeviceArbiter::Impl::submit(std::unique_lock<std::mutex>& lock, Waiter& waiter, double weight) {
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

Result<JobReport> DeviceArbiter::Impl::run(std::unique_lock<std::mutex>& lock, Waiter& waiter, JobReport report) {
  const TimePoint from = clock.now();
  std::optional<Error> error = over(waiter, from);
  if (dead && !error) error = dead_error();
  if (!error) {
    lock.unlock();
    Result<> result = guarded([&] { return waiter.job.run ? waiter.job.run() : waiter.job.run_on_core(waiter.core); });
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

void DeviceArbiter::Impl::publish_fault(std::unique_lock<std::mutex>& lock, const Waiter& waiter, const Error& error) {
  if (error.code != ErrorCode::internal && error.code != ErrorCode::data_loss && error.code != ErrorCode::unavailable)
    return;
  Event e = event(EventKind::fault, waiter.key);
  e.tenant = waiter.job.tenant;
  e.message = std::format("A job of program '{}' failed on device '{}': {}", e.program, e.device, error.message);
  lock.unlock();
  events.publish(std::move(e));
  lock.lock();
}

}  // namespace npud
