// SPDX-License-Identifier: Apache-2.0
// What a core's registers mean when a task starts: the decoded form that the virtual board executes and npu-regcmd
// checks. Decoding collects everything that npud doesn't understand or that the hardware is known not to do, as
// sentences that name the register.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "devices/rknpu/hw/predicates.h"
#include "devices/rknpu/hw/registers.h"

namespace npud::rknpu {

// CNA and CORE: features times weights into accumulators (int32 for int8, fp32 for fp16).
struct ConvTask {
  ConvShape shape;
  // int8: a byte for each lane, of which lane 1 is read by the odd ones of the first 32 channels of a depthwise group
  // and lane 0 by all others; fp16: the 16 bits.
  uint32_t pad_value = 0;
  uint32_t feature_address = 0;
  uint32_t weight_address = 0;
  uint32_t weight_bytes = 0;
  uint32_t line_pitch_atoms = 0;    // from one line of a surface to the next
  int32_t surface_pitch_atoms = 0;  // from one surface to the next
  // Features as pixels of so many channels one after the other, not in atoms: 1 to 4, else 0. The line pitch counts
  // pixels then. int8 ones come unsigned and are converted: (x + offset) * scale >> shift.
  uint32_t pixel_channels = 0;
  int32_t pixel_offset = 0;
  uint32_t pixel_scale = 1, pixel_shift = 0;
  uint32_t data_banks = 0;
  uint32_t weight_banks = 0;
  bool weight_reuse = false;          // the weights of the task before are still in the CBUF
  bool data_reuse = false;            // … its features are
  bool sum_inputs = false;            // the sum of the inputs under the kernel is wanted, for DpuTask::input_sum_factor
  uint32_t truncate = 0;              // bits by which int8 sums are shifted down, rounded to nearest
  bool unmeasured_depthwise = false;  // OD_BYPASS or BS_OW_OP are those of a direct convolution
};

enum class Alu : uint8_t { kMax = 0, kMin = 1, kAdd = 2, kSub = 4 };

// BS or BN: an operand per channel, then ReLU. BN may first multiply by one fp16 operand; other multiplication is not
// understood and refused.
struct DpuStage {
  std::optional<uint16_t> factor;
  bool alu_active = false;
  Alu alu = Alu::kAdd;
  bool operand_from_memory =
      false;  // 4 bytes a channel (int32 for int8, fp32 for fp16), else `operand` for all channels
  uint32_t operand = 0;
  uint32_t memory_address = 0;
  bool relu = false;
  std::optional<uint32_t> relu_limit;  // int32 or fp32 bits
};

// EW: an operand per element.
struct DpuElementwise {
  bool active = false;
  bool multiply = false;
  Alu alu = Alu::kAdd;
  uint32_t operand_bytes = 1;  // int8 1; fp16 2, or 4 for fp32
  // int8 operands are converted: (e + offset) * scale >> shift, rounded half to even; not converted if scale is 1 and
  // the rest 0.
  int32_t offset = 0;
  int32_t scale = 1;
  uint32_t shift = 0;
  uint32_t memory_address = 0;
  uint32_t surface_stride_bytes = 0;
  // COMB_USE 5, beside a convolution: the operand's odd surfaces come from here, through another reader, and the two
  // strides above and below are those from one even (odd) surface to the next.
  std::optional<uint32_t> odd_address;
  uint32_t odd_stride_bytes = 0;
  bool relu = false;
  std::optional<uint32_t> relu_limit;
};

// A pair of tables with linear interpolation: LE up to 0, LO from there, each in 512 steps. Beyond them it goes on with
// a slope of scale / 2^shift from the last entry.
struct DpuLut {
  static constexpr uint32_t kEntries = 513;
  uint32_t le_step_shift = 5, lo_step_shift = 5;  // a step is 2^ this
  int32_t le_slope_scale = 0, lo_slope_scale = 0;
  uint32_t le_slope_shift = 0, lo_slope_shift = 0;
  // What follows the tables: (q + out_offset) * 2^-minus_exp * out_scale, if `affine`.
  bool affine = false;
  uint32_t minus_exp = 0;
};

struct DpuTask {
  bool from_memory = false;  // FLYING_MODE: the input is read by RDMA, not taken from CORE
  uint32_t source_address = 0;
  uint32_t source_line_notch_atoms = 0;     // skipped after each line
  uint32_t source_surface_notch_bytes = 0;  // skipped after each surface
  Precision in = Precision::kInt8;
  Precision out = Precision::kInt32;
  uint32_t width = 0, height = 0, channels = 0;
  uint32_t source_channels = 0;  // of a source in memory; those beyond give 0
  uint32_t destination = 0;
  uint32_t surface_stride_bytes = 0;
  uint32_t surfaces_per_group = 1;
  uint32_t group_stride_bytes = 0;  // SURFACE_ADD
  uint32_t line_notch_atoms = 0;
  int32_t input_sum_factor = 0;  // BS_OW_OP: this times the sum of inputs is added to each accumulator
  DpuStage bs;
  DpuStage bn;
  DpuElementwise ew;
  std::optional<DpuLut> lut;  // in the place of ew's operation
  int32_t out_offset = 0;
  uint32_t out_scale = 1;  // 16 bits
  uint32_t out_shift = 0;
  bool out_ties_away = false;  // from zero; else to even
};

// The pooling unit: a cube from memory, in fp16, reduced window by window in each channel.
enum class Pooling : uint8_t { kAverage = 0, kMax = 1, kMin = 2 };

struct PpuTask {
  Pooling method = Pooling::kMax;
  uint32_t width = 0, height = 0, channels = 0;
  uint32_t out_width = 0, out_height = 0;
  uint32_t kernel_width = 1, kernel_height = 1, stride_x = 1, stride_y = 1;
  uint32_t pad_left = 0, pad_top = 0;
  uint16_t pad_value = 0;  // fp16; averages count it
  // What a sum is multiplied by, after 2^-32: fp16 bits of 65536 / extent.
  uint16_t reciprocal_width = 0, reciprocal_height = 0;
  uint32_t source_address = 0, source_line_stride_bytes = 0, source_surface_stride_bytes = 0;
  uint32_t destination = 0, surface_stride_bytes = 0;
};

struct Task {
  std::optional<ConvTask> conv;
  std::optional<PpuTask> ppu;  // then there is neither a convolution nor a DPU
  DpuTask dpu;
};

// Multiply-accumulates of a task; 0 for element-wise ones.
uint64_t task_macs(const Task& task);

// Which limits of the hardware decode_task() holds a task to. All are on for planning; the virtual board can lift those
// that public reports dispute.
struct TaskRules {
  bool fp16_k128 = true;   // GEMMs with K = 128 in fp16 are refused
  bool cbuf = true;        // the features must fit their banks, and leave the weights theirs
  bool wide_cubes = true;  // extents beyond kSafeCubeExtent are refused
  // int8 results of a convolution come in whole groups, of 32 kernels or 64 depthwise channels: the task never ends
  // otherwise (rockchip-npu-notes), though Mesa programs others.
  bool whole_groups = true;
};

class Decoder;
// In lut_task.cc and ppu_task.cc.
void decode_lut(Decoder& d, DpuLut& lut);
void decode_ppu(Decoder& d, PpuTask& ppu, const TaskRules& rules);

// Decodes registers with the value of the enable word. Appends a sentence to `violations` for each thing that is wrong;
// the result is only meaningful if there was none.
Task decode_task(const RegisterFile& regs, uint32_t enable, std::vector<std::string>& violations,
                 const TaskRules& rules = {});

// The two checks of a single word that need no context: known target and register, and only understood bits. Empty if
// there is nothing to say.
std::string command_violation(const Command& command);

}  // namespace npud::rknpu
