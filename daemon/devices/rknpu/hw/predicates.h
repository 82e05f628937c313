// SPDX-License-Identifier: Apache-2.0
// What the RK3588 NPU can do, each limit once. Planner, emitter, virtual board and npu-regcmd ask the functions here,
// so that none of them can disagree. A refusal is a sentence that says the limit; no refusal means that the hardware is
// known to do it. Sources: Mesa rkt_task.c (CBUF), mtx512/rk3588-npu npu_matmul.c, gregordinary/rockchip-npu-notes
// matmul-as-conv.md, depthwise-conv.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "devices/rknpu/hw/layout.h"

namespace npud::rknpu {

inline constexpr uint32_t kCbufBanks = 12;
inline constexpr uint32_t kCbufBankBytes = 32768;
inline constexpr uint32_t kCbufEntryBytes = 64;
inline constexpr uint32_t kCbufBankEntries = kCbufBankBytes / kCbufEntryBytes;
inline constexpr uint32_t kMaxFeatureExtent = 2047;  // width and height: fields of 11 bits
inline constexpr uint32_t kMaxKernelExtent = 31;
inline constexpr uint32_t kMaxStride = 7;
inline constexpr uint32_t kMaxDilation = 32;
inline constexpr uint32_t kMaxPad = 15;
// Extents of a DPU cube: 13 bits that hold the number minus one. At 8191 and above the last elements come out wrong,
// and nobody has measured where that begins (rockchip-npu-notes dpu-lut-activation.md, which stays at 4096).
inline constexpr uint32_t kMaxCubeExtent = 8192;
inline constexpr uint32_t kSafeCubeExtent = 4096;
inline constexpr uint32_t kMaxChannels = 65535;
inline constexpr uint32_t kMaxTasksPerJob = 4095;  // PC_TASK_CON.TASK_NUMBER has 12 bits
inline constexpr uint32_t kMinRows =
    4;  // fewer give wrong results by one report (rockchip-npu-notes), right ones by another

using Refusal = std::optional<std::string>;

// Input precisions npud computes in, and what may come out of them.
bool is_compute_precision(Precision in);
// Those and what else the hardware convolves and the board does: bf16, which is fp16 but for its code and results in
// fp32 only (rockchip-npu-notes datatypes.md).
bool is_input_precision(Precision in);
// int8 -> int32, int8, and fp32 that holds the int32; fp16 -> fp32, fp16. Depthwise int8 writes int8 only: its int32
// output lands at twice the stride (rockchip-npu-notes depthwise-conv.md).
bool is_output_precision(Precision in, Precision out, bool depthwise);

// Output surfaces (of one atom per position) that the DPU writes before it skips SURFACE_ADD bytes: BS_OW_CFG.SIZE_E
// plus one.
uint32_t surfaces_per_group(Precision in, Precision out, bool depthwise);

// CBUF_CON1.DATA_ENTRIES: units of 64 bytes that a line of features takes; a line begins at a whole one.
uint32_t data_entries(uint32_t width, uint32_t channels, Precision in);
// CBUF banks that a feature cube needs, and the most that it may have beside weights of `kernel_bytes` bytes a kernel.
// Since lines take whole entries, an int8 cube of one column with an odd number of 32-channel groups needs more than
// its bytes: exactly the shapes that rockchip-npu-notes cbuf-bank-slack.md lists as losing their last rows.
uint32_t feature_banks(uint32_t width, uint32_t height, uint32_t channels, Precision in);
uint32_t max_feature_banks(uint32_t kernel_bytes, Precision in);
// Lines of the cube that `banks` hold whole.
uint32_t lines_in_banks(uint32_t banks, uint32_t width, uint32_t channels, Precision in);

// C[m][n] = sum over k of A[m][k] B[n][k] as one task.
struct GemmShape {
  uint32_t m = 0, n = 0, k = 0;
  Precision in = Precision::kInt8;
  Precision out = Precision::kInt32;
};
uint32_t gemm_k_multiple(Precision in);  // 32
uint32_t gemm_n_multiple(Precision in);  // int8 32, fp16 16
// The most rows one task may have, a multiple of 4; 0 if no number of rows is possible with this k.
uint32_t gemm_max_rows(uint32_t k, Precision in);
// `short_rows`: fewer than kMinRows rows are known to come out right on this device.
Refusal gemm_refusal(const GemmShape& shape, bool short_rows = false);

// One convolution task. Channels and kernels as the registers hold them: padded to the layout's groups.
struct ConvShape {
  uint32_t width = 0, height = 0, channels = 0;
  uint32_t kernels = 0;  // depthwise: equal to channels
  uint32_t kernel_width = 1, kernel_height = 1;
  uint32_t stride_x = 1, stride_y = 1;
  uint32_t dilation_x = 1, dilation_y = 1;
  uint32_t pad_left = 0, pad_top = 0;
  uint32_t out_width = 0, out_height = 0;  // what reaches beyond the input at the right and the bottom reads as padding
  bool depthwise = false;
  Precision in = Precision::kInt8;
  Precision out = Precision::kInt32;

  // What a dilated kernel spans.
  uint32_t reach_x() const { return (kernel_width - 1) * dilation_x + 1; }
  uint32_t reach_y() const { return (kernel_height - 1) * dilation_y + 1; }
};
uint32_t conv_kernel_bytes(const ConvShape& shape);  // weight bytes per kernel
uint32_t conv_weight_bytes(const ConvShape& shape);
// What the hardware is known not to do, the CBUF apart; and what npud doesn't plan: the same, the CBUF, and extents
// that are doubted.
Refusal conv_shape_refusal(const ConvShape& shape);
Refusal conv_refusal(const ConvShape& shape);

}  // namespace npud::rknpu
