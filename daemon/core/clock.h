// SPDX-License-Identifier: Apache-2.0
// Time is handed in: nothing in core asks the system for it, so that a simulation drives the same code to the
// microsecond.
#pragma once

#include <chrono>

namespace npud {

using Duration = std::chrono::microseconds;

// Microseconds since an origin that only the clock knows. Never wall time.
struct TimePoint {
  Duration since_origin{0};

  static constexpr TimePoint never() { return TimePoint{Duration::max()}; }
  constexpr bool is_never() const { return since_origin == Duration::max(); }
  constexpr auto operator<=>(const TimePoint&) const = default;
};

constexpr TimePoint operator+(TimePoint t, Duration d) { return t.is_never() ? t : TimePoint{t.since_origin + d}; }
constexpr Duration operator-(TimePoint a, TimePoint b) { return a.since_origin - b.since_origin; }

// A wait on a clock that may be the system's or stand still: long waits are cut, so that the clock is looked at again.
constexpr Duration longest_wait{60'000'000};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;  // any thread; never goes back
};

// CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  TimePoint now() const override {
    return TimePoint{std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())};
  }
};

}  // namespace npud
