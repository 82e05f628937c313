// SPDX-License-Identifier: Apache-2.0
// Counters of one core, indexed by enum vboard_counter. Written by the core's worker and by register accesses, read at
// any time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "kernel/include/vboard/vboard_regs.h"

namespace npud::rk3588 {

class Counters {
 public:
  static constexpr unsigned kNumber = VBOARD_COUNT_IRQS + 1;

  void add(vboard_counter which, uint64_t amount = 1) { values_[which].fetch_add(amount, std::memory_order_relaxed); }
  uint64_t get(unsigned which) const { return which < kNumber ? values_[which].load(std::memory_order_relaxed) : 0; }
  void clear() {
    for (auto& value : values_) value.store(0, std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<uint64_t>, kNumber> values_{};
};

}  // namespace npud::rk3588
