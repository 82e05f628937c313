// SPDX-License-Identifier: Apache-2.0
// What products and convolutions compute, over random shapes, against the textbook.
#include <cmath>
#include <cstring>

#include "compute.h"
#include "devices/rknpu/hw/predicates.h"

namespace npud::rk3588::test {
namespace {

TEST(Gemm, Int8GivesExactInt32OnEveryCore) {
  TestBoard board;
  Random random(1);
  for (unsigned core = 0; core < 3; ++core) {
    check(board, make_problem(board, gemm(36, 96, 64, Precision::kInt8, Precision::kInt32), random), as_is, core);
  }
}

TEST(Gemm, Int8ShapesAtTheEdgesOfTilesAndOfTheCbuf) {
  Random random(2);
  for (const auto& [m, k, n] : {std::tuple{4u, 32u, 32u},
                                {8u, 1024u, 32u},
                                {320u, 1024u, 32u},
                                {128u, 2048u, 32u},
                                {64u, 4096u, 64u},
                                {700u, 32u, 96u},
                                {12u, 1056u, 160u},
                                {704u, 512u, 32u}}) {
    SCOPED_TRACE(testing::Message() << m << " x " << k << " x " << n);
    TestBoard board;
    TaskSpec spec = gemm(m, k, n, Precision::kInt8, Precision::kInt32);
    spec.data_banks = rknpu::feature_banks(1, m, k, Precision::kInt8);
    check(board, make_problem(board, spec, random), as_is);
  }
}

TEST(Gemm, Int8ExtremesDoNotOverflow) {
  TestBoard board;
  Random random(3);
  Problem p = make_problem(board, gemm(4, 4096, 32, Precision::kInt8, Precision::kInt32), random);
  std::fill(p.input.begin(), p.input.end(), -128.0);
  std::fill(p.weights.begin(), p.weights.end(), -128.0);
  std::memset(board.memory.at(p.spec.features, 4 * 4096), 0x80, 4 * 4096);
  std::memset(board.memory.at(p.spec.weights, 32 * 4096), 0x80, 32 * 4096);
  check(board, p, as_is);
}

TEST(Gemm, Fp16GivesFp32AndFp16) {
  TestBoard board;
  Random random(4);
  for (const auto& [m, k, n] : {std::tuple{4u, 32u, 16u}, {36u, 96u, 48u}, {352u, 512u, 16u}, {8u, 1056u, 32u}}) {
    SCOPED_TRACE(testing::Message() << m << " x " << k << " x " << n);
    check(board, make_problem(board, gemm(m, k, n, Precision::kFp16, Precision::kFp32), random), as_is);
    check(board, make_problem(board, gemm(m, k, n, Precision::kFp16, Precision::kFp16), random), halved);
  }
}

TEST(Gemm, Bf16GivesFp32) {
  TestBoard board;
  Random random(42);
  for (const auto& [m, k, n] : {std::tuple{4u, 32u, 16u}, {36u, 128u, 48u}, {8u, 1056u, 32u}}) {
    SCOPED_TRACE(testing::Message() << m << " x " << k << " x " << n);
    check(board, make_problem(board, gemm(m, k, n, Precision::kBf16, Precision::kFp32), random), as_is);
  }
  // Beyond what fp16 holds.
  Problem p = make_problem(board, gemm(4, 32, 16, Precision::kBf16, Precision::kFp32), random);
  for (uint32_t i = 0; i < 4 * 32; ++i) board.memory.put<uint16_t>(p.spec.features + i * 2, 0x4b00);  // 2^23
  std::fill(p.input.begin(), p.input.end(), 0x1p23);
  check(board, p, as_is);
}

TEST(Gemm, FeaturesAndResultsInRows) {
  TestBoard board;
  Random random(5);
  for (const Precision out : {Precision::kFp32, Precision::kFp16}) {
    TaskSpec spec = gemm(12, 64, 32, Precision::kFp16, out);
    spec.rows = true;
    if (out == Precision::kFp32) {
      check(board, make_problem(board, spec, random), as_is);
    } else {
      check(board, make_problem(board, spec, random), halved);
    }
  }
}

TEST(Convolution, RandomDirectInt8) {
  Random random(6);
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    TestBoard board({}, 4u << 20);
    check(board, make_problem(board, random_conv(random, Precision::kInt8, Precision::kInt32, false), random), as_is);
  }
}

TEST(Convolution, RandomDirectFp16) {
  Random random(7);
  for (int i = 0; i < 30; ++i) {
    SCOPED_TRACE(i);
    TestBoard board({}, 4u << 20);
    if (i % 2 == 0) {
      check(board, make_problem(board, random_conv(random, Precision::kFp16, Precision::kFp32, false), random), as_is);
    } else {
      check(board, make_problem(board, random_conv(random, Precision::kFp16, Precision::kFp16, false), random), halved);
    }
  }
}

// Dilation, and numbers of kernels that no layout likes: known right on silicon in fp16.
TEST(Convolution, DilatedKernelsAndOddNumbersOfThem) {
  Random random(40);
  for (int i = 0; i < 30; ++i) {
    SCOPED_TRACE(i);
    TestBoard board({}, 4u << 20);
    TaskSpec s = random_conv(random, Precision::kFp16, Precision::kFp16, false);
    s.dilation_x = random.between(1, 4);
    s.dilation_y = random.between(1, 4);
    s.kernels = random.between(1, 60);
    s.out_channels = std::max((s.kernels + 15) / 16 * 16, 32u);
    s.width += (s.kernel_width - 1) * (s.dilation_x - 1);
    s.height += (s.kernel_height - 1) * (s.dilation_y - 1);
    s.data_banks = rknpu::feature_banks(s.width, s.height, s.channels, s.in);
    check(board, make_problem(board, s, random), halved);
  }
}

// Few channels, read as pixels: the other lanes are 0, whatever their weights.
TEST(Convolution, OfPixels) {
  Random random(41);
  for (uint32_t real = 1; real <= 4; ++real) {
    for (const Precision in : {Precision::kFp16, Precision::kInt8}) {
      SCOPED_TRACE(testing::Message() << real << " channels, precision " << static_cast<int>(in));
      const bool integer = in == Precision::kInt8, unsigned_pixels = integer && real == 1;
      TestBoard board;
      TaskSpec s{.in = in,
                 .out = integer ? Precision::kInt32 : Precision::kFp32,
                 .width = 18,
                 .height = 9,
                 .channels = integer ? 16u : 8u,
                 .kernels = 6,
                 .kernel_width = 3,
                 .kernel_height = 3,
                 .out_width = 16,
                 .out_height = 7,
                 .out_channels = 32};
      Problem p = make_problem(board, s, random);
      const uint32_t size = integer ? 1 : 2, address = board.allocate(18 * 9 * real * size);
      for (uint32_t c = 0; c < s.channels; ++c) {
        for (uint32_t at = 0; at < 18 * 9; ++at) {
          double& value = p.input[c * 18 * 9 + at];
          if (c >= real) value = 0;
          if (c >= real) continue;
          const uint32_t to = address + (at * real + c) * size;
          if (integer)
            board.memory.put(to, static_cast<uint8_t>(static_cast<int>(value) + (unsigned_pixels ? 128 : 0)));
          if (!integer) board.memory.put(to, float_to_half(static_cast<float>(value)));
        }
      }
      std::vector<uint64_t> words = task_words(p.spec);
      const uint32_t precision = static_cast<uint32_t>(in);
      patch(words, 0x100c, 1u << 30 | 1u << 29 | (7 + real) << 12 | precision << 7 | precision << 4);
      patch(words, 0x1024, (real - 1) << 16 | s.channels);
      patch(words, 0x1070, address);
      patch(words, 0x107c, 18);
      patch(words, 0x1080, 18 * 8);
      if (unsigned_pixels) {  // as Mesa converts them: (x - 128) * 2^14 >> 14
        patch(words, 0x104c, 14u << 22 | 14u << 16 | 14u << 10 | 14u << 4);
        patch(words, 0x1050, 16384u << 16 | 65408);
        patch(words, 0x1180, 65535);
      }
      board.run(board.chain_words({words}, p.spec.enable()));
      ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
      const std::vector<double> sums = reference_sums(p), results = read_results(board, p.spec);
      for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(results[i], sums[i]) << i;
    }
  }
}

TEST(Convolution, RandomDepthwise) {
  Random random(8);
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    TestBoard board({}, 4u << 20);
    if (i % 2 == 0) {
      TaskSpec spec = random_conv(random, Precision::kInt8, Precision::kInt8, true);
      spec.out_scale = 1;
      spec.out_shift = 6;
      check(board, make_problem(board, spec, random),
            [](double sum, size_t) { return std::clamp(std::nearbyint(sum / 64), -128.0, 127.0); });
    } else {
      check(board, make_problem(board, random_conv(random, Precision::kFp16, Precision::kFp16, true), random), halved);
    }
  }
}

// rockchip-npu-notes depthwise-conv.md: of a group of 64 channels the odd ones below 32 take their padding from byte 1
// of PAD_CON1, all others from byte 0. Mesa writes 0x7e for a zero point of 254: those read 0.
TEST(Convolution, DepthwisePaddingIsReadByLane) {
  TestBoard board;
  Random random(31);
  TaskSpec spec{.depthwise = true,
                .out = Precision::kInt8,
                .width = 8,
                .height = 8,
                .channels = 128,
                .kernels = 128,
                .kernel_width = 3,
                .kernel_height = 3,
                .pad_left = 1,
                .pad_top = 1,
                .out_width = 8,
                .out_height = 8,
                .out_shift = 6};
  Problem p = make_problem(board, spec, random);
  std::vector<uint64_t> words = task_words(p.spec);
  patch(words, 0x1184, 0x7e);
  board.run(board.chain_words({words}, p.spec.enable()));
  ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
  const std::vector<double> results = read_results(board, p.spec);
  p.spec.pad_value = 0;
  const std::vector<double> of_byte_1 = reference_sums(p);
  p.spec.pad_value = 0x7e;
  const std::vector<double> of_byte_0 = reference_sums(p);
  ASSERT_NE(of_byte_0, of_byte_1);
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t channel = i / 64 % 64;
    const double sum = channel < 32 && channel % 2 == 1 ? of_byte_1[i] : of_byte_0[i];
    ASSERT_EQ(results[i], std::clamp(std::nearbyint(sum / 64), -128.0, 127.0)) << i;
  }
}

TEST(Convolution, OfAWindowInAWiderImage) {
  Random random(26);
  TestBoard board;
  const TaskSpec whole{.width = 10,
                       .height = 8,
                       .channels = 32,
                       .kernels = 32,
                       .kernel_width = 3,
                       .kernel_height = 3,
                       .out_width = 8,
                       .out_height = 6};
  Problem p = make_problem(board, whole, random);
  // Columns 3 to 6 of it: the strides are those of the image.
  TaskSpec window = p.spec;
  window.width = 4;
  window.out_width = 2;
  window.features += 3 * 16;
  std::vector<uint64_t> words = task_words(window);
  patch(words, 0x107c, 10 * 4);
  patch(words, 0x1080, 10 * 8 - 10 * 4);
  board.run(board.chain_words({words}, window.enable()));
  ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
  const std::vector<double> sums = reference_sums(p), results = read_results(board, window);
  for (uint32_t row = 0; row < 32 * 6; ++row) {
    for (uint32_t w = 0; w < 2; ++w) ASSERT_EQ(results[row * 2 + w], sums[row * 8 + 3 + w]) << row;
  }
}

TEST(InputSums, CorrectForTheZeroPointOfWeights) {
  Random random(17);
  for (const bool depthwise : {false, true}) {
    TestBoard board;
    TaskSpec spec = random_conv(random, Precision::kInt8, Precision::kInt8, depthwise);
    spec.input_sum_factor = -3;
    spec.out_shift = depthwise ? 7 : 10;
    const Problem p = make_problem(board, spec, random);
    const std::vector<double> inputs = reference_input_sums(p);
    const size_t positions = static_cast<size_t>(spec.out_width) * spec.out_height;
    check(board, p, [&](double sum, size_t i) {
      if (i >= spec.kernels * positions) return 0.0;
      const double value = sum - 3 * inputs[depthwise ? i : i % positions];
      return std::clamp(std::nearbyint(value / (depthwise ? 128 : 1024)), -128.0, 127.0);
    });
  }
}

TEST(Cbuf, WeightsAndFeaturesAreReusedWhenAsked) {
  TestBoard board({"chained-int=clear"});
  Random random(18);
  const Problem first = make_problem(board, gemm(8, 64, 32, Precision::kInt8, Precision::kInt32), random);
  Problem second = make_problem(board, gemm(8, 64, 32, Precision::kInt8, Precision::kInt32), random);
  // The addresses point to nothing useful: what is in the CBUF counts.
  second.spec.weight_reuse = second.spec.data_reuse = true;
  board.run(board.chain({first.spec, second.spec}));
  ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
  EXPECT_EQ(read_results(board, second.spec), read_results(board, first.spec));
  EXPECT_EQ(read_results(board, second.spec), reference_sums(first));
}

TEST(Cbuf, ReuseWithoutThatContentIsRefused) {
  TestBoard board;
  Random random(19);
  TaskSpec spec = make_problem(board, gemm(8, 64, 32, Precision::kInt8, Precision::kInt32), random).spec;
  spec.weight_reuse = spec.data_reuse = true;
  board.run(spec);
  EXPECT_FALSE(board.completed());
  EXPECT_TRUE(board.logged("WEIGHT_REUSE is 1"));
  EXPECT_TRUE(board.logged("DATA_REUSE is 1"));
}

}  // namespace
}  // namespace npud::rk3588::test
