// SPDX-License-Identifier: Apache-2.0
// The look-up tables, with the programs of rockchip-npu-notes dpu-lut-activation.md, against the functions themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "compute.h"
#include "tests/board/rk3588/half.h"

namespace npud::rk3588::test {
namespace {

using rknpu::Precision;

// f(x) = (q + offset) * 2^-minus_exp, with q between 0 and 32767 at the tables' entries.
struct Function {
  std::function<double(double)> f;
  double index_scale = 2596;  // an fp16
  int32_t offset = 1;
  uint32_t minus_exp = 15;
  uint32_t least = 0;  // entry
};

uint32_t entry(const Function& fn, double x) {
  const double q =
      std::nearbyint(std::ldexp(fn.f(x), static_cast<int>(fn.minus_exp))) - (fn.offset == 1 ? 0 : fn.offset);
  return static_cast<uint32_t>(std::clamp(q, static_cast<double>(fn.least), 32767.0));
}

std::vector<uint64_t> table_words(const Function& fn) {
  std::vector<uint64_t> words;
  auto put = [&](uint16_t reg, uint32_t value) { words.push_back(rknpu::encode({rknpu::Target::kDpu, reg, value})); };
  const double step = 32 / fn.index_scale;
  put(0x4100, 1u << 17);
  for (int i = 0; i <= 512; ++i) put(0x4104, entry(fn, (i - 512) * step));
  put(0x4100, 1u << 17 | 1u << 16);
  for (int i = 0; i <= 512; ++i) put(0x4104, entry(fn, i * step));
  return words;
}

void patch_function(std::vector<uint64_t>& words, const Function& fn) {
  patch(words, 0x4060, 2u << 16 | 1u << 6);
  patch(words, 0x4064, 0x80000000);
  patch(words, 0x4068, static_cast<uint32_t>(float_to_half(static_cast<float>(fn.index_scale))) << 16);
  patch(words, 0x4070, 1u << 9 | 1u << 8);
  patch(words, 0x4080, static_cast<uint32_t>(fn.offset));
  patch(words, 0x4084, 1u << 16 | 1);
  patch(words, 0x4088, 1u << 31 | fn.minus_exp << 12);
  patch(words, 0x4108, 1u << 6 | 1u << 5 | 2u << 2);
  patch(words, 0x410c, 5u << 16 | 5u << 8);
  patch(words, 0x4110, 0xffffc000);
  patch(words, 0x411c, 0x4000);
}

// f of each of `inputs` (a multiple of 8 of them), by the DPU alone.
std::vector<double> run(TestBoard& board, const Function& fn, const std::vector<double>& inputs) {
  const auto width = static_cast<uint32_t>(inputs.size() / 8);
  TaskSpec spec = dpu_row(width);
  std::vector<uint16_t> halves;
  for (const double x : inputs) halves.push_back(float_to_half(static_cast<float>(x)));
  spec.features = board.upload<uint16_t>(halves);
  spec.output = board.allocate(inputs.size() * 2);
  std::vector<uint64_t> words = task_words(spec);
  patch_function(words, fn);
  const std::vector<uint64_t> tables = table_words(fn);
  words.insert(words.begin() + 1, tables.begin(), tables.end());
  board.run(board.chain_words({words}, 0x18));
  EXPECT_TRUE(board.completed()) << testing::PrintToString(board.log);
  std::vector<double> out;
  for (const uint16_t half : board.download<uint16_t>(spec.output, inputs.size())) out.push_back(half_to_float(half));
  return out;
}

std::vector<double> dense(double from, double to, int count) {
  std::vector<double> inputs;
  for (int i = 0; i < count; ++i)
    inputs.push_back(half_to_float(float_to_half(static_cast<float>(from + (to - from) * i / (count - 1)))));
  return inputs;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double worst(const std::vector<double>& got, const std::vector<double>& inputs,
             const std::function<double(double)>& f) {
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i) most = std::max(most, std::abs(got[i] - f(inputs[i])));
  return most;
}

TEST(Tables, SigmoidIsAsCloseAsMeasured) {
  TestBoard board;
  const std::vector<double> inputs = dense(-6, 6, 4000);
  EXPECT_LT(worst(run(board, {.f = sigmoid}, inputs), inputs, sigmoid), 1.5e-3);
}

TEST(Tables, LinearFunctionsAreExactBetweenTheEntries) {
  TestBoard board;
  // 2048 units of index to 1, so that entries and steps are powers of two: q = 16 * index + 16384 * ... within Q0.15.
  const auto ramp = [](double x) { return x / 16 + 0.5; };
  const Function fn{.f = ramp, .index_scale = 2048, .offset = 0, .minus_exp = 15};
  const std::vector<double> inputs = dense(-7, 7, 1600);
  const std::vector<double> got = run(board, fn, inputs);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], ramp(inputs[i]), 1.0 / 2048) << inputs[i];
}

TEST(Tables, ZeroEntriesDecodeToFour) {
  const std::vector<double> inputs(8, -16.0);
  const auto tail = [](double x) { return std::exp(x); };
  const Function exact{.f = tail, .index_scale = 1024, .offset = 0};
  Function floored = exact;
  floored.least = 1;
  TestBoard board, kind({"lut-zero=ok"});
  EXPECT_THAT(run(board, exact, inputs), testing::Each(4.0));
  EXPECT_THAT(run(board, floored, inputs), testing::Each(testing::Lt(1e-4)));
  EXPECT_THAT(run(kind, exact, inputs), testing::Each(0.0));
}

TEST(Tables, SignedFunctionsSpikeWhereTheyCrossZero) {
  std::vector<double> inputs = dense(-1, 1, 2001);
  inputs.resize(2008);
  const auto f = [](double x) { return std::tanh(x); };
  const Function fn{.f = f, .offset = -16384, .minus_exp = 14};
  TestBoard board, kind({"lut-zero=ok"});
  const std::vector<double> got = run(board, fn, inputs);
  int spikes = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::abs(got[i] - f(inputs[i])) < 3.4e-3) continue;
    ++spikes;
    EXPECT_EQ(got[i], 8.0);
    EXPECT_LT(std::abs(inputs[i]), 1.5e-3);
  }
  EXPECT_GT(spikes, 0);
  EXPECT_LT(worst(run(kind, fn, inputs), inputs, f), 3.4e-3);
}

TEST(Tables, FlatRunsOfSignedFunctionsAreGarbage) {
  const auto f = [](double x) { return x <= -3 ? 0.0 : x >= 3 ? x : x * (x + 3) / 6; };
  const std::vector<double> inputs(8, -4.0);
  TestBoard board;
  EXPECT_THAT(run(board, {.f = f, .offset = -384, .minus_exp = 10}, inputs), testing::Each(128.0));
}

TEST(Tables, FollowAConvolutionToo) {
  TestBoard board;
  TaskSpec spec{
      .in = Precision::kFp16, .out = Precision::kFp16, .height = 8, .channels = 32, .kernels = 16, .out_height = 8};
  spec.features = board.allocate(8 * 64);
  spec.weights = board.allocate(16 * 64);
  spec.output = board.allocate(8 * 64);
  for (uint32_t i = 0; i < 8 * 32; ++i) board.memory.put(spec.features + i * 2, float_to_half(0.5f));
  for (uint32_t n = 0; n < 16; ++n)
    board.memory.put(spec.weights + n * 64, float_to_half(static_cast<float>(n) / 2 - 4));
  std::vector<uint64_t> words = task_words(spec);
  const Function fn{.f = sigmoid};
  patch_function(words, fn);
  const std::vector<uint64_t> tables = table_words(fn);
  words.insert(words.begin() + 1, tables.begin(), tables.end());
  board.run(board.chain_words({words}, spec.enable()));
  ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
  const auto got = board.download<uint16_t>(spec.output, 16 * 8);
  for (uint32_t n = 0; n < 16; ++n)
    EXPECT_NEAR(half_to_float(got[n / 8 * 64 + n % 8]), sigmoid((n / 2.0 - 4) / 2), 1.5e-3) << n;
}

TEST(Tables, SurviveATaskThatDoesNotWriteThem) {
  TestBoard board;
  const std::vector<double> inputs = dense(-4, 4, 16);
  const std::vector<double> first = run(board, {.f = sigmoid}, inputs);
  TaskSpec spec{.conv = false,
                .in = Precision::kFp16,
                .out = Precision::kFp16,
                .width = 2,
                .height = 1,
                .channels = 8,
                .kernels = 8,
                .out_width = 2,
                .out_height = 1};
  std::vector<uint16_t> halves;
  for (const double x : inputs) halves.push_back(float_to_half(static_cast<float>(x)));
  spec.features = board.upload<uint16_t>(halves);
  spec.output = board.allocate(32);
  std::vector<uint64_t> words = task_words(spec);
  patch_function(words, {.f = sigmoid});
  board.run(board.chain_words({words}, 0x18));
  ASSERT_TRUE(board.completed());
  std::vector<double> again;
  for (const uint16_t half : board.download<uint16_t>(spec.output, 16)) again.push_back(half_to_float(half));
  EXPECT_EQ(again, first);
}

}  // namespace
}  // namespace npud::rk3588::test
