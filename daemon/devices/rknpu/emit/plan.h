// SPDX-License-Identifier: Apache-2.0
// How a convolution or a matrix product is cut into tasks that the hardware can do: bands of output rows that fit the
// convolution buffer, and groups of output channels. Pure arithmetic; every limit is asked of hw/predicates, none is
// known here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "devices/rknpu/hw/predicates.h"

namespace npud::rknpu {

// One image (or matrix) as ONNX describes the operation: NCHW, group 1 or depthwise with one kernel a channel.
struct Conv2d {
  uint32_t channels = 0, height = 0, width = 0;
  uint32_t kernels = 0;
  uint32_t kernel_height = 1, kernel_width = 1;
  uint32_t stride_y = 1, stride_x = 1;
  uint32_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  bool depthwise = false;
  Precision in = Precision::kFp16;
  Precision out = Precision::kFp32;

  uint32_t out_height() const { return (height + pad_top + pad_bottom - kernel_height) / stride_y + 1; }
  uint32_t out_width() const { return (width + pad_left + pad_right - kernel_width) / stride_x + 1; }
};

// One task. Rows and kernels are those of the cubes below; `in_rows` ends at the cube's last row where padding follows.
struct Band {
  uint32_t out_row = 0, out_rows = 0;
  uint32_t in_row = 0, in_rows = 0;
  uint32_t pad_top = 0;
  uint32_t first_kernel = 0, kernels = 0;
};

// The padded cubes in memory and the tasks over them. Cubes are laid out as hw/layout.h says: features [channels /
// c2][in_height][in_width][c2], outputs [kernels / c2][out_height][out_width][c2]. Rows and channels beyond the
// operation's own must be zero on input and hold nothing of meaning on output.
struct ConvPlan {
  Conv2d op;
  bool flat = false;        // width 1: a GEMM, or a 1x1 convolution whose rows are all pixels of the image
  bool short_rows = false;  // a flat one of fewer than kMinRows, as they are
  uint32_t channels = 0, in_height = 0, in_width = 0;
  uint32_t kernels = 0, out_height = 0, out_width = 0;
  uint64_t feature_bytes = 0, weight_bytes = 0, output_bytes = 0;
  uint64_t bias_bytes = 0;  // of a bias in the accumulator's precision, four bytes a kernel
  std::vector<Band> bands;

  // The registers' view of one band.
  ConvShape shape(const Band& band) const;
  // Multiply-accumulates of the operation itself, without padding.
  uint64_t macs() const;
};

// Fails with invalid_argument and the limit that stands in the way; then the operation belongs on the host. `parts`:
// how many tasks there should be at least, to be spread over cores: rows are cut first, then output channels; fewer
// come out where neither can be. `short_rows`: the device computes fewer than kMinRows rows of a matrix right, which
// else are padded.
Result<ConvPlan> plan_conv(const Conv2d& op, uint32_t parts = 1, bool short_rows = false);

// C[m][n] = A[m][k] B[k][n]: the same with rows of A as pixels of a width-1 image. m is padded to a multiple of 4, k
// and n to what the layouts need.
Result<ConvPlan> plan_gemm(uint32_t m, uint32_t n, uint32_t k, Precision in, Precision out, uint32_t parts = 1);

}  // namespace npud::rknpu
