// SPDX-License-Identifier: Apache-2.0
// One MMU bank: the registers that Linux' rockchip-iommu drives, a walker of its two-level tables (version 2 entries,
// RK3568 and later), and a TLB that really caches, so that a missing zap shows. Thread-safe: the core's worker
// translates while registers are written; a command has taken effect on all accesses when its write returns.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>

#include "board.h"
#include "counters.h"
#include "faults.h"

namespace npud::rk3588 {

// How an access ended. Everything but kDone leaves the rest of the range untouched.
enum class Access {
  kDone,
  kWait,      // the bank is stalled or has faulted: try again when it wakes the core
  kBusError,  // the bus has no memory there
  kHang,      // the fault "unmapped-hangs" struck
  kAborted,   // the core was reset meanwhile
};

// The core's side of an access: which run of the core it belongs to. It is aborted as soon as `current` differs from
// `mine`.
struct RunToken {
  const std::atomic<uint64_t>* current = nullptr;
  uint64_t mine = 0;
  bool stale() const { return current->load(std::memory_order_acquire) != mine; }
};

class MmuBank {
 public:
  struct Wiring {
    unsigned bank = 0;
    unsigned core = 0;
    Dma* dma = nullptr;
    Faults* faults = nullptr;
    Counters* counters = nullptr;  // of the core
    std::function<void(bool level)> interrupt;
    std::function<void()> wake;          // the core may go on
    std::function<bool()> core_is_live;  // a job is under way
    std::function<void(std::string_view)> driver_fault;
  };

  MmuBank(Wiring wiring, const Options& options);
  void set_options(const Options& options);

  uint32_t read(uint32_t offset);
  void write(uint32_t offset, uint32_t value);
  void reset();
  // Returns when no access that began before is still under way.
  void barrier();

  // Copies between memory at device address `address` and the span, page by page. `done` counts the bytes of this span
  // that were copied, before the call and after it, so that a call can be repeated.
  Access read_memory(uint32_t address, std::span<std::byte> to, size_t& done, const RunToken& token);
  Access write_memory(uint32_t address, std::span<const std::byte> from, size_t& done, const RunToken& token);

  // Whether accesses have to wait for the driver.
  bool blocked() const;

 private:
  static constexpr unsigned kLineEntries = 16;  // 64 bytes
  using Line = std::array<uint32_t, kLineEntries>;
  struct Translation {
    Access access = Access::kDone;
    uint64_t physical = 0;
    bool dropped = false;  // the page fault was waved through: reads give 0, writes go nowhere
  };

  void command(uint32_t value);
  bool may_stall() const;
  void force_reset();
  Translation translate(uint32_t address, bool write);
  Access fault(uint32_t address, bool write, bool bus_error);
  std::optional<Line> fetch_line(uint64_t table, uint32_t index);
  void update_interrupt();
  template <typename Copy>
  Access copy(uint32_t address, size_t size, size_t& done, bool write, const RunToken& token, Copy&& piece);

  const Wiring wiring_;
  mutable std::mutex mutex_;  // guards all below
  Options options_;
  uint32_t dte_addr_ = 0;
  uint32_t fault_addr_ = 0;
  uint32_t int_raw_ = 0;
  uint32_t int_mask_ = 0;
  uint32_t auto_gating_ = 0;
  bool paging_ = false;
  bool stall_ = false;
  bool fault_active_ = false;
  bool fault_is_write_ = false;
  std::optional<uint32_t> dropped_page_;                // by PAGE_FAULT_DONE where faults are dropped
  std::unordered_map<uint32_t, Line> directory_lines_;  // by directory index / 16
  std::unordered_map<uint32_t, Line> page_lines_;       // by address / (16 pages)
};

}  // namespace npud::rk3588
