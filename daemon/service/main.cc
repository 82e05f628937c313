// SPDX-License-Identifier: Apache-2.0
#include <absl/synchronization/mutex.h>
#include <malloc.h>
#include <signal.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "api/version.h"
#include "service/daemon.h"
#include "service/log.h"

namespace {

constexpr std::string_view usage =
    "npud: serves models from one shared NPU (or this machine's CPU) over gRPC.\n\n"
    "  npud                   read /etc/npud/npud.toml (or /usr/lib/npud/npud.toml) with drop-ins and serve\n"
    "  npud --config FILE     read FILE and FILE.d/*.toml instead\n"
    "  npud --dump-config     print the effective configuration and end\n"
    "  npud --check-config    check the configuration and end\n"
    "  npud --version         print the version and end\n\n"
    "See npud(8) and npud.toml(5).\n";

struct Arguments {
  npud::ConfigSources sources;
  bool dump = false, check = false;
};

// Tensors come and go all the time. By default glibc gives each worker an arena of its own and each large block back to
// the kernel, so that every request pays for its page faults again; Daemon gives memory back when nothing is in hand
// instead.
void keep_freed_memory() {
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

// Debian builds abseil with its debug checks: each of gRPC's locks would be entered into a graph of who locks what
// first, which costs a request some twentieth of its processor time.
void keep_no_lock_graph() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

int wrong_usage(const std::string& what) {
  std::cerr << "npud: " << what << "\n\n" << usage;
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  keep_no_lock_graph();
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") return std::cout << usage, 0;
    if (argument == "--version") return std::cout << "npud " << npud::api::daemon_version << "\n", 0;
    if (argument == "--dump-config")
      arguments.dump = true;
    else if (argument == "--check-config")
      arguments.check = true;
    else if (argument == "--config" && i + 1 < argc)
      arguments.sources.file = argv[++i];
    else if (argument.starts_with("--config="))
      arguments.sources.file = argument.substr(9);
    else
      return wrong_usage("unknown or incomplete argument '" + std::string(argument) + "'");
  }

  auto config = npud::load_config(arguments.sources);
  if (!config) {
    std::cerr << "npud: " << config.error().message << "\n";
    return 2;
  }
  if (arguments.dump) return std::cout << npud::dump_config(*config), 0;
  if (arguments.check) return std::cout << "npud: the configuration is good\n", 0;
  npud::set_log(config->log.target, config->log.level);
  npud::log_library_lines();

  // Before any thread is made: only the main thread takes signals, by sigtimedwait().
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGHUP, SIGTERM, SIGINT, SIGPIPE}) {
    sigaddset(&set, signal);
  }
  sigprocmask(SIG_BLOCK, &set, nullptr);

  auto daemon = npud::Daemon::create(std::move(*config), arguments.sources);
  if (!daemon) {
    npud::log_line(npud::LogLevel::error, npud::message_id::stopping, "npud can't start: " + daemon.error().message);
    return 1;
  }
  if (auto ran = (*daemon)->run(); !ran) {
    npud::log_line(npud::LogLevel::error, npud::message_id::stopping, "npud ended: " + ran.error().message);
    return 1;
  }
  return 0;
}
