// SPDX-License-Identifier: Apache-2.0
#include "compute.h"

#include "devices/rknpu/hw/predicates.h"

namespace npud::rk3588::test {

TaskSpec random_conv(Random& random, Precision in, Precision out, bool depthwise) {
  for (;;) {
    TaskSpec s{.depthwise = depthwise, .in = in, .out = out};
    const uint32_t atom = in == Precision::kInt8 ? 16 : 8;
    s.channels = atom * random.between(1, 9);
    if (depthwise && in == Precision::kInt8) s.channels = 64 * random.between(1, 3);
    s.kernels = depthwise                 ? s.channels
                : out == Precision::kInt8 ? 32 * random.between(1, 3)
                                          : 2 * random.between(1, 40);
    s.width = random.between(1, 17);
    s.height = random.between(4, 17);
    s.kernel_width = random.between(1, 5);
    s.kernel_height = random.between(1, 5);
    s.stride_x = random.between(1, 3);
    s.stride_y = random.between(1, 3);
    s.pad_left = random.below(s.kernel_width);
    s.pad_top = random.below(s.kernel_height);
    const uint32_t right = random.below(s.kernel_width), bottom = random.below(s.kernel_height);
    if (s.width + s.pad_left + right < s.kernel_width || s.height + s.pad_top + bottom < s.kernel_height) continue;
    s.out_width = (s.width + s.pad_left + right - s.kernel_width) / s.stride_x + 1;
    s.out_height = (s.height + s.pad_top + bottom - s.kernel_height) / s.stride_y + 1;
    s.pad_value = in == Precision::kInt8 ? static_cast<int8_t>(random.int8())
                                         : float_to_half(static_cast<float>(random.below(5)));
    // Whole kernel groups are written; what is beyond the kernels is zero.
    const uint32_t group = in == Precision::kInt8 ? (depthwise ? 64 : 32) : (depthwise ? 32 : 16);
    s.out_channels = (s.kernels + group - 1) / group * group;
    s.data_banks = rknpu::feature_banks(s.width, s.height, s.channels, in);
    if (out == Precision::kInt8 && s.width * s.kernel_width * s.kernel_height == 1) continue;  // disputed below 512
    if (in == Precision::kFp16 && s.channels == 128 && s.kernel_width == 1 && s.kernel_height == 1) continue;
    return s;
  }
}

}  // namespace npud::rk3588::test
