// SPDX-License-Identifier: Apache-2.0
#include "engine/npu_target.h"

#include <algorithm>

namespace npud {

NpuTarget::NpuTarget(rknpu::RknpuDevice& device, Arbiter& arbiter, Clock& clock, EventBus& events,
                     NpuTargetSettings settings)
    : device_(device),
      arbiter_(arbiter),
      clock_(clock),
      events_(events),
      settings_(std::move(settings)),
      backoff_(settings_.first_backoff) {
  const DeviceInfo info = device.info();
  if (info.health == DeviceHealth::dead) {
    const std::lock_guard lock(mutex_);
    disarm(info.health_reason);
  }
}

std::optional<NpuTarget::Refusal> NpuTarget::admit() {
  std::unique_lock lock(mutex_);
  if (armed_ && !device_.suspected()) return std::nullopt;
  if (!armed_) {
    const TimePoint now = clock_.now();
    if (now < rearm_at_) return Refusal{reason_, rearm_at_ - now};
  }
  if (probing_) return armed_ ? std::nullopt : std::optional(Refusal{reason_, Duration{0}});
  probing_ = true;
  const bool was_armed = armed_;
  lock.unlock();
  const auto verdict = device_.canary();
  lock.lock();
  probing_ = false;
  if (!verdict) return disarm(verdict.error().message);
  armed_ = true;
  lock.unlock();
  if (!was_armed) publish("ok");
  return std::nullopt;
}

std::optional<NpuTarget::Refusal> NpuTarget::failed(const std::string& reason) {
  Refusal refusal;
  {
    std::unique_lock lock(mutex_);
    // Others that were under way fail with it: one failure, one back-off.
    if (!armed_) return Refusal{reason_, std::max(Duration{0}, rearm_at_ - clock_.now())};
    if (probing_) return std::nullopt;
    probing_ = true;
    lock.unlock();
    const auto verdict = device_.canary();
    lock.lock();
    probing_ = false;
    if (verdict) return std::nullopt;
    refusal = disarm(reason);
  }
  publish(reason + "; models run on the host until a canary comes out right");
  return refusal;
}

void NpuTarget::succeeded() {
  const std::lock_guard lock(mutex_);
  backoff_ = settings_.first_backoff;
}

NpuTarget::Refusal NpuTarget::disarm(const std::string& reason) {
  armed_ = false;
  reason_ = reason;
  rearm_at_ = clock_.now() + backoff_;
  const Refusal refusal{reason, backoff_};
  backoff_ = std::min(2 * backoff_, settings_.most_backoff);
  return refusal;
}

void NpuTarget::publish(std::string message) {
  Event event;
  event.kind = EventKind::device_health;
  event.device = name();
  event.message = std::move(message);
  events_.publish(std::move(event));
}

NpuChoice NpuTarget::choice() const {
  const DeviceInfo info = device_.info();
  const std::lock_guard lock(mutex_);
  return {.name = arbiter_.device(),
          .kind = info.kind,
          .healthy = armed_ && info.health != DeviceHealth::dead,
          .why_not = armed_ ? info.health_reason : reason_,
          .cores = info.cores};
}

}  // namespace npud
