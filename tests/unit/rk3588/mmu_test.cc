// SPDX-License-Identifier: Apache-2.0
// The MMU banks as drivers meet them: Linux' rockchip-iommu register by register, and what a driver forgets.
#include <gtest/gtest.h>

#include "fixture.h"
#include "reference.h"

namespace npud::rk3588::test {
namespace {

using rknpu::Precision;

enum : uint32_t {
  kDteAddr = 0,
  kStatus = 4,
  kCommand = 8,
  kFaultAddr = 0xc,
  kZapLine = 0x10,
  kRawstat = 0x14,
  kIntClear = 0x18,
  kIntMask = 0x1c,
  kIntStatus = 0x20,
  kAutoGating = 0x24
};
enum : uint32_t { kEnablePaging, kDisablePaging, kEnableStall, kDisableStall, kZapCache, kPageFaultDone, kForceReset };
constexpr uint32_t kPaging = 1, kFaultActive = 2, kStallActive = 4, kIsWrite = 32;
constexpr uint32_t kDevice = 0x00400000;  // where the tests map things

// A GEMM whose operands, words and results lie in device memory: `offset` from the physical addresses.
class PagedJob {
 public:
  PagedJob(TestBoard& board, uint32_t seed) : board_(board) {
    // Everything of the job in pages of its own, so that single pages can be taken away.
    Random random(seed);
    problem_ = make_problem(board, {.height = 8, .channels = 64, .kernels = 32, .out_height = 8}, random);
    problem_.spec.features = move(problem_.spec.features, 8 * 64);
    problem_.spec.weights = move(problem_.spec.weights, 64 * 32);
    problem_.spec.output = board.allocate(8 * 32 * 4, 4096);
    table_ = board.make_table();
    map_all(table_);
    TaskSpec device = problem_.spec;
    device.features = kDevice;
    device.weights = kDevice + 0x1000;
    device.output = kDevice + 0x2000;
    words_ = board.allocate(4096, 4096);
    chain_ = board.chain({device});
    std::memcpy(board.memory.at(words_, chain_.words * 8), board.memory.at(chain_.address, chain_.words * 8),
                chain_.words * 8);
    board.map(table_, kDevice + 0x3000, words_, 1, 3);
    chain_.address = kDevice + 0x3000;
  }

  uint32_t move(uint32_t from, size_t size) {
    const uint32_t to = board_.allocate(4096, 4096);
    std::memcpy(board_.memory.at(to, size), board_.memory.at(from, size), size);
    return to;
  }
  void map_all(const TestBoard::Table& table) {
    board_.map(table, kDevice, problem_.spec.features, 1, 3);
    board_.map(table, kDevice + 0x1000, problem_.spec.weights, 1, 3);
    board_.map(table, kDevice + 0x2000, problem_.spec.output, 1, 7);
    if (words_ != 0) board_.map(table, kDevice + 0x3000, words_, 1, 3);
  }
  bool right() { return read_results(board_, problem_.spec) == reference_sums(problem_); }
  void clear() { std::memset(board_.memory.at(problem_.spec.output, 8 * 32 * 4), 0, 8 * 32 * 4); }

  TestBoard& board_;
  Problem problem_;
  TestBoard::Table table_;
  TestBoard::Chain chain_;
  uint32_t words_ = 0;
};

TEST(Mmu, ForceResetAsRockchipIommuDoesIt) {
  TestBoard t;
  for (unsigned bank = 0; bank < VBOARD_BANKS; ++bank) {
    t.bank_write(bank, kDteAddr, 0xcafeb000);
    EXPECT_EQ(t.bank_read(bank, kDteAddr), 0xcafeb000u);
    t.bank_write(bank, kIntMask, 3);
    t.bank_write(bank, kAutoGating, 2);
    t.bank_write(bank, kCommand, kEnablePaging);
    EXPECT_TRUE(t.bank_read(bank, kStatus) & kPaging);
    t.bank_write(bank, kCommand, kForceReset);
    EXPECT_EQ(t.bank_read(bank, kDteAddr), 0u);
    EXPECT_EQ(t.bank_read(bank, kStatus), 0x18u);  // idle, replay buffer empty
    EXPECT_EQ(t.bank_read(bank, kIntMask), 0u);
    EXPECT_EQ(t.bank_read(bank, kAutoGating), 0u);
  }
}

TEST(Mmu, StallNeedsPaging) {
  TestBoard t;
  t.bank_write(0, kCommand, kEnableStall);
  EXPECT_FALSE(t.bank_read(0, kStatus) & kStallActive);
  t.bank_write(0, kCommand, kEnablePaging);
  t.bank_write(0, kCommand, kEnableStall);
  EXPECT_TRUE(t.bank_read(0, kStatus) & kStallActive);
  t.bank_write(0, kCommand, kDisableStall);
  EXPECT_FALSE(t.bank_read(0, kStatus) & kStallActive);
  t.bank_write(0, kCommand, kDisablePaging);
  EXPECT_FALSE(t.bank_read(0, kStatus) & kPaging);
}

TEST(Mmu, UnknownCommandsAreDriverFaults) {
  TestBoard t;
  t.bank_write(2, kCommand, 7);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 1u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULT_LAST), 0x1a008u);
  EXPECT_EQ(t.bank_read(2, 0x28), 0u);  // beyond the registers
}

TEST(Mmu, TranslatesForEveryCore) {
  for (unsigned core = 0; core < 3; ++core) {
    TestBoard t;
    PagedJob job(t, 1);
    for (unsigned bank = 0; bank < VBOARD_BANKS; ++bank) t.enable_paging(bank, job.table_);
    t.run(job.chain_, core);
    ASSERT_TRUE(t.completed(core)) << testing::PrintToString(t.log);
    EXPECT_TRUE(job.right());
    EXPECT_GT(t.board.counter(core, VBOARD_COUNT_WALKS), 0u);
  }
}

TEST(Mmu, BothBanksOfCore0NeedTheTable) {
  TestBoard t;
  PagedJob job(t, 2);
  t.enable_paging(0, job.table_);
  const auto empty = t.make_table();
  t.enable_paging(1, empty);
  t.run(job.chain_);
  EXPECT_FALSE(t.completed());
  EXPECT_EQ(t.sources, 1u << 9);  // the results go through bank 1
  EXPECT_EQ(t.bank_read(1, kFaultAddr), kDevice + 0x2000);
}

TEST(Mmu, AddressesAbove4GiBAreFoldedIntoEntries) {
  // The tables name memory 0xab_0000_0000 higher than it lies; only an access there finds it.
  constexpr uint64_t kHigh = 0xab00000000;
  class HighMemory : public Dma {
   public:
    explicit HighMemory(Memory& low) : low_(low) {}
    bool read(uint64_t address, std::span<std::byte> to) override { return low_.read(fold(address), to); }
    bool write(uint64_t address, std::span<const std::byte> from) override { return low_.write(fold(address), from); }
    uint64_t fold(uint64_t address) {
      high_accesses += address >= kHigh;
      return address >= kHigh ? address - kHigh : address;
    }
    Memory& low_;
    unsigned high_accesses = 0;
  };
  TestBoard t;
  PagedJob job(t, 3);
  HighMemory high(t.memory);
  Board board(Options{}, Environment{.dma = &high, .now_us = [] { return uint64_t{0}; }});
  // Version 2 entries: bits 35:32 of the address in bits 11:8, bits 39:36 in bits 7:4; 0xab is 0xa in bits 7:4 and 0xb
  // in bits 11:8.
  constexpr uint32_t kFolded = 0xb << 8 | 0xa << 4;
  for (uint32_t page = 0; page < 4; ++page) {
    const uint32_t directory_slot = job.table_.directory + 4 * (kDevice >> 22);
    const uint32_t directory_entry = t.memory.get<uint32_t>(directory_slot);
    const uint32_t slot = (directory_entry & ~0xfffu) + 4 * ((kDevice >> 12) % 1024 + page);
    t.memory.put(slot, (t.memory.get<uint32_t>(slot) & ~0xff0u) | kFolded);
    t.memory.put(directory_slot, (directory_entry & ~0xff0u) | kFolded);
  }
  for (const uint32_t bank : {0x9000u, 0xa000u}) {
    board.write32(0, bank + kDteAddr, job.table_.directory | kFolded);
    board.write32(0, bank + kCommand, kEnablePaging);
  }
  board.write32(0, 0x10, job.chain_.address);
  board.write32(0, 0x14, rknpu::amount_for_words(job.chain_.words));
  board.write32(0, 0x30, 0x7001);
  board.write32(0, 0x08, 1);
  board.run_until_idle();
  EXPECT_EQ(board.core_state(0), "idle");
  EXPECT_TRUE(job.right());
  EXPECT_GE(high.high_accesses, 6u);
}

TEST(Mmu, ReadFaultShowsAddressDirectionAndInterrupt) {
  TestBoard t;
  PagedJob job(t, 4);
  t.unmap(job.table_, kDevice + 0x1000);
  t.enable_paging(0, job.table_);
  t.enable_paging(1, job.table_);
  t.run(job.chain_);
  EXPECT_EQ(t.board.core_state(0), "waiting");
  EXPECT_EQ(t.bank_read(0, kStatus), 0x18bu);
  EXPECT_EQ(t.bank_read(0, kFaultAddr), kDevice + 0x1000);
  EXPECT_EQ(t.bank_read(0, kRawstat), 1u);
  EXPECT_EQ(t.bank_read(0, kIntStatus), 1u);
  EXPECT_EQ(t.sources, 1u << 8);
  EXPECT_EQ(t.control(VBOARD_IRQ_STATUS), 1u << 8);
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_PAGE_FAULTS), 1u);
  t.bank_write(0, kIntMask, 0);
  EXPECT_EQ(t.sources, 0u);
  EXPECT_EQ(t.bank_read(0, kIntStatus), 0u);
  t.bank_write(0, kIntMask, 3);
  EXPECT_EQ(t.sources, 1u << 8);
  // As the kernel's handler: the page is there now, zap, done, clear. The job goes on as if nothing had been.
  t.map(job.table_, kDevice + 0x1000, job.problem_.spec.weights, 1, 3);
  t.bank_write(0, kCommand, kZapCache);
  t.bank_write(0, kCommand, kPageFaultDone);
  t.bank_write(0, kIntClear, 1);
  EXPECT_EQ(t.sources, 0u);
  t.board.run_until_idle();
  ASSERT_TRUE(t.completed());
  EXPECT_TRUE(job.right());
}

TEST(Mmu, WriteFaultOnReadOnlyPage) {
  TestBoard t;
  PagedJob job(t, 5);
  t.map(job.table_, kDevice + 0x2000, job.problem_.spec.output, 1, 3);
  t.enable_paging(0, job.table_);
  t.enable_paging(1, job.table_);
  t.run(job.chain_);
  EXPECT_EQ(t.bank_read(1, kStatus) & (kFaultActive | kIsWrite), kFaultActive | kIsWrite);
  EXPECT_EQ(t.bank_read(1, kFaultAddr), kDevice + 0x2000);
  EXPECT_EQ(t.sources, 1u << 9);
  // Still not writable: it faults again.
  t.bank_write(1, kIntClear, 1);
  t.bank_write(1, kCommand, kPageFaultDone);
  t.board.run_until_idle();
  EXPECT_EQ(t.sources, 1u << 9);
  EXPECT_EQ(t.board.counter(0, VBOARD_COUNT_PAGE_FAULTS), 2u);
}

TEST(Mmu, UnreadablePageFaultsOnRead) {
  TestBoard t;
  PagedJob job(t, 6);
  t.map(job.table_, kDevice, job.problem_.spec.features, 1, 1 | 4);
  t.enable_paging(0, job.table_);
  t.enable_paging(1, job.table_);
  t.run(job.chain_);
  EXPECT_EQ(t.bank_read(0, kFaultAddr), kDevice);
  EXPECT_FALSE(t.bank_read(0, kStatus) & kIsWrite);
}

TEST(Mmu, DroppedFaultsReadZero) {
  TestBoard t({"fault-done=drop"});
  PagedJob job(t, 7);
  t.unmap(job.table_, kDevice + 0x1000);
  t.enable_paging(0, job.table_);
  t.enable_paging(1, job.table_);
  std::memset(t.memory.at(job.problem_.spec.output, 64), 0x55, 64);
  t.run(job.chain_);
  t.bank_write(0, kIntClear, 1);
  t.bank_write(0, kCommand, kPageFaultDone);
  t.board.run_until_idle();
  ASSERT_TRUE(t.completed());
  for (const double value : read_results(t, job.problem_.spec)) EXPECT_EQ(value, 0.0);
}

TEST(Mmu, DroppedFaultsWriteNothing) {
  TestBoard t({"fault-done=drop"});
  PagedJob job(t, 8);
  t.unmap(job.table_, kDevice + 0x2000);
  t.enable_paging(0, job.table_);
  t.enable_paging(1, job.table_);
  t.run(job.chain_);
  for (unsigned surface = 0; surface < 8; ++surface) {  // each is an access of its own
    ASSERT_EQ(t.bank_read(1, kFaultAddr), kDevice + 0x2000 + surface * 8 * 16);
    t.bank_write(1, kIntClear, 1);
    t.bank_write(1, kCommand, kPageFaultDone);
    t.board.run_until_idle();
  }
  ASSERT_TRUE(t.completed());
  EXPECT_FALSE(job.right());
}

TEST(Mmu, MissingZapAfterARemapGivesStaleData) {
  TestBoard t;
  PagedJob job(t, 9);
  t.enable_paging(0, job.table_);
  t.enable_paging(1, job.table_);
  t.run(job.chain_);
  ASSERT_TRUE(t.completed());
  ASSERT_TRUE(job.right());
  // Other weights at the same device address.
  PagedJob other(t, 10);
  t.map(job.table_, kDevice + 0x1000, other.problem_.spec.weights, 1, 3);
  const Problem expected{job.problem_.spec, job.problem_.input, other.problem_.weights};
  job.clear();
  t.run(job.chain_);
  ASSERT_TRUE(t.completed());
  EXPECT_TRUE(job.right()) << "without a zap the old page is used";
  t.bank_write(0, kZapLine, kDevice + 0x1000);
  t.run(job.chain_);
  ASSERT_TRUE(t.completed());
  EXPECT_EQ(read_results(t, job.problem_.spec), reference_sums(expected));
}

TEST(Mmu, MissingZapAfterASwitchOfTablesGivesTheOtherSpacesData) {
  TestBoard t;
  PagedJob a(t, 11), b(t, 12);
  t.enable_paging(0, a.table_);
  t.enable_paging(1, a.table_);
  t.run(a.chain_);
  ASSERT_TRUE(t.completed());
  ASSERT_TRUE(a.right());
  a.clear();
  for (const unsigned bank : {0u, 1u}) {
    t.bank_write(bank, kCommand, kEnableStall);
    t.bank_write(bank, kDteAddr, b.table_.directory);
    t.bank_write(bank, kCommand, kDisableStall);
  }
  t.run(b.chain_);
  ASSERT_TRUE(t.completed());
  EXPECT_FALSE(b.right());
  EXPECT_TRUE(a.right()) << "the first space was computed again";
  for (const unsigned bank : {0u, 1u}) t.bank_write(bank, kCommand, kZapCache);
  t.run(b.chain_);
  ASSERT_TRUE(t.completed());
  EXPECT_TRUE(b.right());
}

TEST(Mmu, InvalidEntriesAreCachedWithTheirLine) {
  for (const bool lines : {true, false}) {
    TestBoard t({lines ? "tlb=lines" : "tlb=pages"});
    PagedJob job(t, 13);
    t.unmap(job.table_, kDevice + 0x2000);
    t.enable_paging(0, job.table_);
    t.enable_paging(1, job.table_);
    t.run(job.chain_);
    ASSERT_EQ(t.sources, 1u << 9);
    t.map(job.table_, kDevice + 0x2000, job.problem_.spec.output, 1, 7);
    // No zap: the neighbour's line was fetched with the entry still invalid.
    t.bank_write(1, kIntClear, 1);
    t.bank_write(1, kCommand, kPageFaultDone);
    t.board.run_until_idle();
    EXPECT_EQ(t.completed(), !lines);
    if (!lines) continue;
    t.bank_write(1, kZapLine, kDevice + 0x2000);
    t.bank_write(1, kIntClear, 1);
    t.bank_write(1, kCommand, kPageFaultDone);
    t.board.run_until_idle();
    EXPECT_TRUE(t.completed());
    EXPECT_TRUE(job.right());
  }
}

TEST(Mmu, InvalidDirectoryEntriesToo) {
  for (const bool lines : {true, false}) {
    TestBoard t({lines ? "tlb=lines" : "tlb=pages"});
    PagedJob job(t, 14);
    const auto table = t.make_table();
    t.enable_paging(0, table);
    t.enable_paging(1, table);
    t.run(job.chain_);
    EXPECT_EQ(t.bank_read(0, kFaultAddr), job.chain_.address);
    job.map_all(table);
    t.bank_write(0, kIntClear, 1);
    t.bank_write(0, kCommand, kPageFaultDone);
    t.board.run_until_idle();
    EXPECT_EQ(t.completed(), !lines);
  }
}

TEST(Mmu, StallHoldsTheCoreUntilItEnds) {
  TestBoard t;
  PagedJob job(t, 15);
  t.enable_paging(0, job.table_);
  t.enable_paging(1, job.table_);
  for (const unsigned bank : {0u, 1u}) {
    job.clear();
    t.bank_write(bank, kCommand, kEnableStall);
    t.run(job.chain_);
    EXPECT_EQ(t.board.core_state(0), "waiting");
    EXPECT_FALSE(job.right());
    t.bank_write(bank, kCommand, kDisableStall);
    t.board.run_until_idle();
    ASSERT_TRUE(t.completed());
    EXPECT_TRUE(job.right());
  }
}

TEST(Mmu, StallDuringAPageFault) {
  for (const bool works : {false, true}) {
    TestBoard t({works ? "stall-in-fault=works" : "stall-in-fault=fails"});
    const auto table = t.make_table();
    t.enable_paging(2, table);
    t.submit({.address = 0x1000, .words = 8, .tasks = 1}, 1);
    t.board.run_until_idle();
    ASSERT_TRUE(t.bank_read(2, kStatus) & kFaultActive);
    t.bank_write(2, kCommand, kEnableStall);
    EXPECT_EQ((t.bank_read(2, kStatus) & kStallActive) != 0, works);
  }
}

TEST(Mmu, AStallOfABusyBankDependsOnTheSwitch) {
  for (const bool fails : {true, false}) {
    TestBoard t({fails ? "stall-busy=fails" : "stall-busy=works"});
    PagedJob job(t, 17);
    t.enable_paging(0, job.table_);
    t.enable_paging(1, job.table_);
    EXPECT_EQ(t.bank_read(1, kStatus), 0x19u) << "idle";
    t.submit(job.chain_);  // busy, but not run yet
    t.bank_write(1, kCommand, kEnableStall);
    EXPECT_EQ((t.bank_read(1, kStatus) & kStallActive) != 0, !fails);
    t.bank_write(1, kCommand, kDisableStall);
    t.board.run_until_idle();
    EXPECT_TRUE(t.completed());
    EXPECT_TRUE(job.right());
    t.bank_write(1, kCommand, kEnableStall);
    EXPECT_EQ(t.bank_read(1, kStatus), 0x1du) << "an idle bank always stalls";
  }
}

TEST(Mmu, AStallIsRefusedOnCommand) {
  for (const uint32_t idle_too : {0u, 1u}) {
    TestBoard t;
    PagedJob job(t, 18);
    for (const unsigned bank : {0u, 1u}) t.enable_paging(bank, job.table_);
    t.arm(VBOARD_FAULT_STALL_REFUSED, 1, idle_too);
    t.bank_write(0, kCommand, kEnableStall);
    EXPECT_TRUE(t.bank_read(0, kStatus) & kStallActive) << "another bank";
    t.bank_write(0, kCommand, kDisableStall);
    t.bank_write(1, kCommand, kEnableStall);
    EXPECT_EQ((t.bank_read(1, kStatus) & kStallActive) != 0, idle_too == 0);
    t.bank_write(1, kCommand, kDisableStall);
    t.submit(job.chain_);
    t.bank_write(1, kCommand, kEnableStall);
    EXPECT_EQ((t.bank_read(1, kStatus) & kStallActive) != 0, idle_too != 0) << "one strike";
    EXPECT_EQ(t.control(VBOARD_FAULT_FIRED), 1u);
    t.bank_write(1, kCommand, kDisableStall);
    t.board.run_until_idle();
    EXPECT_TRUE(t.completed());
    EXPECT_TRUE(job.right());
  }
}

TEST(Mmu, ExchangingTheTableOfARunningJobIsADriverFault) {
  TestBoard t;
  PagedJob job(t, 16);
  t.enable_paging(0, job.table_);
  t.enable_paging(1, job.table_);
  t.submit(job.chain_);  // live, but not run yet
  t.bank_write(0, kDteAddr, job.table_.directory);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 1u);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULT_LAST), 0x9000u);
  t.bank_write(0, kCommand, kEnableStall);
  t.bank_write(0, kDteAddr, job.table_.directory);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 1u);
  t.bank_write(0, kCommand, kDisableStall);
  t.bank_write(0, kCommand, kDisablePaging);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 2u);
  t.control(VBOARD_DRIVER_FAULTS, 0);
  EXPECT_EQ(t.control(VBOARD_DRIVER_FAULTS), 0u);
}

TEST(Mmu, TablesOutsideMemoryAreABusError) {
  for (const bool directory : {true, false}) {
    TestBoard t;
    const auto table = t.make_table();
    if (!directory) t.memory.put(table.directory, 0x10000000u | 1);
    t.enable_paging(3, directory ? TestBoard::Table{0x10000000} : table);
    t.submit({.address = 0x1000, .words = 8, .tasks = 1}, 2);
    t.board.run_until_idle();
    EXPECT_EQ(t.bank_read(3, kIntStatus), 2u);
    EXPECT_EQ(t.sources, 1u << 11);
  }
}

TEST(Mmu, APageFaultOfACoreThatWasResetIsGoneWithTheBank) {
  TestBoard t;
  const auto table = t.make_table();
  t.enable_paging(0, table);
  t.submit({.address = 0x1000, .words = 8, .tasks = 1});
  t.board.run_until_idle();
  ASSERT_EQ(t.sources, 1u << 8);
  t.control(VBOARD_RESET, VBOARD_RESET_A(0) | VBOARD_RESET_H(0));
  EXPECT_EQ(t.sources, 0u);
  t.control(VBOARD_RESET, 0);
  EXPECT_EQ(t.bank_read(0, kDteAddr), 0u);
  EXPECT_EQ(t.board.core_state(0), "idle");
}

TEST(Mmu, ResetKeepsTheBankWhereTheSwitchSaysSo) {
  TestBoard t({"reset-mmu=keeps"});
  const auto table = t.make_table();
  t.enable_paging(1, table);
  t.control(VBOARD_RESET, VBOARD_RESET_H(0));
  t.control(VBOARD_RESET, 0);
  EXPECT_EQ(t.bank_read(1, kDteAddr), table.directory);
  EXPECT_TRUE(t.bank_read(1, kStatus) & kPaging);
}

}  // namespace
}  // namespace npud::rk3588::test
