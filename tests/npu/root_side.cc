// SPDX-License-Identifier: Apache-2.0
#include "root_side.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace npud::guest {
namespace {

constexpr const char* kFault = "/sys/kernel/debug/npud_vboard/fault";
constexpr const char* kCounters = "/sys/kernel/debug/npud_vboard/counters";
constexpr const char* kState = "/sys/kernel/debug/rknpu/npud/state";

[[noreturn]] void bail_out(const std::string& why) {
  std::printf("Bail out! %s\n", why.c_str());
  std::fflush(stdout);
  _exit(1);
}

std::string contents(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The process that stays root.
class Servant {
 public:
  std::string answer(const std::string& request) {
    std::istringstream words(request);
    std::string what;
    words >> what;
    if (what == "start") {
      std::ofstream("/tmp/npud.toml") << request.substr(6);
      npud_ = fork();
      if (npud_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int log = open("/tmp/npud.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        dup2(log, 1);
        dup2(log, 2);
        execl("./npud", "npud", "--config", "/tmp/npud.toml", nullptr);
        _exit(127);
      }
      return "";
    }
    if (what == "kill" || what == "stop") {
      ::kill(npud_, what == "kill" ? SIGKILL : SIGTERM);
      int status = 0;
      waitpid(npud_, &status, 0);
      npud_ = 0;
      return std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    if (what == "runs") return npud_ > 0 && waitpid(npud_, nullptr, WNOHANG) == 0 ? "1" : "0";
    if (what == "fault") {
      std::ofstream file(kFault);
      file << request.substr(6) << std::flush;
      if (!file) bail_out(std::string("can't write to ") + kFault);
      return "";
    }
    if (what == "fired") return std::to_string(state_value(contents(kFault), "fired"));
    if (what == "state") return contents(kState);
    if (what == "counters") return contents(kCounters);
    if (what == "tenant") {
      unsigned uid = 0;
      words >> uid;
      std::vector<std::string> arguments{std::istream_iterator<std::string>(words), {}};
      const int process = fork();
      if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setgroups(0, nullptr) != 0 || setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) _exit(126);
        std::vector<char*> argv{const_cast<char*>("guest-test")};
        for (std::string& word : arguments) argv.push_back(word.data());
        argv.push_back(nullptr);
        execv("/proc/self/exe", argv.data());
        _exit(127);
      }
      return std::to_string(process);
    }
    if (what == "end") {
      int process = 0;
      words >> process;
      ::kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
      return "";
    }
    bail_out("nobody knows how to " + request);
  }

 private:
  pid_t npud_ = 0;
};

}  // namespace

RootSide::RootSide() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) bail_out("no socket pair");
  std::fflush(stdout);
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    Servant servant;
    chmod("/tmp", 01777);
    std::vector<char> buffer(64 << 10);
    for (ssize_t got; (got = recv(ends[1], buffer.data(), buffer.size(), 0)) > 0;) {
      const std::string reply = servant.answer(std::string(buffer.data(), static_cast<std::size_t>(got))) + "\n";
      if (send(ends[1], reply.data(), reply.size(), 0) < 0) break;
    }
    _exit(0);
  }
  close(ends[1]);
  socket_ = ends[0];
}

RootSide::~RootSide() { close(socket_); }

std::string RootSide::ask(const std::string& request) {
  std::vector<char> buffer(64 << 10);
  if (send(socket_, request.data(), request.size(), 0) < 0) bail_out("the root side is gone");
  const ssize_t got = recv(socket_, buffer.data(), buffer.size(), 0);
  if (got <= 0) bail_out("the root side is gone");
  return std::string(buffer.data(), static_cast<std::size_t>(got) - 1);
}

void RootSide::start_npud(const std::string& toml) { ask("start " + toml); }
void RootSide::kill_npud() { ask("kill"); }
int RootSide::stop_npud() { return std::atoi(ask("stop").c_str()); }
bool RootSide::npud_runs() { return ask("runs") == "1"; }
void RootSide::strike(unsigned kind, unsigned core, unsigned arg, unsigned count) {
  ask("fault " + std::to_string(kind) + " " + std::to_string(core) + " " + std::to_string(arg) + " " +
      std::to_string(count));
}
void RootSide::clear_strikes() { ask("fault clear"); }
unsigned RootSide::strikes_fired() { return static_cast<unsigned>(std::atoi(ask("fired").c_str())); }
std::string RootSide::driver_state() { return ask("state"); }
unsigned RootSide::board_driver_faults() {
  return static_cast<unsigned>(state_value(ask("counters"), "driver_faults"));
}
int RootSide::start_tenant(unsigned uid, const std::string& words) {
  return std::atoi(ask("tenant " + std::to_string(uid) + " " + words).c_str());
}
void RootSide::kill(int process) { ask("end " + std::to_string(process)); }

long long state_value(const std::string& state, const std::string& name) {
  std::istringstream lines(state);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + " ")) return std::strtoll(line.c_str() + name.size() + 1, nullptr, 10);
  }
  return -1;
}

}  // namespace npud::guest
