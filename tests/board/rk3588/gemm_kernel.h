// SPDX-License-Identifier: Apache-2.0
// The inner loop of all matrix work: a tile of kTileRows x kTileColumns sums of products, in fp32. Products of fp16
// values and sums of up to kExactDepth products of int8 values are exact in fp32, so int8 results are exact integers
// and the same on every host.
#pragma once

#include <cstdint>

namespace npud::rk3588 {

inline constexpr uint32_t kTileRows = 6;
inline constexpr uint32_t kTileColumns = 16;
inline constexpr uint32_t kExactDepth = 1024;  // 2^14 * 2^10 = 2^24

// tile[r][c] += sum over k < depth of a[k][r] * b[k][c], in ascending order of k. a: [depth][kTileRows], b:
// [depth][kTileColumns], tile: [kTileRows][kTileColumns], 32-byte aligned.
void accumulate_tile(const float* a, const float* b, uint32_t depth, float* tile);

}  // namespace npud::rk3588
