// SPDX-License-Identifier: Apache-2.0
// The pooling unit's registers. Values that go together: rockchip-npu-notes ppu-pooling.md (measured), Mesa
// registers.xml (fields), allbilly/rk3588 pool.py.
#include <algorithm>

#include "devices/rknpu/hw/decoder.h"
#include "devices/rknpu/hw/task.h"

namespace npud::rknpu {
namespace {

using namespace reg;

void decode_window(Decoder& d, PpuTask& ppu) {
  ppu.kernel_width = d.bits(kPpuKernel, 3, 0) + 1;
  ppu.kernel_height = d.bits(kPpuKernel, 11, 8) + 1;
  ppu.stride_x = d.bits(kPpuKernel, 19, 16) + 1;
  ppu.stride_y = d.bits(kPpuKernel, 23, 20) + 1;
  ppu.pad_left = d.bits(kPpuPadding, 2, 0);
  ppu.pad_top = d.bits(kPpuPadding, 6, 4);
  const uint32_t right = d.bits(kPpuPadding, 10, 8), bottom = d.bits(kPpuPadding, 14, 12);
  ppu.pad_value = static_cast<uint16_t>(d.raw(kPpuPadValue1));
  if (std::max(ppu.pad_left, right) >= ppu.kernel_width || std::max(ppu.pad_top, bottom) >= ppu.kernel_height)
    d.refuse("PPU.POOLING_PADDING_CFG is {:#x}: the padding must be smaller than the window", d.raw(kPpuPadding));
  if ((ppu.out_width - 1) * ppu.stride_x + ppu.kernel_width > ppu.pad_left + ppu.width + right ||
      (ppu.out_height - 1) * ppu.stride_y + ppu.kernel_height > ppu.pad_top + ppu.height + bottom) {
    d.refuse("PPU.DATA_CUBE_OUT is {}x{}: the last windows reach beyond the padded input", ppu.out_width,
             ppu.out_height);
  }
  if (ppu.method != Pooling::kAverage) return;
  ppu.reciprocal_width = static_cast<uint16_t>(d.raw(kPpuRecipWidth));
  ppu.reciprocal_height = static_cast<uint16_t>(d.raw(kPpuRecipHeight));
  // 65536, which a window of 1 would take, is none of fp16.
  for (auto [name, value] : {std::pair{"WIDTH", d.raw(kPpuRecipWidth)}, {"HEIGHT", d.raw(kPpuRecipHeight)}}) {
    if (value == 0 || value >= 0x7c00)
      d.refuse("PPU.RECIP_KERNEL_{} is {:#x}: it must be a finite fp16 above 0", name, value);
  }
}

}  // namespace

void decode_ppu(Decoder& d, PpuTask& ppu, const TaskRules& rules) {
  d.check_fixed(Block::kPpu);
  d.check_fixed(Block::kPpuRdma);
  const uint32_t method = d.bits(kPpuOperationMode, 1, 0);
  if (method > 2)
    d.refuse("PPU.OPERATION_MODE_CFG.POOLING_METHOD is {}: 0 (average), 1 (max) and 2 (min) are understood", method);
  ppu.method = static_cast<Pooling>(method);
  if (const uint32_t precision = d.bits(kPpuDataFormat, 2, 0); precision != 2)
    d.refuse("PPU.DATA_FORMAT.PROC_PRECISION is {}: 2 (fp16) is understood", precision);
  if (const uint32_t precision = d.bits(kPpuRdmaDataFormat, 1, 0); precision != 2)
    d.refuse("PPU_RDMA.DATA_FORMAT.IN_PRECISION is {}: 2 (16 bits) is understood", precision);
  ppu.width = d.bits(kPpuInWidth, 12, 0) + 1;
  ppu.height = d.bits(kPpuInHeight, 12, 0) + 1;
  ppu.channels = d.bits(kPpuInChannel, 12, 0) + 1;
  ppu.out_width = d.bits(kPpuOutWidth, 12, 0) + 1;
  ppu.out_height = d.bits(kPpuOutHeight, 12, 0) + 1;
  d.expect("PPU.DATA_CUBE_OUT_CHANNEL + 1", d.bits(kPpuOutChannel, 12, 0) + 1, ppu.channels);
  d.expect("PPU_RDMA.CUBE_IN_WIDTH + 1", d.bits(kPpuRdmaInWidth, 12, 0) + 1, ppu.width);
  d.expect("PPU_RDMA.CUBE_IN_HEIGHT + 1", d.bits(kPpuRdmaInHeight, 12, 0) + 1, ppu.height);
  d.expect("PPU_RDMA.CUBE_IN_CHANNEL + 1", d.bits(kPpuRdmaInChannel, 12, 0) + 1, ppu.channels);
  if (const uint32_t most = std::max({ppu.width, ppu.height, ppu.channels}); rules.wide_cubes && most > kSafeCubeExtent)
    d.refuse("PPU.DATA_CUBE_IN has an extent of {}: beyond {} it is doubted", most, kSafeCubeExtent);
  decode_window(d, ppu);
  ppu.source_address = d.raw(kPpuRdmaSrcBaseAddr);
  ppu.source_line_stride_bytes = d.raw(kPpuRdmaLineStride);
  ppu.source_surface_stride_bytes = d.raw(kPpuRdmaSurfStride);
  ppu.destination = d.raw(kPpuDstBaseAddr);
  ppu.surface_stride_bytes = d.raw(kPpuDstSurfStride);
  for (auto [name, address] :
       {std::pair{"PPU_RDMA.SRC_BASE_ADDR", ppu.source_address}, {"PPU.DST_BASE_ADDR", ppu.destination}}) {
    if (address % kAtomBytes != 0) d.refuse("{} is {:#x}: it must be a multiple of 16", name, address);
  }
  const bool planes = ppu.channels > atom_channels(Precision::kFp16);
  if ((ppu.source_line_stride_bytes == 0 && ppu.height > 1) ||
      (planes && (ppu.source_surface_stride_bytes == 0 || ppu.surface_stride_bytes == 0)))
    d.refuse("a stride of the pooling unit is 0, but the cube has more than one line or surface");
}

}  // namespace npud::rknpu
