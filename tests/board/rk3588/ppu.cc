// SPDX-License-Identifier: Apache-2.0
#include "ppu.h"

#include <algorithm>
#include <cstring>

#include "half.h"

namespace npud::rk3588 {
namespace {

using rknpu::Pooling;
using rknpu::PpuTask;

constexpr uint32_t kLanes = rknpu::kAtomBytes / 2;

// Max and min choose one of their operands' bits; a NaN never replaces what was chosen, nor is it replaced.
uint16_t choose(Pooling method, uint16_t a, uint16_t b) {
  const float x = half_to_float(a), y = half_to_float(b);
  return (method == Pooling::kMax ? y > x : y < x) ? b : a;
}

class Pool {
 public:
  Pool(const PpuTask& task, std::span<const std::byte> source) : task_(task), source_(source) {}

  uint16_t window(uint32_t surface, uint32_t y, uint32_t x, uint32_t lane) const {
    float sum = 0.0f;
    uint16_t chosen = at(surface, y, x, lane, 0, 0);
    for (uint32_t ky = 0; ky < task_.kernel_height; ++ky) {
      for (uint32_t kx = 0; kx < task_.kernel_width; ++kx) {
        const uint16_t value = at(surface, y, x, lane, ky, kx);
        sum += half_to_float(value);
        chosen = choose(task_.method, chosen, value);
      }
    }
    if (task_.method != Pooling::kAverage) return chosen;
    return float_to_half(sum * (half_to_float(task_.reciprocal_width) * 0x1p-16f) *
                         (half_to_float(task_.reciprocal_height) * 0x1p-16f));
  }

 private:
  uint16_t at(uint32_t surface, uint32_t y, uint32_t x, uint32_t lane, uint32_t ky, uint32_t kx) const {
    const int64_t h = static_cast<int64_t>(y) * task_.stride_y + ky - task_.pad_top;
    const int64_t w = static_cast<int64_t>(x) * task_.stride_x + kx - task_.pad_left;
    if (h < 0 || w < 0 || h >= task_.height || w >= task_.width) return task_.pad_value;
    uint16_t value;
    std::memcpy(
        &value,
        source_.data() + (((static_cast<size_t>(surface) * task_.height + h) * task_.width + w) * kLanes + lane) * 2,
        2);
    return value;
  }

  const PpuTask& task_;
  const std::span<const std::byte> source_;
};

}  // namespace

Surfaces run_ppu(const PpuTask& task, std::span<const std::byte> source) {
  const Pool pool(task, source);
  const uint32_t surfaces = (task.channels + kLanes - 1) / kLanes;
  const size_t surface_bytes = static_cast<size_t>(task.out_height) * task.out_width * rknpu::kAtomBytes;
  Surfaces result;
  result.bytes.resize(surfaces * surface_bytes);
  std::byte* to = result.bytes.data();
  for (uint32_t s = 0; s < surfaces; ++s) {
    result.runs.push_back({task.destination + s * task.surface_stride_bytes, s * surface_bytes, surface_bytes});
    for (uint32_t y = 0; y < task.out_height; ++y) {
      for (uint32_t x = 0; x < task.out_width; ++x) {
        for (uint32_t lane = 0; lane < kLanes; ++lane, to += 2) {
          const uint16_t value = pool.window(s, y, x, lane);
          std::memcpy(to, &value, 2);
        }
      }
    }
  }
  return result;
}

}  // namespace npud::rk3588
