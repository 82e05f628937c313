// SPDX-License-Identifier: Apache-2.0
#include "conv.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "gemm_kernel.h"
#include "half.h"

namespace npud::rk3588 {
namespace {

using rknpu::ConvShape;
using rknpu::ConvTask;
using rknpu::Precision;

struct Int8 {
  using Stored = int8_t;
  static constexpr Precision kPrecision = Precision::kInt8;
  static float widen(Stored value) { return value; }
};
struct Fp16 {
  using Stored = uint16_t;
  static constexpr Precision kPrecision = Precision::kFp16;
  static float widen(Stored value) { return half_to_float(value); }
};
struct Bf16 {
  using Stored = uint16_t;
  static constexpr Precision kPrecision = Precision::kBf16;
  static float widen(Stored value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }
};

template <typename Type>
class Convolution {
 public:
  using Stored = typename Type::Stored;
  static constexpr uint32_t kAtom = rknpu::kAtomBytes / sizeof(Stored);

  Convolution(const ConvTask& task, std::span<const std::byte> features, std::span<const std::byte> weights)
      : shape_(task.shape),
        features_(reinterpret_cast<const Stored*>(features.data())),
        weights_(reinterpret_cast<const Stored*>(weights.data())) {
    for (auto& lanes : padding_) lanes.fill(static_cast<Stored>(task.pad_value));
    if (Type::kPrecision == Precision::kInt8 && shape_.depthwise) {
      for (uint32_t i = 1; i < kAtom; i += 2) padding_[1][i] = static_cast<Stored>(task.pad_value >> 8);
    }
    result_.positions = shape_.out_width * shape_.out_height;
    result_.channels = shape_.kernels;
    result_.floating = Type::kPrecision != Precision::kInt8;
    const size_t size = static_cast<size_t>(result_.positions) * result_.channels;
    if (result_.floating) {
      result_.floats.resize(size);
    } else {
      result_.integers.resize(size);
    }
    if (task.sum_inputs) sum_inputs();
  }

  Accumulators run() {
    if (shape_.depthwise) {
      depthwise();
    } else {
      direct();
    }
    return std::move(result_);
  }

 private:
  // The atom that holds channel `channel` of the input under kernel tap (kh, kw) of output position `position`, or
  // padding.
  const Stored* input(uint32_t position, uint32_t kh, uint32_t kw, uint32_t channel) const {
    const int64_t h =
        static_cast<int64_t>(position / shape_.out_width) * shape_.stride_y + kh * shape_.dilation_y - shape_.pad_top;
    const int64_t w =
        static_cast<int64_t>(position % shape_.out_width) * shape_.stride_x + kw * shape_.dilation_x - shape_.pad_left;
    if (h < 0 || w < 0 || h >= shape_.height || w >= shape_.width)
      return padding_[channel % rknpu::depthwise_group(Precision::kInt8) < rknpu::kChannelGroup].data();
    return features_ + ((static_cast<size_t>(channel / kAtom) * shape_.height + h) * shape_.width + w) * kAtom;
  }

  // The sum over channels and taps is done as one long sum over "depth": [ic1][kh][kw][ic2], the order of the weights.
  struct Tap {
    uint32_t channel, channels, kh, kw, depth;
  };
  std::vector<Tap> taps() const {
    std::vector<Tap> list;
    uint32_t depth = 0;
    for (uint32_t c = 0; c < shape_.channels; c += rknpu::kChannelGroup) {
      const uint32_t channels = std::min(rknpu::kChannelGroup, shape_.channels - c);
      for (uint32_t kh = 0; kh < shape_.kernel_height; ++kh) {
        for (uint32_t kw = 0; kw < shape_.kernel_width; ++kw, depth += channels)
          list.push_back({c, channels, kh, kw, depth});
      }
    }
    return list;
  }

  // [panel of kTileColumns kernels][depth][kTileColumns]; kernels beyond the last are 0.
  std::vector<float> pack_weights(const std::vector<Tap>& taps, uint32_t depth) const {
    constexpr uint32_t kGroup = rknpu::kernel_group(Type::kPrecision);
    const uint32_t panels = (shape_.kernels + kTileColumns - 1) / kTileColumns;
    std::vector<float> packed(static_cast<size_t>(panels) * depth * kTileColumns);
    // Tap by tap within a panel, so that what is written stays in the nearest cache.
    for (uint32_t first = 0; first < shape_.kernels; first += kTileColumns) {
      float* panel = packed.data() + static_cast<size_t>(first) * depth;
      const uint32_t columns = std::min(kTileColumns, shape_.kernels - first);
      const uint32_t group = first / kGroup * kGroup;
      const uint32_t group_width = std::min(kGroup, shape_.kernels - group);
      for (const Tap& tap : taps) {
        const Stored* tile =
            weights_ + static_cast<size_t>(group) * depth + static_cast<size_t>(tap.depth) * group_width;
        float* to = panel + static_cast<size_t>(tap.depth) * kTileColumns;
        for (uint32_t n = 0; n < columns; ++n) {
          const Stored* from = tile + static_cast<size_t>(first - group + n) * tap.channels;
          for (uint32_t c = 0; c < tap.channels; ++c) to[c * kTileColumns + n] = Type::widen(from[c]);
        }
      }
    }
    return packed;
  }

  // [panel of kTileRows positions][depth][kTileRows], for positions from `first`.
  void pack_inputs(const std::vector<Tap>& taps, uint32_t depth, uint32_t first, uint32_t count,
                   std::vector<float>& packed) const {
    packed.assign(static_cast<size_t>((count + kTileRows - 1) / kTileRows) * depth * kTileRows, 0.0f);
    for (uint32_t panel = 0; panel < count; panel += kTileRows) {
      for (const Tap& tap : taps) {
        float* to = packed.data() + static_cast<size_t>(panel) * depth + static_cast<size_t>(tap.depth) * kTileRows;
        for (uint32_t p = 0; p < std::min(kTileRows, count - panel); ++p) {
          for (uint32_t c = 0; c < tap.channels; c += kAtom) {
            const Stored* from = input(first + panel + p, tap.kh, tap.kw, tap.channel + c);
            const uint32_t channels = std::min(kAtom, tap.channels - c);
            for (uint32_t i = 0; i < channels; ++i) to[(c + i) * kTileRows + p] = Type::widen(from[i]);
          }
        }
      }
    }
  }

  void direct() {
    const std::vector<Tap> list = taps();
    const uint32_t depth = list.back().depth + list.back().channels;
    const std::vector<float> weights = pack_weights(list, depth);
    std::vector<float> inputs;
    // Blocks of positions small enough that their packed inputs stay in the cache while all kernels pass.
    constexpr uint32_t kBlock = kTileRows * 16;
    for (uint32_t first = 0; first < result_.positions; first += kBlock) {
      const uint32_t count = std::min(kBlock, result_.positions - first);
      pack_inputs(list, depth, first, count, inputs);
      for (uint32_t k = 0; k < depth; k += kExactDepth) {
        const uint32_t part = std::min(kExactDepth, depth - k);
        for (uint32_t n = 0; n < shape_.kernels; n += kTileColumns) {
          const float* b = weights.data() + (static_cast<size_t>(n / kTileColumns) * depth + k) * kTileColumns;
          for (uint32_t p = 0; p < count; p += kTileRows) {
            const float* a = inputs.data() + (static_cast<size_t>(p / kTileRows) * depth + k) * kTileRows;
            add_tile(a, b, part, first + p, std::min(kTileRows, count - p), n,
                     std::min(kTileColumns, shape_.kernels - n));
          }
        }
      }
    }
  }

  // fp16 goes on with the sum so far; int8 adds an exact partial sum to the integers.
  void add_tile(const float* a, const float* b, uint32_t depth, uint32_t position, uint32_t rows, uint32_t kernel,
                uint32_t columns) {
    alignas(32) float tile[kTileRows][kTileColumns] = {};
    if constexpr (Type::kPrecision != Precision::kInt8) {
      for (uint32_t r = 0; r < rows; ++r) std::copy_n(&result_.floats[index(position + r, kernel)], columns, tile[r]);
      accumulate_tile(a, b, depth, tile[0]);
      for (uint32_t r = 0; r < rows; ++r) std::copy_n(tile[r], columns, &result_.floats[index(position + r, kernel)]);
    } else {
      accumulate_tile(a, b, depth, tile[0]);
      for (uint32_t r = 0; r < rows; ++r) {
        int32_t* to = &result_.integers[index(position + r, kernel)];
        for (uint32_t c = 0; c < columns; ++c) to[c] += static_cast<int32_t>(tile[r][c]);
      }
    }
  }

  size_t index(uint32_t position, uint32_t channel) const {
    return static_cast<size_t>(position) * result_.channels + channel;
  }

  void depthwise() {
    constexpr uint32_t kGroup = rknpu::depthwise_group(Type::kPrecision);
    for (uint32_t group = 0; group < shape_.channels; group += kGroup) {
      const uint32_t width = std::min(kGroup, shape_.channels - group);
      const Stored* weights = weights_ + static_cast<size_t>(group) * shape_.kernel_height * shape_.kernel_width;
      for (uint32_t position = 0; position < result_.positions; ++position) {
        for (uint32_t c = 0; c < width; c += kAtom) {
          const uint32_t channels = std::min(kAtom, width - c);
          std::array<float, kAtom> sums{};  // at most 31 * 31 products: exact for int8
          const Stored* tap = weights + c;
          for (uint32_t kh = 0; kh < shape_.kernel_height; ++kh) {
            for (uint32_t kw = 0; kw < shape_.kernel_width; ++kw, tap += width) {
              const Stored* from = input(position, kh, kw, group + c);
              for (uint32_t i = 0; i < channels; ++i) sums[i] += Type::widen(from[i]) * Type::widen(tap[i]);
            }
          }
          for (uint32_t i = 0; i < channels; ++i) {
            if constexpr (Type::kPrecision != Precision::kInt8) {
              result_.floats[index(position, group + c + i)] = sums[i];
            } else {
              result_.integers[index(position, group + c + i)] = static_cast<int32_t>(sums[i]);
            }
          }
        }
      }
    }
  }

  void sum_inputs() {
    result_.input_sums.assign(static_cast<size_t>(result_.positions) * (shape_.depthwise ? shape_.channels : 1), 0);
    for (uint32_t position = 0; position < result_.positions; ++position) {
      for (uint32_t c = 0; c < shape_.channels; c += kAtom) {
        for (uint32_t kh = 0; kh < shape_.kernel_height; ++kh) {
          for (uint32_t kw = 0; kw < shape_.kernel_width; ++kw) {
            const Stored* from = input(position, kh, kw, c);
            for (uint32_t i = 0; i < std::min(kAtom, shape_.channels - c); ++i) {
              const size_t to = shape_.depthwise ? static_cast<size_t>(position) * shape_.channels + c + i : position;
              result_.input_sums[to] += static_cast<int32_t>(Type::widen(from[i]));
            }
          }
        }
      }
    }
  }

  const ConvShape shape_;
  const Stored* const features_;
  const Stored* const weights_;
  // What an atom of padding reads as: [1] in the first 32 channels of a depthwise group, [0] elsewhere.
  std::array<std::array<Stored, rknpu::kChannelGroup>, 2> padding_;
  Accumulators result_;
};

}  // namespace

Accumulators convolve(const rknpu::ConvTask& task, std::span<const std::byte> features,
                      std::span<const std::byte> weights) {
  if (task.shape.in == Precision::kInt8) return Convolution<Int8>(task, features, weights).run();
  if (task.shape.in == Precision::kBf16) return Convolution<Bf16>(task, features, weights).run();
  return Convolution<Fp16>(task, features, weights).run();
}

}  // namespace npud::rk3588
