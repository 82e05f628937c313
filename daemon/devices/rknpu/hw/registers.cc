// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/hw/registers.h"

#include <algorithm>
#include <utility>

namespace npud::rknpu {
namespace {

constexpr Use kTuned = Use::kTuned;
constexpr Use kFixed = Use::kFixed;

// Fields, high bits first as in the documents. A field without a third word acts; conditions between fields are in
// task.cc.
constexpr Field kPcVersion[] = {{"VERSION", 0, 31}};
constexpr Field kPcVersionNum[] = {{"VERSION_NUM", 0, 31}};
constexpr Field kPcOperationEnable[] = {{"BLOCKS", 1, 6}, {"OP_EN", 0, 0}};
constexpr Field kPcBaseAddress[] = {{"PC_SOURCE_ADDR", 4, 31}, {"PC_SEL", 0, 0}};
constexpr Field kPcRegisterAmounts[] = {{"PC_DATA_AMOUNT", 0, 15}};
constexpr Field kInterruptFields[] = {{"DMA_WRITE_ERROR", 13, 13},
                                      {"DMA_READ_ERROR", 12, 12},
                                      {"PPU_1", 11, 11},
                                      {"PPU_0", 10, 10},
                                      {"DPU_1", 9, 9},
                                      {"DPU_0", 8, 8},
                                      {"CORE_1", 7, 7},
                                      {"CORE_0", 6, 6},
                                      {"CNA_CSC_1", 5, 5},
                                      {"CNA_CSC_0", 4, 4},
                                      {"CNA_WEIGHT_1", 3, 3},
                                      {"CNA_WEIGHT_0", 2, 2},
                                      {"CNA_FEATURE_1", 1, 1},
                                      {"CNA_FEATURE_0", 0, 0}};
constexpr Field kPcTaskCon[] = {
    {"TASK_TRIGGER", 14, 14}, {"TASK_COUNT_CLEAR", 13, 13}, {"TASK_PP_EN", 12, 12}, {"TASK_NUMBER", 0, 11}};
constexpr Field kPcTaskDmaBaseAddr[] = {{"DMA_BASE_ADDR", 4, 31}};
constexpr Field kPcTaskStatus[] = {{"TASK_STATUS", 0, 27}};
constexpr Field kStatusFields[] = {{"STATUS_1", 16, 17}, {"STATUS_0", 0, 1}};
constexpr Field kPointerFields[] = {
    {"EXECUTER", 16, 16, kTuned}, {"EXECUTER_PP_CLEAR", 5, 5}, {"POINTER_PP_CLEAR", 4, 4}, {"POINTER_PP_MODE", 3, 3},
    {"EXECUTER_PP_EN", 2, 2},     {"POINTER_PP_EN", 1, 1},     {"POINTER", 0, 0}};
constexpr Field kOpEnFields[] = {{"OP_EN", 0, 0}};
constexpr Field kCnaConvCon1[] = {{"NONALIGN_DMA", 30, 30}, {"GROUP_LINE_OFF", 29, 29}, {"DECONV", 16, 16, kFixed, 0},
                                  {"ARGB_IN", 12, 15},      {"PROC_PRECISION", 7, 9},   {"IN_PRECISION", 4, 6},
                                  {"CONV_MODE", 0, 3}};
// allbilly/rk3588's GEMMs let FEATURE_GRAINS run over into RESERVED_1, to no effect.
constexpr Field kCnaConvCon2[] = {{"KERNEL_GROUP", 16, 23, kTuned},  {"RESERVED_1", 14, 15, kTuned},
                                  {"FEATURE_GRAINS", 4, 13, kTuned}, {"CSC_WO_EN", 2, 2, kFixed, 0},
                                  {"CSC_DO_EN", 1, 1, kFixed, 0},    {"CMD_FIFO_SRST", 0, 0, kTuned}};
constexpr Field kCnaConvCon3[] = {{"NN_MODE", 28, 30, kFixed, 0},
                                  {"ATROUS_Y_DILATION", 21, 25},
                                  {"ATROUS_X_DILATION", 16, 20},
                                  {"DECONV_Y_STRIDE", 11, 13, kFixed, 0},
                                  {"DECONV_X_STRIDE", 8, 10, kFixed, 0},
                                  {"CONV_Y_STRIDE", 3, 5},
                                  {"CONV_X_STRIDE", 0, 2}};
constexpr Field kCnaDataSize0[] = {{"DATAIN_WIDTH", 16, 26}, {"DATAIN_HEIGHT", 0, 10}};
constexpr Field kCnaDataSize1[] = {{"DATAIN_CHANNEL_REAL", 16, 29}, {"DATAIN_CHANNEL", 0, 15}};
constexpr Field kCnaDataSize2[] = {{"DATAOUT_WIDTH", 0, 10}};
constexpr Field kCnaDataSize3[] = {{"SURF_MODE", 22, 23, kFixed, 0}, {"DATAOUT_ATOMICS", 0, 21}};
constexpr Field kCnaWeightSize0[] = {{"WEIGHT_BYTES", 0, 31}};
constexpr Field kCnaWeightSize1[] = {{"WEIGHT_BYTES_PER_KERNEL", 0, 18}};
constexpr Field kCnaWeightSize2[] = {{"WEIGHT_WIDTH", 24, 28}, {"WEIGHT_HEIGHT", 16, 20}, {"WEIGHT_KERNELS", 0, 13}};
constexpr Field kCnaCbufCon0[] = {{"WEIGHT_REUSE", 13, 13},
                                  {"DATA_REUSE", 12, 12},
                                  {"FC_DATA_BANK", 8, 10, kFixed, 0},
                                  {"WEIGHT_BANK", 4, 7},
                                  {"DATA_BANK", 0, 3}};
constexpr Field kCnaCbufCon1[] = {{"DATA_ENTRIES", 0, 13}};
constexpr Field kCnaCvtCon0[] = {{"CVT_TRUNCATE_3", 22, 27, kTuned},
                                 {"CVT_TRUNCATE_2", 16, 21, kTuned},
                                 {"CVT_TRUNCATE_1", 10, 15, kTuned},
                                 {"CVT_TRUNCATE_0", 4, 9},
                                 {"DATA_SIGN", 3, 3},
                                 {"ROUND_TYPE", 2, 2, kTuned},
                                 {"CVT_TYPE", 1, 1, kTuned},
                                 {"CVT_BYPASS", 0, 0}};
constexpr Field kCnaCvtCon1[] = {{"CVT_SCALE0", 16, 31}, {"CVT_OFFSET0", 0, 15}};
constexpr Field kCnaCvtCon2[] = {{"CVT_SCALE1", 16, 31, kTuned}, {"CVT_OFFSET1", 0, 15, kTuned}};
constexpr Field kCnaCvtCon3[] = {{"CVT_SCALE2", 16, 31, kTuned}, {"CVT_OFFSET2", 0, 15, kTuned}};
constexpr Field kCnaCvtCon4[] = {{"CVT_SCALE3", 16, 31, kTuned}, {"CVT_OFFSET3", 0, 15, kTuned}};
constexpr Field kCnaFcCon0[] = {{"FC_SKIP_DATA", 16, 31, kTuned}, {"FC_SKIP_EN", 0, 0, kFixed, 0}};
constexpr Field kCnaFcCon1[] = {{"DATA_OFFSET", 0, 16, kFixed, 0}};
constexpr Field kCnaPadCon0[] = {{"PAD_LEFT", 4, 7}, {"PAD_TOP", 0, 3}};
constexpr Field kCnaFeatureDataAddr[] = {{"FEATURE_BASE_ADDR", 0, 31}};
constexpr Field kCnaFcCon2[] = {{"WEIGHT_OFFSET", 0, 16, kFixed, 0}};
constexpr Field kCnaDmaCon0[] = {
    {"OV4K_BYPASS", 31, 31, kTuned}, {"WEIGHT_BURST_LEN", 16, 19, kTuned}, {"DATA_BURST_LEN", 0, 3, kTuned}};
constexpr Field kCnaDmaCon1[] = {{"LINE_STRIDE", 0, 27}};
constexpr Field kCnaDmaCon2[] = {{"SURF_STRIDE", 0, 27}};
constexpr Field kCnaFcDataSize0[] = {{"DMA_WIDTH", 16, 29}, {"DMA_HEIGHT", 0, 10}};
constexpr Field kCnaFcDataSize1[] = {{"DMA_CHANNEL", 0, 15}};
constexpr Field kCnaClkGate[] = {{"CBUF_CS_DISABLE_CLKGATE", 4, 4, kTuned},
                                 {"CSC_DISABLE_CLKGATE", 2, 2, kTuned},
                                 {"CNA_WEIGHT_DISABLE_CLKGATE", 1, 1, kTuned},
                                 {"CNA_FEATURE_DISABLE_CLKGATE", 0, 0, kTuned}};
constexpr Field kCnaDcompCtrl[] = {{"WT_DEC_BYPASS", 3, 3, kTuned}, {"DECOMP_CONTROL", 0, 2, kFixed, 0}};
constexpr Field kCnaDcompRegnum[] = {{"DCOMP_REGNUM", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAddr0[] = {{"DECOMPRESS_ADDR0", 0, 31}};
constexpr Field kCnaDcompAmount0[] = {{"DCOMP_AMOUNT0", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount1[] = {{"DCOMP_AMOUNT1", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount2[] = {{"DCOMP_AMOUNT2", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount3[] = {{"DCOMP_AMOUNT3", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount4[] = {{"DCOMP_AMOUNT4", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount5[] = {{"DCOMP_AMOUNT5", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount6[] = {{"DCOMP_AMOUNT6", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount7[] = {{"DCOMP_AMOUNT7", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount8[] = {{"DCOMP_AMOUNT8", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount9[] = {{"DCOMP_AMOUNT9", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount10[] = {{"DCOMP_AMOUNT10", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount11[] = {{"DCOMP_AMOUNT11", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount12[] = {{"DCOMP_AMOUNT12", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount13[] = {{"DCOMP_AMOUNT13", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount14[] = {{"DCOMP_AMOUNT14", 0, 31, kFixed, 0}};
constexpr Field kCnaDcompAmount15[] = {{"DCOMP_AMOUNT15", 0, 31, kFixed, 0}};
constexpr Field kCnaCvtCon5[] = {{"PER_CHANNEL_CVT_EN", 0, 31, kTuned}};
constexpr Field kCnaPadCon1[] = {{"PAD_VALUE", 0, 31}};
constexpr Field kCoreMacGating[] = {{"SLCG_OP_EN", 0, 26, kTuned}};
constexpr Field kCoreMiscCfg[] = {
    {"SOFT_GATING", 14, 19, kTuned}, {"PROC_PRECISION", 8, 10}, {"DW_EN", 1, 1}, {"QD_EN", 0, 0}};
constexpr Field kCoreDataoutSize0[] = {{"DATAOUT_HEIGHT", 16, 31}, {"DATAOUT_WIDTH", 0, 15}};
constexpr Field kCoreDataoutSize1[] = {{"DATAOUT_CHANNEL", 0, 15}};
constexpr Field kCoreClipTruncate[] = {{"ROUND_TYPE", 6, 6, kTuned}, {"CLIP_TRUNCATE", 0, 4}};
constexpr Field kCoreReserved3030[] = {{"VALUE", 0, 31, kFixed, 0}};
constexpr Field kDpuFeatureModeCfg[] = {{"COMB_USE", 31, 31, kFixed, 0},
                                        {"TP_EN", 30, 30, kFixed, 0},
                                        {"RGP_TYPE", 26, 29, kFixed, 0},
                                        {"NONALIGN", 25, 25, kFixed, 0},
                                        {"SURF_LEN", 9, 24, kFixed, 0},
                                        {"BURST_LEN", 5, 8, kTuned},
                                        {"CONV_MODE", 3, 4},
                                        {"OUTPUT_MODE", 1, 2, kFixed, 2},
                                        {"FLYING_MODE", 0, 0}};
constexpr Field kDpuDataFormat[] = {{"OUT_PRECISION", 29, 31},
                                    {"IN_PRECISION", 26, 28},
                                    {"EW_TRUNCATE_NEG", 16, 25, kFixed, 0},
                                    {"BN_MUL_SHIFT_VALUE_NEG", 10, 15, kFixed, 0},
                                    {"BS_MUL_SHIFT_VALUE_NEG", 4, 9, kFixed, 0},
                                    {"MC_SURF_OUT", 3, 3, kFixed, 0},
                                    {"PROC_PRECISION", 0, 2}};
constexpr Field kDpuOffsetPend[] = {{"OFFSET_PEND", 0, 15, kFixed, 0}};
constexpr Field kDpuDstBaseAddr[] = {{"DST_BASE_ADDR", 0, 31}};
constexpr Field kDpuDstSurfStride[] = {{"DST_SURF_STRIDE", 4, 31}};
constexpr Field kDpuDataCubeWidth[] = {{"WIDTH", 0, 12}};
constexpr Field kDpuDataCubeHeight[] = {{"MINMAX_CTL", 22, 24, kFixed, 0}, {"HEIGHT", 0, 12}};
constexpr Field kDpuDataCubeNotchAddr[] = {{"NOTCH_ADDR_1", 16, 28}, {"NOTCH_ADDR_0", 0, 12}};
constexpr Field kDpuDataCubeChannel[] = {{"ORIG_CHANNEL", 16, 28, kTuned}, {"CHANNEL", 0, 12}};
constexpr Field kDpuBsCfg[] = {{"BS_ALU_ALGO", 16, 19},  {"BS_ALU_SRC", 8, 8},   {"BS_RELUX_EN", 7, 7},
                               {"BS_RELU_BYPASS", 6, 6}, {"BS_MUL_PRELU", 5, 5}, {"BS_MUL_BYPASS", 4, 4},
                               {"BS_ALU_BYPASS", 1, 1},  {"BS_BYPASS", 0, 0}};
constexpr Field kDpuBsAluCfg[] = {{"BS_ALU_OPERAND", 0, 31}};
constexpr Field kDpuBsMulCfg[] = {
    {"BS_MUL_OPERAND", 16, 31}, {"BS_MUL_SHIFT_VALUE", 8, 13}, {"BS_TRUNCATE_SRC", 1, 1}, {"BS_MUL_SRC", 0, 0}};
constexpr Field kDpuBsReluxCmpValue[] = {{"BS_RELUX_CMP_DAT", 0, 31}};
constexpr Field kDpuBsOwCfg[] = {{"RGP_CNTER", 28, 31, kFixed, 0},
                                 {"TP_ORG_EN", 27, 27, kFixed, 0},
                                 {"SIZE_E_2", 8, 10},
                                 {"SIZE_E_1", 5, 7},
                                 {"SIZE_E_0", 2, 4},
                                 {"OD_BYPASS", 1, 1},
                                 {"OW_SRC", 0, 0, kFixed, 0}};
constexpr Field kDpuBsOwOp[] = {{"OW_OP", 0, 15}};
constexpr Field kDpuWdmaSize0[] = {
    {"TP_PRECISION", 27, 27, kFixed, 0}, {"SIZE_C_WDMA", 16, 26, kTuned}, {"CHANNEL_WDMA", 0, 12}};
constexpr Field kDpuWdmaSize1[] = {{"HEIGHT_WDMA", 16, 28}, {"WIDTH_WDMA", 0, 12}};
constexpr Field kDpuBnCfg[] = {{"BN_ALU_ALGO", 16, 19},  {"BN_ALU_SRC", 8, 8},   {"BN_RELUX_EN", 7, 7},
                               {"BN_RELU_BYPASS", 6, 6}, {"BN_MUL_PRELU", 5, 5}, {"BN_MUL_BYPASS", 4, 4},
                               {"BN_ALU_BYPASS", 1, 1},  {"BN_BYPASS", 0, 0}};
constexpr Field kDpuBnAluCfg[] = {{"BN_ALU_OPERAND", 0, 31}};
constexpr Field kDpuBnMulCfg[] = {
    {"BN_MUL_OPERAND", 16, 31}, {"BN_MUL_SHIFT_VALUE", 8, 13}, {"BN_TRUNCATE_SRC", 1, 1}, {"BN_MUL_SRC", 0, 0}};
constexpr Field kDpuBnReluxCmpValue[] = {{"BN_RELUX_CMP_DAT", 0, 31}};
constexpr Field kDpuEwCfg[] = {
    {"EW_CVT_TYPE", 31, 31},  {"EW_CVT_ROUND", 30, 30},   {"EW_DATA_MODE", 28, 29}, {"EDATA_SIZE", 22, 23},
    {"EW_EQUAL_EN", 21, 21},  {"EW_BINARY_EN", 20, 20},   {"EW_ALU_ALGO", 16, 19},  {"EW_RELUX_EN", 10, 10},
    {"EW_RELU_BYPASS", 9, 9}, {"EW_OP_CVT_BYPASS", 8, 8}, {"EW_LUT_BYPASS", 7, 7},  {"EW_OP_SRC", 6, 6},
    {"EW_MUL_PRELU", 5, 5},   {"EW_OP_TYPE", 2, 2},       {"EW_OP_BYPASS", 1, 1},   {"EW_BYPASS", 0, 0}};
constexpr Field kDpuEwCvtOffsetValue[] = {{"EW_OP_CVT_OFFSET", 0, 31}};
constexpr Field kDpuEwCvtScaleValue[] = {
    {"EW_TRUNCATE", 22, 31}, {"EW_OP_CVT_SHIFT", 16, 21}, {"EW_OP_CVT_SCALE", 0, 15}};
constexpr Field kDpuEwReluxCmpValue[] = {{"EW_RELUX_CMP_DAT", 0, 31}};
constexpr Field kDpuOutCvtOffset[] = {{"OUT_CVT_OFFSET", 0, 31}};
constexpr Field kDpuOutCvtScale[] = {{"FP32TOFP16_EN", 16, 16}, {"OUT_CVT_SCALE", 0, 15}};
constexpr Field kDpuOutCvtShift[] = {
    {"CVT_TYPE", 31, 31}, {"CVT_ROUND", 30, 30}, {"MINUS_EXP", 12, 19}, {"OUT_CVT_SHIFT", 0, 5}};
constexpr Field kDpuEwOpValue0[] = {{"EW_OPERAND_0", 0, 31, kTuned}};
constexpr Field kDpuEwOpValue1[] = {{"EW_OPERAND_1", 0, 31, kTuned}};
constexpr Field kDpuEwOpValue2[] = {{"EW_OPERAND_2", 0, 31, kTuned}};
constexpr Field kDpuEwOpValue3[] = {{"EW_OPERAND_3", 0, 31, kTuned}};
constexpr Field kDpuEwOpValue4[] = {{"EW_OPERAND_4", 0, 31, kTuned}};
constexpr Field kDpuEwOpValue5[] = {{"EW_OPERAND_5", 0, 31, kTuned}};
constexpr Field kDpuEwOpValue6[] = {{"EW_OPERAND_6", 0, 31, kTuned}};
constexpr Field kDpuEwOpValue7[] = {{"EW_OPERAND_7", 0, 31, kTuned}};
constexpr Field kDpuSurfaceAdd[] = {{"SURF_ADD", 4, 31}};
constexpr Field kDpuLutAccessCfg[] = {
    {"LUT_ACCESS_TYPE", 17, 17, kTuned}, {"LUT_TABLE_ID", 16, 16, kTuned}, {"LUT_ADDR", 0, 9, kTuned}};
constexpr Field kDpuLutAccessData[] = {{"LUT_ACCESS_DATA", 0, 31, kTuned}};
constexpr Field kDpuLutCfg[] = {{"LUT_CAL_SEL", 7, 7, kTuned},        {"LUT_HYBRID_PRIORITY", 6, 6, kTuned},
                                {"LUT_OFLOW_PRIORITY", 5, 5, kTuned}, {"LUT_UFLOW_PRIORITY", 4, 4, kTuned},
                                {"LUT_LO_LE_MUX", 2, 3, kTuned},      {"LUT_EXPAND_EN", 1, 1, kTuned},
                                {"LUT_ROAD_SEL", 0, 0, kTuned}};
constexpr Field kDpuLutInfo[] = {{"LUT_LO_INDEX_SELECT", 16, 23, kTuned}, {"LUT_LE_INDEX_SELECT", 8, 15, kTuned}};
constexpr Field kDpuLutLeStart[] = {{"LUT_LE_START", 0, 31, kTuned}};
constexpr Field kDpuLutLeEnd[] = {{"LUT_LE_END", 0, 31, kTuned}};
constexpr Field kDpuLutLoStart[] = {{"LUT_LO_START", 0, 31, kTuned}};
constexpr Field kDpuLutLoEnd[] = {{"LUT_LO_END", 0, 31, kTuned}};
constexpr Field kDpuLutLeSlopeScale[] = {{"LUT_LE_SLOPE_OFLOW_SCALE", 16, 31, kTuned},
                                         {"LUT_LE_SLOPE_UFLOW_SCALE", 0, 15, kTuned}};
constexpr Field kDpuLutLeSlopeShift[] = {{"LUT_LE_SLOPE_OFLOW_SHIFT", 5, 9, kTuned},
                                         {"LUT_LE_SLOPE_UFLOW_SHIFT", 0, 4, kTuned}};
constexpr Field kDpuLutLoSlopeScale[] = {{"LUT_LO_SLOPE_OFLOW_SCALE", 16, 31, kTuned},
                                         {"LUT_LO_SLOPE_UFLOW_SCALE", 0, 15, kTuned}};
constexpr Field kDpuLutLoSlopeShift[] = {{"LUT_LO_SLOPE_OFLOW_SHIFT", 5, 9, kTuned},
                                         {"LUT_LO_SLOPE_UFLOW_SHIFT", 0, 4, kTuned}};
constexpr Field kRdmaDataCubeHeight[] = {{"EW_LINE_NOTCH_ADDR", 16, 28, kFixed, 0}, {"HEIGHT", 0, 12}};
constexpr Field kRdmaDataCubeChannel[] = {{"CHANNEL", 0, 12}};
constexpr Field kRdmaSrcBaseAddr[] = {{"SRC_BASE_ADDR", 0, 31}};
constexpr Field kRdmaBrdmaCfg[] = {{"BRDMA_DATA_USE", 1, 4}};
constexpr Field kRdmaBsBaseAddr[] = {{"BS_BASE_ADDR", 0, 31}};
constexpr Field kRdmaNrdmaCfg[] = {{"NRDMA_DATA_USE", 1, 4}};
constexpr Field kRdmaBnBaseAddr[] = {{"BN_BASE_ADDR", 0, 31}};
constexpr Field kRdmaErdmaCfg[] = {{"ERDMA_DATA_MODE", 30, 31},           {"ERDMA_SURF_MODE", 29, 29, kFixed, 0},
                                   {"ERDMA_NONALIGN", 28, 28, kFixed, 0}, {"ERDMA_DATA_SIZE", 2, 3},
                                   {"OV4K_BYPASS", 1, 1, kTuned},         {"ERDMA_DISABLE", 0, 0}};
constexpr Field kRdmaEwBaseAddr[] = {{"EW_BASE_ADDR", 0, 31}};
constexpr Field kRdmaEwSurfStride[] = {{"EW_SURF_STRIDE", 4, 31}};
constexpr Field kRdmaFeatureModeCfg[] = {
    {"IN_PRECISION", 15, 17}, {"BURST_LEN", 11, 14, kTuned},         {"COMB_USE", 8, 10}, {"PROC_PRECISION", 5, 7},
    {"MRDMA_DISABLE", 4, 4},  {"MRDMA_FP16TOFP32_EN", 3, 3, kTuned}, {"CONV_MODE", 1, 2}, {"FLYING_MODE", 0, 0}};
constexpr Field kRdmaSrcDmaCfg[] = {{"LINE_NOTCH_ADDR", 19, 31},
                                    {"POOLING_METHOD", 13, 13, kFixed, 0},
                                    {"UNPOOLING_EN", 12, 12, kFixed, 0},
                                    {"KERNEL_STRIDE_HEIGHT", 9, 11, kFixed, 0},
                                    {"KERNEL_STRIDE_WIDTH", 6, 8, kFixed, 0},
                                    {"KERNEL_HEIGHT", 3, 5, kFixed, 0},
                                    {"KERNEL_WIDTH", 0, 2, kFixed, 0}};
constexpr Field kRdmaSurfNotch[] = {{"SURF_NOTCH_ADDR", 4, 31}};
constexpr Field kRdmaPadCfg[] = {
    {"PAD_VALUE", 16, 31, kTuned}, {"PAD_TOP", 4, 6, kFixed, 0}, {"PAD_LEFT", 0, 2, kFixed, 0}};
constexpr Field kRdmaWeight[] = {{"E_WEIGHT", 24, 31, kTuned},
                                 {"N_WEIGHT", 16, 23, kTuned},
                                 {"B_WEIGHT", 8, 15, kTuned},
                                 {"M_WEIGHT", 0, 7, kTuned}};
constexpr Field kRdmaEwSurfNotch[] = {{"EW_SURF_NOTCH", 4, 31}};
constexpr Field kCubeExtent[] = {{"EXTENT", 0, 12}};
constexpr Field kPpuOperationMode[] = {{"INDEX_EN", 30, 30, kFixed, 0},
                                       {"NOTCH_ADDR", 16, 28, kFixed, 0},
                                       {"USE_CNT", 5, 7, kFixed, 0},
                                       {"FLYING_MODE", 4, 4, kFixed, 1},
                                       {"POOLING_METHOD", 0, 1}};
constexpr Field kPpuKernel[] = {{"KERNEL_STRIDE_HEIGHT", 20, 23},
                                {"KERNEL_STRIDE_WIDTH", 16, 19},
                                {"KERNEL_HEIGHT", 8, 11},
                                {"KERNEL_WIDTH", 0, 3}};
constexpr Field kPpuRecip[] = {{"RECIP_KERNEL", 0, 16}};
constexpr Field kPpuPadding[] = {{"PAD_BOTTOM", 12, 14}, {"PAD_RIGHT", 8, 10}, {"PAD_TOP", 4, 6}, {"PAD_LEFT", 0, 2}};
constexpr Field kPpuPadValue1[] = {{"PAD_VALUE_0", 0, 31}};
constexpr Field kPpuPadValue2[] = {{"PAD_VALUE_1", 0, 2, kFixed, 0}};
constexpr Field kPpuDstBaseAddr[] = {{"DST_BASE_ADDR", 0, 31}};
constexpr Field kPpuStride[] = {{"STRIDE", 4, 31}};
constexpr Field kPpuDataFormat[] = {
    {"INDEX_ADD", 4, 31, kTuned}, {"DPU_FLYIN", 3, 3, kFixed, 0}, {"PROC_PRECISION", 0, 2}};
constexpr Field kPpuMiscCtrl[] = {{"SURF_LEN", 16, 31, kFixed, 0},
                                  {"MC_SURF_OUT", 8, 8, kFixed, 0},
                                  {"NONALIGN", 7, 7, kFixed, 0},
                                  {"BURST_LEN", 0, 3, kTuned}};
constexpr Field kPpuRdmaDataFormat[] = {{"IN_PRECISION", 0, 1}};
constexpr Field kGlobalOperationEnable[] = {{"PPU_RDMA_OP_EN", 6, 6}, {"PPU_OP_EN", 5, 5},  {"DPU_RDMA_OP_EN", 4, 4},
                                            {"DPU_OP_EN", 3, 3},      {"CORE_OP_EN", 2, 2}, {"CNA_OP_EN", 0, 0}};

// Reset values other than 0: VERSION as mainline's rocket prints it at probe; BS, BN and EW start bypassed, which
// programs that leave these registers alone rely on (allbilly/rk3588 elementwise.py).
constexpr Register kRegisters[] = {
    {0x0000, Block::kPc, "VERSION", 0x46495245, kPcVersion, false},
    {0x0004, Block::kPc, "VERSION_NUM", 0, kPcVersionNum, false},
    {0x0008, Block::kPc, "OPERATION_ENABLE", 0, kPcOperationEnable, false},
    {0x0010, Block::kPc, "BASE_ADDRESS", 1, kPcBaseAddress, false},
    {0x0014, Block::kPc, "REGISTER_AMOUNTS", 0, kPcRegisterAmounts, false},
    {0x0020, Block::kPc, "INTERRUPT_MASK", 0x8001ffff, kInterruptFields, false},
    {0x0024, Block::kPc, "INTERRUPT_CLEAR", 0, kInterruptFields, false},
    {0x0028, Block::kPc, "INTERRUPT_STATUS", 0, kInterruptFields, false},
    {0x002c, Block::kPc, "INTERRUPT_RAW_STATUS", 0, kInterruptFields, false},
    {0x0030, Block::kPc, "TASK_CON", 0, kPcTaskCon, false},
    {0x0034, Block::kPc, "TASK_DMA_BASE_ADDR", 0, kPcTaskDmaBaseAddr, false},
    {0x003c, Block::kPc, "TASK_STATUS", 0x5000, kPcTaskStatus, false},
    {0x1000, Block::kCna, "S_STATUS", 0, kStatusFields, false},
    {0x1004, Block::kCna, "S_POINTER", 0, kPointerFields, false},
    {0x1008, Block::kCna, "OPERATION_ENABLE", 0, kOpEnFields, false},
    {0x100c, Block::kCna, "CONV_CON1", 0, kCnaConvCon1},
    {0x1010, Block::kCna, "CONV_CON2", 0, kCnaConvCon2},
    {0x1014, Block::kCna, "CONV_CON3", 0, kCnaConvCon3},
    {0x1020, Block::kCna, "DATA_SIZE0", 0, kCnaDataSize0},
    {0x1024, Block::kCna, "DATA_SIZE1", 0, kCnaDataSize1},
    {0x1028, Block::kCna, "DATA_SIZE2", 0, kCnaDataSize2},
    {0x102c, Block::kCna, "DATA_SIZE3", 0, kCnaDataSize3},
    {0x1030, Block::kCna, "WEIGHT_SIZE0", 0, kCnaWeightSize0},
    {0x1034, Block::kCna, "WEIGHT_SIZE1", 0, kCnaWeightSize1},
    {0x1038, Block::kCna, "WEIGHT_SIZE2", 0, kCnaWeightSize2},
    {0x1040, Block::kCna, "CBUF_CON0", 0, kCnaCbufCon0},
    {0x1044, Block::kCna, "CBUF_CON1", 0, kCnaCbufCon1},
    {0x104c, Block::kCna, "CVT_CON0", 0, kCnaCvtCon0},
    {0x1050, Block::kCna, "CVT_CON1", 0, kCnaCvtCon1},
    {0x1054, Block::kCna, "CVT_CON2", 0, kCnaCvtCon2},
    {0x1058, Block::kCna, "CVT_CON3", 0, kCnaCvtCon3},
    {0x105c, Block::kCna, "CVT_CON4", 0, kCnaCvtCon4},
    {0x1060, Block::kCna, "FC_CON0", 0, kCnaFcCon0},
    {0x1064, Block::kCna, "FC_CON1", 0, kCnaFcCon1},
    {0x1068, Block::kCna, "PAD_CON0", 0, kCnaPadCon0},
    {0x1070, Block::kCna, "FEATURE_DATA_ADDR", 0, kCnaFeatureDataAddr},
    {0x1074, Block::kCna, "FC_CON2", 0, kCnaFcCon2},
    {0x1078, Block::kCna, "DMA_CON0", 0, kCnaDmaCon0},
    {0x107c, Block::kCna, "DMA_CON1", 0, kCnaDmaCon1},
    {0x1080, Block::kCna, "DMA_CON2", 0, kCnaDmaCon2},
    {0x1084, Block::kCna, "FC_DATA_SIZE0", 0, kCnaFcDataSize0},
    {0x1088, Block::kCna, "FC_DATA_SIZE1", 0, kCnaFcDataSize1},
    {0x1090, Block::kCna, "CLK_GATE", 0, kCnaClkGate},
    {0x1100, Block::kCna, "DCOMP_CTRL", 0, kCnaDcompCtrl},
    {0x1104, Block::kCna, "DCOMP_REGNUM", 0, kCnaDcompRegnum},
    {0x1110, Block::kCna, "DCOMP_ADDR0", 0, kCnaDcompAddr0},
    {0x1140, Block::kCna, "DCOMP_AMOUNT0", 0, kCnaDcompAmount0},
    {0x1144, Block::kCna, "DCOMP_AMOUNT1", 0, kCnaDcompAmount1},
    {0x1148, Block::kCna, "DCOMP_AMOUNT2", 0, kCnaDcompAmount2},
    {0x114c, Block::kCna, "DCOMP_AMOUNT3", 0, kCnaDcompAmount3},
    {0x1150, Block::kCna, "DCOMP_AMOUNT4", 0, kCnaDcompAmount4},
    {0x1154, Block::kCna, "DCOMP_AMOUNT5", 0, kCnaDcompAmount5},
    {0x1158, Block::kCna, "DCOMP_AMOUNT6", 0, kCnaDcompAmount6},
    {0x115c, Block::kCna, "DCOMP_AMOUNT7", 0, kCnaDcompAmount7},
    {0x1160, Block::kCna, "DCOMP_AMOUNT8", 0, kCnaDcompAmount8},
    {0x1164, Block::kCna, "DCOMP_AMOUNT9", 0, kCnaDcompAmount9},
    {0x1168, Block::kCna, "DCOMP_AMOUNT10", 0, kCnaDcompAmount10},
    {0x116c, Block::kCna, "DCOMP_AMOUNT11", 0, kCnaDcompAmount11},
    {0x1170, Block::kCna, "DCOMP_AMOUNT12", 0, kCnaDcompAmount12},
    {0x1174, Block::kCna, "DCOMP_AMOUNT13", 0, kCnaDcompAmount13},
    {0x1178, Block::kCna, "DCOMP_AMOUNT14", 0, kCnaDcompAmount14},
    {0x117c, Block::kCna, "DCOMP_AMOUNT15", 0, kCnaDcompAmount15},
    {0x1180, Block::kCna, "CVT_CON5", 0, kCnaCvtCon5},
    {0x1184, Block::kCna, "PAD_CON1", 0, kCnaPadCon1},
    {0x3000, Block::kCore, "S_STATUS", 0, kStatusFields, false},
    {0x3004, Block::kCore, "S_POINTER", 0, kPointerFields, false},
    {0x3008, Block::kCore, "OPERATION_ENABLE", 0, kOpEnFields, false},
    {0x300c, Block::kCore, "MAC_GATING", 0, kCoreMacGating},
    {0x3010, Block::kCore, "MISC_CFG", 0, kCoreMiscCfg},
    {0x3014, Block::kCore, "DATAOUT_SIZE_0", 0, kCoreDataoutSize0},
    {0x3018, Block::kCore, "DATAOUT_SIZE_1", 0, kCoreDataoutSize1},
    {0x301c, Block::kCore, "CLIP_TRUNCATE", 0, kCoreClipTruncate},
    {0x3030, Block::kCore, "RESERVED_3030", 0, kCoreReserved3030},
    {0x4000, Block::kDpu, "S_STATUS", 0, kStatusFields, false},
    {0x4004, Block::kDpu, "S_POINTER", 0, kPointerFields, false},
    {0x4008, Block::kDpu, "OPERATION_ENABLE", 0, kOpEnFields, false},
    {0x400c, Block::kDpu, "FEATURE_MODE_CFG", 0, kDpuFeatureModeCfg},
    {0x4010, Block::kDpu, "DATA_FORMAT", 0, kDpuDataFormat},
    {0x4014, Block::kDpu, "OFFSET_PEND", 0, kDpuOffsetPend},
    {0x4020, Block::kDpu, "DST_BASE_ADDR", 0, kDpuDstBaseAddr},
    {0x4024, Block::kDpu, "DST_SURF_STRIDE", 0, kDpuDstSurfStride},
    {0x4030, Block::kDpu, "DATA_CUBE_WIDTH", 0, kDpuDataCubeWidth},
    {0x4034, Block::kDpu, "DATA_CUBE_HEIGHT", 0, kDpuDataCubeHeight},
    {0x4038, Block::kDpu, "DATA_CUBE_NOTCH_ADDR", 0, kDpuDataCubeNotchAddr},
    {0x403c, Block::kDpu, "DATA_CUBE_CHANNEL", 0, kDpuDataCubeChannel},
    {0x4040, Block::kDpu, "BS_CFG", 0x53, kDpuBsCfg},
    {0x4044, Block::kDpu, "BS_ALU_CFG", 0, kDpuBsAluCfg},
    {0x4048, Block::kDpu, "BS_MUL_CFG", 0, kDpuBsMulCfg},
    {0x404c, Block::kDpu, "BS_RELUX_CMP_VALUE", 0, kDpuBsReluxCmpValue},
    {0x4050, Block::kDpu, "BS_OW_CFG", 0, kDpuBsOwCfg},
    {0x4054, Block::kDpu, "BS_OW_OP", 0, kDpuBsOwOp},
    {0x4058, Block::kDpu, "WDMA_SIZE_0", 0, kDpuWdmaSize0},
    {0x405c, Block::kDpu, "WDMA_SIZE_1", 0, kDpuWdmaSize1},
    {0x4060, Block::kDpu, "BN_CFG", 0x53, kDpuBnCfg},
    {0x4064, Block::kDpu, "BN_ALU_CFG", 0, kDpuBnAluCfg},
    {0x4068, Block::kDpu, "BN_MUL_CFG", 0, kDpuBnMulCfg},
    {0x406c, Block::kDpu, "BN_RELUX_CMP_VALUE", 0, kDpuBnReluxCmpValue},
    {0x4070, Block::kDpu, "EW_CFG", 0x383, kDpuEwCfg},
    {0x4074, Block::kDpu, "EW_CVT_OFFSET_VALUE", 0, kDpuEwCvtOffsetValue},
    {0x4078, Block::kDpu, "EW_CVT_SCALE_VALUE", 0x1, kDpuEwCvtScaleValue},
    {0x407c, Block::kDpu, "EW_RELUX_CMP_VALUE", 0, kDpuEwReluxCmpValue},
    {0x4080, Block::kDpu, "OUT_CVT_OFFSET", 0, kDpuOutCvtOffset},
    {0x4084, Block::kDpu, "OUT_CVT_SCALE", 0, kDpuOutCvtScale},
    {0x4088, Block::kDpu, "OUT_CVT_SHIFT", 0, kDpuOutCvtShift},
    {0x4090, Block::kDpu, "EW_OP_VALUE_0", 0, kDpuEwOpValue0},
    {0x4094, Block::kDpu, "EW_OP_VALUE_1", 0, kDpuEwOpValue1},
    {0x4098, Block::kDpu, "EW_OP_VALUE_2", 0, kDpuEwOpValue2},
    {0x409c, Block::kDpu, "EW_OP_VALUE_3", 0, kDpuEwOpValue3},
    {0x40a0, Block::kDpu, "EW_OP_VALUE_4", 0, kDpuEwOpValue4},
    {0x40a4, Block::kDpu, "EW_OP_VALUE_5", 0, kDpuEwOpValue5},
    {0x40a8, Block::kDpu, "EW_OP_VALUE_6", 0, kDpuEwOpValue6},
    {0x40ac, Block::kDpu, "EW_OP_VALUE_7", 0, kDpuEwOpValue7},
    {0x40c0, Block::kDpu, "SURFACE_ADD", 0, kDpuSurfaceAdd},
    {0x40c4, Block::kDpu, "RESERVED_40C4", 0, kCoreReserved3030},
    {0x4100, Block::kDpu, "LUT_ACCESS_CFG", 0, kDpuLutAccessCfg},
    {0x4104, Block::kDpu, "LUT_ACCESS_DATA", 0, kDpuLutAccessData},
    {0x4108, Block::kDpu, "LUT_CFG", 0, kDpuLutCfg},
    {0x410c, Block::kDpu, "LUT_INFO", 0, kDpuLutInfo},
    {0x4110, Block::kDpu, "LUT_LE_START", 0, kDpuLutLeStart},
    {0x4114, Block::kDpu, "LUT_LE_END", 0, kDpuLutLeEnd},
    {0x4118, Block::kDpu, "LUT_LO_START", 0, kDpuLutLoStart},
    {0x411c, Block::kDpu, "LUT_LO_END", 0, kDpuLutLoEnd},
    {0x4120, Block::kDpu, "LUT_LE_SLOPE_SCALE", 0, kDpuLutLeSlopeScale},
    {0x4124, Block::kDpu, "LUT_LE_SLOPE_SHIFT", 0, kDpuLutLeSlopeShift},
    {0x4128, Block::kDpu, "LUT_LO_SLOPE_SCALE", 0, kDpuLutLoSlopeScale},
    {0x412c, Block::kDpu, "LUT_LO_SLOPE_SHIFT", 0, kDpuLutLoSlopeShift},
    {0x5000, Block::kRdma, "S_STATUS", 0, kStatusFields, false},
    {0x5004, Block::kRdma, "S_POINTER", 0, kPointerFields, false},
    {0x5008, Block::kRdma, "OPERATION_ENABLE", 0, kOpEnFields, false},
    {0x500c, Block::kRdma, "DATA_CUBE_WIDTH", 0, kDpuDataCubeWidth},
    {0x5010, Block::kRdma, "DATA_CUBE_HEIGHT", 0, kRdmaDataCubeHeight},
    {0x5014, Block::kRdma, "DATA_CUBE_CHANNEL", 0, kRdmaDataCubeChannel},
    {0x5018, Block::kRdma, "SRC_BASE_ADDR", 0, kRdmaSrcBaseAddr},
    {0x501c, Block::kRdma, "BRDMA_CFG", 0, kRdmaBrdmaCfg},
    {0x5020, Block::kRdma, "BS_BASE_ADDR", 0, kRdmaBsBaseAddr},
    {0x5028, Block::kRdma, "NRDMA_CFG", 0, kRdmaNrdmaCfg},
    {0x502c, Block::kRdma, "BN_BASE_ADDR", 0, kRdmaBnBaseAddr},
    {0x5034, Block::kRdma, "ERDMA_CFG", 0, kRdmaErdmaCfg},
    {0x5038, Block::kRdma, "EW_BASE_ADDR", 0, kRdmaEwBaseAddr},
    {0x5040, Block::kRdma, "EW_SURF_STRIDE", 0, kRdmaEwSurfStride},
    {0x5044, Block::kRdma, "FEATURE_MODE_CFG", 0, kRdmaFeatureModeCfg},
    {0x5048, Block::kRdma, "SRC_DMA_CFG", 0, kRdmaSrcDmaCfg},
    {0x504c, Block::kRdma, "SURF_NOTCH", 0, kRdmaSurfNotch},
    {0x5064, Block::kRdma, "PAD_CFG", 0, kRdmaPadCfg},
    {0x5068, Block::kRdma, "WEIGHT", 0, kRdmaWeight},
    {0x506c, Block::kRdma, "EW_SURF_NOTCH", 0, kRdmaEwSurfNotch},
    {0x6000, Block::kPpu, "S_STATUS", 0, kStatusFields, false},
    {0x6004, Block::kPpu, "S_POINTER", 0, kPointerFields, false},
    {0x6008, Block::kPpu, "OPERATION_ENABLE", 0, kOpEnFields, false},
    {0x600c, Block::kPpu, "DATA_CUBE_IN_WIDTH", 0, kCubeExtent},
    {0x6010, Block::kPpu, "DATA_CUBE_IN_HEIGHT", 0, kCubeExtent},
    {0x6014, Block::kPpu, "DATA_CUBE_IN_CHANNEL", 0, kCubeExtent},
    {0x6018, Block::kPpu, "DATA_CUBE_OUT_WIDTH", 0, kCubeExtent},
    {0x601c, Block::kPpu, "DATA_CUBE_OUT_HEIGHT", 0, kCubeExtent},
    {0x6020, Block::kPpu, "DATA_CUBE_OUT_CHANNEL", 0, kCubeExtent},
    {0x6024, Block::kPpu, "OPERATION_MODE_CFG", 0, kPpuOperationMode},
    {0x6034, Block::kPpu, "POOLING_KERNEL_CFG", 0, kPpuKernel},
    {0x6038, Block::kPpu, "RECIP_KERNEL_WIDTH", 0, kPpuRecip},
    {0x603c, Block::kPpu, "RECIP_KERNEL_HEIGHT", 0, kPpuRecip},
    {0x6040, Block::kPpu, "POOLING_PADDING_CFG", 0, kPpuPadding},
    {0x6044, Block::kPpu, "PADDING_VALUE_1_CFG", 0, kPpuPadValue1},
    {0x6048, Block::kPpu, "PADDING_VALUE_2_CFG", 0, kPpuPadValue2},
    {0x6070, Block::kPpu, "DST_BASE_ADDR", 0, kPpuDstBaseAddr},
    {0x607c, Block::kPpu, "DST_SURF_STRIDE", 0, kPpuStride},
    {0x6084, Block::kPpu, "DATA_FORMAT", 0, kPpuDataFormat},
    {0x60dc, Block::kPpu, "MISC_CTRL", 0, kPpuMiscCtrl},
    {0x7000, Block::kPpuRdma, "S_STATUS", 0, kStatusFields, false},
    {0x7004, Block::kPpuRdma, "S_POINTER", 0, kPointerFields, false},
    {0x7008, Block::kPpuRdma, "OPERATION_ENABLE", 0, kOpEnFields, false},
    {0x700c, Block::kPpuRdma, "CUBE_IN_WIDTH", 0, kCubeExtent},
    {0x7010, Block::kPpuRdma, "CUBE_IN_HEIGHT", 0, kCubeExtent},
    {0x7014, Block::kPpuRdma, "CUBE_IN_CHANNEL", 0, kCubeExtent},
    {0x701c, Block::kPpuRdma, "SRC_BASE_ADDR", 0, kRdmaSrcBaseAddr},
    {0x7024, Block::kPpuRdma, "SRC_LINE_STRIDE", 0, kPpuStride},
    {0x7028, Block::kPpuRdma, "SRC_SURF_STRIDE", 0, kPpuStride},
    {0x7030, Block::kPpuRdma, "DATA_FORMAT", 0, kPpuRdmaDataFormat},
    {0xf008, Block::kGlobal, "OPERATION_ENABLE", 0, kGlobalOperationEnable, false},
};

static_assert(std::ranges::is_sorted(kRegisters, {}, &Register::offset));
static_assert(std::size(kRegisters) <= RegisterFile::kSlots);

// Slot of each register by offset / 4; 0xff where there is none. The banked blocks lie below 0x7100.
constexpr size_t kIndexed = 0x7100 / 4;
constexpr auto kSlotOf = [] {
  std::array<uint8_t, kIndexed> slots{};
  slots.fill(0xff);
  for (size_t i = 0; i < std::size(kRegisters); ++i) {
    if (kRegisters[i].offset / 4u < kIndexed) slots[kRegisters[i].offset / 4] = static_cast<uint8_t>(i);
  }
  return slots;
}();

int slot_of(uint16_t offset) {
  if (offset % 4 != 0) return -1;
  if (offset / 4u < kIndexed) {
    const uint8_t slot = kSlotOf[offset / 4];
    return slot == 0xff ? -1 : slot;
  }
  for (size_t i = std::size(kRegisters); i > 0 && kRegisters[i - 1].offset >= offset; --i) {
    if (kRegisters[i - 1].offset == offset) return static_cast<int>(i - 1);
  }
  return -1;
}

}  // namespace

std::string_view block_name(Block block) {
  switch (block) {
    case Block::kPc:
      return "PC";
    case Block::kCna:
      return "CNA";
    case Block::kCore:
      return "CORE";
    case Block::kDpu:
      return "DPU";
    case Block::kRdma:
      return "DPU_RDMA";
    case Block::kPpu:
      return "PPU";
    case Block::kPpuRdma:
      return "PPU_RDMA";
    case Block::kGlobal:
      return "GLOBAL";
  }
  return "?";
}

Target block_target(Block block) {
  switch (block) {
    case Block::kPc:
      return Target::kPc;
    case Block::kCna:
      return Target::kCna;
    case Block::kCore:
      return Target::kCore;
    case Block::kDpu:
      return Target::kDpu;
    case Block::kRdma:
      return Target::kRdma;
    case Block::kPpu:
      return Target::kPpu;
    case Block::kPpuRdma:
      return Target::kPpuRdma;
    case Block::kGlobal:
      return Target::kNone;
  }
  return Target::kNone;
}

std::span<const Register> registers() { return kRegisters; }

const Register* find_register(uint16_t offset) {
  const int slot = slot_of(offset);
  return slot < 0 ? nullptr : &kRegisters[slot];
}

std::string qualified_name(const Register& reg) { return std::string(block_name(reg.block)) + "." + reg.name; }

const Register* find_register(std::string_view name) {
  const auto found = std::ranges::find_if(kRegisters, [&](const Register& r) { return qualified_name(r) == name; });
  return found == std::end(kRegisters) ? nullptr : &*found;
}

RegisterFile::RegisterFile() { reset(); }

uint32_t RegisterFile::get(uint16_t offset) const {
  const int slot = slot_of(offset);
  return slot < 0 ? 0 : values_[slot];
}

bool RegisterFile::set(uint16_t offset, uint32_t value) {
  const int slot = slot_of(offset);
  if (slot < 0) return false;
  values_[slot] = value;
  return true;
}

void RegisterFile::reset(Block block) {
  for (size_t i = 0; i < std::size(kRegisters); ++i) {
    if (kRegisters[i].block == block) values_[i] = kRegisters[i].reset;
  }
}

void RegisterFile::reset() {
  for (size_t i = 0; i < std::size(kRegisters); ++i) values_[i] = kRegisters[i].reset;
}

}  // namespace npud::rknpu
