// SPDX-License-Identifier: Apache-2.0
// From row-major host tensors to the NPU's layouts (hw/layout.h) and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "devices/rknpu/emit/plan.h"

namespace npud::rknpu {

// IEEE half precision, rounded to nearest even; values beyond 65504 become infinite.
uint16_t to_fp16(float value);
float from_fp16(uint16_t bits);

// Features of one image. `image` is [C][H][W]. The destination has plan.feature_bytes and must be zero beyond the
// image's own rows and channels; pack_features writes those too. What is packed is the image times `factor`, a power of
// two. Returns false if a value is not finite in fp16 then: the operation must run on the host.
[[nodiscard]] bool pack_features(const ConvPlan& plan, std::span<const float> image, std::span<std::byte> to,
                                 float factor = 1);
void pack_features(const ConvPlan& plan, std::span<const int8_t> image, std::span<std::byte> to);
// Rows of a matrix [M][K] as features of a GEMM plan.
[[nodiscard]] bool pack_rows(const ConvPlan& plan, std::span<const float> rows, std::span<std::byte> to,
                             float factor = 1);
void pack_rows(const ConvPlan& plan, std::span<const int8_t> rows, std::span<std::byte> to);

// Weights [N][C][KH][KW] (depthwise [C][1][KH][KW]) into plan.weight_bytes.
[[nodiscard]] bool pack_weights(const ConvPlan& plan, std::span<const float> weights, std::span<std::byte> to);
void pack_weights(const ConvPlan& plan, std::span<const int8_t> weights, std::span<std::byte> to);
// Weights [K][N] of a GEMM plan, as ONNX has them for A·B.
[[nodiscard]] bool pack_matrix(const ConvPlan& plan, std::span<const float> matrix, std::span<std::byte> to);
void pack_matrix(const ConvPlan& plan, std::span<const int8_t> matrix, std::span<std::byte> to);

// Output cube to [N][OH][OW] (fp32 from fp32 or fp16 cubes).
void unpack_image(const ConvPlan& plan, std::span<const std::byte> from, std::span<float> to);
// Output cube of a GEMM plan to [M][N].
void unpack_rows(const ConvPlan& plan, std::span<const std::byte> from, std::span<float> to);
void unpack_rows(const ConvPlan& plan, std::span<const std::byte> from, std::span<int32_t> to);
void unpack_image(const ConvPlan& plan, std::span<const std::byte> from, std::span<int32_t> to);

}  // namespace npud::rknpu
