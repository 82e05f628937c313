// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/operation.h"

#include <algorithm>
#include <cmath>
#include <format>

#include "devices/rknpu/emit/pack.h"
#include "devices/rknpu/scaling.h"

namespace npud::rknpu {
namespace {

constexpr float kLeastQuantised = 1e-36f;  // what is all below this is 0

std::size_t weight_count(const Conv2d& op) {
  return std::size_t{op.kernels} * (op.depthwise ? 1 : op.channels) * op.kernel_height * op.kernel_width;
}

// Symmetric, one scale a kernel. Matrices have the kernel as their last index, convolutions as their first.
std::vector<int8_t> quantise(const NodeSpec& spec, std::vector<float>& scales) {
  const std::size_t n = spec.op.kernels, rest = spec.weights.size() / n;
  auto at = [&](std::size_t kernel, std::size_t i) {
    return spec.kind == NodeKind::matrix ? i * n + kernel : kernel * rest + i;
  };
  std::vector<int8_t> out(spec.weights.size());
  scales.resize(n);
  for (std::size_t kernel = 0; kernel < n; ++kernel) {
    float largest = 0;
    for (std::size_t i = 0; i < rest; ++i) largest = std::max(largest, std::fabs(spec.weights[at(kernel, i)]));
    scales[kernel] = largest > kLeastQuantised ? largest / 127.0f : 1.0f;
    for (std::size_t i = 0; i < rest; ++i) {
      out[at(kernel, i)] = static_cast<int8_t>(
          std::clamp(std::nearbyint(spec.weights[at(kernel, i)] / scales[kernel]), -127.0f, 127.0f));
    }
  }
  return out;
}

// Sum over kernels of the values as packed. Depthwise kernels don't share inputs, so they keep one each.
template <class T, class Value>
std::vector<float> kernel_sums(const NodeSpec& spec, std::span<const T> weights, Value value) {
  const Conv2d& op = spec.op;
  const std::size_t taps = std::size_t{op.kernel_height} * op.kernel_width;
  if (op.depthwise) {
    std::vector<float> own(weights.size());
    std::ranges::transform(weights, own.begin(), value);
    return own;
  }
  std::vector<double> sums(op.channels * taps);
  for (std::size_t n = 0; n < op.kernels; ++n) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += value(weights[spec.kind == NodeKind::matrix ? i * op.kernels + n : n * sums.size() + i]);
    }
  }
  return {sums.begin(), sums.end()};
}

// For the second sum; as packed, hence with `value`.
template <class T, class Value>
std::vector<double> weighted_sums(const NodeSpec& spec, std::span<const T> weights, Value value) {
  const Conv2d& op = spec.op;
  if (op.depthwise) return {};
  std::vector<double> sums(std::size_t{op.channels} * op.kernel_height * op.kernel_width);
  for (std::size_t n = 0; n < op.kernels; ++n) {
    const double factor = check_weight(spec.precision, n);
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] += factor * value(weights[spec.kind == NodeKind::matrix ? i * op.kernels + n : n * sums.size() + i]);
  }
  return sums;
}

}  // namespace

double check_weight(NodePrecision precision, std::size_t kernel) {
  if (precision == NodePrecision::int8) return static_cast<double>(kernel + 1);
  // Multiples of the golden ratio fall far apart.
  const double turn = static_cast<double>(kernel) * 0.6180339887498949;
  return 1.0 + turn - std::floor(turn);
}

Result<PackedNode> pack_node(const NodeSpec& spec) {
  if (spec.op.channels == 0 || spec.op.kernels == 0 || spec.weights.size() != weight_count(spec.op)) {
    return fail(ErrorCode::invalid_argument, std::format("node '{}' has {} weights: its shape wants {}", spec.name,
                                                         spec.weights.size(), weight_count(spec.op)));
  }
  if (!spec.bias.empty() && spec.bias.size() != spec.op.kernels) {
    return fail(ErrorCode::invalid_argument,
                std::format("node '{}' has {} biases for {} kernels", spec.name, spec.bias.size(), spec.op.kernels));
  }
  if (!std::ranges::all_of(spec.bias, [](float b) { return std::isfinite(b); })) {
    return fail(ErrorCode::invalid_argument, std::format("node '{}' has a bias that is not finite", spec.name));
  }
  if (spec.precision == NodePrecision::int8 && spec.op.depthwise) {
    return fail(
        ErrorCode::invalid_argument,
        std::format("node '{}' is depthwise: the NPU gives no int32 for it, so it has no int8 form", spec.name));
  }
  PackedNode node{.name = spec.name, .kind = spec.kind, .precision = spec.precision, .op = spec.op, .relu = spec.relu};
  node.bias = spec.bias;
  node.op.in = spec.precision == NodePrecision::int8 ? Precision::kInt8 : Precision::kFp16;
  node.op.out = spec.precision == NodePrecision::int8 ? Precision::kInt32
                : spec.op.depthwise                   ? Precision::kFp16
                                                      : Precision::kFp32;
  // The weights' layout depends on channels and kernels only: plan for the smallest input that the kernel fits.
  Conv2d probe = node.op;
  probe.height = std::max(node.op.kernel_height, kMinRows);
  probe.width = node.op.kernel_width;
  const auto plan = plan_conv(probe);
  if (!plan) return std::unexpected(plan.error());
  node.weights.resize(plan->weight_bytes);
  if (spec.precision == NodePrecision::int8) {
    for (float w : spec.weights) {
      if (!std::isfinite(w))
        return fail(ErrorCode::invalid_argument, std::format("node '{}' has a weight that is not finite", spec.name));
    }
    const auto quantised = quantise(spec, node.scales);
    const std::span<const int8_t> values(quantised);
    spec.kind == NodeKind::matrix ? pack_matrix(*plan, values, node.weights)
                                  : pack_weights(*plan, values, node.weights);
    node.check = kernel_sums(spec, values, [](int8_t v) { return static_cast<float>(v); });
    node.check_magnitude = kernel_sums(spec, values, [](int8_t v) { return std::fabs(static_cast<float>(v)); });
    node.check_weighted = weighted_sums(spec, values, [](int8_t v) { return static_cast<double>(v); });
  } else {
    const auto exponent = weight_exponent(spec);
    if (!exponent) return std::unexpected(exponent.error());
    node.exponent = *exponent;
    std::vector<float> scaled;
    if (node.exponent != 0) {
      scaled.resize(spec.weights.size());
      std::ranges::transform(spec.weights, scaled.begin(),
                             [factor = std::ldexp(1.0f, node.exponent)](float w) { return w * factor; });
    }
    const std::span<const float> values(node.exponent != 0 ? scaled : spec.weights);
    const bool fits = spec.kind == NodeKind::matrix ? pack_matrix(*plan, values, node.weights)
                                                    : pack_weights(*plan, values, node.weights);
    if (!fits)
      return fail(ErrorCode::invalid_argument, std::format("node '{}' has a weight beyond fp16's ±65504", spec.name));
    node.check = kernel_sums(spec, values, [](float v) { return from_fp16(to_fp16(v)); });
    node.check_magnitude = kernel_sums(spec, values, [](float v) { return std::fabs(from_fp16(to_fp16(v))); });
    node.check_weighted = weighted_sums(spec, values, [](float v) { return double{from_fp16(to_fp16(v))}; });
  }
  return node;
}

}  // namespace npud::rknpu
