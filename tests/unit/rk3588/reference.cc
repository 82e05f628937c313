// SPDX-License-Identifier: Apache-2.0
#include "reference.h"

#include <bit>

#include "tests/board/rk3588/half.h"

namespace npud::rk3588::test {
namespace {

using rknpu::Precision;

bool is_int8(const TaskSpec& s) { return s.in == Precision::kInt8; }
uint32_t size_of(Precision p) {
  return p == Precision::kInt8 ? 1 : p == Precision::kFp16 || p == Precision::kBf16 ? 2 : 4;
}

double random_value(const TaskSpec& s, Random& random) {
  if (is_int8(s)) return random.int8();
  return (static_cast<int>(random.below(65)) - 32) / 8.0;
}

void store(TestBoard& board, const TaskSpec& s, uint32_t base, uint64_t index, double value) {
  if (is_int8(s)) {
    board.memory.put(base + index, static_cast<int8_t>(value));
  } else if (s.in == Precision::kBf16) {  // small multiples of 1/8: the upper half of a float holds them
    board.memory.put(base + index * 2, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
  } else {
    board.memory.put(base + index * 2, float_to_half(static_cast<float>(value)));
  }
}

double pad_value(const TaskSpec& s) {
  return is_int8(s) ? static_cast<int8_t>(s.pad_value) : half_to_float(static_cast<uint16_t>(s.pad_value));
}

double input_at(const Problem& p, uint32_t c, int64_t h, int64_t w) {
  const TaskSpec& s = p.spec;
  if (h < 0 || w < 0 || h >= s.height || w >= s.width) return pad_value(s);
  return p.input[(static_cast<size_t>(c) * s.height + h) * s.width + w];
}

}  // namespace

uint32_t result_bytes(const TaskSpec& s) {
  const uint32_t atom = 16 / size_of(s.out);
  return (s.dpu_channels() + atom - 1) / atom * 16 * s.out_width * s.out_height;
}

Problem make_problem(TestBoard& board, TaskSpec spec, Random& random) {
  Problem p;
  const uint32_t c2 = 16 / size_of(spec.in);
  const uint32_t surfaces = (spec.channels + c2 - 1) / c2;
  p.input.resize(static_cast<size_t>(spec.channels) * spec.height * spec.width);
  spec.features = board.allocate(static_cast<size_t>(surfaces) * spec.height * spec.width * 16);
  for (uint32_t c = 0; c < spec.channels; ++c) {
    for (uint32_t h = 0; h < spec.height; ++h) {
      for (uint32_t w = 0; w < spec.width; ++w) {
        const double value = random_value(spec, random);
        p.input[(static_cast<size_t>(c) * spec.height + h) * spec.width + w] = value;
        // In rows, a line holds all channels of its positions; only width 1 is used that way.
        const uint64_t index =
            spec.rows ? static_cast<uint64_t>(h) * surfaces * c2 + c
                      : (static_cast<uint64_t>(c / c2) * spec.height * spec.width + h * spec.width + w) * c2 + c % c2;
        store(board, spec, spec.features, index, value);
      }
    }
  }
  const rknpu::WeightShape shape{spec.kernels, spec.channels, spec.kernel_height, spec.kernel_width, spec.in};
  const uint32_t kernels = spec.depthwise ? 1 : spec.kernels;
  const size_t taps = static_cast<size_t>(spec.kernel_height) * spec.kernel_width;
  if (spec.conv) {
    p.weights.resize(kernels * spec.channels * taps);
    spec.weights = board.allocate(p.weights.size() * size_of(spec.in));
    size_t i = 0;
    for (uint32_t n = 0; n < kernels; ++n) {
      for (uint32_t c = 0; c < spec.channels; ++c) {
        for (uint32_t kh = 0; kh < spec.kernel_height; ++kh) {
          for (uint32_t kw = 0; kw < spec.kernel_width; ++kw) {
            p.weights[i] = random_value(spec, random);
            store(board, spec, spec.weights,
                  spec.depthwise ? rknpu::depthwise_weight_index(shape, c, kh, kw)
                                 : rknpu::weight_index(shape, n, c, kh, kw),
                  p.weights[i++]);
          }
        }
      }
    }
  }
  spec.output = board.allocate(result_bytes(spec));
  p.spec = spec;
  return p;
}

std::vector<double> reference_sums(const Problem& p) {
  const TaskSpec& s = p.spec;
  std::vector<double> sums;
  sums.reserve(static_cast<size_t>(s.kernels) * s.out_height * s.out_width);
  for (uint32_t n = 0; n < s.kernels; ++n) {
    for (uint32_t oh = 0; oh < s.out_height; ++oh) {
      for (uint32_t ow = 0; ow < s.out_width; ++ow) {
        double sum = 0;
        for (uint32_t c = s.depthwise ? n : 0; c < (s.depthwise ? n + 1 : s.channels); ++c) {
          for (uint32_t kh = 0; kh < s.kernel_height; ++kh) {
            for (uint32_t kw = 0; kw < s.kernel_width; ++kw) {
              const size_t kernel = s.depthwise ? c : static_cast<size_t>(n) * s.channels + c;
              const double weight = p.weights[(kernel * s.kernel_height + kh) * s.kernel_width + kw];
              sum += weight * input_at(p, c, static_cast<int64_t>(oh) * s.stride_y + kh * s.dilation_y - s.pad_top,
                                       static_cast<int64_t>(ow) * s.stride_x + kw * s.dilation_x - s.pad_left);
            }
          }
        }
        sums.push_back(sum);
      }
    }
  }
  return sums;
}

std::vector<double> reference_input_sums(const Problem& p) {
  Problem ones = p;
  ones.weights.assign(p.weights.size(), 1.0);
  std::vector<double> sums = reference_sums(ones);
  if (!p.spec.depthwise) sums.resize(static_cast<size_t>(p.spec.out_height) * p.spec.out_width);
  return sums;
}

std::vector<double> read_results(TestBoard& board, const TaskSpec& s) {
  const uint32_t size = size_of(s.out), c2 = 16 / size, channels = s.dpu_channels();
  const uint32_t surfaces = (channels + c2 - 1) / c2;
  std::vector<double> results;
  for (uint32_t c = 0; c < channels; ++c) {
    for (uint32_t h = 0; h < s.out_height; ++h) {
      for (uint32_t w = 0; w < s.out_width; ++w) {
        const uint64_t index =
            s.rows ? static_cast<uint64_t>(h) * surfaces * c2 + c
                   : (static_cast<uint64_t>(c / c2) * s.out_height * s.out_width + h * s.out_width + w) * c2 + c % c2;
        const uint64_t address = s.output + index * size;
        switch (s.out) {
          case Precision::kInt8:
            results.push_back(board.memory.get<int8_t>(address));
            break;
          case Precision::kInt32:
            results.push_back(board.memory.get<int32_t>(address));
            break;
          case Precision::kFp16:
            results.push_back(half_to_float(board.memory.get<uint16_t>(address)));
            break;
          default:
            results.push_back(board.memory.get<float>(address));
            break;
        }
      }
    }
  }
  return results;
}

}  // namespace npud::rk3588::test
