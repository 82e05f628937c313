// SPDX-License-Identifier: Apache-2.0
// What a guest test does as root while its clients have no rights at all: run npud, strike the board, look into the
// driver, start tenants.
#pragma once

#include <string>

namespace npud::guest {

// Forks a process that stays root and does what it is asked, one request after another; it ends with this one.
class RootSide {
 public:
  RootSide();
  ~RootSide();
  RootSide(const RootSide&) = delete;
  RootSide& operator=(const RootSide&) = delete;

  void start_npud(const std::string& toml);  // returns at once
  void kill_npud();                          // SIGKILL, and waits for its end
  int stop_npud();                           // SIGTERM; its exit status, 128 + signal where one ended it
  bool npud_runs();
  void strike(unsigned kind, unsigned core, unsigned arg, unsigned count);  // vboard_regs.h; count 0: until cleared
  void clear_strikes();
  unsigned strikes_fired();
  std::string driver_state();      // debugfs rknpu/npud/state
  unsigned board_driver_faults();  // what no driver may do
  // This program again, as `uid`: argv[1] is `words`' first. Returns its process id.
  int start_tenant(unsigned uid, const std::string& words);
  void kill(int process);

 private:
  std::string ask(const std::string& request);
  int socket_ = -1;
};

// A line "NAME VALUE" of driver_state(); -1: there is none.
long long state_value(const std::string& state, const std::string& name);

}  // namespace npud::guest
