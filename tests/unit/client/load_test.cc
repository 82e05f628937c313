// SPDX-License-Identifier: Apache-2.0
#include "load.h"

#include <gtest/gtest.h>

namespace npud::client {
namespace {

TEST(LoadReport, PercentilesAreOfTheNearestRank) {
  LoadReport report;
  EXPECT_EQ(report.percentile_us(50), 0u);
  for (std::uint32_t i = 1; i <= 100; ++i) report.latencies_us.push_back(i);
  EXPECT_EQ(report.percentile_us(50), 50u);
  EXPECT_EQ(report.percentile_us(99), 99u);
  EXPECT_EQ(report.percentile_us(100), 100u);
  EXPECT_EQ(report.percentile_us(0.001), 1u);
  report.latencies_us.assign(1, 7);
  EXPECT_EQ(report.percentile_us(50), 7u);
}

TEST(LoadReport, ThroughputIsOfWhatSucceeded) {
  LoadReport report;
  EXPECT_EQ(report.per_second(), 0);
  report.succeeded = 50;
  report.failed = 10;
  report.elapsed = std::chrono::milliseconds(500);
  EXPECT_DOUBLE_EQ(report.per_second(), 100);
}

}  // namespace
}  // namespace npud::client
