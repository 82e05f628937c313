// SPDX-License-Identifier: Apache-2.0
// The Arbiter that runs: threads wait in it for their turn on one device. All decisions are FairQueue's (who is next)
// and Residency's (what leaves); this adds the lock, the waiting and the calls to programs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/arbiter.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/events.h"
#include "core/fair_queue.h"
#include "core/residency.h"
#include "core/tenants.h"

namespace npud {

struct DeviceArbiterSettings {
  std::string device;                // its name: "host", "rknpu0"
  std::uint32_t cores = 1;           // jobs that run at once
  std::uint32_t slots = 4;           // programs resident at once
  std::uint64_t aperture_bytes = 0;  // of resident programs together; 0: no limit
  FairQueueSettings fairness;
};

struct ProgramSnapshot {
  std::string name;
  ResidencyState state = ResidencyState::cold;
  Footprint footprint;
  bool pinned = false;
  std::uint32_t running = 0, waiting = 0;  // jobs
  std::uint64_t runs = 0, brought_in = 0, evicted = 0;
  Duration bring_back{0};  // measured, or estimated
  Duration idle{0};        // since its last use
};
struct ArbiterTenantSnapshot {
  TenantId tenant;
  std::uint64_t jobs = 0;
  Duration charged{0};  // core time, with the switches made for it
  Duration waited{0};
};
struct RunningJobSnapshot {
  std::uint32_t core = 0;
  std::string program;
  TenantId tenant;
  PriorityClass priority_class = PriorityClass::interactive;
  Duration running_for{0};
};
struct WaitingJobSnapshot {
  std::string program;
  TenantId tenant;
  PriorityClass priority_class = PriorityClass::interactive;
  Duration waiting_for{0};
};
struct ArbiterSnapshot {
  std::string device;
  std::uint32_t cores = 0, cores_busy = 0, slots = 0, slots_used = 0;
  std::uint64_t aperture_bytes = 0, used_bytes = 0;
  bool draining = false, dead = false;
  std::string dead_reason;
  std::uint64_t jobs_done = 0, jobs_failed = 0, brought_in = 0, evicted = 0;
  Duration busy{0};                           // in jobs, all cores
  Duration switching{0};                      // bringing in and evicting
  Duration switch_cost{0};                    // smoothed, of one bring-in with its evictions
  std::uint64_t upload_bytes_per_second = 0;  // smoothed; 0: nothing measured yet
  Duration fairness_slack{0};
  std::vector<ProgramSnapshot> programs;
  std::vector<ArbiterTenantSnapshot> tenants;
  std::vector<RunningJobSnapshot> running;
  std::vector<WaitingJobSnapshot> waiting;
};

// Thread-safe. submit_and_wait() runs the job on the caller's thread, at most `cores` at once; programs are brought in
// and evicted by the thread whose job needs it. A resident program is kept alive (shared_ptr) until it is evicted or
// forgotten, so forget() is its owner's duty, not its destructor's. Destroy it when no thread is in it; what is
// resident is evicted then.
class DeviceArbiter final : public Arbiter {
 public:
  DeviceArbiter(DeviceArbiterSettings settings, Clock& clock, const TenantTable& tenants, EventBus& events);
  ~DeviceArbiter() override;

  const std::string& device() const override;
  Result<JobReport> submit_and_wait(Job job) override;
  bool vacate(Program& program) override;
  void forget(Program& program) override;

  // Starts nothing new (jobs wait on) until resume(); returns when nothing runs. deadline_exceeded: something still
  // does, the drain stays in force.
  Result<> drain(TimePoint until);
  void resume();

  // Drained only (failed_precondition otherwise): evicts everything, calls `reset` without any lock, returns how many
  // left. A failed reset leaves the device dead.
  Result<std::uint32_t> reset(std::move_only_function<Result<>()> reset);

  // A dead device fails waiting and coming jobs with `unavailable` and this reason; resident programs are evicted as
  // their jobs end.
  void set_dead(std::string reason);
  void set_alive();

  ArbiterSnapshot snapshot() const;

  // Looks at the clock again. Only needed when the clock isn't the system's.
  void wake();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npud
