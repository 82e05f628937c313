// SPDX-License-Identifier: Apache-2.0
// CNA and CORE: features and weights as they lie in the CBUF become accumulators. Pure arithmetic on buffers, no memory
// access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "devices/rknpu/hw/task.h"

namespace npud::rk3588 {

// What CORE hands to the DPU: a value for each output position and channel, position-major: [position][channel]. int32
// for int8 tasks, fp32 for fp16 tasks; the other vector is empty.
struct Accumulators {
  uint32_t positions = 0;
  uint32_t channels = 0;
  bool floating = false;
  std::vector<int32_t> integers;
  std::vector<float> floats;
  // Sums of the inputs under the kernel, [position], or [position][channel] for depthwise; empty unless the task asks.
  std::vector<int32_t> input_sums;
};

// `features`: [surface][height][width] atoms of 16 bytes; `weights` as in memory (layout.h). The number of channels of
// the result is the number of kernels.
Accumulators convolve(const rknpu::ConvTask& task, std::span<const std::byte> features,
                      std::span<const std::byte> weights);

}  // namespace npud::rk3588
