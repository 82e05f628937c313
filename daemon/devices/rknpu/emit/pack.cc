// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/emit/pack.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "devices/rknpu/hw/layout.h"

namespace npud::rknpu {
namespace {

// Rows of a matrix often lie a power of two apart: more of them at once than a cache has ways throw each other out.
constexpr std::size_t kRowsAtOnce = 8;

// Where pixel p (in row-major order of the image) of the operation lies in a cube that may be wider or taller: flat
// plans have all pixels below each other, others keep the width, so that in both the index is p itself.
struct Cube {
  uint32_t pixels;  // of the cube, per surface
  uint32_t c2;
  std::size_t index(uint32_t channel, uint32_t pixel) const {
    return (static_cast<std::size_t>(channel / c2) * pixels + pixel) * c2 + channel % c2;
  }
};

Cube feature_cube(const ConvPlan& plan) { return {plan.in_height * plan.in_width, atom_channels(plan.op.in)}; }
Cube output_cube(const ConvPlan& plan) { return {plan.out_height * plan.out_width, atom_channels(plan.op.out)}; }

// Writes element(channel, pixel) for all of a cube, zero where the operation has nothing.
template <class T, class Element>
void fill(const ConvPlan& plan, std::span<std::byte> to, Element element) {
  const Cube cube = feature_cube(plan);
  const uint32_t pixels = plan.op.height * plan.op.width;
  T* out = reinterpret_cast<T*>(to.data());
  for (uint32_t base = 0; base < plan.channels; base += cube.c2) {
    const uint32_t count = base < plan.op.channels ? std::min(cube.c2, plan.op.channels - base) : 0;
    T* surface = out + static_cast<std::size_t>(base) * cube.pixels;
    if (count < cube.c2 || pixels < cube.pixels)
      std::memset(surface, 0, static_cast<std::size_t>(cube.pixels) * cube.c2 * sizeof(T));
    if (count == 0) continue;
    for (uint32_t p = 0; p < pixels; ++p) {
      for (uint32_t c = 0; c < count; ++c) surface[static_cast<std::size_t>(p) * cube.c2 + c] = element(base + c, p);
    }
  }
}

// Half precision by the compiler's own type: vectorised where the target has F16C or AdvSIMD.
uint16_t half_bits(float value) { return std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }

// Rows of eight channels, as feature cubes have them. False: one is infinite or no number in half precision. x86-64's
// baseline converts by a function call each; where the machine can do better there is a loop for it.
#if defined(__x86_64__)
__attribute__((target("f16c,avx"))) bool convert_rows_f16c(const float* in, std::size_t in_stride, uint16_t* out,
                                                           std::size_t rows, float factor) {
  const __m256 factors = _mm256_set1_ps(factor);
  const __m128i exponent = _mm_set1_epi16(0x7c00);
  __m128i beyond = _mm_setzero_si128();
  for (std::size_t row = 0; row < rows; ++row) {
    const __m128i halves =
        _mm256_cvtps_ph(_mm256_mul_ps(_mm256_loadu_ps(in + row * in_stride), factors), _MM_FROUND_TO_NEAREST_INT);
    beyond = _mm_or_si128(beyond, _mm_cmpeq_epi16(_mm_and_si128(halves, exponent), exponent));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + row * 8), halves);
  }
  return _mm_movemask_epi8(beyond) == 0;
}
#endif
bool convert_rows(const float* in, std::size_t in_stride, uint16_t* out, std::size_t rows, float factor) {
#if defined(__x86_64__)
  static const bool f16c = __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx");
  if (f16c) return convert_rows_f16c(in, in_stride, out, rows, factor);
#endif
  bool fine = true;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < 8; ++i) {
      const uint16_t half = half_bits(in[row * in_stride + i] * factor);
      fine &= (half & 0x7c00) != 0x7c00;
      out[row * 8 + i] = half;
    }
  }
  return fine;
}

bool all_representable(std::span<const float> values, float factor = 1) {
  // 65504 is the largest finite half; 65520 and beyond round to infinity.
  bool fine = true;
  for (float v : values) fine &= std::fabs(v * factor) < 65520.0f;
  return fine;
}

template <class T, class Element>
void fill_weights(const ConvPlan& plan, std::span<std::byte> to, Element element) {
  const Conv2d& op = plan.op;
  const WeightShape shape{plan.kernels, plan.channels, op.kernel_height, op.kernel_width, op.in};
  T* out = reinterpret_cast<T*>(to.data());
  std::memset(out, 0, plan.weight_bytes);
  for (uint32_t n = 0; n < op.kernels; ++n) {
    for (uint32_t c = 0; c < (op.depthwise ? 1 : op.channels); ++c) {
      for (uint32_t y = 0; y < op.kernel_height; ++y) {
        for (uint32_t x = 0; x < op.kernel_width; ++x) {
          const uint64_t i = op.depthwise ? depthwise_weight_index(shape, n, y, x) : weight_index(shape, n, c, y, x);
          out[i] = element(n, c, y, x);
        }
      }
    }
  }
}

template <class In, class Out, class Convert>
void read_cube(const ConvPlan& plan, std::span<const std::byte> from, std::span<Out> to, bool rows, Convert convert) {
  const Cube cube = output_cube(plan);
  const uint32_t pixels = plan.flat ? plan.op.height * plan.op.width : plan.out_height * plan.out_width;
  const uint32_t kernels = plan.op.kernels;
  const In* in = reinterpret_cast<const In*>(from.data());
  if constexpr (std::is_same_v<In, Out>) {
    if (rows && cube.c2 == 4 && kernels % 4 == 0) {
      for (std::size_t row = 0; row < pixels; row += kRowsAtOnce) {
        const std::size_t end = std::min<std::size_t>(row + kRowsAtOnce, pixels);
        for (std::size_t base = 0; base < kernels; base += 4) {
          for (std::size_t p = row; p < end; ++p)
            std::memcpy(&to[p * kernels + base], in + (base / 4 * cube.pixels + p) * 4, 4 * sizeof(Out));
        }
      }
      return;
    }
  }
  for (uint32_t base = 0; base < kernels; base += cube.c2) {
    const uint32_t count = std::min(cube.c2, kernels - base);
    const In* surface = in + static_cast<std::size_t>(base) * cube.pixels;
    for (uint32_t p = 0; p < pixels; ++p) {
      for (uint32_t c = 0; c < count; ++c) {
        const Out value = convert(surface[static_cast<std::size_t>(p) * cube.c2 + c]);
        if (rows) {
          to[static_cast<std::size_t>(p) * kernels + base + c] = value;
        } else {
          to[static_cast<std::size_t>(base + c) * pixels + p] = value;
        }
      }
    }
  }
}

void read_float(const ConvPlan& plan, std::span<const std::byte> from, std::span<float> to, bool rows) {
  if (plan.op.out == Precision::kFp16) {
    read_cube<uint16_t>(plan, from, to, rows, [](uint16_t bits) { return from_fp16(bits); });
  } else {
    read_cube<float>(plan, from, to, rows, [](float v) { return v; });
  }
}

}  // namespace

uint16_t to_fp16(float value) { return half_bits(value); }
float from_fp16(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }

bool pack_features(const ConvPlan& plan, std::span<const float> image, std::span<std::byte> to, float factor) {
  if (!all_representable(image, factor)) return false;
  const std::size_t pixels = static_cast<std::size_t>(plan.op.height) * plan.op.width;
  fill<uint16_t>(plan, to, [&](uint32_t c, uint32_t p) { return half_bits(image[c * pixels + p] * factor); });
  return true;
}

void pack_features(const ConvPlan& plan, std::span<const int8_t> image, std::span<std::byte> to) {
  const std::size_t pixels = static_cast<std::size_t>(plan.op.height) * plan.op.width;
  fill<int8_t>(plan, to, [&](uint32_t c, uint32_t p) { return image[c * pixels + p]; });
}

bool pack_rows(const ConvPlan& plan, std::span<const float> rows, std::span<std::byte> to, float factor) {
  const std::size_t k = plan.op.channels;
  const Cube cube = feature_cube(plan);
  const uint32_t pixels = plan.op.height * plan.op.width;
  if (cube.c2 == 8 && plan.channels == k && k % 8 == 0 && pixels == cube.pixels) {
    uint16_t* out = reinterpret_cast<uint16_t*>(to.data());
    bool fine = true;
    for (std::size_t row = 0; row < pixels; row += kRowsAtOnce) {
      const std::size_t some = std::min(kRowsAtOnce, pixels - row);
      for (std::size_t base = 0; base < k; base += 8)
        fine &= convert_rows(rows.data() + row * k + base, k, out + (base / 8 * pixels + row) * 8, some, factor);
    }
    return fine;
  }
  if (!all_representable(rows, factor)) return false;
  fill<uint16_t>(plan, to, [&](uint32_t c, uint32_t p) { return half_bits(rows[p * k + c] * factor); });
  return true;
}

void pack_rows(const ConvPlan& plan, std::span<const int8_t> rows, std::span<std::byte> to) {
  const std::size_t k = plan.op.channels;
  fill<int8_t>(plan, to, [&](uint32_t c, uint32_t p) { return rows[p * k + c]; });
}

bool pack_weights(const ConvPlan& plan, std::span<const float> weights, std::span<std::byte> to) {
  if (!all_representable(weights)) return false;
  const Conv2d& op = plan.op;
  const std::size_t taps = static_cast<std::size_t>(op.kernel_height) * op.kernel_width;
  const std::size_t channels = op.depthwise ? 1 : op.channels;
  fill_weights<uint16_t>(plan, to, [&](uint32_t n, uint32_t c, uint32_t y, uint32_t x) {
    return half_bits(weights[(n * channels + c) * taps + y * op.kernel_width + x]);
  });
  return true;
}

void pack_weights(const ConvPlan& plan, std::span<const int8_t> weights, std::span<std::byte> to) {
  const Conv2d& op = plan.op;
  const std::size_t taps = static_cast<std::size_t>(op.kernel_height) * op.kernel_width;
  const std::size_t channels = op.depthwise ? 1 : op.channels;
  fill_weights<int8_t>(plan, to, [&](uint32_t n, uint32_t c, uint32_t y, uint32_t x) {
    return weights[(n * channels + c) * taps + y * op.kernel_width + x];
  });
}

bool pack_matrix(const ConvPlan& plan, std::span<const float> matrix, std::span<std::byte> to) {
  if (!all_representable(matrix)) return false;
  const std::size_t n_all = plan.op.kernels;
  fill_weights<uint16_t>(plan, to,
                         [&](uint32_t n, uint32_t c, uint32_t, uint32_t) { return half_bits(matrix[c * n_all + n]); });
  return true;
}

void pack_matrix(const ConvPlan& plan, std::span<const int8_t> matrix, std::span<std::byte> to) {
  const std::size_t n_all = plan.op.kernels;
  fill_weights<int8_t>(plan, to, [&](uint32_t n, uint32_t c, uint32_t, uint32_t) { return matrix[c * n_all + n]; });
}

void unpack_image(const ConvPlan& plan, std::span<const std::byte> from, std::span<float> to) {
  read_float(plan, from, to, false);
}
void unpack_rows(const ConvPlan& plan, std::span<const std::byte> from, std::span<float> to) {
  read_float(plan, from, to, true);
}
void unpack_rows(const ConvPlan& plan, std::span<const std::byte> from, std::span<int32_t> to) {
  read_cube<int32_t>(plan, from, to, true, [](int32_t v) { return v; });
}
void unpack_image(const ConvPlan& plan, std::span<const std::byte> from, std::span<int32_t> to) {
  read_cube<int32_t>(plan, from, to, false, [](int32_t v) { return v; });
}

}  // namespace npud::rknpu
