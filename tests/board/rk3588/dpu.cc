// SPDX-License-Identifier: Apache-2.0
#include "dpu.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "half.h"

namespace npud::rk3588 {
namespace {

using rknpu::Alu;
using rknpu::DpuElementwise;
using rknpu::DpuStage;
using rknpu::DpuTask;
using rknpu::Precision;

template <typename T>
T load(std::span<const std::byte> bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
T apply(Alu alu, T a, T b) {
  switch (alu) {
    case Alu::kMax:
      return std::max(a, b);
    case Alu::kMin:
      return std::min(a, b);
    case Alu::kAdd:
      return a + b;
    case Alu::kSub:
      return a - b;
  }
  return a;
}

// Integers are carried in 64 bits, floats in fp32; registers and operands have 32 bits of either.
template <typename T>
T from_bits(uint32_t bits) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(bits);
  return static_cast<int32_t>(bits);
}

template <typename T>
T rectify(T value, bool relu, const std::optional<uint32_t>& limit) {
  if (!relu) return value;
  value = std::max(value, T{0});
  return limit ? std::min(value, from_bits<T>(*limit)) : value;
}

template <typename T>
T run_stage(const DpuStage& stage, T value, std::span<const std::byte> operands, uint32_t channel) {
  if constexpr (std::is_same_v<T, float>) {
    if (stage.factor) value *= half_to_float(*stage.factor);
  }
  if (stage.alu_active) {
    const uint32_t bits = stage.operand_from_memory ? load<uint32_t>(operands, channel) : stage.operand;
    value = apply(stage.alu, value, from_bits<T>(bits));
  }
  return rectify(value, stage.relu, stage.relu_limit);
}

constexpr int64_t kInt32Min = std::numeric_limits<int32_t>::min(), kInt32Max = std::numeric_limits<int32_t>::max();

// The data path between stages has 32 bits and saturates.
int64_t narrow(int64_t value) { return std::clamp(value, kInt32Min, kInt32Max); }
float narrow(float value) { return value; }

class Dpu {
 public:
  Dpu(const DpuTask& task, const Accumulators& input, const DpuOperands& operands, const DpuQuirks& quirks)
      : task_(task),
        input_(input),
        operands_(operands),
        quirks_(quirks),
        scale_(quirks.signed_scale ? static_cast<int16_t>(task.out_scale) : static_cast<int32_t>(task.out_scale)),
        positions_(task.width * task.height) {}

  Surfaces run() {
    lay_out();
    for (uint32_t position = 0; position < positions_; ++position) {
      for (uint32_t channel = 0; channel < task_.channels; ++channel) {
        if (input_.floating) {
          store_float(position, channel, stages(float_input(position, channel), position, channel));
        } else {
          store_integer(position, channel, stages(integer_input(position, channel), position, channel));
        }
      }
    }
    return std::move(result_);
  }

 private:
  void lay_out() {
    const uint32_t atom = rknpu::atom_channels(task_.out);
    const uint32_t surfaces = (task_.channels + atom - 1) / atom;
    const size_t line_bytes = static_cast<size_t>(task_.width) * rknpu::kAtomBytes;
    result_.bytes.resize(surfaces * task_.height * line_bytes);
    for (uint32_t s = 0; s < surfaces; ++s) {
      const uint32_t base = task_.destination + s / task_.surfaces_per_group * task_.group_stride_bytes +
                            s % task_.surfaces_per_group * task_.surface_stride_bytes;
      const size_t offset = s * task_.height * line_bytes;
      if (task_.line_notch_atoms == 0) {
        result_.runs.push_back({base, offset, task_.height * line_bytes});
        continue;
      }
      const uint32_t pitch = (task_.width + task_.line_notch_atoms) * rknpu::kAtomBytes;
      for (uint32_t h = 0; h < task_.height; ++h)
        result_.runs.push_back({base + h * pitch, offset + h * line_bytes, line_bytes});
    }
  }

  // Channels beyond the kernels (the output is padded to whole groups) have nothing accumulated.
  float float_input(uint32_t position, uint32_t channel) const {
    return channel < input_.channels ? input_.floats[static_cast<size_t>(position) * input_.channels + channel] : 0.0f;
  }

  int64_t integer_input(uint32_t position, uint32_t channel) const {
    if (channel >= input_.channels) return 0;
    const size_t index = static_cast<size_t>(position) * input_.channels + channel;
    int64_t value = input_.integers[index];
    if (task_.input_sum_factor != 0 && !input_.input_sums.empty()) {
      const bool per_channel = input_.input_sums.size() == input_.integers.size() && input_.channels > 1;
      value += static_cast<int64_t>(task_.input_sum_factor) * input_.input_sums[per_channel ? index : position];
    }
    return value;
  }

  template <typename T>
  T stages(T value, uint32_t position, uint32_t channel) const {
    value = narrow(run_stage(task_.bs, narrow(value), operands_.bs, channel));
    value = narrow(run_stage(task_.bn, value, operands_.bn, channel));
    if constexpr (std::is_same_v<T, float>) {
      if (task_.lut) {
        const int32_t entry = operands_.lut.at(*task_.lut, value);
        return task_.lut->affine ? convert_affine(task_, entry, quirks_.lut_zero_wrong) : static_cast<float>(entry);
      }
    }
    const DpuElementwise& ew = task_.ew;
    if (ew.active) {
      const T operand = element<T>(position, channel);
      value = narrow(ew.multiply ? value * operand : apply(ew.alu, value, operand));
    }
    return rectify(value, ew.relu, ew.relu_limit);
  }

  template <typename T>
  T element(uint32_t position, uint32_t channel) const {
    const DpuElementwise& ew = task_.ew;
    const uint32_t atom = rknpu::kAtomBytes / ew.operand_bytes;
    const size_t index = (static_cast<size_t>(channel / atom) * positions_ + position) * atom + channel % atom;
    if constexpr (std::is_same_v<T, float>) {
      return ew.operand_bytes == 4 ? load<float>(operands_.elementwise, index)
                                   : half_to_float(load<uint16_t>(operands_.elementwise, index));
    } else {
      const int64_t raw = load<int8_t>(operands_.elementwise, index);
      return narrow(shift_half_even((raw + ew.offset) * ew.scale, ew.shift));
    }
  }

  template <typename T>
  void put(uint32_t position, uint32_t channel, T value) {
    constexpr uint32_t kAtom = rknpu::kAtomBytes / sizeof(T);
    const size_t index = (static_cast<size_t>(channel / kAtom) * positions_ + position) * kAtom + channel % kAtom;
    std::memcpy(result_.bytes.data() + index * sizeof(T), &value, sizeof(T));
  }

  void store_float(uint32_t position, uint32_t channel, float value) {
    if (task_.out == Precision::kFp16) {
      put(position, channel, float_to_half(value));
    } else {
      put(position, channel, value);
    }
  }

  // int8 is rounded to nearest, int32 shifted arithmetically, as reported for either (rockchip-npu-notes
  // out-cvt-converter.md; its later versions have int32 rounded as well).
  void store_integer(uint32_t position, uint32_t channel, int64_t value) {
    // 32 bits times 16.
    const int64_t scaled = value * scale_;
    const bool nearest = task_.out == Precision::kInt8 || quirks_.nearest_shift;
    const int64_t shifted = !nearest              ? scaled >> task_.out_shift
                            : task_.out_ties_away ? shift_half_away(scaled, task_.out_shift)
                                                  : shift_half_even(scaled, task_.out_shift);
    const int64_t result = shifted + task_.out_offset;
    if (task_.out == Precision::kInt8) {
      put(position, channel, static_cast<int8_t>(std::clamp<int64_t>(result, -128, 127)));
    } else if (task_.out == Precision::kFp32) {
      put(position, channel, static_cast<float>(narrow(result)));
    } else {
      put(position, channel, static_cast<int32_t>(narrow(result)));
    }
  }

  const DpuTask& task_;
  const Accumulators& input_;
  const DpuOperands& operands_;
  const DpuQuirks quirks_;
  const int32_t scale_;
  const uint32_t positions_;
  Surfaces result_;
};

}  // namespace

int64_t shift_half_even(int64_t value, uint32_t shift) {
  if (shift == 0) return value;
  if (shift > 62) return 0;
  const int64_t floor = value >> shift;
  const int64_t rest = value - (floor << shift);
  const int64_t half = int64_t{1} << (shift - 1);
  return floor + (rest > half || (rest == half && (floor & 1)) ? 1 : 0);
}

int64_t shift_half_away(int64_t value, uint32_t shift) {
  if (shift == 0) return value;
  if (shift > 62) return 0;
  const int64_t half = int64_t{1} << (shift - 1);
  return value >= 0 ? (value + half) >> shift : -((-value + half) >> shift);
}

Accumulators widen_source(const DpuTask& task, std::span<const std::byte> source) {
  Accumulators result{
      .positions = task.width * task.height, .channels = task.channels, .floating = task.in == Precision::kFp16};
  const size_t size = static_cast<size_t>(result.positions) * result.channels;
  const uint32_t atom = rknpu::atom_channels(task.in);
  if (result.floating) {
    result.floats.resize(size);
  } else {
    result.integers.resize(size);
  }
  for (uint32_t position = 0; position < result.positions; ++position) {
    for (uint32_t channel = 0; channel < task.source_channels; ++channel) {
      const size_t from = (static_cast<size_t>(channel / atom) * result.positions + position) * atom + channel % atom;
      const size_t to = static_cast<size_t>(position) * result.channels + channel;
      if (result.floating) {
        result.floats[to] = half_to_float(load<uint16_t>(source, from));
      } else {
        result.integers[to] = load<int8_t>(source, from);
      }
    }
  }
  return result;
}

Surfaces run_dpu(const DpuTask& task, const Accumulators& input, const DpuOperands& operands, const DpuQuirks& quirks) {
  return Dpu(task, input, operands, quirks).run();
}

}  // namespace npud::rk3588
