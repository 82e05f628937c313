// SPDX-License-Identifier: Apache-2.0
// Convolution as in a textbook, on plain arrays: what the board's results are compared with. Shares nothing with the
// board but half.h's conversions, which half_test.cc checks exhaustively.
#pragma once

#include <cstdint>
#include <vector>

#include "fixture.h"

namespace npud::rk3588::test {

// A task with random contents: plain tensors, and their addresses in the layouts of the hardware.
struct Problem {
  TaskSpec spec;
  std::vector<double> input;    // [channels][height][width]
  std::vector<double> weights;  // [kernels][channels][kh][kw]; depthwise [channels][kh][kw]
};

// Fills memory with random operands for the spec's shape and sets the spec's addresses. int8 values are full range,
// fp16 ones small multiples of 1/8, whose sums of products are exact in fp32 in any order.
Problem make_problem(TestBoard& board, TaskSpec spec, Random& random);

// Sums of products, [kernels][out_height][out_width].
std::vector<double> reference_sums(const Problem& problem);
// Sums of the inputs under the kernel, [out_height][out_width] or, depthwise, [channels][out_height][out_width].
std::vector<double> reference_input_sums(const Problem& problem);

// The results in memory as plain numbers, [out_channels][out_height][out_width].
std::vector<double> read_results(TestBoard& board, const TaskSpec& spec);

uint32_t result_bytes(const TaskSpec& spec);

}  // namespace npud::rk3588::test
