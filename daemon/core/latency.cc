// SPDX-License-Identifier: Apache-2.0
#include "core/latency.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace npud {

// Values below 2^sub_bits have a bucket each; above, every power of two is cut into 2^sub_bits.
std::size_t LatencyHistogram::bucket_of(std::uint64_t us) {
  us = std::min(us, (std::uint64_t{1} << max_bits) - 1);
  if (us < (1u << sub_bits)) return us;
  const int exponent = std::bit_width(us) - 1;
  const std::uint64_t within = (us >> (exponent - sub_bits)) - (1u << sub_bits);
  return (static_cast<std::size_t>(exponent - sub_bits + 1) << sub_bits) + within;
}

std::uint64_t LatencyHistogram::upper_edge(std::size_t bucket) {
  if (bucket < (1u << sub_bits)) return bucket;
  const auto power = static_cast<int>(bucket >> sub_bits) - 1;
  const std::uint64_t within = (bucket & ((1u << sub_bits) - 1)) + (1u << sub_bits);
  return ((within + 1) << power) - 1;
}

void LatencyHistogram::add(Duration value) {
  const auto us = static_cast<std::uint64_t>(std::max<Duration::rep>(value.count(), 0));
  ++buckets_.at(bucket_of(us));
  ++count_;
}

Duration LatencyHistogram::quantile(double q) const {
  if (count_ == 0) return Duration{0};
  const auto rank =
      std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_))), 1, count_);
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen >= rank) return Duration{static_cast<Duration::rep>(upper_edge(bucket))};
  }
  return Duration{0};
}

}  // namespace npud
