// SPDX-License-Identifier: Apache-2.0
#include "engine/session_allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <vector>

namespace npud {
namespace {

class SessionAllocatorTest : public ::testing::Test {
 protected:
  HostDevice device_{HostDeviceOptions{}};

  // What a run takes and gives back, largest in the middle.
  static void run(SessionAllocator& allocator, const std::vector<std::size_t>& sizes) {
    std::vector<void*> blocks;
    for (std::size_t size : sizes) blocks.push_back(allocator.Alloc(&allocator, size));
    for (void* block : blocks) allocator.Free(&allocator, block);
    allocator.run_ended();
  }
};

TEST_F(SessionAllocatorTest, ARunLikeTheOneBeforeTakesTheSameBlocks) {
  SessionAllocator allocator(device_, 0);
  run(allocator, {100'000, 3'000'000, 50'000});
  const std::uint64_t held = allocator.held_bytes();
  EXPECT_GE(held, 3'150'000u);
  for (int i = 0; i < 100; ++i) run(allocator, {100'000, 3'000'000, 50'000});
  EXPECT_EQ(allocator.held_bytes(), held);
  EXPECT_EQ(allocator.in_use_bytes(), 0u);
}

TEST_F(SessionAllocatorTest, ABlockSlightlyTooLargeIsTaken) {
  SessionAllocator allocator(device_, 0);
  run(allocator, {1'000'000});
  const std::uint64_t held = allocator.held_bytes();
  run(allocator, {900'000});
  EXPECT_EQ(allocator.held_bytes(), held);
  run(allocator, {400'000});  // far too large for this one
  EXPECT_GT(allocator.held_bytes(), held);
}

TEST_F(SessionAllocatorTest, WhatManyRunsHadNoUseForGoesBack) {
  SessionAllocator allocator(device_, 0);
  run(allocator, {50'000'000, 10'000});
  EXPECT_GE(allocator.held_bytes(), 50'000'000u);
  for (std::uint64_t i = 0; i < 2 * SessionAllocator::idle_runs; ++i) run(allocator, {10'000});
  EXPECT_LT(allocator.held_bytes(), 20'000u);
}

TEST_F(SessionAllocatorTest, AnIdleDeviceGetsItsReservesBack) {
  SessionAllocator allocator(device_, 0);
  void* weights = allocator.Alloc(&allocator, 1'000'000);
  run(allocator, {50'000'000});
  EXPECT_GE(device_.used_bytes(), 51'000'000u);
  device_.let_reserves_go();
  EXPECT_EQ(allocator.held_bytes(), allocator.in_use_bytes());
  EXPECT_LT(device_.used_bytes(), 1'200'000u);
  std::memset(weights, 1, 1'000'000);
  allocator.Free(&allocator, weights);
  {
    SessionAllocator gone(device_, 0);
  }
  device_.let_reserves_go();
  EXPECT_EQ(device_.used_bytes(), 0u);
}

TEST_F(SessionAllocatorTest, KeptBlocksMakeRoomBeforeTheLimitRefuses) {
  SessionAllocator allocator(device_, 10'000'000);
  run(allocator, {6'000'000});
  run(allocator, {9'000'000});
  EXPECT_EQ(allocator.refusals(), 0u);
  EXPECT_LE(allocator.held_bytes(), 10'000'000u);
  EXPECT_THROW(allocator.Alloc(&allocator, 11'000'000), std::bad_alloc);
  EXPECT_THROW(allocator.Alloc(&allocator, std::size_t{1} << 62), std::bad_alloc);
  EXPECT_EQ(allocator.refusals(), 2u);
  run(allocator, {9'000'000});  // a refusal costs nothing
  EXPECT_EQ(allocator.refusals(), 2u);
}

TEST_F(SessionAllocatorTest, EverythingGoesBackAtTheEnd) {
  const std::uint64_t before = device_.used_bytes();
  {
    SessionAllocator allocator(device_, 0);
    run(allocator, {1'000'000, 2'000'000});
    EXPECT_GT(device_.used_bytes(), before);
  }
  EXPECT_EQ(device_.used_bytes(), before);
}

}  // namespace
}  // namespace npud
