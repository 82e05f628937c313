// SPDX-License-Identifier: Apache-2.0
// The registers of the DPU's look-up tables. Values that go together: rockchip-npu-notes dpu-lut-activation.md
// (measured), allbilly/rk3588 silu.py.
#include "devices/rknpu/hw/decoder.h"
#include "devices/rknpu/hw/task.h"

namespace npud::rknpu {

using namespace reg;

void decode_lut(Decoder& d, DpuLut& lut) {
  // HYBRID_PRIORITY, OFLOW_PRIORITY and LO_LE_MUX 2: both tables.
  constexpr uint32_t kHybrid = 1u << 6 | 1u << 5 | 2u << 2;
  if (d.raw(kDpuLutCfg) != kHybrid)
    d.refuse("DPU.LUT_CFG is {:#x}: {:#x} (both tables) is understood", d.raw(kDpuLutCfg), kHybrid);
  lut.le_step_shift = d.bits(kDpuLutInfo, 15, 8);
  lut.lo_step_shift = d.bits(kDpuLutInfo, 23, 16);
  if (lut.le_step_shift > 16 || lut.lo_step_shift > 16) {
    d.refuse("DPU.LUT_INFO selects steps of 2^{} and 2^{}: at most 2^16 is understood", lut.le_step_shift,
             lut.lo_step_shift);
    return;
  }
  d.expect("DPU.LUT_LE_START, negated", uint32_t{0} - d.raw(kDpuLutLeStart),
           uint64_t{DpuLut::kEntries - 1} << lut.le_step_shift);
  d.expect("DPU.LUT_LO_END", d.raw(kDpuLutLoEnd), uint64_t{DpuLut::kEntries - 1} << lut.lo_step_shift);
  if (d.raw(kDpuLutLeEnd) != 0 || d.raw(kDpuLutLoStart) != 0)
    d.refuse("DPU.LUT_LE_END or LUT_LO_START is not 0, where the tables meet");
  lut.le_slope_scale = static_cast<int16_t>(d.bits(kDpuLutLeSlopeScale, 15, 0));
  lut.le_slope_shift = d.bits(kDpuLutLeSlopeShift, 4, 0);
  lut.lo_slope_scale = static_cast<int16_t>(d.bits(kDpuLutLoSlopeScale, 31, 16));
  lut.lo_slope_shift = d.bits(kDpuLutLoSlopeShift, 9, 5);
  lut.affine = d.bit(kDpuOutCvtShift, 31);
  lut.minus_exp = d.bits(kDpuOutCvtShift, 19, 12);
  if (lut.minus_exp > 31) d.refuse("DPU.OUT_CVT_SHIFT.MINUS_EXP is {}: at most 31 is understood", lut.minus_exp);
}

}  // namespace npud::rknpu
