// SPDX-License-Identifier: Apache-2.0
#include "gemm_kernel.h"

#include <cstring>

namespace npud::rk3588 {
namespace {

typedef float Vector __attribute__((vector_size(32)));
constexpr uint32_t kLanes = 8;
constexpr uint32_t kVectors = kTileColumns / kLanes;

[[gnu::always_inline]] inline void loop(const float* a, const float* b, uint32_t depth, float* tile) {
  Vector sums[kTileRows][kVectors];
  std::memcpy(sums, tile, sizeof(sums));
  for (uint32_t k = 0; k < depth; ++k, a += kTileRows, b += kTileColumns) {
    Vector columns[kVectors];
    std::memcpy(columns, b, sizeof(columns));
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
      for (uint32_t v = 0; v < kVectors; ++v) sums[r][v] += columns[v] * a[r];
    }
  }
  std::memcpy(tile, sums, sizeof(sums));
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void loop_avx2(const float* a, const float* b, uint32_t depth, float* tile) {
  loop(a, b, depth, tile);
}
#endif
void loop_plain(const float* a, const float* b, uint32_t depth, float* tile) { loop(a, b, depth, tile); }

using Loop = void (*)(const float*, const float*, uint32_t, float*);

Loop choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return loop_avx2;
#endif
  return loop_plain;
}

}  // namespace

void accumulate_tile(const float* a, const float* b, uint32_t depth, float* tile) {
  static const Loop chosen = choose();
  chosen(a, b, depth, tile);
}

}  // namespace npud::rk3588
