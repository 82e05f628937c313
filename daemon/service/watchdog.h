// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "api/backend.h"
#include "service/connections.h"

namespace npud {

// Tells whether the daemon gets anywhere: its accept loop turns, and where work is in hand something ends now and then.
// Called from one thread.
class Progress {
 public:
  Progress(const api::Backend& backend, const Connections& connections, std::chrono::milliseconds stall_timeout)
      : backend_(backend), connections_(connections), stall_timeout_(stall_timeout) {}

  // True while there is progress; else `reason()` says what is stuck.
  bool check(std::chrono::steady_clock::time_point now);
  const std::string& reason() const { return reason_; }
  // Grows with everything that ended, as of the last check.
  std::uint64_t done() const { return last_done_; }

 private:
  std::uint64_t work_done() const;

  const api::Backend& backend_;
  const Connections& connections_;
  const std::chrono::milliseconds stall_timeout_;
  std::uint64_t last_heartbeat_ = 0, last_done_ = 0;
  std::chrono::steady_clock::time_point heartbeat_at_{}, done_at_{};
  bool first_ = true;
  std::string reason_;
};

}  // namespace npud
