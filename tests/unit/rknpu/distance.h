// SPDX-License-Identifier: Apache-2.0
// How far results are off.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace npud::rknpu {

// The largest difference, relative to the largest magnitude; infinite where sizes or finiteness differ.
inline double relative_distance(std::span<const float> ours, std::span<const float> reference) {
  if (ours.size() != reference.size()) return INFINITY;
  double worst = 0, largest = 1e-9;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (!std::isfinite(ours[i])) return INFINITY;
    worst = std::max<double>(worst, std::fabs(ours[i] - reference[i]));
    largest = std::max<double>(largest, std::fabs(reference[i]));
  }
  return worst / largest;
}

}  // namespace npud::rknpu
