// SPDX-License-Identifier: Apache-2.0
// npud-board-rk3588: serves a virtual RK3588 NPU to QEMU's vfio-user-pci.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <format>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/board/rk3588/options.h"
#include "tests/board/rk3588/program/control.h"
#include "tests/board/rk3588/program/pci_board.h"
#include "tests/board/vfio_user/server.h"

namespace {

npud::vfio_user::Server* running = nullptr;

void stop_running(int) { running->stop(); }

// Lines with the seconds since the start, from any thread.
class Log {
 public:
  explicit Log(FILE* file) : file_(file) {}
  void operator()(std::string_view line) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    std::lock_guard lock(mutex_);
    std::fprintf(file_, "%10.6f %.*s\n", seconds, static_cast<int>(line.size()), line.data());
    std::fflush(file_);
  }

 private:
  FILE* const file_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
};

int serve(const std::string& socket, const std::string& control, const npud::rk3588::Options& options, FILE* log_file) {
  Log log(log_file);
  auto sink = [&log](std::string_view line) { log(line); };
  npud::rk3588::PciBoard board(options, sink);
  auto server = npud::vfio_user::Server::create(board, sink);
  if (!server) {
    log(server.error());
    return 1;
  }
  running = server->get();
  struct sigaction action{};
  action.sa_handler = stop_running;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);

  std::unique_ptr<npud::rk3588::ControlSocket> side_door;
  if (!control.empty()) {
    auto listening = npud::rk3588::ControlSocket::listen(control, [&board] { return board.board(); });
    if (!listening) {
      log(listening.error());
      return 1;
    }
    side_door = std::move(*listening);
  }
  const auto served =
      (*server)->serve(socket, [&] { log(std::format("A virtual RK3588 waits for QEMU on {}.", socket)); });
  side_door.reset();
  if (!served) {
    log(served.error());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A virtual RK3588 NPU as a PCI function: QEMU's vfio-user-pci connects to SOCKET.", "npud-board-rk3588");
  std::string socket, control, log_path;
  std::vector<std::string> assignments;
  app.add_option("SOCKET", socket, "Unix socket for QEMU")->required();
  app.add_option("--control", control, "Unix socket for JSON lines from the host: faults, counters, command words");
  app.add_option("--option", assignments, "key=value, may be repeated")->allow_extra_args(false);
  app.add_option("--log", log_path, "append the log to this file instead of the standard error output");
  app.footer("Options:\n" + npud::rk3588::options_help());
  CLI11_PARSE(app, argc, argv);

  npud::rk3588::Options options;
  for (const std::string& assignment : assignments) {
    if (const auto set = options.set(assignment); !set) {
      std::fprintf(stderr, "npud-board-rk3588: %s\n", set.error().c_str());
      return 2;
    }
  }
  FILE* log_file = stderr;
  if (!log_path.empty()) {
    log_file = std::fopen(log_path.c_str(), "ae");
    if (log_file == nullptr) {
      std::perror(log_path.c_str());
      return 2;
    }
  }
  const int result = serve(socket, control, options, log_file);
  if (log_file != stderr) std::fclose(log_file);
  return result;
}
