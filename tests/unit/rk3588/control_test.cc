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

TEST(RawStatus, HasNoUpperBitsWhereTheSwitchSaysSo) {
  ChainedBoard b({"int-raw=plain"}, 2);
  EXPECT_EQ(b.t.core_read(0, kRaw), 0u);
  b.t.run(b.chain);
  EXPECT_TRUE(b.t.completed());
  EXPECT_EQ(b.t.core_read(0, kRaw), 0u);
  b.t.arm(VBOARD_FAULT_STALL, 0, 1);
  b.t.run(b.chain);
  EXPECT_EQ(b.t.core_read(0, kRaw), 0u);
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

// --- after a reset
// ---------------------------------------------------------------------------------------------------------------------

TEST(ResetValues, AreThoseOfSiliconOrZero) {
  for (const bool silicon : {true, false}) {
    ChainedBoard b({"task-status=modulo", silicon ? "reset-values=silicon" : "reset-values=zero"}, 1);
    TestBoard& t = b.t;
    auto expect_them = [&](unsigned core) {
      EXPECT_EQ(t.core_read(core, 0x00), 0x46495245u);
      EXPECT_EQ(t.core_read(core, 0x04), 0u);
      EXPECT_EQ(t.core_read(core, 0x10), silicon ? 1u : 0u);
      EXPECT_EQ(t.core_read(core, 0x20), silicon ? 0x8001ffffu : 0u);
      EXPECT_EQ(t.core_read(core, 0x3c), silicon ? 0x5000u : 0u);
    };
    for (unsigned core = 0; core < 3; ++core) expect_them(core);
    EXPECT_EQ(t.core_read(1, 0x8030), silicon ? 0x100u : 0u);
    t.core_write(2, 0x20, 0);
    EXPECT_EQ(t.core_read(2, 0x20), silicon ? 0x80000000u : 0u) << "bit 31 is no mask";
    t.run(b.chain, 2);
    EXPECT_TRUE(t.completed(2));
    t.control(VBOARD_RESET, VBOARD_RESET_A(2) | VBOARD_RESET_H(2));
    t.control(VBOARD_RESET, 0);
    expect_them(2);
  }
}

TEST(ResetValues, LeaveTheLineOpen) {
  ChainedBoard b({}, 1);
  // A job whose driver doesn't write the mask.
  b.t.core_write(0, 0x10, b.chain.address);
  b.t.core_write(0, 0x14, rknpu::amount_for_words(b.chain.words));
  b.t.core_write(0, 0x30, 0x7001);
  b.t.core_write(0, 0x08, 1);
  b.t.board.run_until_idle();
  EXPECT_EQ(b.t.sources, 1u);
}

// --- OPERATION_ENABLE
// ------------------------------------------------------------------------------------------------------------------

TEST(OperationEnable, ZeroStopsAJobUnlessItFollowsTheOne) {
  for (const bool stops : {true, false}) {
    ChainedBoard b({stops ? "op-en-zero=stops" : "op-en-zero=ignored"}, 3);
    b.t.run(b.chain);  // 1 and 0 back to back
    ASSERT_TRUE(b.t.completed());
    EXPECT_TRUE(b.right());
    b.clear();
    b.t.submit(b.chain);
    b.t.core_write(0, 0x08, 0);
    b.t.board.run_until_idle();
    EXPECT_EQ(b.t.completed(), !stops);
    EXPECT_EQ(b.right(), !stops);
    EXPECT_EQ(b.t.board.core_state(0), "idle");
    b.t.run(b.chain);
    EXPECT_TRUE(b.t.completed()) << "the next job is not concerned";
    EXPECT_TRUE(b.right());
  }
}

TEST(CorePointer, NamesTheCoreOrItHangs) {
  for (const bool required : {true, false}) {
    for (unsigned core = 0; core < 3; ++core) {
      for (const uint32_t forgotten : {0x1004u, 0x3004u}) {
        SCOPED_TRACE(testing::Message() << "core " << core << ", pointer " << std::hex << forgotten);
        ChainedBoard b({required ? "core-pointer=required" : "core-pointer=optional"}, 1);
        b.t.core_write(core, 0x10, b.chain.address);
        b.t.core_write(core, 0x14, rknpu::amount_for_words(b.chain.words));
        for (const uint32_t pointer : {0x1004u, 0x3004u}) {
          b.t.core_write(core, pointer, 0xe | (pointer == forgotten ? 0 : core << 28));
        }
        b.t.core_write(core, 0x30, 0x7001);
        b.t.core_write(core, 0x08, 1);
        b.t.board.run_until_idle();
        EXPECT_EQ(b.t.board.core_state(core), required && core != 0 ? "hung" : "idle");
        EXPECT_EQ(b.right(), !required || core == 0);
      }
    }
  }
}

TEST(ReadDma, ConvolutionsWithoutItsWordsNeverEnd) {
  for (const bool needed : {true, false}) {
    ChainedBoard b({needed ? "mrdma=needed" : "mrdma=optional"}, 1);
    std::vector<uint64_t> words = task_words(b.specs[0]);
    std::erase_if(words, [](uint64_t word) { return rknpu::decode(word).target == rknpu::Target::kRdma; });
    b.t.run(b.t.chain_words({words}, 0x0d));
    EXPECT_EQ(b.t.completed(), !needed);
    EXPECT_EQ(b.right(), !needed);
    if (!needed) continue;
    EXPECT_EQ(b.t.board.core_state(0), "hung");
    EXPECT_EQ(b.t.board.counter(0, VBOARD_COUNT_BAD_COMMANDS), 0u);
  }
}

// --- what outlives a job
// ---------------------------------------------------------------------------------------------------------------

// A task that says that its operands are in the CBUF.
TestBoard::Chain reusing(ChainedBoard& b) {
  TaskSpec spec = b.specs[0];
  spec.data_reuse = spec.weight_reuse = true;
  return b.t.chain({spec});
}

TEST(CbufState, OutlivesJobsResetsAndSpacesAsTheSwitchesSay) {
  for (const bool survives : {true, false}) {
    for (const bool reset_keeps : {true, false}) {
      for (const bool reset : {true, false}) {
        SCOPED_TRACE(testing::Message() << survives << reset_keeps << reset);
        ChainedBoard b({survives ? "cbuf-state=survives" : "cbuf-state=cleared",
                        reset_keeps ? "reset-cbuf=keeps" : "reset-cbuf=clears"},
                       1);
        b.t.run(b.chain);
        ASSERT_TRUE(b.t.completed());
        b.clear();
        if (reset) {
          b.t.control(VBOARD_RESET, VBOARD_RESET_A(0) | VBOARD_RESET_H(0));
          b.t.control(VBOARD_RESET, 0);
        }
        // Another space: an empty one but for the words and the result.
        const auto chain = reusing(b);
        const auto table = b.t.make_table();
        b.t.map(table, chain.address & ~0xfffu, chain.address & ~0xfffu, 2, 3);
        b.t.map(table, b.specs[0].output & ~0xfffu, b.specs[0].output & ~0xfffu, 2, 7);
        b.t.enable_paging(0, table);
        b.t.enable_paging(1, table);
        b.t.run(chain);
        const bool leaks = survives && (reset_keeps || !reset);
        EXPECT_EQ(b.t.completed(), leaks);
        EXPECT_EQ(b.right(), leaks);
      }
    }
  }
}

TEST(CbufState, IsGoneWithThePower) {
  ChainedBoard b({"reset-cbuf=keeps"}, 1);
  b.t.run(b.chain);
  ASSERT_TRUE(b.t.completed());
  b.t.control(VBOARD_POWER, 6);
  b.t.control(VBOARD_POWER, 7);
  b.t.run(reusing(b));
  EXPECT_FALSE(b.t.completed());
}

TEST(CbufState, RegistersOutliveAJobOrNot) {
  for (const bool survives : {true, false}) {
    ChainedBoard b({survives ? "cbuf-state=survives" : "cbuf-state=cleared"}, 1);
    b.t.run(b.chain, 0, false);
    ASSERT_TRUE(b.t.completed());
    b.clear();
    // A stranger's task that says nothing of where its result goes.
    std::vector<uint64_t> words = task_words(b.specs[0]);
    std::erase_if(words, [](uint64_t word) { return static_cast<uint16_t>(word) == 0x4020; });
    b.t.run(b.t.chain_words({words}, b.specs[0].enable()), 0, false);
    EXPECT_EQ(b.right(), survives);
  }
}

TEST(StaleOperands, OfTheJobBeforeAreUsedThoughNoBitSaysSo) {
  ChainedBoard before({}, 1, 2);
  TestBoard& t = before.t;
  Random random(3);
  const Problem after = make_problem(t, before.specs[0], random);
  t.run(before.chain);
  ASSERT_TRUE(t.completed());
  t.arm(VBOARD_FAULT_STALE_OPERANDS, 0);
  t.run(after.spec);
  EXPECT_TRUE(t.completed());
  EXPECT_EQ(read_results(t, after.spec), reference_sums(before.problems[0]));
  t.run(after.spec);
  EXPECT_TRUE(t.completed());
  EXPECT_EQ(read_results(t, after.spec), reference_sums(after)) << "one strike";
}

// --- jobs that never start
// -------------------------------------------------------------------------------------------------------------

struct NeverStarts : testing::Test {
  NeverStarts() {
    b.t.arm(VBOARD_FAULT_NEVER_STARTS, 1);
    b.t.run(b.chain, 1);
  }
  void reset(std::initializer_list<unsigned> cores) {
    for (const unsigned core : cores) {
      b.t.control(VBOARD_RESET, VBOARD_RESET_A(core) | VBOARD_RESET_H(core));
      b.t.control(VBOARD_RESET, 0);
    }
  }
  bool works(unsigned core) {
    b.clear();
    b.t.run(b.chain, core);
    return b.t.completed(core) && b.right();
  }
  ChainedBoard b{{"int-raw=plain"}, 2};
};

TEST_F(NeverStarts, LooksAsIfNothingHadBeen) {
  EXPECT_EQ(b.t.core_read(1, kRaw), 0u);
  EXPECT_EQ(b.t.core_read(1, kTaskStatus), 0x5000u);
  EXPECT_EQ(b.t.bank_read(2, 4), 0x18u);
  EXPECT_EQ(b.t.sources, 0u);
  EXPECT_EQ(b.t.board.counter(1, VBOARD_COUNT_JOBS), 1u);
  EXPECT_TRUE(works(0));
  EXPECT_TRUE(works(2));
  EXPECT_FALSE(works(1)) << "another try is the same";
}

TEST_F(NeverStarts, TheResetOfThisCoreDoesNotHelp) {
  for (int i = 0; i < 3; ++i) {
    reset({1});
    EXPECT_FALSE(works(1));
  }
}

TEST_F(NeverStarts, TheResetOfAllCoresWhileNoneRunsDoes) {
  b.t.control(VBOARD_RESET, 0x707);
  b.t.control(VBOARD_RESET, 0);
  EXPECT_TRUE(works(1));
}

TEST_F(NeverStarts, AlsoOneAfterTheOther) {
  reset({2, 0, 1});
  EXPECT_TRUE(works(1));
}

TEST_F(NeverStarts, ButNotWithAJobInBetween) {
  reset({2, 0});
  EXPECT_TRUE(works(2));
  reset({1});
  EXPECT_FALSE(works(1));
}

TEST_F(NeverStarts, AndNotWhileAnotherRuns) {
  b.t.submit(b.chain, 0);
  reset({1, 2});
  b.t.board.run_until_idle();
  EXPECT_TRUE(b.t.completed(0));
  reset({0});
  EXPECT_FALSE(works(1));
}

TEST_F(NeverStarts, ACoreWithoutPowerNeedsNoReset) {
  b.t.control(VBOARD_POWER, 3);
  reset({0, 1});
  EXPECT_TRUE(works(1));
}

// --- what loses the board
// --------------------------------------------------------------------------------------------------------------

TEST(RateWithoutPower, KillsUntilADeviceReset) {
  ChainedBoard b({}, 1);
  b.t.control(VBOARD_POWER, 0);
  b.t.control(VBOARD_CLOCK_KHZ, 600000);
  EXPECT_EQ(b.t.control(VBOARD_DRIVER_FAULTS), 1u);
  b.t.control(VBOARD_POWER, 7);
  b.t.control(VBOARD_RESET, 0x707);
  b.t.control(VBOARD_RESET, 0);
  for (unsigned core = 0; core < 3; ++core) {
    b.t.run(b.chain, core);
    EXPECT_FALSE(b.t.completed(core));
    EXPECT_EQ(b.t.board.core_state(core), "dead");
  }
  b.t.board.reset();
  b.t.run(b.chain);
  EXPECT_TRUE(b.t.completed());
}

TEST(RateWithoutPower, IsAllowedWithPowerOrWithoutChange) {
  ChainedBoard b({}, 1);
  b.t.control(VBOARD_POWER, 4);
  b.t.control(VBOARD_CLOCK_KHZ, 200000);
  b.t.control(VBOARD_POWER, 0);
  b.t.control(VBOARD_CLOCK_KHZ, 200000);
  b.t.control(VBOARD_POWER, 7);
  EXPECT_EQ(b.t.control(VBOARD_DRIVER_FAULTS), 0u);
  b.t.run(b.chain, 2);
  EXPECT_TRUE(b.t.completed(2));
}

TEST(RateWithoutPower, IsOnlyCountedWhereTheSwitchSaysSoUnlessTheFaultIsArmed) {
  ChainedBoard b({"rate-unpowered=ignored"}, 1);
  for (const bool armed : {false, true}) {
    if (armed) b.t.arm(VBOARD_FAULT_RATE_UNPOWERED, VBOARD_FAULT_ANY_CORE);
    b.t.control(VBOARD_POWER, 0);
    b.t.control(VBOARD_CLOCK_KHZ, armed ? 300000 : 600000);
    b.t.control(VBOARD_POWER, 7);
    b.t.run(b.chain);
    EXPECT_EQ(b.t.completed(), !armed);
  }
  EXPECT_EQ(b.t.control(VBOARD_DRIVER_FAULTS), 2u);
}

TEST(Page2000, LosesTheBoardWhenRead) {
  Random random(104);
  ChainedBoard b({}, 1);
  const uint32_t offset = random.below(3) * VBOARD_CORE_STRIDE + 0x2000 + random.below(0x400) * 4;
  b.t.board.write32(VBOARD_BAR_REGS, offset, 1);  // a write is posted and lost
  b.t.submit(b.chain);
  EXPECT_EQ(b.t.board.read32(VBOARD_BAR_REGS, offset), ~0u);
  b.t.board.run_until_idle();
  EXPECT_FALSE(b.right());
  EXPECT_EQ(b.t.core_read(0, 0x00), ~0u);
  EXPECT_EQ(b.t.bank_read(3, 0x04), ~0u);
  EXPECT_EQ(b.t.control(VBOARD_MAGIC), ~0u);
  b.t.control(VBOARD_RESET, 0x707);
  EXPECT_TRUE(b.t.logged("the board is lost"));
  b.t.board.reset();
  EXPECT_EQ(b.t.control(VBOARD_MAGIC), uint32_t{VBOARD_MAGIC_VALUE});
  b.t.run(b.chain);
  EXPECT_TRUE(b.t.completed());
  EXPECT_TRUE(b.right());
}

TEST(Page2000, ReadsZeroWhereTheSwitchSaysSo) {
  TestBoard t({"page-2000=zero"});
  EXPECT_EQ(t.core_read(1, 0x2234), 0u);
  EXPECT_EQ(t.core_read(1, 0x00), 0x46495245u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 1u);
}

}  // namespace
}  // namespace npud::rk3588::test
