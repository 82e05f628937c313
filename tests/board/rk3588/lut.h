// SPDX-License-Identifier: Apache-2.0
// The DPU's look-up tables: what their access port does, and what a value becomes.
#pragma once

#include <array>
#include <cstdint>

#include "devices/rknpu/hw/task.h"

namespace npud::rk3588 {

class LookupTables {
 public:
  // LUT_ACCESS_CFG: where the next entry goes. LUT_ACCESS_DATA: the entry; the place moves on.
  void select(uint32_t access);
  void write(uint32_t entry);

  // The entry at `index` (in units of the tables' domain), interpolated and rounded to an integer.
  int32_t at(const rknpu::DpuLut& lut, float index) const;

 private:
  using Table = std::array<int16_t, rknpu::DpuLut::kEntries>;
  std::array<Table, 2> tables_{};  // LE, LO
  uint32_t table_ = 0, next_ = 0;
  bool writing_ = false;
};

// The float form of the output converter. An input of exactly 0 comes out as if it were 2^17. This one defect gives
// what rockchip-npu-notes dpu-lut-activation.md measured as three: the constant of zero entries (4), the spike of
// signed functions where they cross 0, the garbage of flat runs (16 or 128, by the exponent). That they are one is
// inferred.
float convert_affine(const rknpu::DpuTask& task, int32_t entry, bool zero_is_wrong);

}  // namespace npud::rk3588
