// SPDX-License-Identifier: Apache-2.0
// Percentiles of durations in constant space: buckets whose width grows with the value, at most 1/16 of it.
#pragma once

#include <array>
#include <cstdint>

#include "core/clock.h"

namespace npud {

// A value; not thread-safe. Durations below zero count as zero, above 2^40 µs as that.
class LatencyHistogram {
 public:
  void add(Duration value);
  std::uint64_t count() const { return count_; }
  // The upper edge of the bucket in which the quantile lies (0 < q ≤ 1): at most 1/16 too high, never too low. 0 when
  // empty.
  Duration quantile(double q) const;

 private:
  static constexpr int sub_bits = 4;
  static constexpr int max_bits = 40;
  static std::size_t bucket_of(std::uint64_t us);
  static std::uint64_t upper_edge(std::size_t bucket);
  std::array<std::uint64_t, (max_bits - sub_bits + 2) << sub_bits> buckets_{};
  std::uint64_t count_ = 0;
};

}  // namespace npud
