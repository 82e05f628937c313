// SPDX-License-Identifier: Apache-2.0
// The command words that an RK3588 core's program counter (PC) fetches: 64 bits, little endian,
//   target << 48 | value << 16 | register offset,
// as Mesa's rocket driver emits them (rkt_regcmd.c) and mtx512/rk3588-npu documents them (npu_hw.h).
#pragma once

#include <cstdint>

namespace npud::rknpu {

// Who takes a word. The low bit is the write; 0x41 and 0x81 come from the RK3588 TRM as quoted in Mesa's rkt_regcmd.c.
enum class Target : uint16_t {
  kNone = 0x0000,     // filler, does nothing
  kFiller = 0x0001,   // the same, as some generators write it
  kBarrier = 0x0041,  // must stand before kEnable
  kEnable = 0x0081,   // starts the blocks named by the value; ends the task
  kPc = 0x0101,
  kCna = 0x0201,
  kCsc = 0x0401,
  kCore = 0x0801,
  kDpu = 0x1001,
  kRdma = 0x2001,
  kPpu = 0x4001,
  kPpuRdma = 0x8001,
};

struct Command {
  Target target = Target::kNone;
  uint16_t reg = 0;
  uint32_t value = 0;

  friend bool operator==(const Command&, const Command&) = default;
};

constexpr uint64_t encode(Command c) {
  return static_cast<uint64_t>(c.target) << 48 | static_cast<uint64_t>(c.value) << 16 | c.reg;
}

constexpr Command decode(uint64_t word) {
  return {static_cast<Target>(word >> 48), static_cast<uint16_t>(word), static_cast<uint32_t>(word >> 16)};
}

// Bits of the value of a kEnable word. A GEMM or convolution is 0x0d, with bias or element-wise operand 0x1d; the DPU
// alone on data from memory is 0x18, the pooling unit 0x60.
inline constexpr uint32_t kEnablePc = 1u << 0;
inline constexpr uint32_t kEnableCna = 1u << 2;
inline constexpr uint32_t kEnableDpu = 1u << 3;
inline constexpr uint32_t kEnableRdma = 1u << 4;
inline constexpr uint32_t kEnablePpu = 1u << 5;
inline constexpr uint32_t kEnablePpuRdma = 1u << 6;

// A task's words end with four: next address (or filler), next amount, barrier, enable.
inline constexpr unsigned kTrailerWords = 4;
// PC_DATA_AMOUNT counts in units of two words, minus one.
inline constexpr unsigned kAmountScale = 2;

// The amount register's value for `words` command words, trailer included.
constexpr uint32_t amount_for_words(uint32_t words) { return (words + kAmountScale - 1) / kAmountScale - 1; }
constexpr uint32_t words_for_amount(uint32_t amount) { return ((amount & 0xffff) + 1) * kAmountScale; }

}  // namespace npud::rknpu
