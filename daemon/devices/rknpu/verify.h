// SPDX-License-Identifier: Apache-2.0
// Whether a result can be what the NPU should have computed, without computing it again: in every output pixel two sums
// over the output channels, one plain and one with a factor of its own for each channel, must equal products of the
// input with the weights' sums (algorithm-based fault tolerance; Huang and Abraham, "Algorithm-Based Fault Tolerance
// for Matrix Operations", 1984). What cancels out in the one doesn't in the other. Costs one output channel's work,
// three times (int8: twice), and reading the result once. Depthwise results are compared one by one.
#pragma once

#include <span>

#include "devices/rknpu/emit/plan.h"
#include "devices/rknpu/operation.h"

namespace npud::rknpu {

// `cube` is the output in the NPU's layout, bias included, of the input times 2^exponent (scaling.h). Integer results
// must agree exactly. fp32 sums may differ by what accumulation in fp32 explains: one result by 2^-23 of the magnitudes
// that were added up, for each addition. N results of a pixel, summed up, may be off by N times that, and then are
// wrong for certain; but roundings that are independent come to 4/sqrt(N) of it and to no more than 4e-5 of the
// magnitudes. A pixel in between is suspicious: equal weights or a flat image round alike in every channel. Its results
// are computed one by one from `node.weights`, the worst pixels first, as far as 2^24 multiply-accumulates reach (one
// pixel at least), and decide. fp16 results may differ by their rounding too. An error below these bounds can't be told
// from rounding; nor can several in one pixel that add up to less in both sums, which takes more than two of int8's.
bool fp16_result_is_right(const PackedNode& node, const ConvPlan& plan, std::span<const float> in, int exponent,
                          std::span<const std::byte> cube);
bool int8_result_is_right(const PackedNode& node, const ConvPlan& plan, std::span<const int8_t> in,
                          std::span<const std::byte> cube);

}  // namespace npud::rknpu
