// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
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

constexpr double kRecomputedMacs = 1 << 24;

// The most that accumulation in fp32 explains of one result: each addition is off by 2^-23 of what was added up, at
// most, where accumulators cut off; the rest are the bias, and the sums of weights that are rounded themselves.
double worst_share(const Conv2d& op) {
  return 0x1p-23 * (double(op.depthwise ? 1 : op.channels) * op.kernel_height * op.kernel_width + 16);
}

// All results of one output pixel, each from its own weights. A window's values lie as a kernel's weights do: blocks of
// 32 channels, in them the taps, in those the channels.
class PixelCheck {
 public:
  PixelCheck(const PackedNode& node, const ConvPlan& plan, std::span<const double> in, std::span<const double> bias)
      : node_(node), plan_(plan), in_(in), bias_(bias), window_(std::size_t{plan.channels} * taps()) {}

  std::size_t macs() const { return window_.size() * plan_.op.kernels; }

  template <class Element>
  bool is_right(std::size_t pixel, Element element) {
    load(pixel);
    const uint32_t group = kernel_group(plan_.op.in);
    for (uint32_t n = 0; n < plan_.op.kernels; ++n) {
      const uint32_t first = n / group * group;
      const std::size_t width = std::min(group, plan_.kernels - first);
      const std::byte* tile = node_.weights.data() + std::size_t{first} * window_.size() * 2;
      double sum = bias_[n], magnitude = std::fabs(sum);
      for (uint32_t block = 0; block < plan_.channels; block += kChannelGroup) {
        const std::size_t depth = std::min(kChannelGroup, plan_.channels - block);
        for (std::size_t tap = 0; tap < taps(); ++tap) {
          const double* x = window_.data() + block * taps() + tap * depth;
          const std::byte* w = tile + (block * taps() * width + (tap * width + (n - first)) * depth) * 2;
          for (std::size_t c = 0; c < depth; ++c) {
            uint16_t bits;
            std::memcpy(&bits, w + c * 2, 2);
            const double product = double{from_fp16(bits)} * x[c];
            sum += product;
            magnitude += std::fabs(product);
          }
        }
      }
      if (!(std::fabs(element(n, pixel) - sum) <= worst_share(plan_.op) * magnitude + kLeast)) return false;
    }
    return true;
  }

  static constexpr double kLeast = 0x1p-126;  // fp32 has nothing finer

 private:
  std::size_t taps() const { return std::size_t{plan_.op.kernel_height} * plan_.op.kernel_width; }

  void load(std::size_t pixel) {
    const Conv2d& op = plan_.op;
    const Input input{node_.kind == NodeKind::matrix, op.channels, std::size_t{op.height} * op.width};
    const std::size_t out_width = plan_.flat ? op.width : plan_.out_width;
    const int64_t top = static_cast<int64_t>(pixel / out_width) * op.stride_y - op.pad_top,
                  left = static_cast<int64_t>(pixel % out_width) * op.stride_x - op.pad_left;
    std::ranges::fill(window_, 0.0);
    for (uint32_t c = 0; c < op.channels; ++c) {
      const std::size_t block = c / kChannelGroup * kChannelGroup,
                        depth = std::min<std::size_t>(kChannelGroup, plan_.channels - block);
      for (uint32_t ky = 0; ky < op.kernel_height; ++ky) {
        for (uint32_t kx = 0; kx < op.kernel_width; ++kx) {
          const int64_t y = top + ky, x = left + kx;
          if (y < 0 || x < 0 || y >= op.height || x >= op.width) continue;
          window_[block * taps() + (std::size_t{ky} * op.kernel_width + kx) * depth + c - block] =
              in_[input.index(c, static_cast<std::size_t>(y) * op.width + static_cast<std::size_t>(x))];
        }
      }
    }
  }

  const PackedNode& node_;
  const ConvPlan& plan_;
  std::span<const double> in_;
  std::span<const double> bias_;
  std::vector<double> window_;
};

}  // namespace

bool fp16_result_is_right(const PackedNode& node, const ConvPlan& plan, std::span<const float> in, int exponent,
                          std::span<const std::byte> cube) {
  std::vector<double> rounded(in.size()), magnitude(in.size()), biases(plan.op.kernels, 0.0);
  for (std::size_t n = 0; n < node.bias.size(); ++n)
    biases[n] = std::ldexp(double{node.bias[n]}, exponent + node.exponent);
  const float factor = std::ldexp(1.0f, exponent);
  for (std::size_t i = 0; i < in.size(); ++i) {
    rounded[i] = from_fp16(to_fp16(in[i] * factor));
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
      const double bias = biases[c];
      for (std::size_t p = 0; p < want.size(); ++p) {
        const double right = want[p] + bias;
        const double allowed =
            std::max(4e-5, worst_share(plan.op)) * (bound[p] + std::fabs(bias)) + 1e-3 * std::fabs(right) + 0x1p-24;
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
    bias += biases[n], bias_weighted += factors[n] * biases[n], bias_magnitude += std::fabs(biases[n]);
  }
  // Each result's rounding is mostly its own, and then the sum's grows with the root of their number; four times that
  // leaves room for accumulators that cut off instead.
  const double worst = worst_share(plan.op), together = std::min(1.0, 4 / std::sqrt(double(plan.op.kernels)));
  const double share = std::max(std::min(4e-5, worst) * together, 0x1p-22);
  struct Suspect {
    double excess;
    std::size_t pixel;
  };
  std::vector<Suspect> suspects;
  for (std::size_t p = 0; p < want.size(); ++p) {
    double got = 0, got_weighted = 0;
    for (uint32_t n = 0; n < plan.op.kernels; ++n) {
      const double value = element(n, p);
      got += value;
      got_weighted += factors[n] * value;
    }
    const double magnitude = bound[p] + bias_magnitude + PixelCheck::kLeast;
    // No factor is above 2.
    const double off =
        std::max(std::fabs(got - want[p] - bias), std::fabs(got_weighted - weighted[p] - bias_weighted) / 2) /
        magnitude;
    if (!(off <= std::max(worst, share))) return false;
    if (off > share) suspects.push_back({off, p});
  }
  if (suspects.empty()) return true;
  PixelCheck check(node, plan, rounded, biases);
  const auto most = static_cast<std::size_t>(std::max(1.0, kRecomputedMacs / static_cast<double>(check.macs())));
  const std::size_t some = std::min(most, suspects.size());
  std::ranges::partial_sort(suspects, suspects.begin() + static_cast<std::ptrdiff_t>(some), std::greater{},
                            &Suspect::excess);
  return std::all_of(suspects.begin(), suspects.begin() + static_cast<std::ptrdiff_t>(some),
                     [&](const Suspect& suspect) { return check.is_right(suspect.pixel, element); });
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
