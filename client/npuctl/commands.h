// SPDX-License-Identifier: Apache-2.0
// npuctl's commands. Each adds itself to the command line and sets `Session::run` when it was the one that was chosen.
#pragma once

#include <CLI/CLI.hpp>

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>

#include "npud/client.h"
#include "npud/control.h"

namespace npud::ctl {

// What the whole command line shares.
struct Session {
  client::ConnectOptions connect;
  client::Tls tls;
  std::optional<double> timeout_s;  // of each call; none: 5, and as long as it takes for loading and inference
  bool json = false;
  std::function<int()> run;  // returns the exit status

  // Connects; on failure nothing is printed.
  client::Result<client::Client> open() const;
  // What --timeout says, if it was given.
  std::optional<std::chrono::milliseconds> timeout() const;
};

void add_model_commands(CLI::App& app, Session& session);  // models, metadata, config, stats, load, unload
void add_infer_command(CLI::App& app, Session& session);   // infer
void add_control_commands(
    CLI::App& app, Session& session);  // status, devices, programs, tenants, running, explain, drain, resume, reset
void add_events_command(CLI::App& app, Session& session);  // events
void add_top_command(CLI::App& app, Session& session);     // top
void add_bench_command(CLI::App& app, Session& session);   // bench
void add_doctor_command(CLI::App& app, Session& session);  // doctor

// Set by SIGINT and SIGTERM once catch_interrupts() was called.
extern volatile std::sig_atomic_t interrupted;
void catch_interrupts();

}  // namespace npud::ctl
