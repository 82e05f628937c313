// SPDX-License-Identifier: Apache-2.0
// The registers of an RK3588 NPU core that npud knows, with their fields: one table for the virtual board, the
// disassembler, the planner and the emitter. Names and bit positions follow Mesa's registers.xml (rocket driver) and
// mainline's rocket_registers.h.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "devices/rknpu/hw/command.h"

namespace npud::rknpu {

enum class Block : uint8_t { kPc, kCna, kCore, kDpu, kRdma, kPpu, kPpuRdma, kGlobal };
std::string_view block_name(Block block);
// The target of command words for a block's registers.
Target block_target(Block block);

// What npud (and the virtual board) makes of a field.
enum class Use : uint8_t {
  kActs,   // it changes what is computed or where, and all its values are understood
  kTuned,  // it changes speed or power, never results: any value goes
  kFixed,  // only the given value is understood; any other makes a task refused
};

struct Field {
  const char* name;
  uint8_t low;
  uint8_t high;
  Use use = Use::kActs;
  uint32_t fixed = 0;  // for kFixed

  constexpr uint32_t mask() const { return (high - low == 31 ? ~0u : (1u << (high - low + 1)) - 1) << low; }
  constexpr uint32_t of(uint32_t value) const { return (value & mask()) >> low; }
};

struct Register {
  uint16_t offset;
  Block block;
  const char* name;
  uint32_t reset;  // value after reset
  std::span<const Field> fields;
  bool banked = true;  // has a copy in each ping-pong group
};

// All of them, by ascending offset.
std::span<const Register> registers();
// nullptr if the offset is not a register that npud knows.
const Register* find_register(uint16_t offset);
// By "BLOCK.NAME", for example "CNA.CONV_CON1"; nullptr if there is none.
const Register* find_register(std::string_view qualified_name);
std::string qualified_name(const Register& reg);

// The values of all banked registers of one ping-pong group. A plain value; unknown offsets read 0 and are not stored.
class RegisterFile {
 public:
  static constexpr size_t kSlots = 256;

  RegisterFile();  // reset values

  uint32_t get(uint16_t offset) const;
  bool set(uint16_t offset, uint32_t value);  // false: no such register
  // Back to reset values, for one block or for all.
  void reset(Block block);
  void reset();

 private:
  std::array<uint32_t, kSlots> values_{};
};

// Offsets of the registers that code names. PC registers are the core's own (not banked, written over MMIO or by PC
// words).
namespace reg {
inline constexpr uint16_t kPcVersion = 0x0000, kPcVersionNum = 0x0004, kPcOperationEnable = 0x0008,
                          kPcBaseAddress = 0x0010, kPcRegisterAmounts = 0x0014, kPcInterruptMask = 0x0020,
                          kPcInterruptClear = 0x0024, kPcInterruptStatus = 0x0028, kPcInterruptRawStatus = 0x002c,
                          kPcTaskCon = 0x0030, kPcTaskDmaBaseAddr = 0x0034, kPcTaskStatus = 0x003c;
inline constexpr uint16_t kCnaSStatus = 0x1000, kCnaSPointer = 0x1004, kCnaConvCon1 = 0x100c, kCnaConvCon2 = 0x1010,
                          kCnaConvCon3 = 0x1014, kCnaDataSize0 = 0x1020, kCnaDataSize1 = 0x1024, kCnaDataSize2 = 0x1028,
                          kCnaDataSize3 = 0x102c, kCnaWeightSize0 = 0x1030, kCnaWeightSize1 = 0x1034,
                          kCnaWeightSize2 = 0x1038, kCnaCbufCon0 = 0x1040, kCnaCbufCon1 = 0x1044, kCnaCvtCon0 = 0x104c,
                          kCnaCvtCon1 = 0x1050, kCnaCvtCon2 = 0x1054, kCnaCvtCon3 = 0x1058, kCnaCvtCon4 = 0x105c,
                          kCnaFcCon0 = 0x1060, kCnaFcCon1 = 0x1064, kCnaPadCon0 = 0x1068, kCnaFeatureDataAddr = 0x1070,
                          kCnaFcCon2 = 0x1074, kCnaDmaCon0 = 0x1078, kCnaDmaCon1 = 0x107c, kCnaDmaCon2 = 0x1080,
                          kCnaFcDataSize0 = 0x1084, kCnaFcDataSize1 = 0x1088, kCnaDcompCtrl = 0x1100,
                          kCnaDcompRegnum = 0x1104, kCnaDcompAddr0 = 0x1110, kCnaDcompAmount0 = 0x1140,
                          kCnaCvtCon5 = 0x1180, kCnaPadCon1 = 0x1184;
inline constexpr uint16_t kCoreSStatus = 0x3000, kCoreSPointer = 0x3004, kCoreMiscCfg = 0x3010,
                          kCoreDataoutSize0 = 0x3014, kCoreDataoutSize1 = 0x3018, kCoreClipTruncate = 0x301c;
inline constexpr uint16_t kDpuSStatus = 0x4000, kDpuSPointer = 0x4004, kDpuFeatureModeCfg = 0x400c,
                          kDpuDataFormat = 0x4010, kDpuDstBaseAddr = 0x4020, kDpuDstSurfStride = 0x4024,
                          kDpuDataCubeWidth = 0x4030, kDpuDataCubeHeight = 0x4034, kDpuDataCubeNotch = 0x4038,
                          kDpuDataCubeChannel = 0x403c, kDpuBsCfg = 0x4040, kDpuBsAluCfg = 0x4044,
                          kDpuBsMulCfg = 0x4048, kDpuBsReluxCmp = 0x404c, kDpuBsOwCfg = 0x4050, kDpuBsOwOp = 0x4054,
                          kDpuWdmaSize0 = 0x4058, kDpuWdmaSize1 = 0x405c, kDpuBnCfg = 0x4060, kDpuBnAluCfg = 0x4064,
                          kDpuBnMulCfg = 0x4068, kDpuBnReluxCmp = 0x406c, kDpuEwCfg = 0x4070, kDpuEwCvtOffset = 0x4074,
                          kDpuEwCvtScale = 0x4078, kDpuEwReluxCmp = 0x407c, kDpuOutCvtOffset = 0x4080,
                          kDpuOutCvtScale = 0x4084, kDpuOutCvtShift = 0x4088, kDpuSurfaceAdd = 0x40c0,
                          kDpuLutAccessCfg = 0x4100, kDpuLutAccessData = 0x4104, kDpuLutCfg = 0x4108,
                          kDpuLutInfo = 0x410c, kDpuLutLeStart = 0x4110, kDpuLutLeEnd = 0x4114, kDpuLutLoStart = 0x4118,
                          kDpuLutLoEnd = 0x411c, kDpuLutLeSlopeScale = 0x4120, kDpuLutLeSlopeShift = 0x4124,
                          kDpuLutLoSlopeScale = 0x4128, kDpuLutLoSlopeShift = 0x412c;
inline constexpr uint16_t kRdmaSStatus = 0x5000, kRdmaSPointer = 0x5004, kRdmaCubeWidth = 0x500c,
                          kRdmaCubeHeight = 0x5010, kRdmaCubeChannel = 0x5014, kRdmaSrcBaseAddr = 0x5018,
                          kRdmaBrdmaCfg = 0x501c, kRdmaBsBaseAddr = 0x5020, kRdmaNrdmaCfg = 0x5028,
                          kRdmaBnBaseAddr = 0x502c, kRdmaErdmaCfg = 0x5034, kRdmaEwBaseAddr = 0x5038,
                          kRdmaEwSurfStride = 0x5040, kRdmaFeatureModeCfg = 0x5044, kRdmaSrcDmaCfg = 0x5048,
                          kRdmaSurfNotch = 0x504c, kRdmaEwSurfNotch = 0x506c;
inline constexpr uint16_t kPpuSStatus = 0x6000, kPpuSPointer = 0x6004, kPpuInWidth = 0x600c, kPpuInHeight = 0x6010,
                          kPpuInChannel = 0x6014, kPpuOutWidth = 0x6018, kPpuOutHeight = 0x601c,
                          kPpuOutChannel = 0x6020, kPpuOperationMode = 0x6024, kPpuKernel = 0x6034,
                          kPpuRecipWidth = 0x6038, kPpuRecipHeight = 0x603c, kPpuPadding = 0x6040,
                          kPpuPadValue1 = 0x6044, kPpuPadValue2 = 0x6048, kPpuDstBaseAddr = 0x6070,
                          kPpuDstSurfStride = 0x607c, kPpuDataFormat = 0x6084, kPpuMiscCtrl = 0x60dc;
inline constexpr uint16_t kPpuRdmaSStatus = 0x7000, kPpuRdmaSPointer = 0x7004, kPpuRdmaInWidth = 0x700c,
                          kPpuRdmaInHeight = 0x7010, kPpuRdmaInChannel = 0x7014, kPpuRdmaSrcBaseAddr = 0x701c,
                          kPpuRdmaLineStride = 0x7024, kPpuRdmaSurfStride = 0x7028, kPpuRdmaDataFormat = 0x7030;
inline constexpr uint16_t kGlobalOperationEnable = 0xf008;
}  // namespace reg

}  // namespace npud::rknpu
