// SPDX-License-Identifier: Apache-2.0
// Faults on demand: what has been armed through the control BAR, and who it strikes. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "kernel/include/vboard/vboard_regs.h"

namespace npud::rk3588 {

struct Fault {
  vboard_fault kind = VBOARD_FAULT_NONE;
  uint32_t core = VBOARD_FAULT_ANY_CORE;  // for the MMU's kinds a bank
  uint32_t arg = 0;
  uint32_t left = 0;  // strikes still to come; 0: without end
};

// "stall", "irq-late" …: the enumerator's name in lower case with dashes. Empty for an unknown kind.
std::string_view fault_name(vboard_fault kind);
std::optional<vboard_fault> fault_by_name(std::string_view name);
// Whether the kind exists and `core` is one of its cores or banks.
bool fault_is_valid(const Fault& fault);

class Faults {
 public:
  void arm(const Fault& fault);
  void disarm_all();
  unsigned armed() const;
  uint64_t strikes() const;
  void reset();  // also the number of strikes

  // Takes one strike of a fault of this kind at `core` for which `applies` (may be empty) is true; returns its
  // argument.
  std::optional<uint32_t> strike(vboard_fault kind, uint32_t core,
                                 const std::function<bool(uint32_t arg)>& applies = {});

 private:
  mutable std::mutex mutex_;
  std::vector<Fault> armed_;  // guarded by mutex_, as all below
  uint64_t strikes_ = 0;
};

}  // namespace npud::rk3588
