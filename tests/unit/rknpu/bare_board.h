// SPDX-License-Identifier: Apache-2.0
// The virtual board as a library with plain memory behind it and its MMU off: runs the tasks that the emitter makes,
// without a driver.
#pragma once

#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "devices/rknpu/emit/chain.h"
#include "devices/rknpu/hw/registers.h"
#include "kernel/include/vboard/vboard_regs.h"
#include "tests/board/rk3588/board.h"

namespace npud::rknpu {

class BareBoard final : rk3588::Dma {
 public:
  explicit BareBoard(std::size_t bytes, const rk3588::Options& options = {})
      : memory_(bytes),
        board_(options, {.dma = this,
                         .interrupt = {},
                         .now_us = [this] { return ++now_us_; },
                         .log = [this](std::string_view line) { log_.append(line).append("\n"); }}) {}

  std::span<std::byte> at(uint32_t address, std::size_t bytes) { return std::span(memory_).subspan(address, bytes); }
  const std::string& log() const { return log_; }
  void forget_log() { log_.clear(); }
  rk3588::Board& board() { return board_; }

  // Puts the chain at `base` and runs it on a core as the driver would (registers as mainline rocket and the vendor
  // driver write them). True when the last task's interrupt came.
  bool run(unsigned core, const Chain& chain, uint32_t base) {
    const auto linked = chain.link(base);
    if (!linked) return false;
    std::memcpy(memory_.data() + base, linked->words.data(), linked->words.size() * 8);
    const uint32_t window = core * VBOARD_CORE_STRIDE;
    auto write = [&](uint32_t offset, uint32_t value) { board_.write32(VBOARD_BAR_REGS, window + offset, value); };
    write(reg::kPcBaseAddress, 1);
    write(reg::kCnaSPointer, 0xe + 0x10000000 * core);
    write(reg::kCoreSPointer, 0xe + 0x10000000 * core);
    write(reg::kPcBaseAddress, base);
    write(reg::kPcRegisterAmounts, amount_for_words(linked->tasks[0].amount_words + kTrailerWords));
    write(reg::kPcInterruptMask, kDpuInterrupts);
    write(reg::kPcInterruptClear, 0x1ffff);
    write(reg::kPcTaskCon, 6u << 12 | static_cast<uint32_t>(linked->tasks.size()));
    write(reg::kPcTaskDmaBaseAddr, 0);
    write(reg::kPcOperationEnable, 1);
    write(reg::kPcOperationEnable, 0);
    board_.run_until_idle();
    return (board_.read32(VBOARD_BAR_REGS, window + reg::kPcInterruptStatus) & kDpuInterrupts) != 0;
  }

 private:
  bool read(uint64_t address, std::span<std::byte> to) override {
    if (address > memory_.size() || to.size() > memory_.size() - address) return false;
    std::memcpy(to.data(), memory_.data() + address, to.size());
    return true;
  }
  bool write(uint64_t address, std::span<const std::byte> from) override {
    if (address > memory_.size() || from.size() > memory_.size() - address) return false;
    std::memcpy(memory_.data() + address, from.data(), from.size());
    return true;
  }

  std::vector<std::byte> memory_;
  std::string log_;
  uint64_t now_us_ = 0;
  rk3588::Board board_;
};

}  // namespace npud::rknpu
