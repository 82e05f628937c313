// SPDX-License-Identifier: Apache-2.0
// The virtual board behind the Port interface, in the place of a kernel driver: buffers in plain memory, the MMU off,
// jobs run inline. It counts what is allocated, so that a test can say that nothing leaked.
#pragma once

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "devices/rknpu/driver/port.h"
#include "devices/rknpu/emit/chain.h"
#include "devices/rknpu/hw/registers.h"
#include "kernel/include/vboard/vboard_regs.h"
#include "tests/board/rk3588/board.h"
#include "tests/unit/rknpu/distance.h"

namespace npud::rknpu {

class BoardPort final : public Port, rk3588::Dma {
 public:
  struct State {  // outlives the port
    uint64_t allocated_bytes = 0;
    uint32_t buffers = 0;
    std::string log;
    rk3588::Board* board = nullptr;
  };

  BoardPort(State& state, uint64_t space_bytes, uint32_t spaces = 1, const rk3588::Options& options = {})
      : state_(state),
        memory_(space_bytes * spaces),
        board_(options, {.dma = this,
                         .interrupt = {},
                         .now_us = [this] { return now_us_ += 10; },
                         .log = [this](std::string_view line) { state_.log.append(line).append("\n"); }}) {
    state_.board = &board_;
    info_ = {.node = "virtual",
             .driver = "board 0.9.8",
             .isolated = true,
             .fences = true,
             .cores = VBOARD_CORES,
             .spaces = spaces,
             .space_bytes = space_bytes};
  }
  ~BoardPort() override { state_.board = nullptr; }

  const PortInfo& info() const override { return info_; }

  Result<Memory> allocate(uint32_t space, uint64_t bytes, Caching caching) override {
    const std::lock_guard lock(mutex_);
    const uint64_t size = (bytes + 4095) / 4096 * 4096;
    uint64_t at = space * info_.space_bytes;
    for (const auto& [start, length] : taken_) {  // first fit; taken_ is ordered
      if (start + length <= at || start >= (space + 1) * info_.space_bytes) continue;
      if (start >= at + size) break;
      at = start + length;
    }
    if (at + size > (space + 1) * info_.space_bytes) {
      return std::unexpected(
          Error{ErrorCode::resource_exhausted, "the space is full", {}, size, (space + 1) * info_.space_bytes - at});
    }
    taken_[at] = size;
    state_.allocated_bytes += size;
    ++state_.buffers;
    std::memset(memory_.data() + at, 0, size);
    return Memory{.handle = ++handles_,
                  .cookie = at,
                  .space = space,
                  .address = static_cast<uint32_t>(at),
                  .caching = caching,
                  .bytes = std::span(memory_).subspan(at, size)};
  }
  void release(Memory& memory) noexcept override {
    if (memory.bytes.empty()) return;
    const std::lock_guard lock(mutex_);
    state_.allocated_bytes -= memory.bytes.size();
    --state_.buffers;
    taken_.erase(memory.address);
    memory = {};
  }
  Result<> to_device(const Memory&, uint64_t, uint64_t) override { return {}; }
  Result<> from_device(const Memory& memory, uint64_t offset, uint64_t size) override {
    if (falsify) falsify(memory.bytes.subspan(offset, size));
    return {};
  }
  void write_tasks(const Memory& memory, std::span<const TaskEntry> tasks) override {
    std::memcpy(memory.bytes.data(), tasks.data(), tasks.size_bytes());
  }

  Result<> run(const Submission& s) override {
    if (on_run) on_run(s);
    const std::lock_guard lock(mutex_);
    const PlainFloats plain;
    // As the driver does when one core is dead for good.
    if (refuse_gangs && s.cores.size() > 1) return fail(ErrorCode::internal, "a core is dead");
    for (std::size_t core = 0; core < s.cores.size(); ++core) start(static_cast<uint32_t>(core), s, s.cores[core]);
    board_.run_until_idle();
    Result<> verdict;
    for (std::size_t core = 0; core < s.cores.size(); ++core) {
      const uint32_t window = static_cast<uint32_t>(core) * VBOARD_CORE_STRIDE;
      if (board_.read32(VBOARD_BAR_REGS, window + reg::kPcInterruptStatus) & kDpuInterrupts) continue;
      verdict = fail(ErrorCode::deadline_exceeded, "no interrupt came; the core was reset");
      board_.write32(VBOARD_BAR_CONTROL, VBOARD_RESET, VBOARD_RESET_A(core) | VBOARD_RESET_H(core));
      board_.write32(VBOARD_BAR_CONTROL, VBOARD_RESET, 0);
    }
    return verdict;
  }

  void arm(uint32_t kind, uint32_t core, uint32_t arg, uint32_t count) {
    for (const auto& [offset, value] : {std::pair{VBOARD_FAULT_KIND, kind},
                                        {VBOARD_FAULT_CORE, core},
                                        {VBOARD_FAULT_ARG, arg},
                                        {VBOARD_FAULT_COUNT, count},
                                        {VBOARD_FAULT_ARM, 1u}}) {
      board_.write32(VBOARD_BAR_CONTROL, static_cast<uint32_t>(offset), value);
    }
  }

  bool refuse_gangs = false;
  std::function<void(const Submission&)> on_run;      // before a job, outside of any lock
  std::function<void(std::span<std::byte>)> falsify;  // results on their way back

  void clear() { board_.write32(VBOARD_BAR_CONTROL, VBOARD_FAULT_CLEAR, 1); }

 private:
  // The board computes on the caller's thread, where ONNX Runtime may have had denormals read as zero; a board of its
  // own doesn't.
  struct PlainFloats {
    PlainFloats() { std::fegetenv(&before), std::fesetenv(FE_DFL_ENV); }
    ~PlainFloats() { std::fesetenv(&before); }
    std::fenv_t before;
  };

  void start(uint32_t core, const Submission& s, const CoreTasks& part) {
    TaskEntry first;
    std::memcpy(&first, s.tasks->bytes.data() + part.first * sizeof(TaskEntry), sizeof first);
    auto write = [&](uint32_t offset, uint32_t value) {
      board_.write32(VBOARD_BAR_REGS, core * VBOARD_CORE_STRIDE + offset, value);
    };
    write(reg::kPcBaseAddress, 1);
    write(reg::kCnaSPointer, 0xe + 0x10000000 * core);
    write(reg::kCoreSPointer, 0xe + 0x10000000 * core);
    write(reg::kPcBaseAddress, first.words_address);
    write(reg::kPcRegisterAmounts, amount_for_words(first.amount_words + kTrailerWords));
    write(reg::kPcInterruptMask, kDpuInterrupts);
    write(reg::kPcInterruptClear, 0x1ffff);
    write(reg::kPcTaskCon, 7u << 12 | part.count);
    write(reg::kPcTaskDmaBaseAddr, 0);
    write(reg::kPcOperationEnable, 1);
    write(reg::kPcOperationEnable, 0);
  }

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

  State& state_;
  PortInfo info_;
  std::vector<std::byte> memory_;
  std::map<uint64_t, uint64_t> taken_;
  uint32_t handles_ = 0;
  uint64_t now_us_ = 0;
  std::mutex mutex_;
  rk3588::Board board_;
};

}  // namespace npud::rknpu
