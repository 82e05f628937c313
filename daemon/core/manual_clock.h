// SPDX-License-Identifier: Apache-2.0
// A clock that stands still until it is told to move: for simulations and tests. Thread-safe. Whoever waits on it in a
// thread must be woken by hand afterwards (DeviceArbiter::wake(), Server::wake()).
#pragma once

#include <atomic>

#include "core/clock.h"

namespace npud {

class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint{Duration{now_us_.load()}}; }
  void advance(Duration by) { now_us_ += by.count(); }
  void advance_to(TimePoint t) { now_us_ = t.since_origin.count(); }

 private:
  std::atomic<Duration::rep> now_us_{0};
};

}  // namespace npud
