// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/emit/plan.h"

#include <algorithm>
#include <format>

namespace npud::rknpu {
namespace {

constexpr uint32_t round_up(uint32_t value, uint32_t multiple) { return (value + multiple - 1) / multiple * multiple; }
constexpr uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// A narrow cube keeps to atoms, a wider one to whole weight tiles.
uint32_t padded_channels(const Conv2d& op, bool pointwise) {
  if (op.depthwise) return round_up(op.channels, depthwise_group(op.in));
  if (pointwise) {
    const uint32_t k = round_up(op.channels, gemm_k_multiple(op.in));
    // fp16 GEMMs of K = 128 are a hole in the predicate; the next multiple isn't.
    GemmShape probe{4, gemm_n_multiple(op.in), k, op.in, op.out};
    return gemm_refusal(probe) && k == 128 ? k + gemm_k_multiple(op.in) : k;
  }
  return op.channels < kChannelGroup ? round_up(op.channels, atom_channels(op.in))
                                     : round_up(op.channels, kChannelGroup);
}

// Input rows that `out_rows` rows from `out_row` on need, clipped to the cube.
Band make_band(const ConvPlan& plan, uint32_t out_row, uint32_t out_rows) {
  const Conv2d& op = plan.op;
  const int64_t first = static_cast<int64_t>(out_row) * op.stride_y - op.pad_top;
  const int64_t end = first + static_cast<int64_t>(out_rows - 1) * op.stride_y + op.kernel_height;
  Band band{.out_row = out_row, .out_rows = out_rows};
  band.in_row = static_cast<uint32_t>(std::max<int64_t>(first, 0));
  band.pad_top = static_cast<uint32_t>(band.in_row - first);
  band.in_rows = static_cast<uint32_t>(std::min<int64_t>(end, plan.in_height)) - band.in_row;
  // Fewer rows than kMinRows are disputed; what is read too much is never used.
  band.in_rows = std::max(band.in_rows, std::min(kMinRows, plan.in_height - band.in_row));
  return band;
}

Refusal band_refusal(const ConvPlan& plan, const Band& band) {
  if (band.in_rows < kMinRows && !plan.short_rows)
    return std::format("a band has {} rows: fewer than {}", band.in_rows, kMinRows);
  const ConvShape shape = plan.shape(band);
  if (auto refusal = conv_refusal(shape)) return refusal;
  if (plan.flat) {
    return gemm_refusal({.m = shape.height, .n = shape.kernels, .k = shape.channels, .in = shape.in, .out = shape.out},
                        plan.short_rows);
  }
  return std::nullopt;
}

// The largest number of output rows that a band in the middle may have.
uint32_t most_rows(const ConvPlan& plan, uint32_t kernels, uint32_t step) {
  auto fits = [&](uint32_t rows) {
    Band band = make_band(plan, 0, rows);
    // As if no padding helped: the middle bands are the tall ones.
    band.in_rows = std::min<uint32_t>((rows - 1) * plan.op.stride_y + plan.op.kernel_height, plan.in_height);
    band.in_rows = std::max(band.in_rows, std::min(kMinRows, plan.in_height));
    band.pad_top = 0;
    band.kernels = kernels;
    if (band.in_rows < plan.op.kernel_height) band.pad_top = plan.op.pad_top;
    return !band_refusal(plan, band);
  };
  const uint32_t whole = round_up(plan.out_height, step);
  uint32_t high = std::min(whole, kMaxFeatureExtent / step * step);
  while (high >= step && !fits(high)) {
    const uint32_t half = high / 2 / step * step;
    if (half >= step && !fits(half)) {
      high = half;
      continue;
    }
    high -= step;
  }
  return high >= step ? high : 0;
}

Result<ConvPlan> cut(ConvPlan plan, uint32_t step, uint32_t parts) {
  const Conv2d& op = plan.op;
  const uint32_t group = op.depthwise ? depthwise_group(op.in) : kernel_group(op.in);
  uint32_t per_task = op.depthwise ? plan.kernels : std::min(plan.kernels, kSafeCubeExtent / group * group);
  const uint32_t rows_for_parts = std::max(step, kMinRows) * parts;
  // Every part reads what it shares with the others again: by kernels the features, by rows the weights.
  const uint32_t kernels_a_part = round_up(ceil_div(plan.kernels, parts), group);
  const bool by_kernels = parts > 1 && !op.depthwise &&
                          (plan.out_height < rows_for_parts ||
                           (plan.weight_bytes > plan.feature_bytes && ceil_div(plan.kernels, kernels_a_part) >= parts));
  if (by_kernels) per_task = std::min(per_task, kernels_a_part);
  if (op.depthwise && plan.kernels > kSafeCubeExtent) {
    return fail(ErrorCode::invalid_argument,
                std::format("a depthwise convolution of {} channels: at most {}", op.channels, kSafeCubeExtent));
  }
  const uint32_t rows = most_rows(plan, per_task, step);
  if (rows == 0) {
    Band band = make_band(plan, 0, step);
    band.kernels = per_task;
    return fail(ErrorCode::invalid_argument,
                band_refusal(plan, band).value_or("no band of rows fits the convolution buffer"));
  }
  uint32_t count = ceil_div(plan.out_height, rows);
  if (parts > 1 && !by_kernels)
    count = std::max(count, std::min(parts, ceil_div(plan.out_height, std::max(step, kMinRows))));
  const uint32_t even = std::min(rows, round_up(ceil_div(plan.out_height, count), step));
  for (uint32_t row = 0; row < plan.out_height; row += even) {
    // The last band is as tall as the others and computes some rows again, so that none is too low.
    const uint32_t height = std::min(even, plan.out_height);
    const uint32_t start = std::min(row, plan.out_height - height);
    Band band = make_band(plan, start, height);
    while (band.in_rows < kMinRows && band.out_row > 0) {
      band = make_band(plan, band.out_row - 1, band.out_rows + 1);
    }
    for (uint32_t kernel = 0; kernel < plan.kernels; kernel += per_task) {
      band.first_kernel = kernel;
      band.kernels = std::min(per_task, plan.kernels - kernel);
      if (auto refusal = band_refusal(plan, band)) return fail(ErrorCode::invalid_argument, *refusal);
      plan.bands.push_back(band);
    }
  }
  return plan;
}

void size_cubes(ConvPlan& plan) {
  const Precision in = plan.op.in, out = plan.op.out;
  plan.feature_bytes = uint64_t{plan.channels} * plan.in_height * plan.in_width * element_bytes(in);
  plan.output_bytes = uint64_t{plan.kernels} * plan.out_height * plan.out_width * element_bytes(out);
  plan.weight_bytes = uint64_t{plan.op.kernel_height} * plan.op.kernel_width * plan.channels * element_bytes(in) *
                      (plan.op.depthwise ? 1 : plan.kernels);
  plan.bias_bytes = uint64_t{plan.kernels} * 4;
}

}  // namespace

ConvShape ConvPlan::shape(const Band& band) const {
  return {.width = in_width,
          .height = band.in_rows,
          .channels = channels,
          .kernels = band.kernels,
          .kernel_width = op.kernel_width,
          .kernel_height = op.kernel_height,
          .stride_x = op.stride_x,
          .stride_y = op.stride_y,
          .pad_left = flat ? 0 : op.pad_left,
          .pad_top = band.pad_top,
          .out_width = out_width,
          .out_height = band.out_rows,
          .depthwise = op.depthwise,
          .in = op.in,
          .out = op.out};
}

uint64_t ConvPlan::macs() const {
  const uint64_t pixels = flat ? uint64_t{op.height} * op.width : uint64_t{op.out_height()} * op.out_width();
  return pixels * op.kernel_height * op.kernel_width * op.channels * (op.depthwise ? 1 : op.kernels);
}

Result<ConvPlan> plan_conv(const Conv2d& op, uint32_t parts, bool short_rows) {
  if (op.channels == 0 || op.height == 0 || op.width == 0 || op.kernels == 0 || op.kernel_height == 0 ||
      op.kernel_width == 0 || op.stride_x == 0 || op.stride_y == 0) {
    return fail(ErrorCode::invalid_argument, "a convolution with an extent or stride of 0");
  }
  if (op.height + op.pad_top + op.pad_bottom < op.kernel_height ||
      op.width + op.pad_left + op.pad_right < op.kernel_width) {
    return fail(ErrorCode::invalid_argument, "the kernel is larger than the padded input");
  }
  if (uint64_t{op.height} * op.width > (1u << 26))
    return fail(ErrorCode::invalid_argument, "the image has more than 2^26 pixels");
  if (!is_compute_precision(op.in) || !is_output_precision(op.in, op.out, op.depthwise)) {
    return fail(ErrorCode::invalid_argument, "the precisions can't go together on this hardware");
  }
  const bool pointwise = !op.depthwise && op.kernel_height == 1 && op.kernel_width == 1;
  ConvPlan plan{.op = op};
  plan.flat =
      pointwise && op.stride_x == 1 && op.stride_y == 1 && op.pad_top + op.pad_left + op.pad_bottom + op.pad_right == 0;
  plan.channels = padded_channels(op, pointwise);
  plan.kernels = op.depthwise ? plan.channels : round_up(op.kernels, kernel_group(op.in));
  if (plan.flat) {
    const uint32_t pixels = op.height * op.width;
    plan.short_rows = short_rows && pixels < kMinRows;
    plan.in_height = plan.out_height = plan.short_rows ? pixels : round_up(pixels, kMinRows);
    plan.in_width = plan.out_width = 1;
  } else {
    plan.in_height = std::max(op.height, kMinRows);
    plan.in_width = op.width;
    plan.out_height = op.out_height();
    plan.out_width = op.out_width();
  }
  size_cubes(plan);
  const uint32_t step = plan.short_rows ? plan.out_height : plan.flat ? kMinRows : 1;
  return cut(std::move(plan), step, std::max(parts, 1u));
}

Result<ConvPlan> plan_gemm(uint32_t m, uint32_t n, uint32_t k, Precision in, Precision out, uint32_t parts) {
  return plan_conv({.channels = k, .height = m, .width = 1, .kernels = n, .in = in, .out = out}, parts);
}

}  // namespace npud::rknpu
