// SPDX-License-Identifier: Apache-2.0
// What becomes of sums: conversions, operands per channel and per element, against the textbook.
#include <cmath>

#include "compute.h"
#include "tests/board/rk3588/dpu.h"

namespace npud::rk3588::test {
namespace {

TEST(Requantise, RoundsHalfToEvenThenAddsTheOffsetThenSaturates) {
  Random random(9);
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    TestBoard board({}, 4u << 20);
    TaskSpec spec = random_conv(random, Precision::kInt8, Precision::kInt8, false);
    spec.out_scale = random.between(1, 0x7fff);
    spec.out_shift = random.between(14, 30);
    spec.out_offset = static_cast<int32_t>(random.below(41)) - 20;
    const double factor = std::ldexp(static_cast<double>(spec.out_scale), -static_cast<int>(spec.out_shift));
    check(board, make_problem(board, spec, random), [&](double sum, size_t) {
      return std::clamp(std::nearbyint(sum * factor) + spec.out_offset, -128.0,
                        127.0);  // exact in a double; ties to even
    });
  }
}

TEST(Requantise, Int32IsShiftedTowardsMinusInfinity) {
  TestBoard board;
  Random random(10);
  TaskSpec spec = gemm(8, 64, 32, Precision::kInt8, Precision::kInt32);
  spec.out_scale = 3;
  spec.out_shift = 4;
  spec.out_offset = -7;
  check(board, make_problem(board, spec, random), [](double sum, size_t) { return std::floor(sum * 3 / 16) - 7; });
}

TEST(Requantise, Fp32HoldsTheInt32) {
  TestBoard board;
  Random random(28);
  TaskSpec spec = gemm(8, 64, 96, Precision::kInt8, Precision::kFp32);
  check(board, make_problem(board, spec, random), as_is);
  spec.out_scale = 5;
  spec.out_shift = 3;
  check(board, make_problem(board, spec, random), [](double sum, size_t) { return std::floor(sum * 5 / 8); });
}

TEST(Requantise, TiesGoAwayFromZeroIfAsked) {
  TestBoard board;
  Random random(29);
  TaskSpec spec = gemm(16, 512, 32, Precision::kInt8, Precision::kInt8);
  spec.out_shift = 14;
  Problem p = make_problem(board, spec, random);
  // One weight of 64 a kernel at K = 1: ties at every odd multiple of 128 of the sum, which the inputs reach.
  std::fill(p.weights.begin(), p.weights.end(), 0.0);
  std::memset(board.memory.at(p.spec.weights, 32 * 512), 0, 32 * 512);
  for (uint32_t n = 0; n < 32; ++n) {
    p.weights[n * 512 + 1] = 64;
    board.memory.put<int8_t>(p.spec.weights + n * 32 + 1, 64);
  }
  p.spec.out_scale = 128;  // 64 * 128 = 2^13: half of 2^14
  for (const bool away : {false, true}) {
    std::vector<uint64_t> words = task_words(p.spec);
    patch(words, 0x4088, p.spec.out_shift | (away ? 1u << 30 : 0));
    board.run(board.chain_words({words}, p.spec.enable()));
    ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
    const std::vector<double> sums = reference_sums(p), results = read_results(board, p.spec);
    int ties = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      const double exact = sums[i] / 128;
      ties += exact != std::floor(exact);
      ASSERT_EQ(results[i], away ? std::round(exact) : std::nearbyint(exact)) << exact;
    }
    EXPECT_GT(ties, 0);
  }
}

TEST(Requantise, SumsAreShiftedDownBeforehandIfAsked) {
  TestBoard board;
  Random random(30);
  const Problem p = make_problem(board, gemm(8, 64, 32, Precision::kInt8, Precision::kInt32), random);
  std::vector<uint64_t> words = task_words(p.spec);
  patch(words, 0x301c, 1);
  board.run(board.chain_words({words}, p.spec.enable()));
  ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
  const std::vector<double> sums = reference_sums(p), results = read_results(board, p.spec);
  for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(results[i], std::round(sums[i] / 2)) << i;
}

TEST(Requantise, TiesGoToEven) {
  EXPECT_EQ(shift_half_even(5, 1), 2);
  EXPECT_EQ(shift_half_even(7, 1), 4);
  EXPECT_EQ(shift_half_even(-5, 1), -2);
  EXPECT_EQ(shift_half_even(-7, 1), -4);
  EXPECT_EQ(shift_half_even(-6, 2), -2);
  EXPECT_EQ(shift_half_even(6, 2), 2);
  EXPECT_EQ(shift_half_even(9, 0), 9);
  EXPECT_EQ(shift_half_even(INT64_MAX, 63), 0);
}

TEST(Dpu, BiasPerChannelThenRelu) {
  Random random(11);
  for (const bool relu : {false, true}) {
    TestBoard board;
    TaskSpec spec = gemm(8, 64, 64, Precision::kInt8, Precision::kInt32);
    std::vector<int32_t> bias(64);
    for (auto& b : bias) b = static_cast<int32_t>(random.below(200000)) - 100000;
    spec.bias = board.upload<int32_t>(bias);
    spec.relu = relu;
    const uint32_t positions = 8;
    check(board, make_problem(board, spec, random), [&](double sum, size_t i) {
      const double value = sum + bias[i / positions];
      return relu ? std::max(value, 0.0) : value;
    });
  }
}

TEST(Dpu, Fp16BiasIsFp32) {
  TestBoard board;
  Random random(12);
  TaskSpec spec = gemm(8, 64, 32, Precision::kFp16, Precision::kFp32);
  std::vector<float> bias(32);
  for (auto& b : bias) b = static_cast<float>(random.below(1000)) / 4 - 100;
  spec.bias = board.upload<float>(bias);
  check(board, make_problem(board, spec, random), [&](double sum, size_t i) { return sum + bias[i / 8]; });
}

TEST(Dpu, ReluWithALimit) {
  TestBoard board;
  Random random(13);
  TaskSpec spec = gemm(8, 64, 32, Precision::kInt8, Precision::kInt32);
  spec.relu = true;
  spec.relu_limit = 20000;
  check(board, make_problem(board, spec, random), [](double sum, size_t) { return std::clamp(sum, 0.0, 20000.0); });
}

// The operand's cube for an element-wise task: [channel][position] in, address out.
uint32_t upload_cube(TestBoard& board, const TaskSpec& spec, const std::vector<double>& values, uint32_t bytes) {
  const uint32_t positions = spec.out_width * spec.out_height, c2 = 16 / bytes, channels = spec.dpu_channels();
  const uint32_t address = board.allocate(static_cast<size_t>((channels + c2 - 1) / c2) * positions * 16);
  for (uint32_t c = 0; c < channels; ++c) {
    for (uint32_t p = 0; p < positions; ++p) {
      const uint64_t at = address + ((static_cast<uint64_t>(c / c2) * positions + p) * c2 + c % c2) * bytes;
      const double value = values[static_cast<size_t>(c) * positions + p];
      if (bytes == 1) board.memory.put(at, static_cast<int8_t>(value));
      if (bytes == 2) board.memory.put(at, float_to_half(static_cast<float>(value)));
      if (bytes == 4) board.memory.put(at, static_cast<float>(value));
    }
  }
  return address;
}

TEST(Elementwise, AddsToAConvolutionInInt8WithConversion) {
  TestBoard board;
  Random random(14);
  TaskSpec spec = gemm(12, 32, 32, Precision::kInt8, Precision::kInt32);
  std::vector<double> operand(12 * 32);
  for (auto& value : operand) value = random.int8();
  spec.ew = upload_cube(board, spec, operand, 1);
  check(board, make_problem(board, spec, random), [&](double sum, size_t i) { return sum + operand[i]; });
  spec.ew_offset = 5;
  spec.ew_scale = 300;
  spec.ew_shift = 3;
  check(board, make_problem(board, spec, random),
        [&](double sum, size_t i) { return sum + std::nearbyint((operand[i] + 5) * 300 / 8); });
}

TEST(Elementwise, AddsFp32PartialSumsToAConvolutionInFp16) {
  TestBoard board;
  Random random(15);
  TaskSpec spec = gemm(12, 32, 32, Precision::kFp16, Precision::kFp32);
  std::vector<double> operand(12 * 32);
  for (auto& value : operand) value = static_cast<int>(random.below(1024)) / 8.0 - 64;
  for (const uint32_t bytes : {2u, 4u}) {
    spec.ew_bytes = bytes;
    spec.ew = upload_cube(board, spec, operand, bytes);
    check(board, make_problem(board, spec, random), [&](double sum, size_t i) { return sum + operand[i]; });
  }
}

// Mesa's residual addition: the int8 operand is converted, added to the sums, and the result requantised.
TEST(Elementwise, AddsAResidualThroughBothReadersInInt8) {
  Random random(36);
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    TestBoard board({}, 4u << 20);
    TaskSpec spec = random_conv(random, Precision::kInt8, Precision::kInt8, false);
    if (spec.out_width * spec.out_height < 12) continue;
    std::vector<double> operand(static_cast<size_t>(spec.dpu_channels()) * spec.out_width * spec.out_height);
    for (auto& value : operand) value = random.int8();
    spec.ew = upload_cube(board, spec, operand, 1);
    spec.ew_both_readers = true;
    spec.ew_offset = 11;
    spec.ew_scale = 0x4321;
    spec.ew_shift = 9;
    spec.out_scale = 0x5000;
    spec.out_shift = 25;
    check(board, make_problem(board, spec, random), [&](double sum, size_t at) {
      const double added = sum + std::nearbyint((operand[at] + 11) * 0x4321 / 512);
      return std::clamp(std::nearbyint(std::ldexp(added * 0x5000, -25)), -128.0, 127.0);
    });
  }
}

// rockchip-npu-notes k-accumulation.md: partial sums of the K before, in fp16.
TEST(Elementwise, CombinesPartialSumsThroughBothReadersInFp16) {
  Random random(37);
  for (const uint32_t algo : {0u, 1u, 2u}) {
    TestBoard board;
    TaskSpec spec = gemm(12, 64, 48, Precision::kFp16, Precision::kFp16);
    std::vector<double> operand(12 * 48);
    for (auto& value : operand) value = static_cast<int>(random.below(512)) / 8.0 - 32;
    spec.ew = upload_cube(board, spec, operand, 2);
    spec.ew_both_readers = true;
    spec.ew_algo = algo;
    check(board, make_problem(board, spec, random), [&](double sum, size_t i) {
      return to_half(algo == 0 ? std::max(sum, operand[i]) : algo == 1 ? std::min(sum, operand[i]) : sum + operand[i]);
    });
  }
}

// With fewer than 12 positions the readers' step, at least 12, isn't the operand's.
TEST(Elementwise, FewPositionsMakeBothReadersMissTheirSurfaces) {
  TestBoard board;
  Random random(38);
  TaskSpec spec = gemm(8, 64, 48, Precision::kFp16, Precision::kFp16);
  std::vector<double> operand(8 * 48);
  for (auto& value : operand) value = static_cast<int>(random.below(512)) / 8.0 - 32;
  spec.ew = upload_cube(board, spec, operand, 2);
  spec.ew_both_readers = true;
  const Problem p = make_problem(board, spec, random);
  board.run(p.spec);
  ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
  const std::vector<double> sums = reference_sums(p), results = read_results(board, p.spec);
  for (size_t i = 0; i < 16 * 8; ++i) ASSERT_EQ(results[i], to_half(sums[i] + operand[i])) << i;
  EXPECT_NE(results[16 * 8], to_half(sums[16 * 8] + operand[16 * 8]));
}

TEST(Elementwise, TheDpuAloneGivesZeroBeyondItsOriginalChannels) {
  TestBoard board;
  Random random(39);
  TaskSpec spec{.conv = false,
                .in = Precision::kFp16,
                .out = Precision::kFp16,
                .width = 4,
                .height = 1,
                .channels = 8,
                .kernels = 8,
                .out_width = 4,
                .out_height = 1};
  const Problem p = make_problem(board, spec, random);
  std::vector<uint64_t> words = task_words(p.spec);
  patch(words, 0x403c, 7);
  board.run(board.chain_words({words}, p.spec.enable()));
  ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
  const std::vector<double> results = read_results(board, p.spec);
  for (size_t i = 0; i < results.size(); ++i) ASSERT_EQ(results[i], i < 4 ? p.input[i] : 0.0) << i;
}

TEST(Elementwise, TheDpuAloneInBothPrecisions) {
  Random random(16);
  struct Case {
    uint32_t algo;
    bool multiply;
    double (*expect)(double, double);
  };
  const Case cases[] = {{0, false, [](double a, double b) { return std::max(a, b); }},
                        {1, false, [](double a, double b) { return std::min(a, b); }},
                        {2, false, [](double a, double b) { return a + b; }},
                        {4, false, [](double a, double b) { return a - b; }},
                        {0, true, [](double a, double b) { return a * b; }}};
  for (const Precision in : {Precision::kInt8, Precision::kFp16}) {
    for (const Case& c : cases) {
      TestBoard board;
      TaskSpec spec{.conv = false,
                    .in = in,
                    .out = in,
                    .width = 5,
                    .height = 3,
                    .channels = 40,
                    .kernels = 40,
                    .out_width = 5,
                    .out_height = 3};
      const Problem p = make_problem(board, spec, random);
      spec = p.spec;
      std::vector<double> operand(p.input.size());
      for (auto& value : operand)
        value = in == Precision::kInt8 ? random.int8() : static_cast<int>(random.below(64)) / 4.0 - 8;
      spec.ew = upload_cube(board, spec, operand, in == Precision::kInt8 ? 1 : 2);
      spec.ew_algo = c.algo;
      spec.ew_multiply = c.multiply;
      spec.output = board.allocate(result_bytes(spec));
      board.run(spec);
      ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
      const std::vector<double> results = read_results(board, spec);
      for (size_t i = 0; i < results.size(); ++i) {
        const double exact = c.expect(p.input[i], operand[i]);
        ASSERT_EQ(results[i], in == Precision::kInt8 ? std::clamp(exact, -128.0, 127.0) : to_half(exact)) << i;
      }
    }
  }
}

TEST(Half, ConversionsAreThoseOfIeee754) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    const float value = half_to_float(half);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), mantissa != 0);
      EXPECT_EQ(std::isinf(value), mantissa == 0);
      if (mantissa != 0) continue;
    } else {
      const double expected = sign * (exponent == 0 ? std::ldexp(mantissa, -24)
                                                    : std::ldexp(1024.0 + mantissa, static_cast<int>(exponent) - 25));
      ASSERT_EQ(value, expected) << bits;
    }
    ASSERT_EQ(float_to_half(value), half) << bits;
    if (exponent == 31) continue;
    // Halfway to the next one: to even; a little beyond: up.
    const float next = exponent == 30 && mantissa == 1023 ? static_cast<float>(sign * 65536.0)
                                                          : half_to_float(static_cast<uint16_t>(half + 1));
    const float middle = (value + next) / 2;
    ASSERT_EQ(float_to_half(middle), static_cast<uint16_t>(bits & 1 ? half + 1 : half)) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, next)), static_cast<uint16_t>(half + 1)) << bits;
  }
  EXPECT_EQ(float_to_half(1e10f), 0x7c00);
  EXPECT_EQ(float_to_half(-INFINITY), 0xfc00);
  EXPECT_EQ(float_to_half(NAN) & 0x7e00, 0x7e00);
}

}  // namespace
}  // namespace npud::rk3588::test
