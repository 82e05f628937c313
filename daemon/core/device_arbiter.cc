// SPDX-License-Identifier: Apache-2.0
#include "core/device_arbiter.h"

#include <format>
#include <utility>

#include "core/device_arbiter_impl.h"

namespace npud {

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

  Impl::Waiter waiter;
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

bool DeviceArbiter::vacate(Program& program) {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  const auto at = impl.keys.find(&program);
  const bool idle = at != impl.keys.end() && impl.residency.begin_eviction(at->second);
  if (idle) impl.evict(lock, at->second);
  impl.unlock(lock);
  return idle;
}

void DeviceArbiter::forget(Program& program) {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  const auto at = impl.keys.find(&program);
  if (at == impl.keys.end()) return;
  const ProgramKey key = at->second;
  impl.known.at(key).forgotten = true;
  std::vector<Impl::Waiter*> waiting;
  for (const auto& [id, waiter] : impl.waiters) {
    if (waiter->key == key) waiting.push_back(waiter);
  }
  for (Impl::Waiter* waiter : waiting) {
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
    Impl::Waiter& waiter = *impl.waiters.begin()->second;
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
    const Impl::Waiter* waiter = impl.core_busy[core];
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
