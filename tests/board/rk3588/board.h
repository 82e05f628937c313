// SPDX-License-Identifier: Apache-2.0
// A virtual RK3588 NPU: three cores, four MMU banks, control registers, faults on demand. A library without input or
// output: register accesses come in, DMA and interrupts go out through what the owner hands in. The BARs are those of
// kernel/include/vboard/vboard_regs.h. README.md beside this file says what is modelled, from which public source, and
// what isn't.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "faults.h"
#include "options.h"

namespace npud::rk3588 {

// Guest memory by bus address. Called from any of the board's threads, also concurrently. False: the range is not
// memory, or not with that right; then nothing was copied.
class Dma {
 public:
  virtual ~Dma() = default;
  virtual bool read(uint64_t address, std::span<std::byte> to) = 0;
  virtual bool write(uint64_t address, std::span<const std::byte> from) = 0;
};

// What the board gets from its owner. The callbacks may come from any thread, with locks of the board held: they must
// not call back into the board.
struct Environment {
  Dma* dma = nullptr;  // required; outlives the board
  // The level of all interrupt sources of lines that aren't masked, whenever it changes: bit n core n, bit 8 + b bank b (as
  // VBOARD_IRQ_STATUS).
  std::function<void(uint32_t sources)> interrupt;
  std::function<uint64_t()> now_us;  // a monotonic clock; required
  std::function<void(std::string_view line)>
      log;  // whole sentences: refused jobs, driver faults, strikes; may be empty
};

// Owns all state of the board. Thread-safe. Jobs run either inline, in run_until_idle(), or on one worker thread a core
// between start_workers() and stop_workers(); not both at once.
class Board {
 public:
  Board(const Options& options, Environment environment);
  ~Board();  // stops the workers
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // One 32-bit access to BAR `bar`. Offsets outside the BAR, unaligned ones and unknown registers read 0 and ignore
  // writes; within a core's window they count as a driver fault. BAR 4 is not the board's: the bus keeps the MSI-X
  // table. A board that is lost (page-2000=lost) reads ~0 everywhere until its reset.
  uint32_t read32(unsigned bar, uint32_t offset);
  void write32(unsigned bar, uint32_t offset, uint32_t value);

  // Function-level reset: everything as after construction, dead cores included. When it returns, no DMA of an earlier
  // job is under way or will follow. Counters go back to zero.
  void reset();

  // Inline execution: works until every core is idle, hung, waiting for the driver (MMU stall or fault) or for the
  // clock.
  void run_until_idle();

  void start_workers();
  void stop_workers();

  // Faults as through the control BAR, for the host. The error says what is wrong with the fault.
  std::expected<void, std::string> arm(const Fault& fault);
  void disarm_all();

  // The words that core `core` fetched for its last task, for disassembly.
  std::vector<uint64_t> last_commands(unsigned core) const;

  // Counter `index` (enum vboard_counter) of a core, and its state as a word: "idle", "running", "waiting", "hung",
  // "dead", "off".
  uint64_t counter(unsigned core, unsigned index) const;
  std::string core_state(unsigned core) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npud::rk3588
