// SPDX-License-Identifier: Apache-2.0
// IEEE 754 binary16 as bits. Own functions, since the conversions must be the same on every host and vectorise there.
#pragma once

#include <bit>
#include <cstdint>

namespace npud::rk3588 {

// Exact. Subnormals are scaled by a power of two, infinities and NaNs get the wider exponent.
inline float half_to_float(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t special = magnitude >= 0x7c00 ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | static_cast<uint32_t>(half & 0x8000u) << 16);
}

// Rounded to nearest, ties to even; what is too large becomes infinity.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 65536 and more
  if (magnitude < 0x38800000) {                       // below 2^-14: a multiple of 2^-24
    // Adding 0.5 puts that multiple into the low bits, rounded by the addition.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return sign | static_cast<uint16_t>((rounded - 0x38000000) >> 13);
}

}  // namespace npud::rk3588
