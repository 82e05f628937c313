// SPDX-License-Identifier: Apache-2.0
// The PC: fetching, chaining, ping-pong groups, status and interrupts; what is refused; reset and power.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fixture.h"
#include "reference.h"

namespace npud::rk3588::test {
namespace {

using rknpu::Precision;
using rknpu::Target;

TaskSpec small(Precision in = Precision::kFp16) {
  return {.in = in,
          .out = in == Precision::kFp16 ? Precision::kFp32 : Precision::kInt32,
          .height = 8,
          .channels = 64,
          .kernels = 32,
          .out_height = 8};
}

class Job : public testing::Test {
 protected:
  Problem problem(uint32_t seed) {
    Random random(seed);
    return make_problem(t, small(), random);
  }
  bool right(const Problem& p) { return read_results(t, p.spec) == reference_sums(p); }
  // The task is refused and the log says this.
  void expect_refused(const std::vector<uint64_t>& words, uint32_t enable, const char* text) {
    t.log.clear();
    t.run(t.chain_words({words}, enable));
    EXPECT_FALSE(t.completed());
    EXPECT_TRUE(t.logged(text)) << text << " is not in " << testing::PrintToString(t.log);
    EXPECT_EQ(t.board.core_state(0), "hung");
    t.control(VBOARD_RESET, 0x101);
    t.control(VBOARD_RESET, 0);
  }
  TestBoard t{{"task-status=count"}};
};

TEST_F(Job, IdentifiesItself) {
  EXPECT_EQ(t.core_read(1, 0x0), 0x46495245u);
  EXPECT_EQ(t.core_read(1, 0x4), 0u);
  EXPECT_EQ(t.control(VBOARD_MAGIC), uint32_t{VBOARD_MAGIC_VALUE});
  EXPECT_EQ(t.control(VBOARD_VERSION), uint32_t{VBOARD_VERSION_VALUE});
  EXPECT_EQ(t.control(VBOARD_SOC), 0x3588u);
  EXPECT_EQ(t.control(VBOARD_NR_CORES), 3u);
  EXPECT_EQ(t.control(VBOARD_NR_BANKS), 4u);
  EXPECT_EQ(t.control(VBOARD_POWER), 7u);
  EXPECT_EQ(t.control(VBOARD_CLOCK), 7u);
}

TEST_F(Job, StatusAndInterruptOfOneTask) {
  const Problem p = problem(1);
  t.submit(t.chain({p.spec}));
  EXPECT_EQ(t.core_read(0, 0x08), 1u);
  EXPECT_EQ(t.core_read(0, 0x4000), 1u);  // running in group 0
  EXPECT_EQ(t.core_read(0, 0x3c), 0u);
  t.board.run_until_idle();
  EXPECT_EQ(t.core_read(0, 0x08), 0u);
  EXPECT_EQ(t.core_read(0, 0x4000), 0u);
  EXPECT_EQ(t.raw(), 0x155u);  // CNA, CSC, CORE, DPU of group 0
  EXPECT_EQ(t.core_read(0, 0x28), 0x100u);
  EXPECT_EQ(t.core_read(0, 0x3c), 1u);
  EXPECT_EQ(t.core_read(0, 0x30), 0x1001u);  // 0x7001 without its trigger bits
  EXPECT_EQ(t.sources, 1u);
  t.core_write(0, 0x24, 0x100);
  EXPECT_EQ(t.sources, 0u);
  EXPECT_EQ(t.raw(), 0x55u);
  EXPECT_TRUE(right(p));
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_JOBS), 1u);
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_TASKS), 1u);
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_MACS), 8u * 64 * 32);
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_IRQS), 1u);
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_WRITTEN_BYTES), 8u * 32 * 4);
  EXPECT_GT(t.board.counter(0, VBOARD_COUNT_CYCLES), 0u);
  const uint32_t low = t.control(VBOARD_COUNTER(0, VBOARD_COUNT_MACS)),
                 high = t.control(VBOARD_COUNTER(0, VBOARD_COUNT_MACS) + 4);
  EXPECT_EQ(low, 8u * 64 * 32);
  EXPECT_EQ(high, 0u);
}

TEST_F(Job, TheMaskDecidesAboutTheLine) {
  const Problem p = problem(2);
  t.submit(t.chain({p.spec}));
  t.core_write(0, 0x20, 0);
  t.board.run_until_idle();
  EXPECT_EQ(t.sources, 0u);
  t.core_write(0, 0x20, 0x300);
  EXPECT_EQ(t.sources, 1u);
}

TEST_F(Job, PingPongGroupsAlternateFromTaskToTaskAndJobToJob) {
  const Problem p = problem(3);
  const auto chain = t.chain({p.spec});
  for (const uint32_t expected : {0x155u, 0x2aau, 0x155u}) {
    t.run(chain);
    EXPECT_EQ(t.raw(), expected);
    t.core_write(0, 0x24, 0x1ffff);
  }
  t.run(chain, 0, false);  // without ping-pong the group stays
  EXPECT_EQ(t.raw(), 0x2aau);
  t.core_write(0, 0x24, 0x1ffff);
  t.run(chain, 0, false);
  EXPECT_EQ(t.raw(), 0x2aau);
  t.core_write(0, 0x24, 0x1ffff);
  EXPECT_TRUE(t.core_read(0, 0x4004) & 1);
  for (const uint32_t pointer : {0x1004u, 0x3004u, 0x4004u}) t.core_write(0, pointer, 0x3e);  // clears the pointers
  EXPECT_EQ(t.core_read(0, 0x4004), 0xeu);
  t.run(t.chain({p.spec, p.spec}));
  EXPECT_EQ(t.raw(), 0x2aau);  // the second task's group
}

TEST_F(Job, AGroupKeepsWhatTheTaskBeforeTheLastOneWrote) {
  const Problem a = problem(4), b = problem(5);
  t.run(t.chain({a.spec}));
  ASSERT_TRUE(t.completed());
  t.run(t.chain({b.spec}));
  ASSERT_TRUE(t.completed());
  // A task that leaves out the output's address has that of the task before the last: the groups alternate.
  std::vector<uint64_t> words = task_words(b.spec);
  std::erase_if(words, [](uint64_t word) { return static_cast<uint16_t>(word) == 0x4020; });
  std::memset(t.memory.at(a.spec.output, 1024), 0, 1024);
  std::memset(t.memory.at(b.spec.output, 1024), 0, 1024);
  t.run(t.chain_words({words}, 0x0d));
  ASSERT_TRUE(t.completed());
  EXPECT_EQ(t.memory.get<uint32_t>(b.spec.output), 0u);
  TaskSpec where = b.spec;
  where.output = a.spec.output;
  EXPECT_EQ(read_results(t, where), reference_sums(b));
}

TEST_F(Job, ExplicitPointersSelectTheGroup) {
  t.core_write(0, 0x4004, 1);
  t.core_write(0, 0x4020, 0x1234);
  EXPECT_EQ(t.core_read(0, 0x4020), 0x1234u);
  EXPECT_EQ(t.core_read(0, 0x4004), 0x10001u);
  t.core_write(0, 0x4004, 0);
  EXPECT_EQ(t.core_read(0, 0x4020), 0u);
  t.core_write(0, 0xf008, 0x1d);
  EXPECT_EQ(t.core_read(0, 0xf008), 0x1du);
}

TEST_F(Job, ChainsByNextAddressAndStopsAtTheTaskNumber) {
  std::vector<Problem> problems;
  std::vector<TaskSpec> specs;
  for (uint32_t i = 0; i < 7; ++i) {
    problems.push_back(problem(10 + i));
    specs.push_back(problems.back().spec);
  }
  auto chain = t.chain(specs);
  chain.tasks = 5;
  t.run(chain);
  ASSERT_TRUE(t.completed());
  EXPECT_EQ(t.core_read(0, 0x3c), 5u);
  for (uint32_t i = 0; i < 7; ++i) EXPECT_EQ(right(problems[i]), i < 5) << i;
  EXPECT_EQ(t.source_changes, 2u);  // one interrupt, one acknowledgement
}

TEST_F(Job, TheTaskCountGoesOnUnlessCleared) {
  const auto chain = t.chain({problem(20).spec});
  t.run(chain);
  t.core_write(0, 0x24, 0x1ffff);
  t.core_write(0, 0x30, 0x1001);  // without TASK_COUNT_CLEAR
  t.core_write(0, 0x10, chain.address);
  t.core_write(0, 0x14, rknpu::amount_for_words(chain.words));
  t.core_write(0, 0x08, 1);
  t.board.run_until_idle();
  EXPECT_EQ(t.core_read(0, 0x3c), 2u);
}

TEST_F(Job, AChainWithoutNextAddressHangs) {
  auto chain = t.chain({problem(21).spec});
  chain.tasks = 2;
  t.run(chain);
  EXPECT_EQ(t.core_read(0, 0x3c), 1u);
  EXPECT_EQ(t.raw(), 0u);
  EXPECT_TRUE(t.logged("has no address"));
}

TEST_F(Job, AnAmountThatIsTooSmallNeverStartsTheTask) {
  auto chain = t.chain({problem(22).spec});
  chain.words -= 2;
  t.run(chain);
  EXPECT_FALSE(t.completed());
  EXPECT_TRUE(t.logged("the amount is too small"));
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_BAD_COMMANDS), 1u);
}

TEST_F(Job, WordsAfterTheEnableWordDoNotCount) {
  const Problem p = problem(23);
  auto chain = t.chain({p.spec});
  t.allocate(4096);
  chain.words += 64;
  t.run(chain);
  ASSERT_TRUE(t.completed());
  EXPECT_TRUE(right(p));
  EXPECT_EQ(t.board.last_commands(0).size(), chain.words - 64);
}

TEST_F(Job, RefusesUnknownWords) {
  const std::vector<uint64_t> good = task_words(problem(24).spec);
  auto with = [&](rknpu::Command command) {
    std::vector<uint64_t> words = good;
    words.push_back(rknpu::encode(command));
    return words;
  };
  expect_refused(with({Target::kCna, 0x10f0, 0}), 0x0d, "register 0x10f0 is unknown");
  expect_refused(with({Target::kDpu, 0x100c, 0}), 0x0d, "another block");
  expect_refused(with({Target::kCsc, 0x2008, 0}), 0x0d, "not understood");
  expect_refused(with({static_cast<Target>(0x1234), 0x4020, 0}), 0x0d, "target 0x1234 is unknown");
  expect_refused(with({Target::kNone, 0, 5}), 0x0d, "filler word carries");
  expect_refused(with({Target::kPc, 0x20, 0}), 0x0d, "can't be written by a command word");
  expect_refused(good, 0x6d, "understood alone");
  expect_refused(good, 0x05, "without the DPU nothing is written");
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_JOBS), 8u);
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_TASKS), 0u);
}

TEST_F(Job, RunsATaskWhoseEnableWordHasNoBarrierBeforeIt) {
  const Problem p = problem(25);
  std::vector<uint64_t> words = task_words(p.spec);
  words.push_back(rknpu::encode({Target::kEnable, 8, 0x0d}));
  t.run(t.chain_words({words}, 0x0d));
  EXPECT_TRUE(t.completed()) << testing::PrintToString(t.log);
  EXPECT_TRUE(right(p));
}

// Each of these differs from a good task in one register.
TEST_F(Job, RefusesWhatTheRegistersDoNotMakeSenseOf) {
  Random random(26);
  const Problem p = make_problem(t, small(Precision::kInt8), random);
  TaskSpec ew = p.spec;
  ew.ew = t.allocate(4096);
  TaskSpec alone{.conv = false,
                 .in = Precision::kInt8,
                 .out = Precision::kInt8,
                 .width = 4,
                 .height = 4,
                 .channels = 16,
                 .kernels = 16,
                 .out_width = 4,
                 .out_height = 4};
  alone.features = alone.ew = alone.output = t.allocate(4096);
  TaskSpec bias = p.spec;
  bias.bias = t.allocate(4096);
  TaskSpec half = make_problem(t, small(Precision::kFp16), random).spec;
  half.ew = t.allocate(4096);
  TaskSpec wide = alone;
  wide.in = Precision::kFp16;
  wide.out = Precision::kFp32;
  wide.channels = wide.kernels = 8;
  wide.ew_bytes = 4;
  struct Case {
    const TaskSpec& spec;
    uint16_t reg;
    uint32_t value;
    const char* text;
  };
  const Case cases[] = {
      {p.spec, 0x100c, 1, "CONV_MODE is 1"},
      {p.spec, 0x100c, 1u << 4 | 1u << 7, "IN_PRECISION is 1"},
      {p.spec, 0x100c, 2u << 7, "CNA.CONV_CON1.PROC_PRECISION is 2"},
      {p.spec, 0x100c, 1u << 30, "pixels have 1 to 4 channels"},
      {p.spec, 0x100c, 8u << 12, "ARGB_IN is 8, but NONALIGN_DMA is 0"},
      {p.spec, 0x100c, 1u << 10, "bits 0x400 have no known meaning"},
      {p.spec, 0x1014, 0, "the stride in x is 0"},
      {p.spec, 0x1020, 0, "the input width is 0"},
      {p.spec, 0x1024, 40, "must be a multiple of 16"},
      {p.spec, 0x1028, 2, "DATAOUT_WIDTH is 2"},
      {p.spec, 0x102c, 9, "DATAOUT_ATOMICS is 9"},
      {p.spec, 0x1030, 64, "WEIGHT_BYTES is 64"},
      {p.spec, 0x1034, 32, "WEIGHT_BYTES_PER_KERNEL is 32"},
      {p.spec, 0x1040, 0xcc, "gives 12 banks to data and 12 to weights"},
      {p.spec, 0x1040, 0x10c, "gives 12 banks to data and 0 to weights"},
      {p.spec, 0x1040, 1u << 8 | 0xb1, "FC_DATA_BANK"},
      {p.spec, 0x1044, 0, "DATA_ENTRIES is 0"},
      {p.spec, 0x104c, 0xa, "CVT_BYPASS is 0"},
      {p.spec, 0x104c, 3, "DATA_SIGN is 0"},
      {p.spec, 0x1068, 0x10, "the padding must be smaller"},
      {p.spec, 0x1070, 8, "FEATURE_DATA_ADDR is 0x8"},
      {p.spec, 0x107c, 3, "must be a multiple of 4"},
      {p.spec, 0x1088, 32, "DMA_CHANNEL is 32"},
      {p.spec, 0x1100, 1, "DECOMP_CONTROL"},
      {p.spec, 0x3010, 2u << 8, "CORE.MISC_CFG.PROC_PRECISION is 2"},
      {p.spec, 0x3018, 63, "DATAOUT_CHANNEL + 1 is 64"},
      {p.spec, 0x400c, 15u << 5 | 5, "FLYING_MODE is 1"},
      {p.spec, 0x4010, 2u << 29, "makes precision 2 from 0"},
      {p.spec, 0x4010, 0, "QD_EN is 0"},
      {p.spec, 0x4020, 4, "DST_BASE_ADDR is 0x4"},
      {p.spec, 0x4030, 4, "DATA_CUBE_WIDTH + 1 is 5"},
      {p.spec, 0x403c, 15, "smaller than the number of kernels"},
      {p.spec, 0x4038, 5u << 16 | 4, "NOTCH_ADDR_1 is 5"},
      {p.spec, 0x4040, 0x42, "multiplication in this stage"},
      {p.spec, 0x4040, 0x72, "MUL_PRELU"},
      {p.spec, 0x4040, 3u << 16 | 0x50, "BS_ALU_ALGO is 3"},
      {p.spec, 0x4040, 1u << 8 | 0x50, "DATA_USE for BS is 0"},
      {p.spec, 0x4050, 0x126, "SIZE_E + 1 is 2"},
      {p.spec, 0x4058, 63, "CHANNEL_WDMA + 1 is 64"},
      {p.spec, 0x4070, 0x300, "understood for fp16"},
      {p.spec, 0x4088, 15u << 12, "MINUS_EXP: they are understood after"},
      {half, 0x4070, 0x302, "LUT_CFG is 0x0"},
      {half, 0x4070, 0x102c0000 | 0x240, "an operand from memory beside the tables"},
      {p.spec, 0x4084, 0x10001, "FP32TOFP16_EN is 1"},
      {p.spec, 0x4088, 64, "DPU.OUT_CVT_SHIFT is 0x40: bits 0x40"},
      {p.spec, 0x40c4, 1, "RESERVED_40C4"},
      {bias, 0x501c, 2u << 1, "DATA_USE for BS is 2"},
      {bias, 0x5020, 4, "BS operand's address"},
      {ew, 0x4070, 0x108202c0 & ~0x40u, "EW_OP_SRC is 0"},
      {ew, 0x4070, 0x10400000 | 3u << 16 | 0x2c0, "EW_ALU_ALGO is 3"},
      {ew, 0x4070, 0x10420000 | 1u << 20 | 0x2c0, "comparisons"},
      {ew, 0x4070, 0x10420000 | 0x2e0, "EW_MUL_PRELU"},
      {ew, 0x4070, 0x00420000 | 0x3c0, "EW_DATA_MODE is 0"},
      {ew, 0x4070, 0x10c20000 | 0x3c0, "EDATA_SIZE is 3"},
      {ew, 0x5034, 1u << 30 | 1u << 2 | 1, "ERDMA_DISABLE is 1"},
      {half, 0x4070, 0x108203c0, "EW_OP_CVT_BYPASS is true"},
      {half, 0x4070, 0x108002c4, "EW_OP_CVT_BYPASS is false"},
      {half, 0x5044, 1u << 8, "COMB_USE is 1"},
      {half, 0x5044, 5u << 8 | 1u << 4, "has it read the operand's even surfaces"},
      {alone, 0x5044, 5u << 8 | 1, "never ends with it"},
      {wide, 0x5040, 0, "EW_SURF_STRIDE is 0"},
      {wide, 0x4024, 0, "SURFACE_ADD is 0, but the result has 2 surfaces"},
      {ew, 0x5034, 1u << 2, "ERDMA_DATA_MODE is 0"},
      {ew, 0x5038, 8, "EW_BASE_ADDR is 0x8"},
      {ew, 0x506c, 16, "EW_SURF_NOTCH"},
      {ew, 0x5014, 15, "DPU_RDMA.DATA_CUBE_CHANNEL + 1 is 16"},
      {alone, 0x400c, 15u << 5 | 4, "comes from CORE"},
      {alone, 0x5018, 8, "SRC_BASE_ADDR is 0x8"},
      {alone, 0x5044, 1u << 4 | 1, "MRDMA_DISABLE is 1"},
      {alone, 0x5044, 0, "FLYING_MODE is 0"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    std::vector<uint64_t> words = task_words(c.spec);
    patch(words, c.reg, c.value);
    expect_refused(words, c.spec.enable(), c.text);
  }
  expect_refused(task_words(bias), 0x0d, "leaves the RDMA off");
}

TEST_F(Job, RefusesMoreThanTheBoardCanHold) {
  TaskSpec spec{.conv = false,
                .in = Precision::kFp16,
                .out = Precision::kFp32,
                .width = 8192,
                .height = 8192,
                .channels = 8,
                .kernels = 8,
                .out_width = 8192,
                .out_height = 8192};
  spec.features = spec.ew = spec.output = t.allocate(4096);
  expect_refused(task_words(spec), 0x18, "the board takes");
}

TEST_F(Job, MemoryThatIsNotThereIsADmaErrorAndHangs) {
  Problem p = problem(27);
  TaskSpec unreadable = p.spec;
  unreadable.weights = 0x1000;
  t.run(unreadable);
  EXPECT_EQ(t.raw(), 0x1000u);
  t.control(VBOARD_RESET, 1);
  t.control(VBOARD_RESET, 0);
  EXPECT_EQ(t.raw(), 0u);
  TaskSpec unwritable = p.spec;
  unwritable.output = 0x1000;
  t.run(unwritable);
  EXPECT_EQ(t.raw(), 0x2000u);
  t.core_write(0, 0x20, 0x2000);
  EXPECT_EQ(t.sources, 1u);
}

TEST_F(Job, EnablingTwiceIsADriverFault) {
  const Problem p = problem(28);
  t.submit(t.chain({p.spec}));
  t.core_write(0, 0x08, 1);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 1u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULT_LAST), 8u);
  t.board.run_until_idle();
  EXPECT_TRUE(t.completed());
  EXPECT_TRUE(right(p));
}

TEST_F(Job, EnablingInSlaveModeOrWithoutTasksIsADriverFault) {
  t.core_write(0, 0x10, 1);
  t.core_write(0, 0x30, 1);
  t.core_write(0, 0x08, 1);
  EXPECT_TRUE(t.logged("slave mode"));
  t.core_write(0, 0x10, 0);
  t.core_write(0, 0x30, 0);
  t.core_write(0, 0x08, 1);
  EXPECT_TRUE(t.logged("task number of 0"));
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 2u);
}

TEST_F(Job, UnknownRegistersAreDriverFaults) {
  EXPECT_EQ(t.core_read(2, 0xe000), 0u);
  t.core_write(2, 0xe000, 1);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 2u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULT_LAST), 0x2e000u);
  // The arbiter's are kept.
  t.core_write(2, 0x8004, 0x01020304);
  EXPECT_EQ(t.core_read(2, 0x8004), 0x01020304u);
  // Outside everything.
  EXPECT_EQ(t.board.read32(0, 0x30000), 0u);
  EXPECT_EQ(t.board.read32(0, 0x40000), 0u);
  EXPECT_EQ(t.board.read32(0, 2), 0u);
  EXPECT_EQ(t.board.read32(1, 0), 0u);
  EXPECT_EQ(t.board.read32(2, 0x1ffc), 0u);
  t.board.write32(0, 0x30000, 1);
  t.board.write32(0, 3, 1);
  t.board.write32(4, 0, 1);
  t.board.write32(2, 0x1ffc, 1);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 2u);
  EXPECT_EQ(t.board.counter(2, VBOARD_COUNT_REG_READS), 2u);
  EXPECT_EQ(t.board.counter(2, VBOARD_COUNT_REG_WRITES), 2u);
}

TEST_F(Job, ReadOnlyRegistersStay) {
  t.core_write(0, 0x0, 5);
  t.core_write(0, 0x3c, 5);
  t.core_write(0, 0x4000, 5);
  EXPECT_EQ(t.core_read(0, 0x0), 0x46495245u);
  EXPECT_EQ(t.core_read(0, 0x3c), 0x5000u);
  EXPECT_EQ(t.core_read(0, 0x4000), 0u);
  t.core_write(0, 0x34, 0x12345);
  EXPECT_EQ(t.core_read(0, 0x34), 0x12340u);
  EXPECT_TRUE(t.logged("TASK_DMA_BASE_ADDR"));
}

// --- reset and power
// -------------------------------------------------------------------------------------------------------------------

TEST_F(Job, ResetDropsTheJobAndItsWrites) {
  const Problem p = problem(30);
  t.submit(t.chain({p.spec}));
  t.control(VBOARD_RESET, VBOARD_RESET_A(0));
  t.board.run_until_idle();
  EXPECT_EQ(t.board.core_state(0), "off");
  EXPECT_FALSE(right(p));
  EXPECT_EQ(t.sources, 0u);
  t.core_write(0, 0x08, 1);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 1u);  // enabled while in reset
  t.control(VBOARD_RESET, 0);
  EXPECT_EQ(t.control(VBOARD_RESET), 0u);
  t.run(t.chain({p.spec}));
  EXPECT_TRUE(t.completed());
  EXPECT_TRUE(right(p));
}

TEST_F(Job, OnlyTheRegisterResetLosesRegisters) {
  t.core_write(0, 0x4020, 0x40);
  t.core_write(0, 0x20, 0x300);
  t.control(VBOARD_RESET, VBOARD_RESET_A(0));
  t.control(VBOARD_RESET, 0);
  EXPECT_EQ(t.core_read(0, 0x4020), 0x40u);
  t.control(VBOARD_RESET, VBOARD_RESET_H(0));
  EXPECT_EQ(t.core_read(0, 0x4020), 0u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 1u);  // read while in reset
  t.control(VBOARD_RESET, 0);
  EXPECT_EQ(t.core_read(0, 0x4020), 0u);
  EXPECT_EQ(t.core_read(0, 0x20), 0x8001ffffu);
  EXPECT_EQ(t.core_read(0, 0x4070), 0x383u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 1u);
}

TEST_F(Job, ResetOfOneCoreLeavesTheOthers) {
  const Problem p = problem(31);
  t.submit(t.chain({p.spec}), 1);
  t.control(VBOARD_RESET, 0x505);
  t.control(VBOARD_RESET, 0);
  t.board.run_until_idle();
  EXPECT_TRUE(t.completed(1));
  EXPECT_TRUE(right(p));
}

TEST_F(Job, TouchingACoreWithoutPowerIsADriverFault) {
  t.control(VBOARD_POWER, 5);
  EXPECT_EQ(t.core_read(1, 0x0), 0u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 1u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULT_LAST), 0x10000u);
  t.bank_write(2, 0, 0x1000);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 2u);
  t.control(VBOARD_POWER, 7);
  EXPECT_EQ(t.bank_read(2, 0), 0u);
  EXPECT_EQ(t.core_read(1, 0x0), 0x46495245u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 2u);
  t.control(VBOARD_CLOCK, 3);
  t.core_read(2, 0);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 3u);
}

TEST_F(Job, PowerOffUnderAJobIsADriverFaultAndLosesIt) {
  const Problem p = problem(32);
  t.submit(t.chain({p.spec}), 2);
  t.control(VBOARD_POWER, 3);
  EXPECT_TRUE(t.logged("power was switched off under a running job"));
  t.control(VBOARD_POWER, 7);
  t.board.run_until_idle();
  EXPECT_EQ(t.board.core_state(2), "idle");
  EXPECT_FALSE(right(p));
}

TEST_F(Job, WithoutTheCommonClocksOnlyTheBanksAnswer) {
  const Problem p = problem(34);
  t.submit(t.chain({p.spec}), 1);
  t.control(VBOARD_CLOCK_COMMON, 0);
  t.board.run_until_idle();
  t.bank_write(2, 0x1c, 3);
  EXPECT_EQ(t.bank_read(2, 0x1c), 3u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 0u);
  EXPECT_EQ(t.core_read(1, 0), 0u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 1u);
  EXPECT_FALSE(right(p));
  t.control(VBOARD_CLOCK_COMMON, 1);
  t.board.run_until_idle();
  EXPECT_TRUE(right(p));
}

TEST_F(Job, AStoppedClockPausesTheCore) {
  const Problem p = problem(33);
  t.submit(t.chain({p.spec}));
  t.control(VBOARD_CLOCK, 6);
  t.board.run_until_idle();
  EXPECT_FALSE(right(p));
  t.control(VBOARD_CLOCK, 7);
  t.board.run_until_idle();
  EXPECT_TRUE(t.completed());
  EXPECT_TRUE(right(p));
  t.control(VBOARD_CLOCK_KHZ, 600000);
  EXPECT_EQ(t.control(VBOARD_CLOCK_KHZ), 600000u);
}

TEST(Power, StartsAsTheOptionSays) {
  TestBoard t({"power=0"});
  EXPECT_EQ(t.control(VBOARD_POWER), 0u);
  t.core_read(0, 0);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 1u);
}

TEST_F(Job, FunctionResetForgetsEverything) {
  const Problem p = problem(34);
  t.run(t.chain({p.spec}));
  t.control(VBOARD_POWER, 1);
  t.arm(VBOARD_FAULT_STALL, 0);
  t.bank_write(0, 0, 0x5000);
  t.core_write(0, 0x8000, 1);
  t.board.reset();
  EXPECT_EQ(t.sources, 0u);
  EXPECT_EQ(t.control(VBOARD_POWER), 7u);
  EXPECT_EQ(t.control(VBOARD_FAULT_ARM), 0u);
  EXPECT_EQ(t.bank_read(0, 0), 0u);
  EXPECT_EQ(t.core_read(0, 0x8000), 0xfffu);
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_JOBS), 0u);
  EXPECT_TRUE(t.board.last_commands(0).empty());
}

// --- threads
// ---------------------------------------------------------------------------------------------------------------------------

// Waits for a core's interrupt while the workers run.
bool wait_completed(TestBoard& t, unsigned core) {
  for (int i = 0; i < 100000; ++i) {
    if (t.core_read(core, 0x2c) & 0x300) {
      t.core_write(core, 0x24, 0x1ffff);
      return true;
    }
    std::this_thread::yield();
  }
  return false;
}

TEST_F(Job, WorkersRunAllCoresAndStopWhenTold) {
  std::vector<Problem> problems;
  for (uint32_t i = 0; i < 3; ++i) problems.push_back(problem(40 + i));
  t.board.start_workers();
  for (unsigned core = 0; core < 3; ++core) t.submit(t.chain({problems[core].spec}), core);
  for (unsigned core = 0; core < 3; ++core) EXPECT_TRUE(wait_completed(t, core));
  t.board.stop_workers();
  for (const Problem& p : problems) EXPECT_TRUE(right(p));
}

TEST_F(Job, AfterAResetNothingIsWrittenAnyMore) {
  Random random(50);
  const Problem p = make_problem(t,
                                 {.in = Precision::kInt8,
                                  .width = 16,
                                  .height = 16,
                                  .channels = 64,
                                  .kernels = 64,
                                  .kernel_width = 3,
                                  .kernel_height = 3,
                                  .out_width = 14,
                                  .out_height = 14},
                                 random);
  const auto chain = t.chain({p.spec});
  const uint32_t size = result_bytes(p.spec);
  t.board.start_workers();
  for (int round = 0; round < 30; ++round) {
    t.submit(chain);
    // Without giving the processor away, which on a busy machine takes a time slice each.
    for (uint32_t spin = random.below(1'000'000); spin > 0; --spin) std::atomic_signal_fence(std::memory_order_seq_cst);
    t.control(VBOARD_RESET, VBOARD_RESET_A(0));
    std::memset(t.memory.at(p.spec.output, size), 0x77, size);
    t.control(VBOARD_RESET, 0);
    for (int spin = 0; spin < 10; ++spin) std::this_thread::yield();
    for (uint32_t i = 0; i < size; i += 4) ASSERT_EQ(t.memory.get<uint32_t>(p.spec.output + i), 0x77777777u);
  }
  t.submit(chain);
  EXPECT_TRUE(wait_completed(t, 0));
  t.board.stop_workers();
  EXPECT_TRUE(right(p));
}

}  // namespace
}  // namespace npud::rk3588::test
