// SPDX-License-Identifier: Apache-2.0
#include "lut.h"

#include <algorithm>
#include <cmath>

namespace npud::rk3588 {

using rknpu::DpuLut;

void LookupTables::select(uint32_t access) {
  writing_ = access >> 17 & 1;
  table_ = access >> 16 & 1;
  next_ = access & 0x3ff;
}

void LookupTables::write(uint32_t entry) {
  if (writing_ && next_ < DpuLut::kEntries) tables_[table_][next_] = static_cast<int16_t>(entry);
  ++next_;
}

int32_t LookupTables::at(const DpuLut& lut, float index) const {
  constexpr double kSteps = DpuLut::kEntries - 1;
  const bool lower = index < 0;
  const Table& table = tables_[lower ? 0 : 1];
  const double step = std::ldexp(1.0, static_cast<int>(lower ? lut.le_step_shift : lut.lo_step_shift));
  // In steps from the table's first entry; NaN is taken for 0.
  const double place = (std::isnan(index) ? 0.0 : index / step) + (lower ? kSteps : 0.0);
  double value;
  if (place < 0) {
    value = table.front() + std::ldexp(place * step * lut.le_slope_scale, -static_cast<int>(lut.le_slope_shift));
  } else if (place >= kSteps) {
    value =
        table.back() + std::ldexp((place - kSteps) * step * lut.lo_slope_scale, -static_cast<int>(lut.lo_slope_shift));
  } else {
    const auto first = static_cast<size_t>(place);
    value = table[first] + (table[first + 1] - table[first]) * (place - static_cast<double>(first));
  }
  if (std::isnan(value)) return table.back();  // an infinite index on a slope of 0
  return static_cast<int32_t>(std::clamp(std::nearbyint(value), -0x1p24, 0x1p24));
}

float convert_affine(const rknpu::DpuTask& task, int32_t entry, bool zero_is_wrong) {
  int64_t sum = static_cast<int64_t>(entry) + task.out_offset;
  if (sum == 0 && zero_is_wrong) sum = 1 << 17;
  return std::ldexp(static_cast<float>(sum * task.out_scale), -static_cast<int>(task.lut->minus_exp));
}

}  // namespace npud::rk3588
