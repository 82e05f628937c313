// SPDX-License-Identifier: Apache-2.0
#include "service/watchdog.h"

#include <format>

namespace npud {

std::uint64_t Progress::work_done() const {
  std::uint64_t done = 0;
  for (const api::DeviceHandle& handle : backend_.devices) {
    const ArbiterSnapshot arbiter = handle.arbiter->snapshot();
    done += arbiter.jobs_done + arbiter.jobs_failed + arbiter.brought_in + arbiter.evicted;
  }
  return done;
}

bool Progress::check(std::chrono::steady_clock::time_point now) {
  const std::uint64_t heartbeat = connections_.heartbeat();
  const ServerSnapshot server = backend_.server.snapshot();
  std::uint64_t done = work_done();
  for (const TenantSnapshot& tenant : server.tenants) {
    done += tenant.succeeded + tenant.failed;
  }
  if (first_ || heartbeat != last_heartbeat_) {
    last_heartbeat_ = heartbeat;
    heartbeat_at_ = now;
  }
  if (first_ || done != last_done_ || server.workers_busy == 0) {
    last_done_ = done;
    done_at_ = now;
  }
  first_ = false;
  if (now - heartbeat_at_ > std::chrono::seconds(10)) {
    reason_ = "the loop that accepts connections is stuck";
    return false;
  }
  if (now - done_at_ > stall_timeout_) {
    reason_ = std::format("{} workers are busy and nothing ended for {} s", server.workers_busy,
                          std::chrono::duration_cast<std::chrono::seconds>(now - done_at_).count());
    return false;
  }
  reason_.clear();
  return true;
}

}  // namespace npud
