// SPDX-License-Identifier: Apache-2.0
// Who runs next on one device. The decision itself (start-time fair queueing, classes with ageing, switch-awareness) is
// in core/fair_queue and core/residency, which are plain state machines driven by simulation in the tests; Arbiter is
// the thin threaded shell around them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "core/clock.h"
#include "core/error.h"
#include "core/program.h"
#include "core/request.h"

namespace npud {

// One run of a program. Handed over whole; nothing in it borrows from the caller but what `run` captures, and `run` is
// called before submit_and_wait() returns or never. Instead of `run` a job may have `run_on_core`, which is told which
// of the device's cores is its own meanwhile, counted from 0.
struct Job {
  TenantId tenant;
  PriorityClass priority_class = PriorityClass::interactive;
  std::shared_ptr<Program> program;
  Duration estimate{0};  // expected device time; 0: unknown, the arbiter uses what it measured for the program
  TimePoint deadline = TimePoint::never();
  std::stop_token cancelled;
  std::move_only_function<Result<>()> run;  // does the work; the program is resident and won't leave meanwhile
  std::move_only_function<Result<>(std::uint32_t core)> run_on_core;
};

struct JobReport {
  Duration waited{0};
  Duration ran{0};
  bool brought_in = false;    // the program was cold and had to be made resident first
  std::uint32_t evicted = 0;  // how many programs left for it
};

// Thread-safe. Interface only; core/device_arbiter.h has the one that runs, made by the daemon for each device.
class Arbiter {
 public:
  virtual ~Arbiter() = default;
  virtual const std::string& device() const = 0;

  // Waits for the job's turn, makes its program resident (evicting others if needed), runs it, returns when it is done.
  // Errors: the job's own, deadline_exceeded or cancelled without having run, resource_exhausted when it can never fit
  // (bytes needed and free), unavailable when the device is dead or drained.
  virtual Result<JobReport> submit_and_wait(Job job) = 0;

  // Evicts the program if it is resident and nothing runs on it, so that its next job brings it in anew, with what it
  // says by then that it takes. False: it is in use.
  virtual bool vacate(Program& program) = 0;

  // The program will not be used again: evicts it if resident, waits while it runs. Called from the program's owner
  // before it goes.
  virtual void forget(Program& program) = 0;
};

}  // namespace npud
