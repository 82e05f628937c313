// SPDX-License-Identifier: Apache-2.0
// Each fault on demand, as it shows at the registers.
#include <gtest/gtest.h>

#include "fixture.h"
#include "reference.h"

namespace npud::rk3588::test {
namespace {

using rknpu::Precision;

class Faults : public testing::Test {
 protected:
  Faults() {
    Random random(1);
    for (int i = 0; i < 3; ++i) {
      problems.push_back(make_problem(t,
                                      {.in = Precision::kFp16,
                                       .out = Precision::kFp32,
                                       .height = 8,
                                       .channels = 64,
                                       .kernels = 32,
                                       .out_height = 8},
                                      random));
      specs.push_back(problems.back().spec);
    }
    one = t.chain({specs[0]});
    three = t.chain(specs);
  }
  bool right(size_t i) { return read_results(t, specs[i]) == reference_sums(problems[i]); }
  void clear(size_t i) { std::memset(t.memory.at(specs[i].output, 1024), 0, 1024); }
  void reset_core(unsigned core) {
    t.control(VBOARD_RESET, VBOARD_RESET_A(core));
    t.control(VBOARD_RESET, 0);
  }
  // The core works as if nothing had been.
  void expect_healthy(unsigned core = 0) {
    clear(0);
    t.run(one, core);
    EXPECT_TRUE(t.completed(core)) << testing::PrintToString(t.log);
    EXPECT_TRUE(right(0));
  }

  TestBoard t{{"task-status=count"}};
  std::vector<Problem> problems;
  std::vector<TaskSpec> specs;
  TestBoard::Chain one, three;
};

TEST_F(Faults, DispatchDropped) {
  t.arm(VBOARD_FAULT_DISPATCH_DROP, 0);
  EXPECT_EQ(t.control(VBOARD_FAULT_ARM), 1u);
  t.run(one);
  EXPECT_FALSE(t.completed());
  EXPECT_EQ(t.board.core_state(0), "idle");
  EXPECT_EQ(t.raw(), 0u);
  EXPECT_EQ(t.core_read(0, 0x3c), 0x5000u) << "as after the reset";
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_JOBS), 0u);
  EXPECT_EQ(t.control(VBOARD_FAULT_FIRED), 1u);
  EXPECT_EQ(t.control(VBOARD_FAULT_ARM), 0u);
  expect_healthy();
}

TEST_F(Faults, StrikesAsOftenAsAskedOrUntilCleared) {
  t.arm(VBOARD_FAULT_DISPATCH_DROP, VBOARD_FAULT_ANY_CORE, 0, 2);
  t.run(one, 1);
  t.run(one, 2);
  EXPECT_EQ(t.control(VBOARD_FAULT_FIRED), 2u);
  expect_healthy(1);
  t.arm(VBOARD_FAULT_DISPATCH_DROP, 0, 0, 0);
  for (int i = 0; i < 5; ++i) t.run(one);
  EXPECT_EQ(t.control(VBOARD_FAULT_FIRED), 7u);
  t.control(VBOARD_FAULT_CLEAR, 1);
  expect_healthy();
}

TEST_F(Faults, OnlyTheChosenCoreIsStruck) {
  t.arm(VBOARD_FAULT_DISPATCH_DROP, 2);
  expect_healthy(0);
  expect_healthy(1);
  t.run(one, 2);
  EXPECT_FALSE(t.completed(2));
}

TEST_F(Faults, StallAfterEachTask) {
  for (uint32_t after = 0; after <= 3; ++after) {
    SCOPED_TRACE(after);
    for (size_t i = 0; i < 3; ++i) clear(i);
    t.arm(VBOARD_FAULT_STALL, 0, after);
    t.run(three);
    EXPECT_EQ(t.raw(), 0u);
    EXPECT_EQ(t.core_read(0, 0x3c), after);
    EXPECT_EQ(t.sources, 0u);
    EXPECT_EQ(t.board.core_state(0), "hung");
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(right(i), i < after);
    t.core_write(0, 0x24, 0x1ffff);
    EXPECT_EQ(t.board.core_state(0), "hung") << "only a reset helps";
    t.core_write(0, 0x08, 1);
    EXPECT_TRUE(t.logged("OPERATION_ENABLE while a job hangs"));
    reset_core(0);
    expect_healthy();
  }
}

TEST_F(Faults, AStallBeyondTheJobStallsAtItsEnd) {
  t.arm(VBOARD_FAULT_STALL, 0, 100);
  t.run(three);
  EXPECT_EQ(t.core_read(0, 0x3c), 3u);
  EXPECT_EQ(t.raw(), 0u);
  EXPECT_TRUE(right(2));
}

TEST_F(Faults, InterruptLate) {
  t.arm(VBOARD_FAULT_IRQ_LATE, 0, 500);
  t.run(one);
  EXPECT_TRUE(right(0));
  EXPECT_EQ(t.core_read(0, 0x28), 0x100u);
  EXPECT_EQ(t.sources, 0u);
  t.now_us += 499;
  t.board.run_until_idle();
  EXPECT_EQ(t.sources, 0u);
  t.now_us += 1;
  t.board.run_until_idle();
  EXPECT_EQ(t.sources, 1u);
  EXPECT_TRUE(t.completed());
  expect_healthy();
}

TEST_F(Faults, InterruptLateNeverComesWhenAcknowledgedBefore) {
  t.arm(VBOARD_FAULT_IRQ_LATE, 0, 500);
  t.run(one);
  t.core_write(0, 0x24, 0x1ffff);
  t.now_us += 1000;
  t.board.run_until_idle();
  EXPECT_EQ(t.sources, 0u);
  expect_healthy();
}

TEST_F(Faults, InterruptLost) {
  t.arm(VBOARD_FAULT_IRQ_LOST, 0);
  t.run(one);
  EXPECT_TRUE(right(0));
  EXPECT_EQ(t.raw(), 0x155u);
  EXPECT_EQ(t.core_read(0, 0x28), 0x100u);
  EXPECT_EQ(t.sources, 0u);
  t.now_us += 1000000;
  t.board.run_until_idle();
  EXPECT_EQ(t.sources, 0u);
  EXPECT_TRUE(t.completed());
  expect_healthy();
}

TEST_F(Faults, InterruptSpurious) {
  t.arm(VBOARD_FAULT_IRQ_SPURIOUS, 1, 0x2, 2);
  EXPECT_EQ(t.sources, 2u);
  EXPECT_EQ(t.core_read(1, 0x28), 2u) << "though the mask is 0";
  EXPECT_EQ(t.core_read(1, 0x3c), 0x5000u);
  t.core_write(1, 0x24, 0x1ffff);
  EXPECT_EQ(t.sources, 0u);
  // The second strike comes at the start of a job.
  t.submit(one, 1);
  EXPECT_EQ(t.sources, 2u);
  EXPECT_EQ(t.raw(1), 2u);
  t.core_write(1, 0x24, 0x2);
  EXPECT_EQ(t.sources, 0u);
  t.board.run_until_idle();
  EXPECT_TRUE(t.completed(1));
  EXPECT_TRUE(right(0));
}

TEST_F(Faults, InterruptBeforeTheLastWriteBack) {
  t.arm(VBOARD_FAULT_IRQ_EARLY, 0, 300);
  t.run(three);
  EXPECT_EQ(t.sources, 1u);
  EXPECT_EQ(t.core_read(0, 0x3c), 3u);
  EXPECT_TRUE(right(0));
  EXPECT_TRUE(right(1));
  EXPECT_FALSE(right(2));
  EXPECT_TRUE(t.completed());
  t.now_us += 299;
  t.board.run_until_idle();
  EXPECT_FALSE(right(2));
  t.now_us += 1;
  t.board.run_until_idle();
  EXPECT_TRUE(right(2));
  expect_healthy();
}

TEST_F(Faults, BanksAreIdleBeforeTheLastWriteBackIfToldSo) {
  constexpr uint32_t kIdle = 1u << 3;
  t.arm(VBOARD_FAULT_IRQ_EARLY, 0, 300);
  t.run(three);
  EXPECT_EQ(t.bank_read(0, 4) & kIdle, 0u);
  t.now_us += 300;
  t.board.run_until_idle();
  EXPECT_NE(t.bank_read(0, 4) & kIdle, 0u);
  t.arm(VBOARD_FAULT_IRQ_EARLY, 0, VBOARD_IRQ_EARLY_QUIET | 300);
  t.run(one);
  EXPECT_TRUE(t.completed());
  EXPECT_NE(t.bank_read(0, 4) & kIdle, 0u);
  t.now_us += 299;
  t.board.run_until_idle();
  EXPECT_NE(t.bank_read(0, 4) & kIdle, 0u);
  t.now_us += 1;
  t.board.run_until_idle();
  EXPECT_TRUE(right(2));
  expect_healthy();
}

TEST_F(Faults, AJobAfterAnEarlyInterruptRunsAfterTheLateWrites) {
  t.arm(VBOARD_FAULT_IRQ_EARLY, 0, 300);
  t.run(three);
  ASSERT_TRUE(t.completed());
  t.run(one);
  EXPECT_TRUE(t.completed());
  EXPECT_TRUE(right(2));
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 0u);
}

TEST_F(Faults, ForceResetWithoutReadBack) {
  t.arm(VBOARD_FAULT_MMU_NO_READBACK, 1);
  for (const unsigned bank : {0u, 1u}) {
    t.bank_write(bank, 0, 0xcafeb000);
    EXPECT_EQ(t.bank_read(bank, 0), bank == 1 ? 0u : 0xcafeb000u);
  }
  EXPECT_EQ(t.bank_read(1, 0), 0xcafeb000u) << "one strike";
  EXPECT_EQ(t.control(VBOARD_FAULT_FIRED), 1u);
  t.arm(VBOARD_FAULT_MMU_NO_READBACK, 1);
  t.bank_write(1, 0, 0x1000);
  EXPECT_EQ(t.bank_read(1, 0), 0x1000u) << "a table's address is no force reset";
}

TEST_F(Faults, DeadUntilReset) {
  t.arm(VBOARD_FAULT_DEAD_UNTIL_RESET, 0);
  t.run(one);
  EXPECT_FALSE(t.completed());
  EXPECT_EQ(t.board.core_state(0), "dead");
  t.run(one);
  EXPECT_FALSE(t.completed());
  EXPECT_EQ(t.control(VBOARD_FAULT_FIRED), 1u);
  t.control(VBOARD_FAULT_CLEAR, 1);
  t.run(one);
  EXPECT_FALSE(t.completed());
  reset_core(0);
  expect_healthy();
}

TEST_F(Faults, DeadForGood) {
  t.arm(VBOARD_FAULT_DEAD, 0);
  t.run(one);
  reset_core(0);
  t.control(VBOARD_FAULT_CLEAR, 1);
  t.run(one);
  EXPECT_FALSE(t.completed());
  EXPECT_EQ(t.board.core_state(0), "dead");
  expect_healthy(1);
  t.board.reset();
  expect_healthy();
}

TEST_F(Faults, UnmappedAccessHangs) {
  const auto table = t.make_table();
  t.enable_paging(0, table);
  t.arm(VBOARD_FAULT_UNMAPPED_HANGS, 0);
  t.run(one);
  EXPECT_EQ(t.raw(), 0u);
  EXPECT_EQ(t.bank_read(0, 4) & 2, 0u) << "no page fault";
  EXPECT_EQ(t.sources, 0u);
  reset_core(0);
  t.bank_write(0, 8, 1);
  expect_healthy();
}

TEST_F(Faults, OneWrongBit) {
  t.arm(VBOARD_FAULT_WRONG_BIT, 0, 1);
  t.run(three);
  EXPECT_TRUE(t.completed());
  EXPECT_TRUE(right(0));
  EXPECT_TRUE(right(2));
  const std::vector<double> expected = reference_sums(problems[1]), results = read_results(t, specs[1]);
  unsigned wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) wrong += expected[i] != results[i];
  EXPECT_EQ(wrong, 1u);
}

TEST_F(Faults, WhatDoesNotExistIsNotArmed) {
  t.arm(static_cast<vboard_fault>(17), 0);
  t.arm(VBOARD_FAULT_NONE, 0);
  t.arm(VBOARD_FAULT_STALL, 3);
  t.arm(VBOARD_FAULT_MMU_NO_READBACK, 4);
  EXPECT_EQ(t.control(VBOARD_FAULT_ARM), 0u);
  EXPECT_TRUE(t.logged("can't be armed"));
  EXPECT_EQ(t.control(VBOARD_FAULT_KIND), uint32_t{VBOARD_FAULT_MMU_NO_READBACK});
  EXPECT_EQ(t.control(VBOARD_FAULT_CORE), 4u);
  EXPECT_EQ(t.control(VBOARD_FAULT_ARG), 0u);
  EXPECT_EQ(t.control(VBOARD_FAULT_COUNT), 1u);
  t.control(VBOARD_FAULT_CORE, 1);
  t.control(VBOARD_FAULT_ARM, 2);  // not the magic 1
  t.control(VBOARD_FAULT_CLEAR, 2);
  EXPECT_EQ(t.control(VBOARD_FAULT_ARM), 0u);
}

TEST(FaultNames, GoBothWays) {
  for (int kind = VBOARD_FAULT_DISPATCH_DROP; kind <= VBOARD_FAULT_STATUS_LAGS; ++kind) {
    const auto name = fault_name(static_cast<vboard_fault>(kind));
    EXPECT_FALSE(name.empty());
    EXPECT_EQ(fault_by_name(name), static_cast<vboard_fault>(kind));
  }
  EXPECT_EQ(fault_name(static_cast<vboard_fault>(17)), "");
  EXPECT_EQ(fault_by_name("none"), std::nullopt);
  EXPECT_EQ(fault_by_name("nonsense"), std::nullopt);
}

TEST(OptionTexts, SayWhatIsWrong) {
  Options options;
  EXPECT_TRUE(options.set("tlb=pages"));
  EXPECT_FALSE(options.tlb_lines);
  EXPECT_TRUE(options.set("tlb=lines"));
  EXPECT_TRUE(options.tlb_lines);
  EXPECT_TRUE(options.set("power=0x5"));
  EXPECT_EQ(options.power_on_mask, 5u);
  EXPECT_TRUE(options.set("clock-khz=600000"));
  EXPECT_EQ(options.clock_khz, 600000u);
  EXPECT_NE(options.set("tlb=never").error().find("lines or pages"), std::string::npos);
  EXPECT_NE(options.set("power=8").error().find("0 to 7"), std::string::npos);
  EXPECT_NE(options.set("power=x").error().find("number"), std::string::npos);
  EXPECT_NE(options.set("power=").error().find("number"), std::string::npos);
  EXPECT_NE(options.set("tlb").error().find("key=value"), std::string::npos);
  EXPECT_NE(options.set("nonsense=1").error().find("chained-int"), std::string::npos);
}

}  // namespace
}  // namespace npud::rk3588::test
