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

// How many values in a row belong together.
std::size_t values_together(const PackedNode& node, std::size_t count) {
  if (node.kind == NodeKind::matrix) return node.op.channels;
  return node.op.depthwise ? count / node.op.channels : count;
}

std::unexpected<Error> too_small(const std::string& node, const char* what) {
  return fail(ErrorCode::invalid_argument,
              std::format("node '{}' {}: fp16 can't hold the small ones beside the large", node, what));
}

}  // namespace

Result<int> weight_exponent(const NodeSpec& spec) {
  const Extent all = extent_of(spec.weights);
  if (all.empty() || all.least >= kSmallestFullHalf) return 0;
  const int exponent = exponent_for(all.largest, spec.op.depthwise ? kLargestDepthwiseExponent : kLargestExponent);
  const std::size_t n = spec.op.kernels, rest = spec.weights.size() / n;
  const float smallest = std::ldexp(kSmallestFullHalf, -exponent);
  for (std::size_t kernel = 0; kernel < n; ++kernel) {
    Extent own;
    for (std::size_t i = 0; i < rest; ++i)
      own.add(spec.weights[spec.kind == NodeKind::matrix ? i * n + kernel : kernel * rest + i]);
    if (own.empty() || own.largest >= smallest) continue;
    // Beside its bias such a kernel is nothing that fp32 would show, as long as inputs aren't huge.
    if (!spec.bias.empty() && own.largest * static_cast<float>(rest) < std::fabs(spec.bias[kernel]) * 0x1p-24f)
      continue;
    return too_small(spec.name, "has weights of very different sizes");
  }
  return exponent;
}

KernelReach kernel_reach(const PackedNode& node) {
  KernelReach reach;
  if (!node.op.depthwise) return reach;
  const std::size_t taps = node.check_magnitude.size() / node.op.kernels;
  for (std::size_t c = 0; c < node.op.kernels; ++c) {
    const auto own = std::span(node.check_magnitude).subspan(c * taps, taps);
    float sum = 0;
    for (float w : own) sum += w;
    reach.largest.push_back(std::ranges::max(own));
    reach.sum.push_back(sum);
  }
  return reach;
}

Result<int> input_exponent(const PackedNode& node, const KernelReach& reach, std::span<const float> in) {
  const std::size_t together = values_together(node, in.size()), groups = in.size() / together;
  std::vector<Extent> own(groups);
  Extent all;
  for (std::size_t i = 0; i < groups; ++i) {
    own[i] = extent_of(in.subspan(i * together, together));
    all.add(own[i]);
  }
  if (all.empty()) return 0;
  float bias = 0;
  for (float b : node.bias) bias = std::max(bias, std::fabs(b));
  int most = kMostExponent, exponent = 0;
  if (bias > 0) most = 100 - node.exponent - std::ilogb(bias);  // the bias is multiplied too
  if (node.op.depthwise) {
    // No result may reach 2^15.
    double highest = std::ldexp(double{bias}, node.exponent);
    for (std::size_t c = 0; c < groups; ++c)
      highest = std::max(highest, double{own[c].largest} * reach.sum[c] + std::ldexp(double{bias}, node.exponent));
    if (highest > 0) most = std::min(most, 14 - std::ilogb(highest));
    exponent = std::clamp(std::min(most, 14 - std::ilogb(all.largest)), -node.exponent, kMostExponent);
  } else if (all.least < kSmallestFullHalf) {
    exponent = std::clamp(std::min(most, exponent_for(all.largest, kLargestExponent)), 0, kMostExponent);
  } else {
    return 0;
  }
  const double factor = std::ldexp(1.0, exponent);
  for (std::size_t i = 0; i < groups; ++i) {
    if (own[i].empty()) continue;
    const double largest = factor * own[i].largest;
    if (largest < double{kSmallestFullHalf}) return too_small(node.name, "got values of very different sizes");
    if (!node.op.depthwise || reach.largest[i] == 0) continue;
    const double bias_here =
        node.bias.empty() ? 0 : std::ldexp(std::fabs(double{node.bias[i]}), exponent + node.exponent);
    if (largest * reach.largest[i] + bias_here < double{kSmallestFullHalf})
      return too_small(node.name, "has results of very different sizes");
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
