// SPDX-License-Identifier: Apache-2.0
#include "faults.h"

#include <algorithm>
#include <iterator>

namespace npud::rk3588 {
namespace {

constexpr std::string_view kNames[] = {
    "none",           "dispatch-drop", "stall",           "irq-late",         "irq-lost",
    "irq-spurious",   "irq-early",     "mmu-no-readback", "dead-until-reset", "dead",
    "unmapped-hangs", "wrong-bit",     "stall-refused",   "stale-operands",   "never-starts",
    "rate-unpowered", "status-lags",
};
static_assert(std::size(kNames) == VBOARD_FAULT_STATUS_LAGS + 1);

bool matches(const Fault& fault, vboard_fault kind, uint32_t core) {
  return fault.kind == kind && (fault.core == VBOARD_FAULT_ANY_CORE || fault.core == core);
}

}  // namespace

std::string_view fault_name(vboard_fault kind) {
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : std::string_view{};
}

std::optional<vboard_fault> fault_by_name(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name);
  if (found == std::end(kNames) || found == std::begin(kNames)) return std::nullopt;
  return static_cast<vboard_fault>(found - std::begin(kNames));
}

bool fault_is_valid(const Fault& fault) {
  if (fault.kind == VBOARD_FAULT_NONE || fault_name(fault.kind).empty()) return false;
  const bool of_bank = fault.kind == VBOARD_FAULT_MMU_NO_READBACK || fault.kind == VBOARD_FAULT_STALL_REFUSED;
  const uint32_t number = of_bank ? VBOARD_BANKS : VBOARD_CORES;
  return fault.core < number || fault.core == VBOARD_FAULT_ANY_CORE;
}

void Faults::arm(const Fault& fault) {
  std::lock_guard lock(mutex_);
  armed_.push_back(fault);
}

void Faults::disarm_all() {
  std::lock_guard lock(mutex_);
  armed_.clear();
}

unsigned Faults::armed() const {
  std::lock_guard lock(mutex_);
  return static_cast<unsigned>(armed_.size());
}

uint64_t Faults::strikes() const {
  std::lock_guard lock(mutex_);
  return strikes_;
}

void Faults::reset() {
  std::lock_guard lock(mutex_);
  armed_.clear();
  strikes_ = 0;
}

std::optional<uint32_t> Faults::strike(vboard_fault kind, uint32_t core,
                                       const std::function<bool(uint32_t arg)>& applies) {
  std::lock_guard lock(mutex_);
  for (auto fault = armed_.begin(); fault != armed_.end(); ++fault) {
    if (!matches(*fault, kind, core) || (applies && !applies(fault->arg))) continue;
    const uint32_t arg = fault->arg;
    ++strikes_;
    if (fault->left != 0 && --fault->left == 0) armed_.erase(fault);
    return arg;
  }
  return std::nullopt;
}

}  // namespace npud::rk3588
