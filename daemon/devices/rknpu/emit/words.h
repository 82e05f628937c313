// SPDX-License-Identifier: Apache-2.0
// Command words of one convolution task. Register names and fields are those of hw/registers.h; which values go
// together is known from Mesa's rkt_regcmd.c and mtx512/rk3588-npu npu_matmul.c.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/error.h"
#include "devices/rknpu/emit/plan.h"
#include "devices/rknpu/hw/command.h"

namespace npud::rknpu {

// Where the cubes of a plan lie: device addresses (IOVA, 32 bits), multiples of 16.
struct ConvAddresses {
  uint32_t features = 0;
  uint32_t weights = 0;
  uint32_t output = 0;
  std::optional<uint32_t> bias;  // int32 (int8 input) or fp32 (fp16 input), one a kernel
};

// What happens to the accumulators before they are written.
struct ConvEpilogue {
  bool relu = false;
  // int8 output only: clamp(round_half_even(acc * scale >> shift) + offset).
  int32_t scale = 1;
  uint32_t shift = 0;
  int32_t offset = 0;
  int32_t pad_value = 0;  // what padding reads as: int8 value, or fp16 bits
};

struct TaskWords {
  std::vector<uint64_t> words;  // without the trailer
  uint32_t enable = 0;          // value of the enable word
};

// Every register of the task is written, since the register file outlives it. Fails with invalid_argument where
// predicates or addresses forbid the task; the words then don't exist.
Result<TaskWords> emit_band(const ConvPlan& plan, const Band& band, const ConvAddresses& at,
                            const ConvEpilogue& epilogue = {});

}  // namespace npud::rknpu
