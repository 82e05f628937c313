// SPDX-License-Identifier: Apache-2.0
// Switches for what public reports dispute about arithmetic: each value of each.
#include <cmath>

#include "compute.h"
#include "devices/rknpu/hw/predicates.h"

namespace npud::rk3588::test {
namespace {

TEST(Switches, FewerThanFourRows) {
  Random random(20);
  for (const bool kind : {false, true}) {
    TestBoard board(kind ? std::vector<const char*>{"short-height=ok"} : std::vector<const char*>{});
    for (const Precision in : {Precision::kInt8, Precision::kFp16}) {
      TaskSpec spec = gemm(1, 64, 32, in, in == Precision::kInt8 ? Precision::kInt32 : Precision::kFp32);
      // The check of limits refuses such a shape to planners; the registers can hold it all the same.
      const Problem p = make_problem(board, spec, random);
      board.run(p.spec);
      ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
      EXPECT_EQ(read_results(board, p.spec) == reference_sums(p), kind);
    }
  }
}

TEST(Switches, ChainedIntegerTasksAccumulate) {
  Random random(21);
  for (const bool kind : {false, true}) {
    TestBoard board(kind ? std::vector<const char*>{"chained-int=clear"} : std::vector<const char*>{});
    const Problem a = make_problem(board, gemm(8, 64, 32, Precision::kInt8, Precision::kInt32), random);
    const Problem b = make_problem(board, gemm(8, 64, 32, Precision::kInt8, Precision::kInt32), random);
    board.run(board.chain({a.spec, b.spec}));
    ASSERT_TRUE(board.completed());
    EXPECT_EQ(read_results(board, a.spec), reference_sums(a));
    std::vector<double> expected = reference_sums(b);
    if (!kind) {
      const std::vector<double> before = reference_sums(a);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    }
    EXPECT_EQ(read_results(board, b.spec), expected);
    // Not across jobs.
    board.run(b.spec);
    ASSERT_TRUE(board.completed());
    EXPECT_EQ(read_results(board, b.spec), reference_sums(b));
  }
}

TEST(Switches, ChainedFp16TasksAreIndependent) {
  TestBoard board;
  Random random(22);
  std::vector<Problem> problems;
  std::vector<TaskSpec> specs;
  for (int i = 0; i < 5; ++i) {
    problems.push_back(make_problem(board, gemm(8, 64, 32, Precision::kFp16, Precision::kFp32), random));
    specs.push_back(problems.back().spec);
  }
  board.run(board.chain(specs));
  ASSERT_TRUE(board.completed());
  for (const Problem& p : problems) EXPECT_EQ(read_results(board, p.spec), reference_sums(p));
}

// rockchip-npu-notes cbuf-bank-slack.md: int8, 144 rows of K = 224 in one bank lose their last rows; fp16 doesn't.
TEST(Switches, FeaturesBeyondTheirBanksAreGarbage) {
  Random random(23);
  for (const auto& [options, in, k, banks, right] :
       {std::tuple{std::vector<const char*>{}, Precision::kInt8, 224u, 1u, false},
        {std::vector<const char*>{}, Precision::kInt8, 224u, 2u, true},
        {std::vector<const char*>{}, Precision::kInt8, 192u, 1u, true},
        {std::vector<const char*>{}, Precision::kFp16, 224u, 2u, true},
        {std::vector<const char*>{"cbuf=off"}, Precision::kInt8, 224u, 1u, true}}) {
    SCOPED_TRACE(testing::Message() << "K " << k << ", " << banks << " banks");
    TestBoard board(options);
    TaskSpec spec = gemm(144, k, 32, in, in == Precision::kInt8 ? Precision::kInt32 : Precision::kFp32);
    spec.data_banks = banks;
    const Problem p = make_problem(board, spec, random);
    board.run(p.spec);
    ASSERT_TRUE(board.completed());
    const std::vector<double> results = read_results(board, p.spec), sums = reference_sums(p);
    EXPECT_EQ(results == sums, right);
    EXPECT_EQ(board.logged("cbuf=garbage"), !right);
    // The 128 rows that the bank holds are right in any case.
    for (size_t i = 0; i < sums.size(); ++i) {
      if (i % 144 < 128) {
        ASSERT_EQ(results[i], sums[i]) << i;
      }
    }
  }
}

TEST(Switches, CubesAsWideAsTheirFieldHaveAWrongEnd) {
  for (const auto& [options, width, wrong] : {std::tuple{std::vector<const char*>{}, 8191u, 54},
                                              {std::vector<const char*>{}, 4096u, 0},
                                              {std::vector<const char*>{"wide-cubes=ok"}, 8191u, 0}}) {
    TestBoard board(options);
    Random random(27);
    TaskSpec spec = dpu_row(width);
    const Problem p = make_problem(board, spec, random);
    board.run(p.spec);
    ASSERT_TRUE(board.completed()) << testing::PrintToString(board.log);
    const std::vector<double> results = read_results(board, p.spec);
    int different = 0;
    for (size_t i = 0; i < results.size(); ++i) different += results[i] != p.input[i];
    EXPECT_EQ(different, wrong);
  }
}

// What a task with the words of `spec` after `change` gives, against the reference.
bool is_right(TestBoard& board, const TaskSpec& spec, Random& random, uint16_t reg, uint32_t value,
              double divisor = 1) {
  const Problem p = make_problem(board, spec, random);
  std::vector<uint64_t> words = task_words(p.spec);
  if (reg != 0) patch(words, reg, value);
  board.run(board.chain_words({words}, p.spec.enable()));
  EXPECT_TRUE(board.completed()) << testing::PrintToString(board.log);
  const std::vector<double> results = read_results(board, p.spec);
  std::vector<double> sums = reference_sums(p);
  for (double& sum : sums) {
    if (spec.out == Precision::kInt8) sum = std::clamp(std::nearbyint(sum / divisor), -128.0, 127.0);
    if (spec.out == Precision::kFp16) sum = to_half(sum);
  }
  return results == sums;
}

TEST(Switches, Int8ResultsOfShallowGemms) {
  Random random(32);
  for (const auto& [options, k, right] : {std::tuple{std::vector<const char*>{}, 480u, false},
                                          {std::vector<const char*>{}, 512u, true},
                                          {std::vector<const char*>{"int8-out=any"}, 480u, true}}) {
    TestBoard board(options);
    TaskSpec spec = gemm(8, k, 32, Precision::kInt8, Precision::kInt8);
    spec.out_shift = 10;
    EXPECT_EQ(is_right(board, spec, random, 0, 0, 1024), right) << k;
  }
}

TEST(Switches, Int8ResultsOfPartsOfAGroup) {
  Random random(33);
  TaskSpec spec = gemm(8, 512, 48, Precision::kInt8, Precision::kInt8);
  spec.out_channels = 64;
  TestBoard whole, any({"int8-groups=any"});
  whole.run(make_problem(whole, spec, random).spec);
  EXPECT_FALSE(whole.completed());
  EXPECT_TRUE(whole.logged("whole groups of 32"));
  any.run(make_problem(any, spec, random).spec);
  EXPECT_TRUE(any.completed()) << testing::PrintToString(any.log);
}

TEST(Switches, DepthwiseRegistersOfADirectConvolution) {
  Random random(34);
  TaskSpec fp16 = gemm(8, 32, 32, Precision::kFp16, Precision::kFp16);
  fp16.depthwise = true;
  fp16.kernel_height = 3;
  fp16.out_height = 6;
  TaskSpec int8 = fp16;
  int8.in = int8.out = Precision::kInt8;
  int8.channels = int8.kernels = 64;
  int8.out_shift = 6;
  constexpr uint32_t kBypassed = 3u << 8 | 3u << 5 | 3u << 2 | 2;
  for (const bool kind : {false, true}) {
    TestBoard board(kind ? std::vector<const char*>{"depthwise-form=any"} : std::vector<const char*>{});
    EXPECT_TRUE(is_right(board, fp16, random, 0, 0));
    EXPECT_TRUE(is_right(board, int8, random, 0, 0, 64));
    EXPECT_EQ(is_right(board, fp16, random, 0x4050, kBypassed), kind);
    EXPECT_EQ(is_right(board, fp16, random, 0x4054, 0), kind);
    EXPECT_EQ(is_right(board, int8, random, 0x4050, kBypassed, 64), kind);
  }
}

TEST(Switches, TheOutputConverter) {
  Random random(35);
  for (const bool other : {false, true}) {
    TestBoard board(other ? std::vector<const char*>{"out-cvt-scale=signed", "out-cvt-shift=nearest"}
                          : std::vector<const char*>{});
    TaskSpec spec = gemm(8, 64, 32, Precision::kInt8, Precision::kInt32);
    spec.out_scale = 0x8000;
    spec.out_shift = 18;
    check(board, make_problem(board, spec, random),
          [&](double sum, size_t) { return other ? std::nearbyint(-sum / 8) : std::floor(sum / 8); });
  }
}

TEST(Switches, Fp16WithKOf128) {
  Random random(24);
  TestBoard harsh, kind({"fp16-k128=ok"});
  harsh.run(make_problem(harsh, gemm(8, 128, 32, Precision::kFp16, Precision::kFp32), random).spec);
  EXPECT_FALSE(harsh.completed());
  EXPECT_TRUE(harsh.logged("DATAIN_CHANNEL is 128"));
  check(kind, make_problem(kind, gemm(8, 128, 32, Precision::kFp16, Precision::kFp32), random), as_is);
}

TEST(Switches, FeaturesThatExceedTheirBanks) {
  Random random(25);
  TaskSpec spec = gemm(800, 512, 32, Precision::kInt8, Precision::kInt32);
  spec.data_banks = 4;
  TestBoard strict({"cbuf=strict"}), off({"cbuf=off"});
  strict.run(make_problem(strict, spec, random).spec);
  EXPECT_FALSE(strict.completed());
  EXPECT_TRUE(strict.logged("the features need 13"));
  check(off, make_problem(off, spec, random), as_is);
}

TEST(Switches, AJobKeepsThoseThatItBeganWith) {
  Random random(26);
  TestBoard board;
  const Problem p = make_problem(board, gemm(1, 64, 32, Precision::kFp16, Precision::kFp32), random);
  board.submit(board.chain({p.spec}));
  ASSERT_TRUE(board.set_option("short-height=ok"));
  board.board.run_until_idle();
  ASSERT_TRUE(board.completed());
  EXPECT_NE(read_results(board, p.spec), reference_sums(p));
  EXPECT_FALSE(board.set_option("short-height=right"));
  check(board, p, as_is);
}

TEST(Switches, ResetForgetsHalfAnOption) {
  TestBoard board;
  board.control(VBOARD_OPTION, 0x726f6873);  // "shor"
  board.board.reset();
  EXPECT_TRUE(board.set_option("short-height=ok"));
}

}  // namespace
}  // namespace npud::rk3588::test
