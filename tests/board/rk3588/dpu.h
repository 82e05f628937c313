// SPDX-License-Identifier: Apache-2.0
// The DPU: accumulators (or a cube from memory) through BS, BN, EW and the output converter into surfaces. Pure
// arithmetic on buffers. Order of the stages and their formulas: NVDLA's single data processor, of which this is a
// descendant; converter formulas as public drivers program them (Mesa rkt_regcmd.c, rockchip-npu-notes
// out-cvt-converter.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "conv.h"
#include "devices/rknpu/hw/task.h"
#include "lut.h"

namespace npud::rk3588 {

// What RDMA read for the task; empty where the task doesn't ask.
struct DpuOperands {
  std::vector<std::byte> source;       // [surface][height][width] atoms, when DpuTask::from_memory
  std::vector<std::byte> bs;           // 4 bytes a channel
  std::vector<std::byte> bn;           // 4 bytes a channel
  std::vector<std::byte> elementwise;  // [surface][height][width] atoms
  LookupTables lut;                    // what they held, for DpuTask::lut
};

// The result as it goes to memory.
struct Surfaces {
  std::vector<std::byte> bytes;  // [surface][height][width] atoms
  struct Run {                   // contiguous in memory
    uint32_t address;
    size_t offset;  // in `bytes`
    size_t size;
  };
  std::vector<Run> runs;
};

// Accumulators for the DPU alone: the source cube widened.
Accumulators widen_source(const rknpu::DpuTask& task, std::span<const std::byte> source);

// What public reports tell differently.
struct DpuQuirks {
  bool signed_scale = false;    // bit 15 of the output converter's scale is its sign
  bool nearest_shift = false;   // its shift rounds int32 and fp32 results too, as it does int8 ones
  bool lut_zero_wrong = false;  // see convert_affine()
};

Surfaces run_dpu(const rknpu::DpuTask& task, const Accumulators& input, const DpuOperands& operands,
                 const DpuQuirks& quirks = {});

// x / 2^shift, rounded to nearest.
int64_t shift_half_even(int64_t value, uint32_t shift);
int64_t shift_half_away(int64_t value, uint32_t shift);

}  // namespace npud::rk3588
