// SPDX-License-Identifier: Apache-2.0
// What a core's own registers say of its work, on each setting that public reports allow.
#include <gtest/gtest.h>

#include "fixture.h"
#include "reference.h"

namespace npud::rk3588::test {
namespace {

using rknpu::Precision;

constexpr uint32_t kTaskStatus = 0x3c, kRaw = 0x2c;

// A board with `tasks` small tasks in a chain.
struct ChainedBoard {
  explicit ChainedBoard(std::initializer_list<const char*> options, uint32_t tasks, uint32_t seed = 1) : t(options) {
    Random random(seed);
    for (uint32_t i = 0; i < tasks; ++i) {
      problems.push_back(make_problem(t,
                                      {.in = Precision::kFp16,
                                       .out = Precision::kFp32,
                                       .height = 4,
                                       .channels = 32,
                                       .kernels = 16,
                                       .out_height = 4},
                                      random));
      specs.push_back(problems.back().spec);
    }
    chain = t.chain(specs);
  }
  bool right() {
    for (const Problem& p : problems) {
      if (read_results(t, p.spec) != reference_sums(p)) return false;
    }
    return true;
  }
  void clear() {
    for (const TaskSpec& s : specs) std::memset(t.memory.at(s.output, 256), 0, 256);
  }

  TestBoard t;
  std::vector<Problem> problems;
  std::vector<TaskSpec> specs;
  TestBoard::Chain chain;
};

TEST(TaskStatusRegister, IsZeroModuloTheTaskNumberAfterAnyJob) {
  Random random(100);
  ChainedBoard b({"task-status=modulo"}, 17);
  for (int round = 0; round < 12; ++round) {
    b.chain.tasks = random.between(1, 17);
    SCOPED_TRACE(b.chain.tasks);
    const unsigned core = random.below(3);
    b.t.run(b.chain, core);
    ASSERT_TRUE(b.t.completed(core));
    EXPECT_EQ(b.t.core_read(core, kTaskStatus), 0xf000u);
  }
}

TEST(TaskStatusRegister, CountsTheTasksOfAJobThatStopsInTheMiddle) {
  Random random(101);
  for (int round = 0; round < 8; ++round) {
    const uint32_t tasks = random.between(2, 9), after = random.below(tasks);
    SCOPED_TRACE(testing::Message() << after << " of " << tasks);
    ChainedBoard b({"task-status=modulo"}, tasks);
    b.t.arm(VBOARD_FAULT_STALL, 0, after);
    b.t.run(b.chain);
    EXPECT_EQ(b.t.core_read(0, kTaskStatus) & 0xfff, after);
  }
}

TEST(TaskStatusRegister, ShowsItsResetValueUntilAJobRan) {
  ChainedBoard b({"task-status=modulo"}, 1);
  EXPECT_EQ(b.t.core_read(0, kTaskStatus), 0x5000u);
  b.t.run(b.chain);
  EXPECT_EQ(b.t.core_read(0, kTaskStatus), 0xf000u);
  EXPECT_EQ(b.t.core_read(1, kTaskStatus), 0x5000u);
  b.t.control(VBOARD_RESET, VBOARD_RESET_A(0) | VBOARD_RESET_H(0));
  b.t.control(VBOARD_RESET, 0);
  EXPECT_EQ(b.t.core_read(0, kTaskStatus), 0x5000u);
}

TEST(TaskStatusRegister, CountsToTheEndWhereTheSwitchSaysSo) {
  Random random(102);
  for (int round = 0; round < 6; ++round) {
    const uint32_t tasks = random.between(1, 12);
    ChainedBoard b({"task-status=count"}, tasks);
    b.t.run(b.chain);
    EXPECT_EQ(b.t.core_read(0, kTaskStatus), tasks);
  }
}

TEST(TaskStatusRegister, StandsAtOneWhereItMeansNothing) {
  ChainedBoard b({"task-status=stuck"}, 5);
  EXPECT_EQ(b.t.core_read(0, kTaskStatus) & 0xfff, 0u);
  for (int round = 0; round < 3; ++round) {
    b.t.run(b.chain);
    EXPECT_TRUE(b.t.completed());
    EXPECT_EQ(b.t.core_read(0, kTaskStatus) & 0xfff, 1u);
  }
  EXPECT_TRUE(b.right());
}

TEST(TaskStatusRegister, LagsBehindTheInterruptOnCommand) {
  Random random(103);
  for (const char* option : {"task-status=modulo", "task-status=count"}) {
    for (int round = 0; round < 4; ++round) {
      const uint32_t tasks = random.between(2, 9), lag = random.between(1, 5000);
      SCOPED_TRACE(testing::Message() << option << ", " << tasks << " tasks, " << lag << " us");
      ChainedBoard b({option}, tasks);
      b.t.arm(VBOARD_FAULT_STATUS_LAGS, 0, lag);
      b.t.run(b.chain);
      EXPECT_EQ(b.t.sources, 1u) << "the interrupt is not late";
      EXPECT_TRUE(b.right());
      b.t.now_us += lag - 1;
      EXPECT_EQ(b.t.core_read(0, kTaskStatus) & 0xfff, tasks - 1);
      b.t.now_us += 1;
      EXPECT_NE(b.t.core_read(0, kTaskStatus) & 0xfff, tasks - 1);
      EXPECT_TRUE(b.t.completed());
      b.t.run(b.chain);
      EXPECT_NE(b.t.core_read(0, kTaskStatus) & 0xfff, tasks - 1) << "one strike";
    }
  }
}

TEST(RawStatus, UpperBitsSayWhetherTheCoreWorked) {
  ChainedBoard b({"int-raw=done-bits"}, 2);
  for (unsigned core = 0; core < 3; ++core) EXPECT_EQ(b.t.core_read(core, kRaw), 0x40000000u);
  b.t.run(b.chain, 1);
  EXPECT_EQ(b.t.core_read(1, kRaw) & 0xc0000000, 0xc0000000u) << "though nothing hangs";
  EXPECT_TRUE(b.t.completed(1));
  EXPECT_EQ(b.t.core_read(1, kRaw), 0xc0000000u) << "acknowledging doesn't clear them";
  EXPECT_EQ(b.t.core_read(0, kRaw), 0x40000000u);
  b.t.arm(VBOARD_FAULT_STALL, 2, 1);
  b.t.run(b.chain, 2);
  EXPECT_EQ(b.t.core_read(2, kRaw), 0xc0000000u) << "a core that hangs looks the same";
  b.t.control(VBOARD_RESET, VBOARD_RESET_A(1));
  b.t.control(VBOARD_RESET, 0);
  EXPECT_EQ(b.t.core_read(1, kRaw), 0x40000000u);
}

TEST(BlockStatus, TellsOfTheJobOrNothing) {
  for (const bool running : {true, false}) {
    ChainedBoard b({running ? "s-status=running" : "s-status=zero"}, 1);
    b.t.submit(b.chain);
    for (const uint32_t offset : {0x1000u, 0x3000u, 0x4000u}) {
      EXPECT_EQ(b.t.core_read(0, offset), running ? 1u : 0u) << std::hex << offset;
    }
    b.t.board.run_until_idle();
    EXPECT_TRUE(b.t.completed());
    EXPECT_TRUE(b.right());
    EXPECT_EQ(b.t.core_read(0, 0x4000), 0u);
  }
}

}  // namespace
}  // namespace npud::rk3588::test
