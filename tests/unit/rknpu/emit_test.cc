// SPDX-License-Identifier: Apache-2.0
// What the emitter makes, run on the virtual board and held against plain loops over the ONNX definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <format>
#include <random>

#include "bare_board.h"
#include "devices/rknpu/emit/pack.h"
#include "devices/rknpu/emit/plan.h"
#include "devices/rknpu/emit/words.h"

namespace npud::rknpu {
namespace {

constexpr uint32_t kWords = 0x10000, kData = 0x100000;

std::string text(const Conv2d& op) {
  return std::format("{}x{}x{} -> {} kernels of {}x{}, stride {}x{}, pad {},{},{},{}{} {}->{}", op.channels, op.height,
                     op.width, op.kernels, op.kernel_height, op.kernel_width, op.stride_y, op.stride_x, op.pad_top,
                     op.pad_left, op.pad_bottom, op.pad_right, op.depthwise ? " depthwise" : "",
                     static_cast<int>(op.in), static_cast<int>(op.out));
}

// Values whose products and sums are exact in every precision used here, so that order can't show.
struct Values {
  std::mt19937 random;
  int small() { return static_cast<int>(random() % 9) - 4; }
};

template <class T>
std::vector<T> fill(Values& values, std::size_t count) {
  std::vector<T> out(count);
  for (T& v : out) v = static_cast<T>(values.small());
  return out;
}

template <class In, class Out>
std::vector<Out> reference(const Conv2d& op, const std::vector<In>& image, const std::vector<In>& weights,
                           const std::vector<Out>& bias, bool relu) {
  const uint32_t oh = op.out_height(), ow = op.out_width();
  std::vector<Out> out(static_cast<std::size_t>(op.kernels) * oh * ow);
  for (uint32_t n = 0; n < op.kernels; ++n) {
    for (uint32_t y = 0; y < oh; ++y) {
      for (uint32_t x = 0; x < ow; ++x) {
        Out sum = bias.empty() ? Out{} : bias[n];
        for (uint32_t c = 0; c < (op.depthwise ? 1 : op.channels); ++c) {
          for (uint32_t ky = 0; ky < op.kernel_height; ++ky) {
            for (uint32_t kx = 0; kx < op.kernel_width; ++kx) {
              const int64_t iy = int64_t{y} * op.stride_y + ky - op.pad_top,
                            ix = int64_t{x} * op.stride_x + kx - op.pad_left;
              if (iy < 0 || ix < 0 || iy >= op.height || ix >= op.width) continue;
              const uint32_t channel = op.depthwise ? n : c;
              sum +=
                  static_cast<Out>(image[(static_cast<std::size_t>(channel) * op.height + iy) * op.width + ix]) *
                  static_cast<Out>(
                      weights[((static_cast<std::size_t>(n) * (op.depthwise ? 1 : op.channels) + c) * op.kernel_height +
                               ky) *
                                  op.kernel_width +
                              kx]);
            }
          }
        }
        out[(static_cast<std::size_t>(n) * oh + y) * ow + x] = relu ? std::max(sum, Out{}) : sum;
      }
    }
  }
  return out;
}

// Runs an operation as one chain (or one job a task, which integer tasks need) and compares.
template <class In, class Out>
void check(const Conv2d& op, bool with_bias, bool relu, uint32_t seed, unsigned core = 0) {
  SCOPED_TRACE(text(op));
  const auto plan = plan_conv(op);
  ASSERT_TRUE(plan) << plan.error().message;
  Values values{std::mt19937(seed)};
  const auto image = fill<In>(values, static_cast<std::size_t>(op.channels) * op.height * op.width);
  const auto weights = fill<In>(values, static_cast<std::size_t>(op.kernels) * (op.depthwise ? 1 : op.channels) *
                                            op.kernel_height * op.kernel_width);
  std::vector<Out> bias;
  if (with_bias) bias = fill<Out>(values, op.kernels);

  BareBoard board(kData + 4 * 4096 + plan->feature_bytes + plan->weight_bytes + plan->output_bytes + plan->bias_bytes);
  ConvAddresses at{.features = kData};
  auto after = [](uint32_t address, uint64_t bytes) {
    return static_cast<uint32_t>((address + bytes + 4095) / 4096 * 4096);
  };
  at.weights = after(at.features, plan->feature_bytes);
  at.output = after(at.weights, plan->weight_bytes);
  const uint32_t bias_at = after(at.output, plan->output_bytes);
  if constexpr (std::is_same_v<In, float>) {
    ASSERT_TRUE(pack_features(*plan, image, board.at(at.features, plan->feature_bytes)));
    ASSERT_TRUE(pack_weights(*plan, weights, board.at(at.weights, plan->weight_bytes)));
  } else {
    pack_features(*plan, image, board.at(at.features, plan->feature_bytes));
    pack_weights(*plan, weights, board.at(at.weights, plan->weight_bytes));
  }
  if (with_bias) {
    at.bias = bias_at;
    std::memcpy(board.at(bias_at, plan->bias_bytes).data(), bias.data(), bias.size() * sizeof(Out));
  }
  std::memset(board.at(at.output, plan->output_bytes).data(), 0x5a, plan->output_bytes);

  Chain chain;
  for (const Band& band : plan->bands) {
    auto words = emit_band(*plan, band, at, {.relu = relu});
    ASSERT_TRUE(words) << words.error().message;
    chain.add(std::move(*words));
    if (std::is_same_v<In, int8_t>) {
      ASSERT_TRUE(board.run(core, chain, kWords)) << board.log();
      chain = {};
    }
  }
  if (chain.size() > 0) {
    ASSERT_TRUE(board.run(core, chain, kWords)) << board.log();
  }

  const auto want = reference<In, Out>(op, image, weights, bias, relu);
  std::vector<Out> got(want.size());
  unpack_image(*plan, board.at(at.output, plan->output_bytes), std::span<Out>(got));
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i], want[i]) << "element " << i << " of " << want.size() << ", " << plan->bands.size() << " bands\n"
                               << board.log();
  }
}

TEST(Emit, GemmOfEveryTileEdge) {
  uint32_t seed = 1;
  for (uint32_t m : {1u, 4u, 5u, 33u, 400u}) {
    for (uint32_t n : {1u, 16u, 17u, 32u, 70u}) {
      for (uint32_t k : {1u, 32u, 100u, 128u, 513u}) {
        const Conv2d fp16{.channels = k, .height = m, .width = 1, .kernels = n};
        check<float, float>(fp16, seed % 2, seed % 3 == 0, seed, seed % 3);
        Conv2d int8 = fp16;
        int8.in = Precision::kInt8;
        int8.out = Precision::kInt32;
        check<int8_t, int32_t>(int8, seed % 3 == 0, false, seed, seed % 3);
        ++seed;
      }
    }
  }
}

TEST(Emit, GemmTallerThanTheConvolutionBuffer) {
  check<float, float>({.channels = 512, .height = 1500, .width = 1, .kernels = 48}, true, false, 7);
  check<int8_t, int32_t>(
      {.channels = 1024, .height = 900, .width = 1, .kernels = 64, .in = Precision::kInt8, .out = Precision::kInt32},
      false, false, 8);
}

TEST(Emit, RandomConvolutions) {
  std::mt19937 random(20);
  for (int round = 0; round < 60; ++round) {
    Conv2d op;
    op.kernel_height = 1 + random() % 5;
    op.kernel_width = 1 + random() % 5;
    op.stride_y = 1 + random() % 2;
    op.stride_x = 1 + random() % 2;
    op.pad_top = random() % op.kernel_height;
    op.pad_left = random() % op.kernel_width;
    op.pad_bottom = random() % op.kernel_height;
    op.pad_right = random() % op.kernel_width;
    op.height = op.kernel_height + random() % 30;
    op.width = op.kernel_width + random() % 40;
    op.channels = 1 + random() % 70;
    op.kernels = 1 + random() % 70;
    // A position of padding alone is refused: keep the last one inside.
    while ((op.out_height() - 1) * op.stride_y >= op.height + op.pad_top) op.pad_bottom--;
    while ((op.out_width() - 1) * op.stride_x >= op.width + op.pad_left) op.pad_right--;
    if (round % 4 == 3) {
      op.in = Precision::kInt8;
      op.out = Precision::kInt32;
      check<int8_t, int32_t>(op, round % 8 == 3, false, round, round % 3);
    } else {
      check<float, float>(op, round % 2, round % 4 == 1, round, round % 3);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Emit, DepthwiseConvolutions) {
  std::mt19937 random(30);
  for (int round = 0; round < 20; ++round) {
    Conv2d op{.depthwise = true, .in = Precision::kFp16, .out = Precision::kFp16};
    op.kernel_height = op.kernel_width = 3 + 2 * (round % 2);
    op.stride_y = op.stride_x = 1 + round % 2;
    op.pad_top = op.pad_left = op.pad_bottom = op.pad_right = op.kernel_height / 2;
    op.height = 4 + random() % 40;
    op.width = 4 + random() % 40;
    op.channels = op.kernels = 1 + random() % 90;
    check<float, float>(op, round % 3 == 0, false, round, round % 3);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Emit, ImageTallerThanTheConvolutionBufferIsCutIntoBands) {
  const Conv2d op{.channels = 16,
                  .height = 160,
                  .width = 160,
                  .kernels = 24,
                  .kernel_height = 3,
                  .kernel_width = 3,
                  .stride_y = 2,
                  .stride_x = 2,
                  .pad_top = 1,
                  .pad_left = 1,
                  .pad_bottom = 1,
                  .pad_right = 1};
  EXPECT_GT(plan_conv(op)->bands.size(), 1u);
  check<float, float>(op, true, true, 3);
}

TEST(Emit, WhatTheHardwareCannotDoIsRefusedWithItsReason) {
  auto message = [](const Conv2d& op) {
    const auto plan = plan_conv(op);
    return plan ? std::string("planned") : plan.error().message;
  };
  EXPECT_THAT(
      message({.channels = 64, .height = 8, .width = 5000, .kernels = 16, .kernel_height = 3, .kernel_width = 3}),
      testing::HasSubstr("width"));
  EXPECT_THAT(message({.channels = 20000, .height = 8, .width = 1, .kernels = 16}), testing::HasSubstr("bank"));
  EXPECT_THAT(message({.channels = 8, .height = 8, .width = 8, .kernels = 16, .kernel_height = 9, .kernel_width = 9}),
              testing::HasSubstr("larger than"));
  EXPECT_THAT(message({.channels = 0, .height = 8, .width = 8, .kernels = 16}), testing::HasSubstr("0"));
}

// Beyond 4096 kernels the last of a cube are doubted; operands of a stranger's job must never be taken for one's own.
TEST(Emit, WideProductsAreCutAndNoTaskReusesOperands) {
  for (const Precision in : {Precision::kFp16, Precision::kInt8}) {
    const auto plan = plan_gemm(8, 9000, 64, in, in == Precision::kFp16 ? Precision::kFp32 : Precision::kInt32);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_GE(plan->bands.size(), 3u);
    for (const Band& band : plan->bands) {
      EXPECT_LE(band.kernels, 4096u);
      const auto task = emit_band(*plan, band, {.features = 0x1000, .weights = 0x10000, .output = 0x800000});
      ASSERT_TRUE(task);
      EXPECT_TRUE(task->enable & kEnableRdma);
      for (const uint64_t word : task->words) {
        const Command command = decode(word);
        if (command.reg == reg::kCnaCbufCon0) {
          EXPECT_EQ(command.value & 0x3000, 0u) << "DATA_REUSE or WEIGHT_REUSE";
        }
      }
    }
  }
}

TEST(Emit, ValuesBeyondHalfPrecisionAreNotPacked) {
  const auto plan = plan_gemm(4, 16, 32, Precision::kFp16, Precision::kFp32);
  ASSERT_TRUE(plan);
  std::vector<float> rows(4 * 32, 1.0f);
  std::vector<std::byte> cube(plan->feature_bytes);
  EXPECT_TRUE(pack_rows(*plan, rows, cube));
  rows[77] = 70000.0f;
  EXPECT_FALSE(pack_rows(*plan, rows, cube));
  for (const float beyond : {65520.0f, -65520.0f, INFINITY, -INFINITY, NAN}) {
    rows[77] = beyond;
    EXPECT_FALSE(pack_rows(*plan, rows, cube)) << beyond;
  }
  for (const float within : {65519.0f, -65519.0f, 6e-8f, 1e-20f, 0.0f}) {
    rows[77] = within;
    ASSERT_TRUE(pack_rows(*plan, rows, cube)) << within;
    // Row 2, channel 13: surface 1 of eight channels, rows of which lie below each other.
    uint16_t packed;
    std::memcpy(&packed, &cube[((1 * 4 + 2) * 8 + 5) * 2], 2);
    EXPECT_EQ(packed, to_fp16(within)) << within;
  }
}

TEST(Emit, PartsAreCutWhereTheySayLeastTwice) {
  // Weights of 2 MiB, features of 128 KiB: by kernels.
  const auto wide = plan_gemm(64, 1024, 1024, Precision::kFp16, Precision::kFp32, 3);
  ASSERT_TRUE(wide);
  ASSERT_GE(wide->bands.size(), 3u);
  for (const Band& band : wide->bands) {
    EXPECT_EQ(band.out_rows, 64u);
    EXPECT_LE(band.kernels, 352u);
  }
  // Weights of 2 KiB, features of 64 KiB: by rows.
  const auto tall = plan_gemm(1024, 32, 32, Precision::kFp16, Precision::kFp32, 3);
  ASSERT_TRUE(tall);
  ASSERT_GE(tall->bands.size(), 3u);
  for (const Band& band : tall->bands) EXPECT_EQ(band.kernels, 32u);
}

}  // namespace
}  // namespace npud::rknpu
