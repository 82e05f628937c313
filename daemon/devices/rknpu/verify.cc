// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "devices/rknpu/emit/pack.h"
#include "devices/rknpu/hw/layout.h"

namespace npud::rknpu {
namespace {

// Input element of the operation: matrices have pixels as rows, images have channels outermost.
struct Input {
  bool rows;
  std::size_t channels, pixels;
  std::size_t index(std::size_t channel, std::size_t pixel) const {
    return rows ? pixel * channels + channel : channel * pixels + pixel;
  }
};

// Adds weight(c, tap) * in for every output pixel; `channel` picks one channel (depthwise) or all.
template <class Weight>
void project(const PackedNode& node, const ConvPlan& plan, std::span<const double> in, std::span<const Weight> weights,
             uint32_t first_channel, uint32_t channels, std::vector<double>& out) {
  const Conv2d& op = plan.op;
  const Input input{node.kind == NodeKind::matrix, op.channels, std::size_t{op.height} * op.width};
  const uint32_t oh = plan.flat ? op.height : plan.out_height, ow = plan.flat ? op.width : plan.out_width;
  out.assign(std::size_t{oh} * ow, 0.0);
  const std::size_t taps = std::size_t{op.kernel_height} * op.kernel_width;
  for (uint32_t c = first_channel; c < first_channel + channels; ++c) {
    for (uint32_t ky = 0; ky < op.kernel_height; ++ky) {
      for (uint32_t kx = 0; kx < op.kernel_width; ++kx) {
        const double w = weights[c * taps + ky * op.kernel_width + kx];
        for (uint32_t y = 0; y < oh; ++y) {
          const int64_t iy = int64_t{y} * op.stride_y + ky - op.pad_top;
          if (iy < 0 || iy >= op.height) continue;
          for (uint32_t x = 0; x < ow; ++x) {
            const int64_t ix = int64_t{x} * op.stride_x + kx - op.pad_left;
            if (ix < 0 || ix >= op.width) continue;
            out[std::size_t{y} * ow + x] += w * in[input.index(c, static_cast<std::size_t>(iy) * op.width + ix)];
          }
        }
      }
    }
  }
}

}  // namespace

bool fp16_result_is_right(const PackedNode& node, const ConvPlan& plan, std::span<const float> in, bool biased,
                          std::span<const std::byte> cube) {
  std::vector<double> rounded(in.size()), magnitude(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    rounded[i] = from_fp16(to_fp16(in[i]));
    magnitude[i] = std::fabs(rounded[i]);
  }
  const uint32_t c2 = atom_channels(plan.op.out);
  const std::size_t cube_pixels = std::size_t{plan.out_height} * plan.out_width;
  auto element = [&](uint32_t n, std::size_t pixel) -> double {
    const std::size_t i = (n / c2 * cube_pixels + pixel) * c2 + n % c2;
    if (plan.op.out == Precision::kFp16) {
      uint16_t bits;
      std::memcpy(&bits, cube.data() + i * 2, 2);
      return from_fp16(bits);
    }
    float value;
    std::memcpy(&value, cube.data() + i * 4, 4);
    return value;
  };
  std::vector<double> want, weighted, bound;
  if (plan.op.depthwise) {
    for (uint32_t c = 0; c < plan.op.channels; ++c) {
      project(node, plan, rounded, std::span<const float>(node.check), c, 1, want);
      project(node, plan, magnitude, std::span<const float>(node.check_magnitude), c, 1, bound);
      const double bias = biased ? node.bias[c] : 0;
      for (std::size_t p = 0; p < want.size(); ++p) {
        const double right = want[p] + bias;
        const double allowed = 4e-5 * (bound[p] + std::fabs(bias)) + 1e-3 * std::fabs(right) + 1e-7;
        if (!(std::fabs(element(c, p) - right) <= allowed)) return false;
      }
    }
    return true;
  }
  project(node, plan, rounded, std::span<const float>(node.check), 0, plan.op.channels, want);
  project(node, plan, rounded, std::span<const double>(node.check_weighted), 0, plan.op.channels, weighted);
  project(node, plan, magnitude, std::span<const float>(node.check_magnitude), 0, plan.op.channels, bound);
  std::vector<double> factors(plan.op.kernels);
  double bias = 0, bias_weighted = 0, bias_magnitude = 0;
  for (uint32_t n = 0; n < plan.op.kernels; ++n) {
    factors[n] = check_weight(node.precision, n);
    if (biased)
      bias += node.bias[n], bias_weighted += factors[n] * node.bias[n], bias_magnitude += std::fabs(node.bias[n]);
  }
  // Each result's rounding is its own, so the sum's grows with the root of their number; four times that leaves room
  // for accumulators that cut off instead. The sums of the weights are rounded themselves.
  const double additions = double(plan.op.channels) * plan.op.kernel_height * plan.op.kernel_width + 16;
  const double together = std::min(1.0, 4 / std::sqrt(double(plan.op.kernels)));
  const double share = std::max(std::min(4e-5, 0x1p-23 * additions) * together, 0x1p-22);
  for (std::size_t p = 0; p < want.size(); ++p) {
    double got = 0, got_weighted = 0;
    for (uint32_t n = 0; n < plan.op.kernels; ++n) {
      const double value = element(n, p);
      got += value;
      got_weighted += factors[n] * value;
    }
    const double allowed = share * (bound[p] + bias_magnitude) + 1e-7;
    if (!(std::fabs(got - want[p] - bias) <= allowed)) return false;
    // No factor is above 2.
    if (!(std::fabs(got_weighted - weighted[p] - bias_weighted) <= 2 * allowed)) return false;
  }
  return true;
}

bool int8_result_is_right(const PackedNode& node, const ConvPlan& plan, std::span<const int8_t> in,
                          std::span<const std::byte> cube) {
  const std::vector<double> values(in.begin(), in.end());
  std::vector<double> want, weighted;
  project(node, plan, std::span<const double>(values), std::span<const float>(node.check), 0, plan.op.channels, want);
  project(node, plan, std::span<const double>(values), std::span<const double>(node.check_weighted), 0,
          plan.op.channels, weighted);
  const uint32_t c2 = atom_channels(Precision::kInt32);
  const std::size_t cube_pixels = std::size_t{plan.out_height} * plan.out_width;
  for (std::size_t p = 0; p < want.size(); ++p) {
    int64_t got = 0, got_weighted = 0;
    for (uint32_t n = 0; n < plan.op.kernels; ++n) {
      int32_t value;
      std::memcpy(&value, cube.data() + ((n / c2 * cube_pixels + p) * c2 + n % c2) * 4, 4);
      got += value;
      got_weighted += int64_t{n + 1} * value;
    }
    if (static_cast<double>(got) != want[p] || static_cast<double>(got_weighted) != weighted[p]) return false;
  }
  return true;
}

}  // namespace npud::rknpu
