// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/emit/words.h"

#include <format>

#include "devices/rknpu/hw/registers.h"

namespace npud::rknpu {
namespace {

using namespace reg;

class Writer {
 public:
  void put(uint16_t offset, uint32_t value) {
    words_.push_back(encode({block_target(find_register(offset)->block), offset, value}));
  }
  std::vector<uint64_t> take() { return std::move(words_); }

 private:
  std::vector<uint64_t> words_;
};

constexpr uint32_t kPointerPingPong = 0xe;  // S_POINTER: groups alternate, and so does the executer
constexpr uint32_t kBurst15 = 0xf;
constexpr uint32_t kBypassStage = 0x53;  // BS and BN: stage, ALU, multiplier and ReLU bypassed
constexpr uint32_t kBypassElementwise = 0x383;

constexpr uint32_t code(Precision p) { return static_cast<uint32_t>(p); }

void put_cna(Writer& w, const ConvPlan& plan, const ConvShape& s, const Band& band, const ConvAddresses& at,
             const ConvEpilogue& epilogue) {
  const uint32_t kernel_bytes = conv_kernel_bytes(s);
  const uint32_t banks = feature_banks(s.width, s.height, s.channels, s.in);
  const uint32_t line_atoms = plan.in_width;
  const uint32_t surface_atoms = plan.in_width * plan.in_height;
  w.put(kCnaConvCon1, code(s.in) << 7 | code(s.in) << 4 | (s.depthwise ? 3 : 0));
  // How many lines are fetched ahead: direct tasks don't mind, depthwise ones are known right with this.
  w.put(kCnaConvCon2, (s.depthwise ? 50 + s.stride_y + 1 : std::min(s.height + 1, 1023u)) << 4);
  w.put(kCnaConvCon3, s.stride_y << 3 | s.stride_x);
  w.put(kCnaDataSize0, s.width << 16 | s.height);
  w.put(kCnaDataSize1, (std::min(s.channels - 1, 0x3fffu)) << 16 | s.channels);
  w.put(kCnaDataSize2, s.out_width);
  w.put(kCnaDataSize3, s.out_width * s.out_height);
  w.put(kCnaWeightSize0, conv_weight_bytes(s));
  w.put(kCnaWeightSize1, kernel_bytes);
  w.put(kCnaWeightSize2, s.kernel_width << 24 | s.kernel_height << 16 | (s.depthwise ? 1 : s.kernels));
  w.put(kCnaCbufCon0, (kCbufBanks - banks) << 4 | banks);
  w.put(kCnaCbufCon1, data_entries(s.width, s.channels, s.in));
  w.put(kCnaCvtCon0, 0xb);  // signed, no conversion
  for (uint16_t offset : {kCnaCvtCon1, kCnaCvtCon2, kCnaCvtCon3, kCnaCvtCon4}) w.put(offset, 1u << 16);
  w.put(kCnaFcCon0, 0);
  w.put(kCnaFcCon1, 0);
  w.put(kCnaPadCon0, s.pad_left << 4 | s.pad_top);
  w.put(kCnaFeatureDataAddr, at.features + band.in_row * line_atoms * kAtomBytes);
  w.put(kCnaFcCon2, 0);
  w.put(kCnaDmaCon0, kBurst15 << 16 | kBurst15);
  w.put(kCnaDmaCon1, line_atoms * 4);                                // four lines at a time
  w.put(kCnaDmaCon2, (surface_atoms - line_atoms * 4) & 0xfffffff);  // signed: what is left to the next surface
  w.put(kCnaFcDataSize0, s.width << 16 | s.height);
  w.put(kCnaFcDataSize1, s.channels);
  w.put(kCnaDcompCtrl, 0);
  w.put(kCnaDcompRegnum, 0);
  w.put(kCnaDcompAddr0, at.weights + (s.depthwise ? 0 : band.first_kernel * kernel_bytes));
  for (uint16_t i = 0; i < 16; ++i) w.put(static_cast<uint16_t>(kCnaDcompAmount0 + 4 * i), 0);
  w.put(kCnaCvtCon5, 0);
  // An int8 value in every lane: channels differ in the one they read.
  w.put(kCnaPadCon1, s.in == Precision::kInt8 ? (static_cast<uint32_t>(epilogue.pad_value) & 0xff) * 0x01010101u
                                              : static_cast<uint32_t>(epilogue.pad_value) & 0xffffu);
}

void put_core(Writer& w, const ConvShape& s) {
  const bool quantises = s.in == Precision::kFp16 || s.out == Precision::kInt8;
  w.put(kCoreMiscCfg, code(s.in) << 8 | (s.depthwise ? 2 : 0) | (quantises ? 1 : 0));
  w.put(kCoreDataoutSize0, (s.out_height - 1) << 16 | (s.out_width - 1));
  w.put(kCoreDataoutSize1, s.kernels - 1);
  w.put(kCoreClipTruncate, 0);
}

void put_dpu(Writer& w, const ConvPlan& plan, const ConvShape& s, const Band& band, const ConvAddresses& at,
             const ConvEpilogue& epilogue) {
  const uint32_t surface_bytes = plan.out_width * plan.out_height * kAtomBytes;
  const uint32_t per_group = surfaces_per_group(s.in, s.out, s.depthwise);
  const uint32_t output =
      at.output + band.first_kernel / atom_channels(s.out) * surface_bytes + band.out_row * plan.out_width * kAtomBytes;
  w.put(kDpuFeatureModeCfg, kBurst15 << 5 | (s.depthwise ? 3u : 0u) << 3 | 2 << 1);
  w.put(kDpuDataFormat, code(s.out) << 29 | code(s.in) << 26 | code(s.in));
  w.put(kDpuDstBaseAddr, output);
  w.put(kDpuDstSurfStride, surface_bytes);
  w.put(kDpuDataCubeWidth, s.out_width - 1);
  w.put(kDpuDataCubeHeight, s.out_height - 1);
  w.put(kDpuDataCubeNotch, 0);
  w.put(kDpuDataCubeChannel, (s.kernels - 1) << 16 | (s.kernels - 1));
  uint32_t bs = kBypassStage;
  if (at.bias) {
    bs = 2u << 16 | 1u << 8 | (epilogue.relu ? 0u : 1u << 6) | 1u << 4;  // add an operand per channel from memory
  } else if (epilogue.relu) {
    bs = 1u << 4 | 1u << 1;
  }
  w.put(kDpuBsCfg, bs);
  w.put(kDpuBsAluCfg, 0);
  w.put(kDpuBsMulCfg, 0);
  w.put(kDpuBsReluxCmp, 0);
  // Depthwise tasks and int8 results pass through the stage of the weights' zero point, which is 0 here; fp16 wants
  // 128 in its place (rockchip-npu-notes depthwise-conv.md, Mesa rkt_regcmd.c).
  const bool bypass = !s.depthwise && s.out != Precision::kInt8;
  w.put(kDpuBsOwCfg, (per_group - 1) << 8 | (per_group - 1) << 5 | (per_group - 1) << 2 | (bypass ? 1 : 0) << 1);
  w.put(kDpuBsOwOp, s.depthwise && s.in == Precision::kFp16 ? 128 : 0);
  w.put(kDpuWdmaSize0, s.kernels - 1);
  w.put(kDpuWdmaSize1, (s.out_height - 1) << 16 | (s.out_width - 1));
  w.put(kDpuBnCfg, kBypassStage);
  w.put(kDpuBnAluCfg, 0);
  w.put(kDpuBnMulCfg, 0);
  w.put(kDpuBnReluxCmp, 0);
  w.put(kDpuEwCfg, kBypassElementwise);
  w.put(kDpuEwCvtOffset, 0);
  w.put(kDpuEwCvtScale, 1);
  w.put(kDpuEwReluxCmp, 0);
  w.put(kDpuOutCvtOffset, static_cast<uint32_t>(epilogue.offset));
  w.put(kDpuOutCvtScale, (s.out == Precision::kFp16 ? 1u << 16 : 0) | (static_cast<uint32_t>(epilogue.scale) & 0xffff));
  w.put(kDpuOutCvtShift, epilogue.shift);
  w.put(kDpuSurfaceAdd, surface_bytes * per_group);
}

// Written with nothing to read as well: left at its reset value the main reader waits for ever for what nobody sends
// (rockchip-npu-notes, encodings/mrdma-trap.md).
void put_rdma(Writer& w, const ConvShape& s, const Band& band, std::optional<uint32_t> bias) {
  w.put(kRdmaSPointer, kPointerPingPong);
  w.put(kRdmaCubeWidth, s.out_width - 1);
  w.put(kRdmaCubeHeight, s.out_height - 1);
  w.put(kRdmaCubeChannel, s.kernels - 1);
  w.put(kRdmaSrcBaseAddr, 0);
  w.put(kRdmaBrdmaCfg, bias ? 1 << 1 : 0);  // an ALU operand
  w.put(kRdmaBsBaseAddr, bias ? *bias + band.first_kernel * 4 : 0);
  w.put(kRdmaNrdmaCfg, 0);
  w.put(kRdmaBnBaseAddr, 0);
  w.put(kRdmaErdmaCfg, 1);  // disabled
  w.put(kRdmaEwBaseAddr, 0);
  w.put(kRdmaEwSurfStride, 0);
  w.put(kRdmaFeatureModeCfg,
        code(s.in) << 15 | kBurst15 << 11 | code(s.in) << 5 | 1u << 4 |
            (s.depthwise ? 3u : 0u) << 1);  // the input comes from CORE
  w.put(kRdmaSrcDmaCfg, 0);
  w.put(kRdmaSurfNotch, 0);
  w.put(kRdmaEwSurfNotch, 0);
}

Refusal address_refusal(const ConvPlan& plan, const ConvAddresses& at) {
  struct Range {
    const char* what;
    uint32_t address;
    uint64_t bytes;
  };
  for (const Range& r : {Range{"features", at.features, plan.feature_bytes},
                         Range{"weights", at.weights, plan.weight_bytes}, Range{"output", at.output, plan.output_bytes},
                         Range{"bias", at.bias.value_or(0), at.bias ? plan.bias_bytes : 0}}) {
    if (r.address % kAtomBytes != 0) return std::format("the {} lie at {:#x}: not a multiple of 16", r.what, r.address);
    if (uint64_t{r.address} + r.bytes > uint64_t{1} << 32) return std::format("the {} end beyond 4 GiB", r.what);
  }
  return std::nullopt;
}

}  // namespace

Result<TaskWords> emit_band(const ConvPlan& plan, const Band& band, const ConvAddresses& at,
                            const ConvEpilogue& epilogue) {
  const ConvShape shape = plan.shape(band);
  if (auto refusal = conv_refusal(shape)) return fail(ErrorCode::invalid_argument, *refusal);
  if (auto refusal = address_refusal(plan, at)) return fail(ErrorCode::invalid_argument, *refusal);
  if (shape.out != Precision::kInt8 && (epilogue.scale != 1 || epilogue.shift != 0 || epilogue.offset != 0)) {
    return fail(ErrorCode::invalid_argument, "only an int8 output can be requantised");
  }
  // Reports differ on whether the scale's bit 15 is its sign.
  if (epilogue.scale < 0 || epilogue.scale > 0x7fff || epilogue.shift > 63) {
    return fail(ErrorCode::invalid_argument, "the requantisation needs a scale of 15 bits and a shift of at most 63");
  }
  Writer w;
  w.put(kDpuSPointer, kPointerPingPong);
  put_cna(w, plan, shape, band, at, epilogue);
  put_core(w, shape);
  put_dpu(w, plan, shape, band, at, epilogue);
  put_rdma(w, shape, band, at.bias);
  TaskWords task;
  task.enable = kEnablePc | kEnableCna | kEnableDpu | kEnableRdma;
  task.words = w.take();
  return task;
}

}  // namespace npud::rknpu
