// SPDX-License-Identifier: Apache-2.0
// What is too small for fp16. Half precision has 11 significant bits down to 2^-14, fewer below, and none below 2^-25.
// A node whose weights, or a run whose input, have values below 2^-14 other than 0 is multiplied by a power of two,
// and its results divided again, which is exact. The largest value then lies just below 2^14, so that what is down to
// 2^-28 of it keeps all bits, and what is lost of the rest is less than fp16 rounds of the largest.
//
// A matrix's rows share no result, so each needs a largest value of its own that keeps all bits; where rows lie too far
// apart the host has to do it. Kernels are different: trained networks have dead ones, whose weights (and what
// depthwise channels get of them) are 2^-28 and less of the others'. Those lose bits, or count as 0.
#pragma once

#include <span>
#include <vector>

#include "devices/rknpu/operation.h"

namespace npud::rknpu {

inline constexpr float kSmallestFullHalf = 0x1p-14f;

// The exponent e for which weights times 2^e are what is packed: 0 where fp16 holds them as they are, never negative.
// invalid_argument: the bias, multiplied too, would leave fp32.
Result<int> weight_exponent(const NodeSpec& spec);

// Of a depthwise node, by kernel: the sum of its weights' magnitudes, as packed. Empty for others.
std::vector<float> kernel_reach(const PackedNode& node);

// The exponent for one run's input. invalid_argument: the host has to do it, with the reason.
Result<int> input_exponent(const PackedNode& node, std::span<const float> reach, std::span<const float> in);

// Whether fp16 holds `in` times 2^exponent as well as it holds any number, by the largest error of what belongs
// together: the input as it is against what is packed.
bool fp16_holds(const PackedNode& node, std::span<const float> in, int exponent);

}  // namespace npud::rknpu
