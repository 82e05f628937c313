// SPDX-License-Identifier: Apache-2.0
// The NPU that models of this daemon run on, and whether it may be used right now: one for each device, shared by its
// models.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/arbiter.h"
#include "core/clock.h"
#include "core/events.h"
#include "devices/rknpu/device.h"
#include "engine/offload_settings.h"

namespace npud {

class OffloadCache;  // engine/offload_cache.h

struct NpuTargetSettings {
  bool host_fallback = true;  // requests that the NPU can't answer run on the host; else they fail with the reason
  Duration first_backoff = std::chrono::seconds(1),
           most_backoff = std::chrono::seconds(60);  // until a failed device is asked again
  std::shared_ptr<OffloadCache> cache;               // of packed models; null: none
  std::function<void(const std::string&)> notice;    // what happened that nobody has to act on; any thread
};

// Thread-safe. Device, arbiter, clock and events must outlive it.
class NpuTarget {
 public:
  struct Refusal {
    std::string reason;
    Duration rearm_after{0};
  };

  NpuTarget(rknpu::RknpuDevice& device, Arbiter& arbiter, Clock& clock, EventBus& events,
            NpuTargetSettings settings = {});

  // May a request use the device now? When a disarmed device's time has come, or it is under suspicion, a canary runs
  // first, on the caller's thread. Meanwhile the others use a device that is under suspicion, which checks every result
  // then, and leave one that is disarmed.
  std::optional<Refusal> admit();
  // A job failed in spite of its retry, and not for the request's sake. A canary runs, and disarms the device when it
  // fails. None: the device is good, and what failed is the caller's program's own matter.
  std::optional<Refusal> failed(const std::string& reason);
  void succeeded();

  // What model configurations may name, with its health.
  NpuChoice choice() const;
  const std::string& name() const { return arbiter_.device(); }
  rknpu::RknpuDevice& device() { return device_; }
  Arbiter& arbiter() { return arbiter_; }
  Clock& clock() { return clock_; }
  Duration first_backoff() const { return settings_.first_backoff; }
  Duration most_backoff() const { return settings_.most_backoff; }
  bool host_fallback() const { return settings_.host_fallback; }
  OffloadCache* cache() const { return settings_.cache.get(); }
  void notice(const std::string& text) const {
    if (settings_.notice) settings_.notice(text);
  }

 private:
  Refusal disarm(const std::string& reason);  // mutex_ held
  void publish(std::string message);

  rknpu::RknpuDevice& device_;
  Arbiter& arbiter_;
  Clock& clock_;
  EventBus& events_;
  const NpuTargetSettings settings_;
  mutable std::mutex mutex_;  // all below
  bool armed_ = true;
  bool probing_ = false;
  std::string reason_;  // why not armed
  TimePoint rearm_at_{};
  Duration backoff_;
};

}  // namespace npud
