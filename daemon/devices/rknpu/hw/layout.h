// SPDX-License-Identifier: Apache-2.0
// Where an element lies in the RK3588 NPU's memory layouts. All results are element indices (not bytes) from the
// tensor's base. Sources: Mesa rkt_coefs.c and rkt_ml.c (int8), mtx512/rk3588-npu npu_matmul.c (GEMM, int8 and fp16),
// gregordinary/rockchip-npu-notes tile-layouts.md and depthwise-conv.md (group widths, swept on silicon).
#pragma once

#include <algorithm>
#include <cstdint>

namespace npud::rknpu {

// The codes of the precision fields (Mesa registers.xml; mtx512 npu_hw.h).
enum class Precision : uint8_t {
  kInt8 = 0,
  kInt16 = 1,
  kFp16 = 2,
  kBf16 = 3,
  kInt32 = 4,
  kFp32 = 5,
  kInt4 = 6,
  kTf32 = 7,
};

// Bytes of an element; 0 for int4, which has less than one.
constexpr uint32_t element_bytes(Precision p) {
  switch (p) {
    case Precision::kInt8:
      return 1;
    case Precision::kInt16:
    case Precision::kFp16:
    case Precision::kBf16:
      return 2;
    case Precision::kInt32:
    case Precision::kFp32:
    case Precision::kTf32:
      return 4;
    case Precision::kInt4:
      return 0;
  }
  return 0;
}

inline constexpr uint32_t kAtomBytes = 16;  // everything is read and written in atoms of 16 bytes

// Channels in an atom: int4 32, int8 16, fp16 8, int32 and fp32 4.
constexpr uint32_t atom_channels(Precision p) {
  return p == Precision::kInt4 ? 2 * kAtomBytes : kAtomBytes / element_bytes(p);
}

// Channels of the output that one weight tile makes: 32 for int8, 16 for fp16.
constexpr uint32_t kernel_group(Precision p) { return p == Precision::kInt8 ? 32 : 16; }
// Input channels in one weight tile.
inline constexpr uint32_t kChannelGroup = 32;
// Channels in one depthwise weight tile: 64 for int8, 32 for fp16.
constexpr uint32_t depthwise_group(Precision p) { return p == Precision::kInt8 ? 64 : 32; }

// Feature and output cubes: surfaces of c2 channels, each H x W atoms. Shape [ceil(C / c2)][H][W][c2].
constexpr uint64_t feature_index(uint32_t c, uint32_t h, uint32_t w, uint32_t height, uint32_t width, uint32_t c2) {
  return (static_cast<uint64_t>(c / c2) * height * width + static_cast<uint64_t>(h) * width + w) * c2 + c % c2;
}

// What a weight layout depends on. `channels` and `kernels` are those of the registers (padded), `precision` int8 or
// fp16.
struct WeightShape {
  uint32_t kernels = 0;
  uint32_t channels = 0;
  uint32_t height = 1;
  uint32_t width = 1;
  Precision precision = Precision::kInt8;
};

// Direct convolution and GEMM: tiles of kernel_group x 32, ordered [oc1][ic1][kh][kw][oc2][ic2]; the last tile of
// either axis has only what is left. The order of kh before kw is Mesa's (whose kernels are all square) and
// allbilly/rk3588's fp16 packer's.
constexpr uint64_t weight_index(const WeightShape& s, uint32_t n, uint32_t c, uint32_t kh, uint32_t kw) {
  const uint32_t group = kernel_group(s.precision);
  const uint32_t oc1 = n / group, ic1 = c / kChannelGroup;
  const uint64_t oc_width = std::min(group, s.kernels - oc1 * group);
  const uint64_t ic_width = std::min(kChannelGroup, s.channels - ic1 * kChannelGroup);
  const uint64_t taps = static_cast<uint64_t>(s.height) * s.width;
  return static_cast<uint64_t>(oc1) * group * s.channels * taps +
         static_cast<uint64_t>(ic1) * kChannelGroup * taps * oc_width +
         ((static_cast<uint64_t>(kh) * s.width + kw) * oc_width + n % group) * ic_width + c % kChannelGroup;
}

// Depthwise convolution: [g1][kh][kw][g2].
constexpr uint64_t depthwise_weight_index(const WeightShape& s, uint32_t c, uint32_t kh, uint32_t kw) {
  const uint32_t group = depthwise_group(s.precision);
  const uint32_t g1 = c / group;
  const uint64_t width = std::min(group, s.channels - g1 * group);
  const uint64_t taps = static_cast<uint64_t>(s.height) * s.width;
  return static_cast<uint64_t>(g1) * group * taps + (static_cast<uint64_t>(kh) * s.width + kw) * width + c % group;
}

}  // namespace npud::rknpu
