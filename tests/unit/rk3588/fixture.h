// SPDX-License-Identifier: Apache-2.0
// A board with memory, a clock that stands still until moved, and hands: what the tests of the virtual RK3588 share.
// Task words are built here by hand, from the public descriptions of the registers, and by nothing that the board
// itself uses for arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "devices/rknpu/hw/command.h"
#include "devices/rknpu/hw/layout.h"
#include "kernel/include/vboard/vboard_regs.h"
#include "tests/board/rk3588/board.h"

namespace npud::rk3588::test {

// Memory from kBase on; accesses outside fail as on a bus without memory there.
class Memory : public Dma {
 public:
  static constexpr uint64_t kBase = 0x40000000;
  explicit Memory(size_t size_bytes);
  bool read(uint64_t address, std::span<std::byte> to) override;
  bool write(uint64_t address, std::span<const std::byte> from) override;
  std::byte* at(uint64_t address, size_t size);

  template <typename T>
  T get(uint64_t address) {
    T value;
    std::memcpy(&value, at(address, sizeof(T)), sizeof(T));
    return value;
  }
  template <typename T>
  void put(uint64_t address, T value) {
    std::memcpy(at(address, sizeof(T)), &value, sizeof(T));
  }

 private:
  bool holds(uint64_t address, size_t size) const { return address >= kBase && address - kBase + size <= size_bytes_; }

  // From calloc: pages that no test touches cost nothing.
  const size_t size_bytes_;
  const std::unique_ptr<std::byte[], void (*)(void*)> bytes_;
};

// One convolution, GEMM or element-wise task in the tests' own terms.
struct TaskSpec {
  bool conv = true;  // false: the DPU alone, on a source from memory
  bool depthwise = false;
  rknpu::Precision in = rknpu::Precision::kInt8;
  rknpu::Precision out = rknpu::Precision::kInt32;
  uint32_t width = 1, height = 8, channels = 32, kernels = 32;
  uint32_t kernel_width = 1, kernel_height = 1, stride_x = 1, stride_y = 1, pad_left = 0, pad_top = 0;
  uint32_t dilation_x = 1, dilation_y = 1;
  uint32_t out_width = 1, out_height = 8;
  int32_t pad_value = 0;
  uint32_t features = 0, weights = 0, output = 0;
  uint32_t out_channels = 0;  // 0: kernels
  bool rows = false;          // features and results in rows (GROUP_LINE_OFF), not surfaces
  uint32_t data_banks = 0;    // 0: what the features need
  bool weight_reuse = false, data_reuse = false;
  uint32_t bias = 0;  // address of 4 bytes a channel
  bool relu = false;
  uint32_t relu_limit = 0;
  uint32_t ew = 0;  // address of the operand
  bool ew_multiply = false;
  uint32_t ew_algo = 2;
  uint32_t ew_bytes = 0;         // 0: as the input precision
  bool ew_both_readers = false;  // COMB_USE 5, beside a convolution
  int32_t ew_offset = 0;
  uint32_t ew_scale = 1, ew_shift = 0;
  int32_t out_offset = 0;
  uint32_t out_scale = 1, out_shift = 0;
  int16_t input_sum_factor = 0;  // minus the zero point of the weights; of int8 results only

  uint32_t enable() const;
  uint32_t dpu_channels() const { return out_channels != 0 ? out_channels : kernels; }
};

// The task's words without trailer.
std::vector<uint64_t> task_words(const TaskSpec& spec);
// Replaces the value of the word for `reg`, or appends one for its block.
void patch(std::vector<uint64_t>& words, uint16_t reg, uint32_t value);

class TestBoard {
 public:
  explicit TestBoard(const std::vector<const char*>& options = {}, size_t memory_bytes = 32u << 20);

  // Memory, 64-byte aligned; addresses are also device addresses while no bank pages.
  uint32_t allocate(size_t bytes, size_t alignment = 64);
  template <typename T>
  uint32_t upload(std::span<const T> values) {
    const uint32_t address = allocate(values.size_bytes());
    std::memcpy(memory.at(address, values.size_bytes()), values.data(), values.size_bytes());
    return address;
  }
  template <typename T>
  std::vector<T> download(uint32_t address, size_t count) {
    std::vector<T> values(count);
    std::memcpy(values.data(), memory.at(address, count * sizeof(T)), count * sizeof(T));
    return values;
  }

  // Registers of core `core`.
  uint32_t core_read(unsigned core, uint32_t offset) {
    return board.read32(VBOARD_BAR_REGS, core * VBOARD_CORE_STRIDE + offset);
  }
  void core_write(unsigned core, uint32_t offset, uint32_t value) {
    board.write32(VBOARD_BAR_REGS, core * VBOARD_CORE_STRIDE + offset, value);
  }
  // The interrupt bits of the raw status, without those above that tell whether the core worked.
  uint32_t raw(unsigned core = 0) { return core_read(core, 0x2c) & 0x1ffff; }
  uint32_t bank_read(unsigned bank, uint32_t offset);
  void bank_write(unsigned bank, uint32_t offset, uint32_t value);
  uint32_t control(uint32_t offset) { return board.read32(VBOARD_BAR_CONTROL, offset); }
  void control(uint32_t offset, uint32_t value) { board.write32(VBOARD_BAR_CONTROL, offset, value); }
  void arm(vboard_fault kind, uint32_t core, uint32_t arg = 0, uint32_t count = 1);
  // Through VBOARD_OPTION, as guests set it. False: it was refused.
  bool set_option(std::string_view assignment);

  // Writes the words of the tasks to memory as a chain, each followed by its trailer. Returns the first one's address;
  // the words of the first task with trailer go to `first_words`.
  struct Chain {
    uint32_t address = 0;
    uint32_t words = 0;
    uint32_t tasks = 0;
  };
  Chain chain(const std::vector<TaskSpec>& tasks);
  Chain chain_words(const std::vector<std::vector<uint64_t>>& tasks, uint32_t enable);
  // Programs the PC as drivers do and enables it.
  void submit(const Chain& chain, unsigned core = 0, bool ping_pong = true);
  // submit() and run until idle.
  void run(const Chain& chain, unsigned core = 0, bool ping_pong = true);
  void run(const TaskSpec& task, unsigned core = 0) { run(chain({task}), core); }
  // Whether the job that was run completed, and its interrupt acknowledged.
  bool completed(unsigned core = 0);
  bool logged(std::string_view part) const;

  // Page tables: maps `pages` pages of device memory from `device` to `physical` on a table of its own.
  struct Table {
    uint32_t directory = 0;
  };
  Table make_table();
  void map(const Table& table, uint32_t device, uint64_t physical, uint32_t pages, uint32_t flags = 7);
  void unmap(const Table& table, uint32_t device);
  void enable_paging(unsigned bank, const Table& table);

  Memory memory;
  uint32_t interrupts = 0x300;  // that submit() unmasks and completed() looks for
  uint64_t now_us = 1000;
  std::vector<std::string> log;
  uint32_t sources = 0;  // last told by the interrupt callback
  unsigned source_changes = 0;
  Board board;

 private:
  uint32_t next_ = static_cast<uint32_t>(Memory::kBase) + 0x10000;
};

// Fixed seeds: the same shapes and values in every run.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(engine_() % bound); }
  uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
  int8_t int8() { return static_cast<int8_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

}  // namespace npud::rk3588::test
