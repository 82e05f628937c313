// SPDX-License-Identifier: Apache-2.0
// What the tests of tasks' arithmetic have in common: tasks to compute, and the comparison with the textbook.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixture.h"
#include "reference.h"
#include "tests/board/rk3588/half.h"

namespace npud::rk3588::test {

using rknpu::Precision;

inline TaskSpec gemm(uint32_t m, uint32_t k, uint32_t n, Precision in, Precision out) {
  return {.in = in, .out = out, .height = m, .channels = k, .kernels = n, .out_height = m};
}

// A row of eight channels in fp16 through the DPU alone.
inline TaskSpec dpu_row(uint32_t width) {
  return {.conv = false,
          .in = Precision::kFp16,
          .out = Precision::kFp16,
          .width = width,
          .height = 1,
          .channels = 8,
          .kernels = 8,
          .out_width = width,
          .out_height = 1};
}

inline double to_half(double value) { return half_to_float(float_to_half(static_cast<float>(value))); }

// Runs and compares with what `expect` makes of each sum.
template <typename Expect>
void check(TestBoard& board, const Problem& p, Expect&& expect, unsigned core = 0) {
  board.log.clear();
  board.run(p.spec, core);
  ASSERT_TRUE(board.completed(core)) << testing::PrintToString(board.log);
  const std::vector<double> sums = reference_sums(p), results = read_results(board, p.spec);
  for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(results[i], expect(sums[i], i)) << "element " << i;
  for (size_t i = sums.size(); i < results.size(); ++i)
    ASSERT_EQ(results[i], expect(0.0, i)) << "padding element " << i;
}

inline constexpr auto as_is = [](double sum, size_t) { return sum; };
inline constexpr auto halved = [](double sum, size_t) { return to_half(sum); };

// A random convolution within the hardware's limits.
TaskSpec random_conv(Random& random, Precision in, Precision out, bool depthwise);

}  // namespace npud::rk3588::test
