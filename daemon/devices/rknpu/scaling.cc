// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/scaling.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <format>

#include "devices/rknpu/emit/pack.h"

namespace npud::rknpu {
namespace {

// Factors beyond this would leave fp32, or their inverse would.
constexpr int kMostExponent = 100;
// Depthwise results are fp16: their factor is one of the input's, so that both keep room.
constexpr int kLargestExponent = 14, kLargestDepthwiseExponent = 7;

// Magnitudes of values other than 0 (what fp32 itself holds with fewer bits counts as 0). NaN is neither.
struct Extent {
  float least = INFINITY, largest = 0;
  void add(float value) {
    const float magnitude = std::fabs(value);
    largest = magnitude > largest ? magnitude : largest;
    least = magnitude >= FLT_MIN && magnitude < least ? magnitude : least;
  }
  void add(const Extent& other) {
    least = std::min(least, other.least);
    largest = std::max(largest, other.largest);
  }
  bool empty() const { return least == INFINITY; }
};

Extent extent_of(std::span<const float> values) {
  Extent all;
  for (float v : values) all.add(v);
  return all;
}

// What brings `largest` just below 2^to.
int exponent_for(float largest, int to) {
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent
  return std::clamp(to - exponent, 0, kMostExponent);
}

// The bias is multiplied too.
int most_for_bias(float largest) { return largest > 0 ? kMostExponent - std::ilogb(largest) : 2 * kMostExponent; }

// How many values in a row make a result together: those of a matrix's row, or of an image.
std::size_t values_together(const PackedNode& node, std::size_t count) {
  return node.kind == NodeKind::matrix ? node.op.channels : count;
}

}  // namespace

Result<int> weight_exponent(const NodeSpec& spec) {
  const Extent all = extent_of(spec.weights);
  if (all.empty() || all.least >= kSmallestFullHalf) return 0;
  const int exponent = exponent_for(all.largest, spec.op.depthwise ? kLargestDepthwiseExponent : kLargestExponent);
  if (exponent > 0 && exponent > most_for_bias(extent_of(spec.bias).largest))
    return fail(ErrorCode::invalid_argument,
                std::format("node '{}' has a bias too large to stand beside its weights", spec.name));
  return exponent;
}

std::vector<float> kernel_reach(const PackedNode& node) {
  std::vector<float> reach;
  if (!node.op.depthwise) return reach;
  const std::size_t taps = node.check_magnitude.size() / node.op.kernels;
  for (std::size_t c = 0; c < node.op.kernels; ++c) {
    const auto own = std::span(node.check_magnitude).subspan(c * taps, taps);
    float sum = 0;
    for (float w : own) sum += w;
    reach.push_back(sum);
  }
  return reach;
}

Result<int> input_exponent(const PackedNode& node, std::span<const float> reach, std::span<const float> in) {
  // Of each row, of each depthwise channel, or of the image.
  const std::size_t groups = node.op.depthwise ? node.op.channels : in.size() / values_together(node, in.size()),
                    together = in.size() / groups;
  std::vector<Extent> own(groups);
  Extent all;
  for (std::size_t i = 0; i < groups; ++i) {
    own[i] = extent_of(in.subspan(i * together, together));
    all.add(own[i]);
  }
  if (all.empty()) return 0;
  const float bias = extent_of(node.bias).largest;
  int most = most_for_bias(bias) - node.exponent, exponent = 0;
  if (node.op.depthwise) {
    // No result may reach 2^15.
    double highest = std::ldexp(double{bias}, node.exponent);
    for (std::size_t c = 0; c < groups; ++c)
      highest = std::max(highest, double{own[c].largest} * reach[c] + std::ldexp(double{bias}, node.exponent));
    if (highest > 0) most = std::min(most, 14 - std::ilogb(highest));
    exponent = std::clamp(std::min(most, 14 - std::ilogb(all.largest)), -node.exponent, kMostExponent);
  } else if (all.least < kSmallestFullHalf) {
    exponent = std::clamp(std::min(most, exponent_for(all.largest, kLargestExponent)), 0, kMostExponent);
  } else {
    return 0;
  }
  const double smallest = std::ldexp(double{kSmallestFullHalf}, -exponent);
  const bool lost = node.op.depthwise
                        ? all.largest < smallest
                        : std::ranges::any_of(own, [&](const Extent& e) { return !e.empty() && e.largest < smallest; });
  if (lost) {
    return fail(
        ErrorCode::invalid_argument,
        std::format("node '{}' got values of very different sizes: fp16 can't hold the small ones beside the large",
                    node.name));
  }
  return exponent;
}

bool fp16_holds(const PackedNode& node, std::span<const float> in, int exponent) {
  const std::size_t together = values_together(node, in.size());
  const double factor = std::ldexp(1.0, exponent);
  for (std::size_t first = 0; first < in.size(); first += together) {
    double largest = 0, error = 0;
    for (float v : in.subspan(first, together)) {
      if (std::fabs(v) < FLT_MIN) continue;
      const double scaled = factor * v;
      largest = std::max(largest, std::fabs(scaled));
      error = std::max(error, std::fabs(from_fp16(to_fp16(static_cast<float>(scaled))) - scaled));
    }
    if (!(error <= 0x1p-11 * largest)) return false;
  }
  return true;
}

}  // namespace npud::rknpu
