// SPDX-License-Identifier: Apache-2.0
// The GEMM tasks that the guest programs and kernel test modules emit by hand, on the virtual board without a guest.
#include "kernel/tests/npu_gemm.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel/include/vboard/vboard_regs.h"
#include "tests/board/rk3588/board.h"

namespace npud::rk3588 {
namespace {

constexpr uint32_t kFeatures = 0x10000, kWeights = 0x40000, kOut = 0x80000, kMemory = 0x100000;

struct Memory : Dma {
  std::vector<std::byte> bytes = std::vector<std::byte>(kMemory);
  bool read(uint64_t address, std::span<std::byte> to) override {
    if (address > bytes.size() || to.size() > bytes.size() - address) return false;
    std::memcpy(to.data(), bytes.data() + address, to.size());
    return true;
  }
  bool write(uint64_t address, std::span<const std::byte> from) override {
    if (address > bytes.size() || from.size() > bytes.size() - address) return false;
    std::memcpy(bytes.data() + address, from.data(), from.size());
    return true;
  }
};

struct Rig {
  Memory memory;
  uint64_t clock_us = 0;
  std::string log;
  Board board{Options{}, Environment{.dma = &memory,
                                     .interrupt = {},
                                     .now_us = [this] { return clock_us; },
                                     .log = [this](std::string_view line) { log += std::string(line) + "\n"; }}};

  void write(unsigned core, uint32_t offset, uint32_t value) {
    board.write32(VBOARD_BAR_REGS, core * VBOARD_CORE_STRIDE + offset, value);
  }

  // As the drivers do it; returns INT_RAW.
  uint32_t run(unsigned core, uint32_t tasks) {
    write(core, 0x10, 1);
    write(core, 0x1004, 0xe + 0x10000000 * core);
    write(core, 0x3004, 0xe + 0x10000000 * core);
    write(core, 0x10, 0x1000);
    write(core, 0x14, npu_gemm_amount(NPU_GEMM_BODY_WORDS));
    write(core, 0x24, 0x1ffff);
    write(core, 0x20, NPU_GEMM_INT_MASK);
    write(core, 0x30, 7u << 12 | tasks);
    write(core, 0x34, 0);
    write(core, 0x08, 1);
    write(core, 0x08, 0);
    board.run_until_idle();
    return board.read32(VBOARD_BAR_REGS, core * VBOARD_CORE_STRIDE + 0x2c);
  }
};

npu_gemm shape(uint32_t m, uint32_t k, uint32_t n, bool fp16, uint32_t seed) {
  return {.m = m, .k = k, .n = n, .fp16 = fp16, .seed = seed, .features = kFeatures, .weights = kWeights, .out = kOut};
}

void expect_right(const npu_gemm& g, unsigned core) {
  ASSERT_TRUE(npu_gemm_valid(&g));
  Rig rig;
  npu_gemm_emit(reinterpret_cast<__u64*>(rig.memory.bytes.data() + 0x1000), &g, 0);
  npu_gemm_fill(&g, rig.memory.bytes.data() + kFeatures, rig.memory.bytes.data() + kWeights);
  EXPECT_TRUE(rig.run(core, 1) & NPU_GEMM_INT_MASK) << rig.log;
  EXPECT_EQ(npu_gemm_wrong(&g, reinterpret_cast<const __u32*>(rig.memory.bytes.data() + kOut)), 0u)
      << "m " << g.m << " k " << g.k << " n " << g.n << (g.fp16 ? " fp16\n" : " int8\n") << rig.log;
}

TEST(NpuGemm, Int8IsRightOnTheBoard) {
  expect_right(shape(4, 32, 32, false, 1), 0);
  expect_right(shape(8, 64, 32, false, 2), 1);
  expect_right(shape(64, 128, 96, false, 3), 2);
  expect_right(shape(128, 512, 32, false, 4), 0);
  expect_right(shape(16, 1024, 64, false, 5), 1);
}

TEST(NpuGemm, Fp16IsRightOnTheBoard) {
  expect_right(shape(4, 32, 32, true, 1), 0);
  expect_right(shape(8, 64, 32, true, 2), 1);
  expect_right(shape(64, 256, 64, true, 3), 2);
  expect_right(shape(64, 512, 32, true, 4), 0);
  expect_right(shape(12, 96, 160, true, 5), 1);
}

TEST(NpuGemm, TasksChain) {
  constexpr unsigned kTasks = 5;
  Rig rig;
  npu_gemm g = shape(8, 64, 32, true, 7);
  for (unsigned i = 0; i < kTasks; i++) {
    const uint32_t at = 0x1000 + i * NPU_GEMM_SLOT_BYTES;
    g.out = kOut + i * npu_gemm_out_bytes(&g);
    npu_gemm_emit(reinterpret_cast<__u64*>(rig.memory.bytes.data() + at), &g,
                  i + 1 < kTasks ? at + NPU_GEMM_SLOT_BYTES : 0);
  }
  npu_gemm_fill(&g, rig.memory.bytes.data() + kFeatures, rig.memory.bytes.data() + kWeights);
  EXPECT_TRUE(rig.run(0, kTasks) & NPU_GEMM_INT_MASK) << rig.log;
  for (unsigned i = 0; i < kTasks; i++) {
    EXPECT_EQ(
        npu_gemm_wrong(&g, reinterpret_cast<const __u32*>(rig.memory.bytes.data() + kOut + i * npu_gemm_out_bytes(&g))),
        0u)
        << i;
  }
}

// The check itself must be able to fail.
TEST(NpuGemm, OneWrongBitIsFound) {
  const npu_gemm g = shape(8, 64, 32, false, 9);
  std::vector<__u32> out(g.m * g.n);
  for (uint32_t m = 0; m < g.m; m++)
    for (uint32_t n = 0; n < g.n; n++) out[npu_gemm_out_index(&g, m, n)] = npu_gemm_expected(&g, m, n);
  EXPECT_EQ(npu_gemm_wrong(&g, out.data()), 0u);
  out[77] ^= 1u << 13;
  EXPECT_EQ(npu_gemm_wrong(&g, out.data()), 1u);
}

}  // namespace
}  // namespace npud::rk3588
