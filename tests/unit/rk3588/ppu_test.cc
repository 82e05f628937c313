// SPDX-License-Identifier: Apache-2.0
// The pooling unit, over random shapes, against the textbook.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fixture.h"
#include "tests/board/rk3588/half.h"

namespace npud::rk3588::test {
namespace {

constexpr uint32_t kAverage = 0, kMax = 1, kMin = 2;

struct PoolSpec {
  uint32_t method = kMax;
  uint32_t width = 8, height = 8, channels = 8;
  uint32_t kernel_width = 2, kernel_height = 2, stride_x = 2, stride_y = 2;
  uint32_t left = 0, top = 0, right = 0, bottom = 0;
  uint32_t source = 0, destination = 0;

  uint32_t out_width() const { return (width + left + right - kernel_width) / stride_x + 1; }
  uint32_t out_height() const { return (height + top + bottom - kernel_height) / stride_y + 1; }
  size_t bytes() const { return static_cast<size_t>((channels + 7) / 8) * width * height * 16; }
  size_t out_bytes() const { return static_cast<size_t>((channels + 7) / 8) * out_width() * out_height() * 16; }
};

// As rockchip-npu-notes ppu-pooling.md lists them.
std::vector<uint64_t> pool_words(const PoolSpec& s) {
  std::vector<uint64_t> words;
  auto put = [&](uint16_t reg, uint32_t value) { patch(words, reg, value); };
  const uint32_t surface = s.out_width() * s.out_height() * 16;
  put(0x6004, 0xe);
  put(0x7004, 0xe);
  put(0x600c, s.width - 1);
  put(0x6010, s.height - 1);
  put(0x6014, s.channels - 1);
  put(0x6018, s.out_width() - 1);
  put(0x601c, s.out_height() - 1);
  put(0x6020, s.channels - 1);
  put(0x6024, 1u << 4 | s.method);
  put(0x6034, (s.stride_y - 1) << 20 | (s.stride_x - 1) << 16 | (s.kernel_height - 1) << 8 | (s.kernel_width - 1));
  put(0x6038, s.method == kAverage ? float_to_half(65536.0f / static_cast<float>(s.kernel_width)) : 0);
  put(0x603c, s.method == kAverage ? float_to_half(65536.0f / static_cast<float>(s.kernel_height)) : 0);
  put(0x6040, s.bottom << 12 | s.right << 8 | s.top << 4 | s.left);
  put(0x6044, s.method == kMax ? 0xfc00 : s.method == kMin ? 0x7c00 : 0);
  put(0x6048, 0);
  put(0x6070, s.destination);
  put(0x607c, surface);
  put(0x6084, surface | 2);
  put(0x60dc, 3);
  put(0x700c, s.width - 1);
  put(0x7010, s.height - 1);
  put(0x7014, s.channels - 1);
  put(0x701c, s.source);
  put(0x7024, s.width * 16);
  put(0x7028, s.width * s.height * 16);
  put(0x7030, 2);
  return words;
}

size_t place(uint32_t c, uint32_t y, uint32_t x, uint32_t height, uint32_t width) {
  return ((static_cast<size_t>(c / 8) * height + y) * width + x) * 8 + c % 8;
}

std::vector<uint16_t> fill(TestBoard& board, PoolSpec& s, Random& random) {
  std::vector<uint16_t> cube(s.bytes() / 2);
  for (auto& value : cube) value = float_to_half((static_cast<int>(random.below(2001)) - 1000) / 8.0f);
  s.source = board.upload<uint16_t>(cube);
  s.destination = board.allocate(s.out_bytes());
  return cube;
}

// [c][y][x] of the cube of `s`'s results; averages with their own divisor, each axis' reciprocal as the register has
// it.
std::vector<double> reference(const PoolSpec& s, const std::vector<uint16_t>& cube) {
  std::vector<double> out;
  const double by = static_cast<double>(half_to_float(float_to_half(65536.0f / static_cast<float>(s.kernel_width)))) *
                    half_to_float(float_to_half(65536.0f / static_cast<float>(s.kernel_height))) * 0x1p-32;
  for (uint32_t c = 0; c < s.channels; ++c) {
    for (uint32_t y = 0; y < s.out_height(); ++y) {
      for (uint32_t x = 0; x < s.out_width(); ++x) {
        double sum = 0, most = -INFINITY, least = INFINITY;
        for (uint32_t ky = 0; ky < s.kernel_height; ++ky) {
          for (uint32_t kx = 0; kx < s.kernel_width; ++kx) {
            const int64_t h = int64_t{y} * s.stride_y + ky - s.top, w = int64_t{x} * s.stride_x + kx - s.left;
            if (h < 0 || w < 0 || h >= s.height || w >= s.width) continue;  // 0 to a sum, never chosen
            const double value =
                half_to_float(cube[place(c, static_cast<uint32_t>(h), static_cast<uint32_t>(w), s.height, s.width)]);
            sum += value;
            most = std::max(most, value);
            least = std::min(least, value);
          }
        }
        out.push_back(s.method == kAverage ? sum * by : s.method == kMax ? most : least);
      }
    }
  }
  return out;
}

std::vector<double> results(TestBoard& board, const PoolSpec& s) {
  const auto cube = board.download<uint16_t>(s.destination, s.out_bytes() / 2);
  std::vector<double> out;
  for (uint32_t c = 0; c < s.channels; ++c) {
    for (uint32_t y = 0; y < s.out_height(); ++y) {
      for (uint32_t x = 0; x < s.out_width(); ++x)
        out.push_back(half_to_float(cube[place(c, y, x, s.out_height(), s.out_width())]));
    }
  }
  return out;
}

bool run(TestBoard& board, const std::vector<std::vector<uint64_t>>& tasks) {
  board.interrupts = 0xc00;
  board.run(board.chain_words(tasks, 0x60));
  return board.completed();
}

TEST(Pooling, RandomWindowsOfEveryMethod) {
  Random random(50);
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    PoolSpec s;
    s.method = random.below(3);
    s.width = random.between(2, 30);
    s.height = random.between(2, 30);
    s.channels = random.between(1, 40);
    s.kernel_width = random.between(2, std::min(16u, s.width));
    s.kernel_height = random.between(2, std::min(16u, s.height));
    s.stride_x = random.between(1, 16);
    s.stride_y = random.between(1, 16);
    s.left = random.below(std::min(s.kernel_width, 8u));
    s.top = random.below(std::min(s.kernel_height, 8u));
    s.right = random.below(std::min(s.kernel_width, 8u));
    s.bottom = random.below(std::min(s.kernel_height, 8u));
    TestBoard board({}, 4u << 20);
    const std::vector<uint16_t> cube = fill(board, s, random);
    ASSERT_TRUE(run(board, {pool_words(s)})) << testing::PrintToString(board.log);
    const std::vector<double> got = results(board, s), want = reference(s, cube);
    ASSERT_EQ(got.size(), want.size());
    for (size_t at = 0; at < got.size(); ++at) {
      if (s.method == kAverage) {
        // Rounded once to fp16, after fp32 arithmetic.
        ASSERT_NEAR(got[at], want[at], std::abs(want[at]) * 0x1p-10 + 0x1p-14) << at;
      } else {
        ASSERT_EQ(got[at], want[at]) << at;
      }
    }
  }
}

TEST(Pooling, CountsPaddingInAverages) {
  TestBoard board;
  PoolSpec s{.method = kAverage, .width = 2, .height = 2, .left = 1, .top = 1, .right = 1, .bottom = 1};
  s.source = board.upload<uint16_t>(std::vector<uint16_t>(2 * 2 * 8, float_to_half(4.0f)));
  s.destination = board.allocate(s.out_bytes());
  ASSERT_TRUE(run(board, {pool_words(s)}));
  EXPECT_THAT(results(board, s), testing::Each(1.0));
}

TEST(Pooling, ReadsWhatAConvolutionWrote) {
  TestBoard board;
  Random random(51);
  // fp16 in, fp16 out: the cube of the result is the next task's source as it is.
  TaskSpec conv{.in = rknpu::Precision::kFp16, .out = rknpu::Precision::kFp16, .width = 8, .height = 8, .out_width = 8};
  conv.features = board.allocate(8 * 8 * 64);
  conv.weights = board.allocate(32 * 64);
  conv.output = board.allocate(8 * 8 * 64);
  for (uint32_t i = 0; i < 8 * 8 * 32; ++i)
    board.memory.put(conv.features + i * 2, float_to_half(static_cast<float>(random.below(64)) / 4));
  for (uint32_t n = 0; n < 32; ++n)  // the identity
    board.memory.put(conv.weights + ((n / 16 * 16) * 32 + n % 16 * 32 + n) * 2, float_to_half(1.0f));
  board.run(conv);
  ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
  PoolSpec s{.channels = 32, .source = conv.output};
  s.destination = board.allocate(s.out_bytes());
  ASSERT_TRUE(run(board, {pool_words(s)})) << testing::PrintToString(board.log);
  EXPECT_EQ(results(board, s), reference(s, board.download<uint16_t>(conv.features, s.bytes() / 2)));
}

TEST(Pooling, ChainsWhereEveryCubeIsFourWide) {
  TestBoard board;
  Random random(52);
  PoolSpec first{
      .width = 16, .height = 16, .channels = 16, .kernel_width = 4, .kernel_height = 4, .stride_x = 4, .stride_y = 4};
  const std::vector<uint16_t> cube = fill(board, first, random);
  PoolSpec second{
      .width = 4, .height = 4, .channels = 16, .kernel_width = 4, .kernel_height = 4, .source = first.destination};
  second.destination = board.allocate(second.out_bytes());
  ASSERT_TRUE(run(board, {pool_words(first), pool_words(second)})) << testing::PrintToString(board.log);
  const PoolSpec whole{.width = 16, .height = 16, .channels = 16, .kernel_width = 16, .kernel_height = 16};
  EXPECT_EQ(results(board, second), reference(whole, cube));
}

TEST(Pooling, ANarrowCubeOfItsOwnIsMisread) {
  for (const bool kind : {false, true}) {
    TestBoard board(kind ? std::vector<const char*>{"ppu-narrow=ok"} : std::vector<const char*>{});
    Random random(53);
    PoolSpec first{
        .width = 8, .height = 8, .channels = 16, .kernel_width = 4, .kernel_height = 4, .stride_x = 4, .stride_y = 4};
    const std::vector<uint16_t> cube = fill(board, first, random);
    PoolSpec second{.width = 2, .height = 2, .channels = 16, .source = first.destination};
    second.destination = board.allocate(second.out_bytes());
    ASSERT_TRUE(run(board, {pool_words(first), pool_words(second)})) << testing::PrintToString(board.log);
    const PoolSpec whole{.width = 8, .height = 8, .channels = 16, .kernel_width = 8, .kernel_height = 8};
    EXPECT_EQ(results(board, second) == reference(whole, cube), kind);
    EXPECT_EQ(board.logged("ppu-narrow"), !kind);
  }
}

TEST(Pooling, RaisesItsOwnInterrupts) {
  TestBoard board;
  Random random(54);
  PoolSpec s;
  fill(board, s, random);
  ASSERT_TRUE(run(board, {pool_words(s)}));
  board.submit(board.chain_words({pool_words(s)}, 0x60));
  board.board.run_until_idle();
  EXPECT_EQ(board.core_read(0, 0x2c) & 0x1ffff, 0x800u);  // of the other group, after one task
}

TEST(Pooling, RefusesWhatItCannotDo) {
  Random random(55);
  struct Case {
    uint32_t method;
    uint16_t reg;
    uint32_t value;
    const char* text;
  };
  for (const Case& c : {Case{kMax, 0x6084, 0, "PROC_PRECISION is 0"},
                        {kMax, 0x7030, 1, "IN_PRECISION is 1"},
                        {kMax, 0x6024, 0x13, "POOLING_METHOD is 3"},
                        {kMax, 0x6024, 1, "FLYING_MODE is 0x0"},
                        {kMax, 0x6018, 4, "reach beyond"},
                        {kMax, 0x6040, 2, "smaller than the window"},
                        {kAverage, 0x6038, 0, "RECIP_KERNEL_WIDTH is 0x0"},
                        {kAverage, 0x603c, 0x7c00, "RECIP_KERNEL_HEIGHT is 0x7c00"},
                        {kMax, 0x7014, 15, "CUBE_IN_CHANNEL + 1 is 16"},
                        {kMax, 0x701c, 8, "SRC_BASE_ADDR is 0x8"},
                        {kMax, 0x7024, 0, "a stride of the pooling unit is 0"}}) {
    SCOPED_TRACE(c.text);
    TestBoard board;
    PoolSpec s{.method = c.method};
    fill(board, s, random);
    std::vector<uint64_t> words = pool_words(s);
    patch(words, c.reg, c.value);
    EXPECT_FALSE(run(board, {words}));
    EXPECT_TRUE(board.logged(c.text)) << testing::PrintToString(board.log);
  }
  TestBoard board;
  PoolSpec s;
  fill(board, s, random);
  board.interrupts = 0xc00;
  board.run(board.chain_words({pool_words(s)}, 0x78));
  EXPECT_FALSE(board.completed());
  EXPECT_TRUE(board.logged("understood alone"));
}

}  // namespace
}  // namespace npud::rk3588::test
