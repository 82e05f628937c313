// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/hw/task.h"

#include <algorithm>
#include <format>

#include "devices/rknpu/hw/decoder.h"

namespace npud::rknpu {
namespace {

using namespace reg;

int32_t sign_extend(uint32_t value, unsigned width) {
  const uint32_t shift = 32 - width;
  return static_cast<int32_t>(value << shift) >> shift;
}

// What CORE and the start of the DPU must be told beyond the plain sums. rockchip-npu-notes depthwise-conv.md and
// out-cvt-converter.md, measured: int8 results need QD_EN; their writer adds BS_OW_OP (minus the zero point of the
// weights) times the sum of the inputs where OD_BYPASS is 0; raw int32 results are wrong then.
void decode_writer(Decoder& d, ConvTask& conv, const TaskRules& rules) {
  const ConvShape& s = conv.shape;
  const bool bypass = d.bit(kDpuBsOwCfg, 1), quantises = d.bit(kCoreMiscCfg, 0);
  const uint32_t operand = d.bits(kDpuBsOwOp, 15, 0);
  conv.truncate = d.bits(kCoreClipTruncate, 4, 0);
  if (s.in != Precision::kInt8) {
    if (conv.truncate != 0) d.refuse("CORE.CLIP_TRUNCATE is {}: it must be 0 for fp16", conv.truncate);
    conv.unmeasured_depthwise = s.depthwise && (bypass || operand != 128);
    return;
  }
  conv.unmeasured_depthwise = s.depthwise && bypass;
  if (s.out == Precision::kInt8) {
    if (!quantises) d.refuse("CORE.MISC_CFG.QD_EN is 0: the writer of int8 results needs it");
    if (const uint32_t group = s.depthwise ? depthwise_group(s.in) : kernel_group(s.in);
        rules.whole_groups && s.kernels % group != 0)
      d.refuse("the number of kernels is {}: int8 results come in whole groups of {}", s.kernels, group);
    conv.sum_inputs = !bypass && operand != 0;
  } else if (!bypass) {
    d.refuse("DPU.BS_OW_CFG.OD_BYPASS is 0: int32 and fp32 results of an int8 convolution come out wrong");
  }
}

// Features of few channels as plain pixels: Mesa rkt_task.c and rkt_regcmd.c for one int8 channel, allbilly/rk3588
// conv.py for up to four of fp16. Other features pass unconverted.
void decode_pixels(Decoder& d, ConvTask& conv) {
  const bool bypass = d.bit(kCnaCvtCon0, 0), is_signed = d.bit(kCnaCvtCon0, 3),
             integer = conv.shape.in == Precision::kInt8;
  const uint32_t format = d.bits(kCnaConvCon1, 15, 12);
  if (!d.bit(kCnaConvCon1, 30)) {
    if (format != 0) d.refuse("CNA.CONV_CON1.ARGB_IN is {}, but NONALIGN_DMA is 0", format);
    if (!bypass) d.refuse("CNA.CVT_CON0.CVT_BYPASS is 0: features other than int8 pixels aren't converted");
    if (integer && !is_signed) d.refuse("CNA.CVT_CON0.DATA_SIGN is 0: int8 features are signed");
    return;
  }
  conv.pixel_channels = d.bits(kCnaDataSize1, 29, 16) + 1;
  if (conv.pixel_channels > 4 || conv.pixel_channels > conv.shape.channels)
    d.refuse("CNA.DATA_SIZE1.DATAIN_CHANNEL_REAL + 1 is {}: pixels have 1 to 4 channels", conv.pixel_channels);
  d.expect("CNA.CONV_CON1.ARGB_IN", format, 7 + conv.pixel_channels);
  if (!d.bit(kCnaConvCon1, 29)) d.refuse("CNA.CONV_CON1.GROUP_LINE_OFF is 0, but NONALIGN_DMA is 1");
  if (bypass) {
    if (integer && !is_signed) d.refuse("CNA.CVT_CON0.DATA_SIGN is 0: unsigned pixels must be converted");
    return;
  }
  if (!integer || is_signed) d.refuse("CNA.CVT_CON0.CVT_BYPASS is 0: unsigned int8 pixels are converted, no others");
  if (conv.pixel_channels > 1) d.refuse("CNA.CVT_CON0.CVT_BYPASS is 0: pixels of one channel are converted, no others");
  conv.pixel_offset = sign_extend(d.bits(kCnaCvtCon1, 15, 0), 16);
  conv.pixel_scale = d.bits(kCnaCvtCon1, 31, 16);
  conv.pixel_shift = d.bits(kCnaCvtCon0, 9, 4);
}

void decode_conv(Decoder& d, ConvTask& conv, const TaskRules& rules) {
  d.check_fixed(Block::kCna);
  d.check_fixed(Block::kCore);
  ConvShape& s = conv.shape;
  const uint32_t mode = d.bits(kCnaConvCon1, 3, 0);
  if (mode != 0 && mode != 3)
    d.refuse("CNA.CONV_CON1.CONV_MODE is {}: 0 (direct) and 3 (depthwise) are understood", mode);
  s.depthwise = mode == 3;
  s.in = static_cast<Precision>(d.bits(kCnaConvCon1, 6, 4));
  if (!is_input_precision(s.in))
    d.refuse("CNA.CONV_CON1.IN_PRECISION is {}: 0 (int8), 2 (fp16) and 3 (bf16) are understood",
             static_cast<int>(s.in));
  d.expect("CNA.CONV_CON1.PROC_PRECISION", d.bits(kCnaConvCon1, 9, 7), static_cast<uint32_t>(s.in));
  d.expect("CORE.MISC_CFG.PROC_PRECISION", d.bits(kCoreMiscCfg, 10, 8), static_cast<uint32_t>(s.in));
  d.expect("CORE.MISC_CFG.DW_EN", d.bit(kCoreMiscCfg, 1), s.depthwise);
  s.stride_x = d.bits(kCnaConvCon3, 2, 0);
  s.stride_y = d.bits(kCnaConvCon3, 5, 3);
  // One less, as swept on silicon (rocket-userspace npu_regcmd.c).
  s.dilation_x = d.bits(kCnaConvCon3, 20, 16) + 1;
  s.dilation_y = d.bits(kCnaConvCon3, 25, 21) + 1;
  s.width = d.bits(kCnaDataSize0, 26, 16);
  s.height = d.bits(kCnaDataSize0, 10, 0);
  s.channels = d.bits(kCnaDataSize1, 15, 0);
  s.kernel_width = d.bits(kCnaWeightSize2, 28, 24);
  s.kernel_height = d.bits(kCnaWeightSize2, 20, 16);
  s.kernels = d.bits(kCnaWeightSize2, 13, 0);
  s.pad_left = d.bits(kCnaPadCon0, 7, 4);
  s.pad_top = d.bits(kCnaPadCon0, 3, 0);
  s.out_width = d.bits(kCoreDataoutSize0, 15, 0) + 1;
  s.out_height = d.bits(kCoreDataoutSize0, 31, 16) + 1;
  s.out = static_cast<Precision>(d.bits(kDpuDataFormat, 31, 29));
  if (s.depthwise) {
    d.expect("CNA.WEIGHT_SIZE2.WEIGHT_KERNELS (depthwise)", s.kernels, 1);
    s.kernels = s.channels;
  }
  // The CBUF is looked at below, by what the registers say rather than by what would be best.
  if (auto refusal = is_input_precision(s.in) ? conv_shape_refusal(s) : std::nullopt)
    d.refuse("the convolution is impossible: {}", *refusal);
  d.expect("CNA.DATA_SIZE2.DATAOUT_WIDTH", d.bits(kCnaDataSize2, 10, 0), s.out_width);
  d.expect("CNA.DATA_SIZE3.DATAOUT_ATOMICS", d.bits(kCnaDataSize3, 21, 0),
           static_cast<uint64_t>(s.out_width) * s.out_height);
  d.expect("CNA.WEIGHT_SIZE1.WEIGHT_BYTES_PER_KERNEL", d.bits(kCnaWeightSize1, 18, 0), conv_kernel_bytes(s));
  d.expect("CNA.WEIGHT_SIZE0.WEIGHT_BYTES", d.raw(kCnaWeightSize0), conv_weight_bytes(s));
  d.expect("CNA.FC_DATA_SIZE0.DMA_HEIGHT", d.bits(kCnaFcDataSize0, 10, 0), s.height);
  d.expect("CNA.FC_DATA_SIZE1.DMA_CHANNEL", d.bits(kCnaFcDataSize1, 15, 0), s.channels);
  if (d.bits(kCnaCbufCon1, 13, 0) == 0)
    d.refuse("CNA.CBUF_CON1.DATA_ENTRIES is 0: it must be the entries of a line of features");

  conv.pad_value = d.raw(kCnaPadCon1) & 0xffff;
  conv.feature_address = d.raw(kCnaFeatureDataAddr);
  conv.weight_address = d.raw(kCnaDcompAddr0);
  conv.weight_bytes = d.raw(kCnaWeightSize0);
  for (auto [name, address] :
       {std::pair{"CNA.FEATURE_DATA_ADDR", conv.feature_address}, {"CNA.DCOMP_ADDR0", conv.weight_address}}) {
    if (address % kAtomBytes != 0) d.refuse("{} is {:#x}: it must be a multiple of 16", name, address);
  }
  // Strides count atoms. Unless GROUP_LINE_OFF is set, the DMA takes four lines of a surface at a time and LINE_STRIDE
  // is their stride; SURF_STRIDE, signed, is what follows them to the next surface. Derived from the values that mtx512
  // (W = 1), Mesa rkt_task.c (any W) and allbilly/rk3588 gemm.py (GROUP_LINE_OFF, features in rows) program.
  const uint32_t line = d.bits(kCnaDmaCon1, 27, 0);
  const int32_t surface = sign_extend(d.bits(kCnaDmaCon2, 27, 0), 28);
  decode_pixels(d, conv);
  if (d.bit(kCnaConvCon1, 29)) {
    conv.line_pitch_atoms = line;
    conv.surface_pitch_atoms = static_cast<int32_t>(s.width) + surface;
  } else {
    if (line % 4 != 0)
      d.refuse("CNA.DMA_CON1.LINE_STRIDE is {}: the stride of four lines must be a multiple of 4", line);
    conv.line_pitch_atoms = line / 4;
    conv.surface_pitch_atoms = static_cast<int32_t>(line) + surface;
  }

  conv.data_banks = d.bits(kCnaCbufCon0, 3, 0);
  conv.weight_banks = d.bits(kCnaCbufCon0, 7, 4);
  conv.weight_reuse = d.bit(kCnaCbufCon0, 13);
  conv.data_reuse = d.bit(kCnaCbufCon0, 12);
  if (conv.data_banks == 0 || conv.weight_banks == 0 || conv.data_banks + conv.weight_banks > kCbufBanks) {
    d.refuse("CNA.CBUF_CON0 gives {} banks to data and {} to weights: both need one at least, together at most {}",
             conv.data_banks, conv.weight_banks, kCbufBanks);
  }
  if (rules.cbuf && is_input_precision(s.in)) {
    if (const uint32_t need = feature_banks(s.width, s.height, s.channels, s.in); conv.data_banks < need) {
      d.refuse("CNA.CBUF_CON0.DATA_BANK is {}: the features need {}", conv.data_banks, need);
    }
    if (const uint32_t most = max_feature_banks(conv_kernel_bytes(s), s.in); conv.data_banks > most) {
      d.refuse("CNA.CBUF_CON0.DATA_BANK is {}: at most {} are left beside weights of {} bytes a kernel",
               conv.data_banks, most, conv_kernel_bytes(s));
    }
  }
  if (rules.fp16_k128 && !s.depthwise && s.in == Precision::kFp16 && s.channels == 128 && s.kernel_width == 1 &&
      s.kernel_height == 1) {
    d.refuse("CNA.DATA_SIZE1.DATAIN_CHANNEL is 128: fp16 GEMMs of that K are reported wrong");
  }
  decode_writer(d, conv, rules);
}

std::optional<Alu> alu_of(uint32_t algo) {
  switch (algo) {
    case 0:
      return Alu::kMax;
    case 1:
      return Alu::kMin;
    case 2:
      return Alu::kAdd;
    case 4:
      return Alu::kSub;
    default:
      return std::nullopt;
  }
}

// BS and BN have the same fields, 0x20 apart; their operands come through the RDMA's BRDMA and NRDMA.
void decode_stage(Decoder& d, const char* name, uint16_t cfg, bool rdma, uint16_t dma_cfg, uint16_t dma_base,
                  DpuStage& stage) {
  if (d.bit(cfg, 0)) return;
  if (!d.bit(cfg, 4)) {
    // fp16 times one operand, before the ALU: measured of BN (rockchip-npu-notes dpu-lut-activation.md).
    if (cfg == kDpuBnCfg && d.bits(kDpuDataFormat, 28, 26) == static_cast<uint32_t>(Precision::kFp16) &&
        !d.bit(cfg + 8, 0)) {
      stage.factor = static_cast<uint16_t>(d.bits(cfg + 8, 31, 16));
    } else {
      d.refuse("DPU.{}_CFG.{}_MUL_BYPASS is 0: multiplication in this stage is not understood", name, name);
    }
  }
  if (d.bit(cfg, 5)) d.refuse("DPU.{}_CFG.{}_MUL_PRELU is 1: it is not understood", name, name);
  if (!d.bit(cfg, 1)) {
    const auto alu = alu_of(d.bits(cfg, 19, 16));
    if (!alu)
      d.refuse("DPU.{}_CFG.{}_ALU_ALGO is {}: 0 (max), 1 (min), 2 (add) and 4 (subtract) are understood", name, name,
               d.bits(cfg, 19, 16));
    stage.alu_active = true;
    stage.alu = alu.value_or(Alu::kAdd);
    stage.operand = d.raw(cfg + 4);
    stage.operand_from_memory = d.bit(cfg, 8);
    if (stage.operand_from_memory) {
      if (!rdma) d.refuse("DPU.{}_CFG.{}_ALU_SRC is 1 (memory), but the enable word leaves the RDMA off", name, name);
      // Bit 1 of the register: the ALU's operand is read (Mesa programs a use of 1 for biases).
      if (d.bits(dma_cfg, 4, 1) != 1)
        d.refuse("the RDMA's DATA_USE for {} is {}: 1 (the ALU's operand) is understood", name, d.bits(dma_cfg, 4, 1));
      stage.memory_address = d.raw(dma_base);
      if (stage.memory_address % kAtomBytes != 0)
        d.refuse("the {} operand's address is {:#x}: it must be a multiple of 16", name, stage.memory_address);
    }
  }
  stage.relu = !d.bit(cfg, 6);
  if (stage.relu && d.bit(cfg, 7)) stage.relu_limit = d.raw(cfg + 12);
}

// Where the operand lies. Beside a convolution Mesa (rkt_regcmd.c) and rockchip-npu-notes (k-accumulation.md) let the
// reader of sources, idle then, fetch the even surfaces and the reader of operands the odd ones; what follows a
// surface up to the next of the same reader is the notch.
void decode_elementwise_source(Decoder& d, const DpuTask& dpu, DpuElementwise& ew) {
  const uint32_t use = d.bits(kRdmaFeatureModeCfg, 10, 8);
  const uint32_t base = d.raw(kRdmaEwBaseAddr);
  if (base % kAtomBytes != 0) d.refuse("DPU_RDMA.EW_BASE_ADDR is {:#x}: it must be a multiple of 16", base);
  if (use & 1) {
    if (dpu.from_memory) d.refuse("DPU_RDMA.FEATURE_MODE_CFG.COMB_USE is {}: the DPU alone never ends with it", use);
    if (use != 5) d.refuse("DPU_RDMA.FEATURE_MODE_CFG.COMB_USE is {}: 0, 4 and 5 are understood", use);
    if (d.bit(kRdmaFeatureModeCfg, 4))
      d.refuse("DPU_RDMA.FEATURE_MODE_CFG.MRDMA_DISABLE is 1, but COMB_USE has it read the operand's even surfaces");
    const uint32_t surface_bytes = dpu.width * dpu.height * kAtomBytes;
    ew.memory_address = d.raw(kRdmaSrcBaseAddr);
    if (ew.memory_address % kAtomBytes != 0)
      d.refuse("DPU_RDMA.SRC_BASE_ADDR is {:#x}: it must be a multiple of 16", ew.memory_address);
    ew.surface_stride_bytes = surface_bytes + d.raw(kRdmaSurfNotch);
    ew.odd_address = base;
    ew.odd_stride_bytes = surface_bytes + d.raw(kRdmaEwSurfNotch);
    return;
  }
  if (use != 0 && use != 4) d.refuse("DPU_RDMA.FEATURE_MODE_CFG.COMB_USE is {}: 0, 4 and 5 are understood", use);
  ew.memory_address = base;
  ew.surface_stride_bytes = d.raw(kRdmaEwSurfStride);
  if (ew.surface_stride_bytes == 0 && dpu.channels * ew.operand_bytes > kAtomBytes)
    d.refuse("DPU_RDMA.EW_SURF_STRIDE is 0, but the operand has more than one surface");
  if (d.raw(kRdmaEwSurfNotch) != 0) d.refuse("DPU_RDMA.EW_SURF_NOTCH is not 0: it is not understood");
}

void decode_elementwise(Decoder& d, DpuTask& dpu, bool rdma, DpuElementwise& ew) {
  if (d.bit(kDpuEwCfg, 0)) return;
  const bool integer = dpu.in == Precision::kInt8;
  if (dpu.in == Precision::kBf16) d.refuse("DPU.EW_CFG.EW_BYPASS is 0: with bf16 this stage is not understood");
  // EW_EQUAL_EN stands beside max and min in programs that are right on silicon (rockchip-npu-notes ew_int_probe).
  if (d.bit(kDpuEwCfg, 20) || (d.bit(kDpuEwCfg, 21) && (d.bit(kDpuEwCfg, 2) || d.bits(kDpuEwCfg, 19, 16) > 1)))
    d.refuse("DPU.EW_CFG asks for comparisons: they are not understood");
  if (d.bit(kDpuEwCfg, 5)) d.refuse("DPU.EW_CFG.EW_MUL_PRELU is 1: it is not understood");
  if (!d.bit(kDpuEwCfg, 7)) {
    if (integer) d.refuse("DPU.EW_CFG.EW_LUT_BYPASS is 0: the look-up tables are understood for fp16");
    if (!d.bit(kDpuEwCfg, 1) && d.bit(kDpuEwCfg, 6))
      d.refuse("DPU.EW_CFG.EW_LUT_BYPASS is 0: an operand from memory beside the tables is not understood");
    decode_lut(d, dpu.lut.emplace());
    return;
  }
  ew.relu = !d.bit(kDpuEwCfg, 9);
  if (ew.relu && d.bit(kDpuEwCfg, 10)) ew.relu_limit = d.raw(kDpuEwReluxCmp);
  if (d.bit(kDpuEwCfg, 1)) return;
  ew.active = true;
  ew.multiply = d.bit(kDpuEwCfg, 2);
  if (!ew.multiply) {
    const auto alu = alu_of(d.bits(kDpuEwCfg, 19, 16));
    if (!alu)
      d.refuse("DPU.EW_CFG.EW_ALU_ALGO is {}: 0 (max), 1 (min), 2 (add) and 4 (subtract) are understood",
               d.bits(kDpuEwCfg, 19, 16));
    ew.alu = alu.value_or(Alu::kAdd);
  }
  if (!d.bit(kDpuEwCfg, 6)) d.refuse("DPU.EW_CFG.EW_OP_SRC is 0 (registers): an operand from memory is understood");
  if (!rdma) d.refuse("an element-wise operand is wanted, but the enable word leaves the RDMA off");
  if (d.bit(kRdmaErdmaCfg, 0)) d.refuse("DPU_RDMA.ERDMA_CFG.ERDMA_DISABLE is 1, but an element-wise operand is wanted");
  if (d.bits(kDpuEwCfg, 29, 28) != 1)
    d.refuse("DPU.EW_CFG.EW_DATA_MODE is {}: 1 (an operand per element) is understood", d.bits(kDpuEwCfg, 29, 28));
  if (d.bits(kRdmaErdmaCfg, 31, 30) != 1)
    d.refuse("DPU_RDMA.ERDMA_CFG.ERDMA_DATA_MODE is {}: 1 (an operand per element) is understood",
             d.bits(kRdmaErdmaCfg, 31, 30));
  const uint32_t size = d.bits(kDpuEwCfg, 23, 22);
  d.expect("DPU_RDMA.ERDMA_CFG.ERDMA_DATA_SIZE", d.bits(kRdmaErdmaCfg, 3, 2), size);
  if (integer ? size != 1 : (size != 2 && size != 3)) {
    d.refuse("DPU.EW_CFG.EDATA_SIZE is {}: int8 takes 1 (a byte), fp16 2 (fp16) or 3 (fp32)", size);
  }
  ew.operand_bytes = size == 1 ? 1 : size == 2 ? 2 : 4;
  if (integer && !d.bit(kDpuEwCfg, 8)) {
    ew.offset = static_cast<int32_t>(d.raw(kDpuEwCvtOffset));
    ew.scale = sign_extend(d.bits(kDpuEwCvtScale, 15, 0), 16);
    ew.shift = d.bits(kDpuEwCvtScale, 21, 16);
    if (d.bits(kDpuEwCvtScale, 31, 22) != 0)
      d.refuse("DPU.EW_CVT_SCALE_VALUE.EW_TRUNCATE is not 0: it is not understood");
  }
  // rockchip-npu-notes sdp-stage-precision.md, measured in fp16: with the converter bypassed a sum leaves elements as
  // they were, and with it live a product never ends.
  if (!integer && d.bit(kDpuEwCfg, 8) != ew.multiply)
    d.refuse("DPU.EW_CFG.EW_OP_CVT_BYPASS is {}: fp16 needs 1 to multiply and 0 for all else", d.bit(kDpuEwCfg, 8));
  decode_elementwise_source(d, dpu, ew);
}

void decode_dpu(Decoder& d, const std::optional<ConvTask>& conv, bool rdma, DpuTask& dpu, const TaskRules& rules) {
  d.check_fixed(Block::kDpu);
  if (rdma) d.check_fixed(Block::kRdma);
  const bool depthwise = conv && conv->shape.depthwise;
  dpu.from_memory = d.bit(kDpuFeatureModeCfg, 0);
  if (conv) {
    if (dpu.from_memory) d.refuse("DPU.FEATURE_MODE_CFG.FLYING_MODE is 1 (from memory), but CNA and CORE are enabled");
    d.expect("DPU.FEATURE_MODE_CFG.CONV_MODE", d.bits(kDpuFeatureModeCfg, 4, 3), depthwise ? 3 : 0);
  } else if (!dpu.from_memory) {
    d.refuse("the DPU's input comes from CORE, which the enable word leaves off");
  }
  dpu.in = static_cast<Precision>(d.bits(kDpuDataFormat, 28, 26));
  dpu.out = static_cast<Precision>(d.bits(kDpuDataFormat, 31, 29));
  d.expect("DPU.DATA_FORMAT.PROC_PRECISION", d.bits(kDpuDataFormat, 2, 0), static_cast<uint32_t>(dpu.in));
  if (conv)
    d.expect("DPU.DATA_FORMAT.IN_PRECISION", static_cast<uint32_t>(dpu.in), static_cast<uint32_t>(conv->shape.in));
  if (!is_output_precision(dpu.in, dpu.out, depthwise)) {
    d.refuse(
        "DPU.DATA_FORMAT makes precision {} from {}: int8 gives int32, fp32 or int8, fp16 gives fp32 or fp16, "
        "depthwise its "
        "own",
        static_cast<int>(dpu.out), static_cast<int>(dpu.in));
    return;  // what follows divides by the sizes of elements
  }
  dpu.width = d.bits(kDpuDataCubeWidth, 12, 0) + 1;
  dpu.height = d.bits(kDpuDataCubeHeight, 12, 0) + 1;
  dpu.channels = d.bits(kDpuDataCubeChannel, 12, 0) + 1;
  if (const uint32_t most = std::max({dpu.width, dpu.height, dpu.channels}); rules.wide_cubes && most > kSafeCubeExtent)
    d.refuse("DPU.DATA_CUBE has an extent of {}: beyond {} it is doubted", most, kSafeCubeExtent);
  if (conv) {
    d.expect("DPU.DATA_CUBE_WIDTH + 1", dpu.width, conv->shape.out_width);
    d.expect("DPU.DATA_CUBE_HEIGHT + 1", dpu.height, conv->shape.out_height);
    d.expect("CORE.DATAOUT_SIZE_1.DATAOUT_CHANNEL + 1", d.bits(kCoreDataoutSize1, 15, 0) + 1, dpu.channels);
    if (dpu.channels < conv->shape.kernels) {
      d.refuse("DPU.DATA_CUBE_CHANNEL + 1 is {}: it is smaller than the number of kernels, {}", dpu.channels,
               conv->shape.kernels);
    }
    d.expect("DPU.WDMA_SIZE_0.CHANNEL_WDMA + 1", d.bits(kDpuWdmaSize0, 12, 0) + 1, dpu.channels);
    d.expect("DPU.WDMA_SIZE_1.WIDTH_WDMA + 1", d.bits(kDpuWdmaSize1, 12, 0) + 1, dpu.width);
    d.expect("DPU.WDMA_SIZE_1.HEIGHT_WDMA + 1", d.bits(kDpuWdmaSize1, 28, 16) + 1, dpu.height);
    const uint32_t per_group = surfaces_per_group(dpu.in, dpu.out, depthwise);
    for (auto [high, low] : {std::pair{10u, 8u}, {7u, 5u}, {4u, 2u}}) {
      d.expect("DPU.BS_OW_CFG.SIZE_E + 1", d.bits(kDpuBsOwCfg, high, low) + 1, per_group);
    }
    dpu.surfaces_per_group = per_group;
    dpu.group_stride_bytes = d.raw(kDpuSurfaceAdd);
    if (conv->sum_inputs) dpu.input_sum_factor = sign_extend(d.bits(kDpuBsOwOp, 15, 0), 16);
  } else {
    // The DPU alone writes plain surfaces: nothing groups them.
    dpu.surfaces_per_group = 1;
    dpu.group_stride_bytes = d.raw(kDpuDstSurfStride);
  }
  dpu.destination = d.raw(kDpuDstBaseAddr);
  if (dpu.destination % kAtomBytes != 0)
    d.refuse("DPU.DST_BASE_ADDR is {:#x}: it must be a multiple of 16", dpu.destination);
  dpu.surface_stride_bytes = d.raw(kDpuDstSurfStride);
  if (const uint32_t surfaces = (dpu.channels + atom_channels(dpu.out) - 1) / atom_channels(dpu.out);
      (dpu.surface_stride_bytes == 0 && surfaces > 1 && dpu.surfaces_per_group > 1) ||
      (dpu.group_stride_bytes == 0 && surfaces > dpu.surfaces_per_group)) {
    d.refuse("DPU.DST_SURF_STRIDE or SURFACE_ADD is 0, but the result has {} surfaces", surfaces);
  }
  dpu.line_notch_atoms = d.bits(kDpuDataCubeNotch, 12, 0);
  if (const uint32_t other = d.bits(kDpuDataCubeNotch, 28, 16); other != 0) {
    d.expect("DPU.DATA_CUBE_NOTCH_ADDR.NOTCH_ADDR_1", other, dpu.line_notch_atoms);
  }
  decode_stage(d, "BS", kDpuBsCfg, rdma, kRdmaBrdmaCfg, kRdmaBsBaseAddr, dpu.bs);
  decode_stage(d, "BN", kDpuBnCfg, rdma, kRdmaNrdmaCfg, kRdmaBnBaseAddr, dpu.bn);
  decode_elementwise(d, dpu, rdma, dpu.ew);

  dpu.out_offset = static_cast<int32_t>(d.raw(kDpuOutCvtOffset));
  dpu.out_scale = d.bits(kDpuOutCvtScale, 15, 0);
  dpu.out_shift = d.bits(kDpuOutCvtShift, 5, 0);
  dpu.out_ties_away = d.bit(kDpuOutCvtShift, 30);
  const bool to_fp16 = d.bit(kDpuOutCvtScale, 16), affine = dpu.lut && dpu.lut->affine;
  if (!affine && (d.bit(kDpuOutCvtShift, 31) || d.bits(kDpuOutCvtShift, 19, 12) != 0))
    d.refuse("DPU.OUT_CVT_SHIFT has a CVT_TYPE or MINUS_EXP: they are understood after the look-up tables");
  if (dpu.in == Precision::kBf16 && !conv) d.refuse("DPU.DATA_FORMAT.IN_PRECISION is 3 (bf16), but the DPU is alone");
  if (dpu.in != Precision::kInt8) {
    d.expect("DPU.OUT_CVT_SCALE.FP32TOFP16_EN", to_fp16, dpu.out == Precision::kFp16);
    if (!affine && ((dpu.out_scale != 0 && dpu.out_scale != 1) || dpu.out_shift != 0 || dpu.out_offset != 0)) {
      d.refuse("DPU.OUT_CVT scales an fp16 result: scale 0 or 1, shift 0 and offset 0 are understood");
    }
  } else {
    if (to_fp16) d.refuse("DPU.OUT_CVT_SCALE.FP32TOFP16_EN is 1, but the result is an integer");
  }
  if (rdma && dpu.from_memory) {
    if (d.bit(kRdmaFeatureModeCfg, 4))
      d.refuse("DPU_RDMA.FEATURE_MODE_CFG.MRDMA_DISABLE is 1, but the DPU's input comes from memory");
    if (!d.bit(kRdmaFeatureModeCfg, 0)) d.refuse("DPU_RDMA.FEATURE_MODE_CFG.FLYING_MODE is 0, but the DPU's is 1");
    d.expect("DPU_RDMA.FEATURE_MODE_CFG.IN_PRECISION", d.bits(kRdmaFeatureModeCfg, 17, 15),
             static_cast<uint32_t>(dpu.in));
    dpu.source_address = d.raw(kRdmaSrcBaseAddr);
    if (dpu.source_address % kAtomBytes != 0)
      d.refuse("DPU_RDMA.SRC_BASE_ADDR is {:#x}: it must be a multiple of 16", dpu.source_address);
    dpu.source_channels = std::min(d.bits(kDpuDataCubeChannel, 28, 16) + 1, dpu.channels);
    dpu.source_line_notch_atoms = d.bits(kRdmaSrcDmaCfg, 31, 19);
    dpu.source_surface_notch_bytes = d.raw(kRdmaSurfNotch);
  } else if (dpu.from_memory) {
    d.refuse("the DPU's input comes from memory, but the enable word leaves the RDMA off");
  }
  if (rdma && (dpu.from_memory || dpu.bs.operand_from_memory || dpu.bn.operand_from_memory || dpu.ew.active)) {
    d.expect("DPU_RDMA.DATA_CUBE_WIDTH + 1", d.bits(kRdmaCubeWidth, 12, 0) + 1, dpu.width);
    d.expect("DPU_RDMA.DATA_CUBE_HEIGHT + 1", d.bits(kRdmaCubeHeight, 12, 0) + 1, dpu.height);
    d.expect("DPU_RDMA.DATA_CUBE_CHANNEL + 1", d.bits(kRdmaCubeChannel, 12, 0) + 1, dpu.channels);
  }
}

}  // namespace

uint64_t task_macs(const Task& task) {
  if (!task.conv) return 0;
  const ConvShape& s = task.conv->shape;
  return static_cast<uint64_t>(s.out_width) * s.out_height * s.kernel_width * s.kernel_height * s.channels *
         (s.depthwise ? 1 : s.kernels);
}

Task decode_task(const RegisterFile& regs, uint32_t enable, std::vector<std::string>& violations,
                 const TaskRules& rules) {
  Decoder d(regs, violations);
  Task task;
  if (enable & (kEnablePpu | kEnablePpuRdma)) {
    if (enable != (kEnablePpu | kEnablePpuRdma))
      d.refuse("the enable word is {:#x}: the pooling unit is understood alone, as 0x60", enable);
    decode_ppu(d, task.ppu.emplace(), rules);
    return task;
  }
  if (enable & ~(kEnablePc | kEnableCna | kEnableDpu | kEnableRdma)) {
    d.refuse("the enable word is {:#x}: bits {:#x} start blocks that are not known", enable,
             enable & ~(kEnablePc | kEnableCna | kEnableDpu | kEnableRdma));
  }
  if (!(enable & kEnableDpu)) {
    d.refuse("the enable word is {:#x}: without the DPU nothing is written", enable);
    return task;
  }
  const bool rdma = enable & kEnableRdma;
  if (enable & kEnableCna) decode_conv(d, task.conv.emplace(), rules);
  decode_dpu(d, task.conv, rdma, task.dpu, rules);
  return task;
}

std::string command_violation(const Command& command) {
  switch (command.target) {
    case Target::kNone:
    case Target::kFiller:
      if (command.reg == 0 && command.value == 0) return {};
      return std::format("a filler word carries register {:#x} and value {:#x}", command.reg, command.value);
    case Target::kBarrier:
      return {};
    case Target::kEnable:
      if (command.reg != kPcOperationEnable)
        return std::format("an enable word names register {:#x}: it must be 0x8", command.reg);
      return {};
    case Target::kCsc:
      return std::format("target {:#06x} is a block that is not understood", static_cast<unsigned>(command.target));
    case Target::kPc:
    case Target::kCna:
    case Target::kCore:
    case Target::kDpu:
    case Target::kRdma:
    case Target::kPpu:
    case Target::kPpuRdma:
      break;
    default:
      return std::format("target {:#06x} is unknown", static_cast<unsigned>(command.target));
  }
  const Register* r = find_register(command.reg);
  if (r == nullptr) return std::format("register {:#06x} is unknown", command.reg);
  if (block_target(r->block) != command.target) {
    return std::format("register {} ({:#06x}) is sent to target {:#06x}, another block", qualified_name(*r),
                       command.reg, static_cast<unsigned>(command.target));
  }
  return Decoder::value_violation(*r, command.value);
}

}  // namespace npud::rknpu
