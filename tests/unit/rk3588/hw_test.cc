// SPDX-License-Identifier: Apache-2.0
// The knowledge of the hardware that board, planner and disassembler share: words, registers, layouts, limits.
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "devices/rknpu/hw/command.h"
#include "devices/rknpu/hw/disassemble.h"
#include "devices/rknpu/hw/layout.h"
#include "devices/rknpu/hw/predicates.h"
#include "devices/rknpu/hw/registers.h"
#include "devices/rknpu/hw/task.h"

namespace npud::rknpu {
namespace {

TEST(Command, WordsGoBothWays) {
  const Command command{Target::kDpu, 0x4020, 0xdeadbeef};
  EXPECT_EQ(encode(command), 0x1001deadbeef4020u);
  EXPECT_EQ(decode(0x1001deadbeef4020u), command);
}

TEST(Command, AmountsCountPairsOfWordsMinusOne) {
  EXPECT_EQ(amount_for_words(108), 53u);
  EXPECT_EQ(amount_for_words(107), 53u);
  EXPECT_EQ(words_for_amount(53), 108u);
  EXPECT_EQ(words_for_amount(0x10000), 2u);
}

TEST(Registers, AreFoundByOffsetAndName) {
  for (const Register& r : registers()) {
    EXPECT_EQ(find_register(r.offset), &r);
    EXPECT_EQ(find_register(qualified_name(r)), &r);
    uint32_t seen = 0;
    for (const Field& f : r.fields) {
      EXPECT_GE(f.high, f.low) << qualified_name(r) << " " << f.name;
      EXPECT_EQ(seen & f.mask(), 0u) << qualified_name(r) << " " << f.name;
      seen |= f.mask();
    }
  }
  EXPECT_EQ(find_register(uint16_t{0x1002}), nullptr);
  EXPECT_EQ(find_register(uint16_t{0x100d}), nullptr);
  EXPECT_EQ(find_register(uint16_t{0xa000}), nullptr);
  EXPECT_EQ(find_register("CNA.NONSENSE"), nullptr);
  EXPECT_EQ(find_register("DPU_RDMA.ERDMA_CFG")->offset, reg::kRdmaErdmaCfg);
}

TEST(Registers, FilesResetByBlock) {
  RegisterFile file;
  EXPECT_EQ(file.get(reg::kDpuBsCfg), 0x53u);
  EXPECT_TRUE(file.set(reg::kDpuBsCfg, 1));
  EXPECT_TRUE(file.set(reg::kCnaDataSize0, 2));
  EXPECT_FALSE(file.set(0xa000, 1));
  EXPECT_EQ(file.get(0xa000), 0u);
  file.reset(Block::kDpu);
  EXPECT_EQ(file.get(reg::kDpuBsCfg), 0x53u);
  EXPECT_EQ(file.get(reg::kCnaDataSize0), 2u);
  file.reset();
  EXPECT_EQ(file.get(reg::kCnaDataSize0), 0u);
}

TEST(Registers, BlocksHaveNamesAndTargets) {
  EXPECT_EQ(block_name(Block::kPc), "PC");
  EXPECT_EQ(block_name(Block::kGlobal), "GLOBAL");
  EXPECT_EQ(block_target(Block::kPc), Target::kPc);
  EXPECT_EQ(block_target(Block::kGlobal), Target::kNone);
}

// Every element has a place of its own, and no place is left over.
TEST(Layout, IndicesAreBijections) {
  for (const Precision p : {Precision::kInt8, Precision::kFp16}) {
    for (const auto& [n, c, kh, kw] :
         {std::tuple{2u, 16u, 1u, 1u}, {34u, 48u, 3u, 3u}, {64u, 96u, 1u, 5u}, {66u, 32u, 2u, 1u}}) {
      const WeightShape shape{n, c, kh, kw, p};
      std::set<uint64_t> direct, depthwise;
      for (uint32_t y = 0; y < kh; ++y) {
        for (uint32_t x = 0; x < kw; ++x) {
          for (uint32_t i = 0; i < c; ++i) {
            for (uint32_t o = 0; o < n; ++o) direct.insert(weight_index(shape, o, i, y, x));
            depthwise.insert(depthwise_weight_index(shape, i, y, x));
          }
        }
      }
      EXPECT_EQ(direct.size(), static_cast<size_t>(n) * c * kh * kw);
      EXPECT_EQ(*direct.rbegin(), direct.size() - 1);
      EXPECT_EQ(depthwise.size(), static_cast<size_t>(c) * kh * kw);
      EXPECT_EQ(*depthwise.rbegin(), depthwise.size() - 1);
    }
  }
}

// The index formulas that mtx512/rk3588-npu publishes for matrices, with its one-based arguments.
TEST(Layout, MatricesLieAsMtx512Says) {
  const uint32_t c = 96, m = 12;
  for (uint32_t k = 1; k <= c; ++k) {
    for (uint32_t row = 1; row <= m; ++row) {
      EXPECT_EQ(feature_index(k - 1, row - 1, 0, m, 1, 16), (k - 1) / 16 * m * 16 + 16 * (row - 1) + (k - 1) % 16);
    }
    for (uint32_t n = 1; n <= 64; ++n) {
      EXPECT_EQ(weight_index({64, c, 1, 1, Precision::kInt8}, n - 1, k - 1, 0, 0),
                (k - 1) / 32 * 32 * 32 + (n - 1) / 32 * 32 * c + (k - 1) % 32 + (n - 1) % 32 * 32);
      EXPECT_EQ(weight_index({64, c, 1, 1, Precision::kFp16}, n - 1, k - 1, 0, 0),
                (k - 1) / 32 * 32 * 16 + (n - 1) / 16 * 16 * c + (k - 1) % 32 + (n - 1) % 16 * 32);
    }
  }
}

TEST(Layout, AtomsHave16Bytes) {
  EXPECT_EQ(atom_channels(Precision::kInt4), 32u);
  EXPECT_EQ(atom_channels(Precision::kInt8), 16u);
  EXPECT_EQ(atom_channels(Precision::kFp16), 8u);
  EXPECT_EQ(atom_channels(Precision::kBf16), 8u);
  EXPECT_EQ(atom_channels(Precision::kInt32), 4u);
  EXPECT_EQ(atom_channels(Precision::kFp32), 4u);
  EXPECT_EQ(element_bytes(Precision::kInt4), 0u);
}

TEST(Limits, RowsOfAMatrixAsReported) {
  EXPECT_EQ(gemm_max_rows(512, Precision::kInt8), 704u);
  EXPECT_EQ(gemm_max_rows(1024, Precision::kInt8), 320u);
  EXPECT_EQ(gemm_max_rows(2048, Precision::kInt8), 128u);
  EXPECT_EQ(gemm_max_rows(4096, Precision::kInt8), 64u);
  EXPECT_EQ(gemm_max_rows(512, Precision::kFp16), 352u);
  EXPECT_EQ(gemm_max_rows(1024, Precision::kFp16), 176u);
  EXPECT_EQ(gemm_max_rows(32, Precision::kInt8), 2044u);
  EXPECT_EQ(gemm_max_rows(32768, Precision::kInt8), 8u);
  EXPECT_EQ(gemm_max_rows(32800, Precision::kInt8), 0u);
  EXPECT_EQ(gemm_max_rows(0, Precision::kInt8), 0u);
}

// What the row limit allows is accepted, one step more is not, and the banks hold every row.
TEST(Limits, TheRowLimitIsTheBorder) {
  for (const Precision in : {Precision::kInt8, Precision::kFp16}) {
    const Precision out = in == Precision::kInt8 ? Precision::kInt32 : Precision::kFp32;
    for (uint32_t k = 32; k <= 8192; k += 32) {
      if (in == Precision::kFp16 && k == 128) continue;
      const uint32_t rows = gemm_max_rows(k, in);
      if (rows < kMinRows) continue;
      ASSERT_EQ(gemm_refusal({rows, 64, k, in, out}), std::nullopt) << k;
      ASSERT_TRUE(gemm_refusal({rows + 4, 64, k, in, out})) << k;
      const uint32_t banks = feature_banks(1, rows, k, in);
      ASSERT_LE(banks, max_feature_banks(k * element_bytes(in), in)) << k;
      ASSERT_GE(lines_in_banks(banks, 1, k, in), rows) << k;
    }
  }
}

TEST(Limits, MatricesAreRefusedWithTheReason) {
  const GemmShape good{8, 32, 64, Precision::kInt8, Precision::kInt32};
  EXPECT_EQ(gemm_refusal(good), std::nullopt);
  auto refusal = [&](auto&& change) {
    GemmShape shape = good;
    change(shape);
    return gemm_refusal(shape).value_or("");
  };
  EXPECT_NE(refusal([](GemmShape& s) { s.k = 48; }).find("multiple of 32"), std::string::npos);
  EXPECT_NE(refusal([](GemmShape& s) { s.n = 16; }).find("multiple of 32"), std::string::npos);
  EXPECT_NE(refusal([](GemmShape& s) { s.n = 0; }).find("N is 0"), std::string::npos);
  EXPECT_NE(refusal([](GemmShape& s) { s.m = 1; }).find("multiple of 4"), std::string::npos);
  EXPECT_NE(refusal([](GemmShape& s) {
              s.m = 2000;
              s.k = 512;
            }).find("at most 704 rows"),
            std::string::npos);
  EXPECT_NE(refusal([](GemmShape& s) { s.in = Precision::kBf16; }).find("int8 or fp16"), std::string::npos);
  EXPECT_NE(refusal([](GemmShape& s) { s.out = Precision::kFp16; }).find("int32, fp32 or int8"), std::string::npos);
  EXPECT_NE(refusal([](GemmShape& s) { s = {8, 32, 128, Precision::kFp16, Precision::kFp32}; }).find("K is 128"),
            std::string::npos);
  EXPECT_EQ(gemm_refusal({8, 16, 64, Precision::kFp16, Precision::kFp16}), std::nullopt);
}

TEST(Limits, ConvolutionsAreRefusedWithTheReason) {
  const ConvShape good{.width = 8,
                       .height = 8,
                       .channels = 32,
                       .kernels = 32,
                       .kernel_width = 3,
                       .kernel_height = 3,
                       .pad_left = 1,
                       .pad_top = 1,
                       .out_width = 8,
                       .out_height = 8};
  EXPECT_EQ(conv_refusal(good), std::nullopt);
  auto refusal = [&](auto&& change) {
    ConvShape shape = good;
    change(shape);
    return conv_refusal(shape).value_or("");
  };
  auto expect = [&](auto&& change, const char* text) {
    EXPECT_NE(refusal(change).find(text), std::string::npos) << refusal(change);
  };
  expect([](ConvShape& s) { s.in = Precision::kInt4; }, "int8 or fp16");
  expect([](ConvShape& s) { s.out = Precision::kFp16; }, "int32, fp32 or int8");
  expect([](ConvShape& s) { s.depthwise = true; }, "writes the precision it reads");
  expect(
      [](ConvShape& s) {
        s.depthwise = true;
        s.out = Precision::kInt8;
        s.kernels = 16;
      },
      "as many kernels");
  expect([](ConvShape& s) { s.width = 2048; }, "input width is 2048");
  expect([](ConvShape& s) { s.height = 0; }, "input height is 0");
  expect([](ConvShape& s) { s.kernel_width = 32; }, "kernel width is 32");
  expect([](ConvShape& s) { s.stride_y = 8; }, "stride in y is 8");
  expect([](ConvShape& s) { s.pad_left = 16; }, "padding at the left is 16");
  expect([](ConvShape& s) { s.pad_top = 3; }, "smaller than the kernel");
  expect([](ConvShape& s) { s.channels = 24; }, "multiple of 16");
  expect([](ConvShape& s) { s.dilation_x = 33; }, "dilation in x is 33");
  expect([](ConvShape& s) { s.out_width = 10; }, "beyond the input");
  expect([](ConvShape& s) { s.channels = 4096; }, "must fit a CBUF bank");
  expect(
      [](ConvShape& s) {
        s.width = s.out_width = 200;
        s.height = s.out_height = 200;
      },
      "CBUF banks");
}

TEST(Limits, BanksAndEntries) {
  EXPECT_EQ(feature_banks(1, 512, 64, Precision::kInt8), 1u);
  EXPECT_EQ(feature_banks(1, 513, 64, Precision::kInt8), 2u);
  EXPECT_EQ(max_feature_banks(512, Precision::kFp16), 11u);
  EXPECT_EQ(max_feature_banks(513, Precision::kInt8), 10u);
  EXPECT_EQ(max_feature_banks(9999, Precision::kInt8), 8u);
  EXPECT_EQ(feature_banks(1, 500, 64, Precision::kInt8), 1u);
  EXPECT_EQ(lines_in_banks(1, 1, 96, Precision::kInt8), 256u);
  EXPECT_EQ(data_entries(1, 64, Precision::kInt8), 1u);
  EXPECT_EQ(data_entries(40, 48, Precision::kInt8), 30u);
  EXPECT_EQ(data_entries(1, 64, Precision::kFp16), 2u);
}

// Which K of an int8 GEMM lose their last rows when the features get as many banks as their bytes fill, against what
// rockchip-npu-notes cbuf-bank-slack.md measured: these and no others of those it swept.
TEST(Limits, BanksBeyondTheBytesAreNeededExactlyWhereMeasured) {
  auto lack = [](uint32_t rows, uint32_t k, Precision in) {
    const uint64_t bytes = uint64_t{rows} * k * element_bytes(in);
    return feature_banks(1, rows, k, in) > (bytes + kCbufBankBytes - 1) / kCbufBankBytes;
  };
  for (const auto& [rows, bad] : {std::pair{144u, std::set<uint32_t>{7, 21, 35}},
                                  {192u, std::set<uint32_t>{5, 21, 37}},
                                  {240u, std::set<uint32_t>{17, 21, 25, 29}}}) {
    std::set<uint32_t> found;
    for (uint32_t group = 1; group <= 40; ++group) {
      if (lack(rows, group * 32, Precision::kInt8)) found.insert(group);
      EXPECT_FALSE(lack(rows, group * 32, Precision::kFp16)) << rows << " " << group;
    }
    // Sweeps ended where the tiles did; what is measured bad must be there, what lies between must not.
    for (uint32_t group = *bad.begin(); group <= *bad.rbegin(); ++group)
      EXPECT_EQ(found.contains(group), bad.contains(group)) << rows << " " << group;
  }
  // A 1 x 1 convolution over one column of 1184 channels.
  std::set<uint32_t> heights;
  for (uint32_t height = 170; height <= 221; ++height) {
    if (lack(height, 1184, Precision::kInt8)) heights.insert(height);
  }
  std::set<uint32_t> measured;
  for (uint32_t height = 189; height <= 193; ++height) measured.insert(height);
  for (uint32_t height = 216; height <= 221; ++height) measured.insert(height);
  EXPECT_EQ(heights, measured);
}

TEST(Limits, OutputsBeyondTheSafeExtentAreNotPlanned) {
  ConvShape shape{.width = 1, .height = 8, .channels = 32, .kernels = 4096, .out_width = 1, .out_height = 8};
  EXPECT_EQ(conv_refusal(shape), std::nullopt);
  shape.kernels = 4128;
  EXPECT_NE(conv_refusal(shape).value_or("").find("doubted"), std::string::npos);
  EXPECT_EQ(conv_shape_refusal(shape), std::nullopt);
}

TEST(Limits, SurfacesOfAKernelGroup) {
  EXPECT_EQ(surfaces_per_group(Precision::kInt8, Precision::kInt32, false), 8u);
  EXPECT_EQ(surfaces_per_group(Precision::kInt8, Precision::kInt8, false), 2u);
  EXPECT_EQ(surfaces_per_group(Precision::kInt8, Precision::kInt8, true), 4u);
  EXPECT_EQ(surfaces_per_group(Precision::kFp16, Precision::kFp32, false), 4u);
  EXPECT_EQ(surfaces_per_group(Precision::kFp16, Precision::kFp16, false), 2u);
  EXPECT_EQ(surfaces_per_group(Precision::kFp16, Precision::kFp16, true), 4u);
  EXPECT_FALSE(is_output_precision(Precision::kBf16, Precision::kBf16, false));
}

TEST(Violations, OfSingleWords) {
  EXPECT_EQ(command_violation({Target::kNone, 0, 0}), "");
  EXPECT_EQ(command_violation({Target::kFiller, 0, 0}), "");
  EXPECT_EQ(command_violation({Target::kBarrier, 0, 0}), "");
  EXPECT_EQ(command_violation({Target::kEnable, 8, 0x0d}), "");
  EXPECT_EQ(command_violation({Target::kCna, 0x1014, 9}), "");
  EXPECT_NE(command_violation({Target::kEnable, 0x10, 0x0d}), "");
  EXPECT_NE(command_violation({Target::kCsc, 0x1014, 9}), "");
  EXPECT_NE(command_violation({Target::kCna, 0x1014, 1u << 31}), "");
}

// A GEMM of 8 x 64 x 32 in int8, in as few words as it takes.
std::vector<uint64_t> small_gemm() {
  std::vector<uint64_t> words;
  for (const auto& [target, offset, value] :
       std::initializer_list<std::tuple<Target, int, uint32_t>>{{Target::kDpu, 0x4004, 0xe},
                                                                {Target::kCna, 0x1014, 9},
                                                                {Target::kCna, 0x1020, 1 << 16 | 8},
                                                                {Target::kCna, 0x1024, 63 << 16 | 64},
                                                                {Target::kCna, 0x1028, 1},
                                                                {Target::kCna, 0x102c, 8},
                                                                {Target::kCna, 0x1030, 2048},
                                                                {Target::kCna, 0x1034, 64},
                                                                {Target::kCna, 0x1038, 0x01010020},
                                                                {Target::kCna, 0x1040, 0xb1},
                                                                {Target::kCna, 0x1044, 1},
                                                                {Target::kCna, 0x104c, 0xb},
                                                                {Target::kCna, 0x107c, 4},
                                                                {Target::kCna, 0x1080, 4},
                                                                {Target::kCna, 0x1084, 1 << 16 | 8},
                                                                {Target::kCna, 0x1088, 64},
                                                                {Target::kCore, 0x3014, 7 << 16},
                                                                {Target::kCore, 0x3018, 31},
                                                                {Target::kDpu, 0x400c, 0x1e4},
                                                                {Target::kDpu, 0x4010, 4u << 29},
                                                                {Target::kDpu, 0x4024, 128},
                                                                {Target::kDpu, 0x4034, 7},
                                                                {Target::kDpu, 0x403c, 31 << 16 | 31},
                                                                {Target::kDpu, 0x4050, 0x7fe},
                                                                {Target::kDpu, 0x4058, 31},
                                                                {Target::kDpu, 0x405c, 7 << 16},
                                                                {Target::kDpu, 0x4084, 1},
                                                                {Target::kDpu, 0x40c0, 1024},
                                                                {Target::kNone, 0, 0},
                                                                {Target::kPc, 0x14, 0},
                                                                {Target::kBarrier, 0, 0},
                                                                {Target::kEnable, 8, 0x0d}}) {
    words.push_back(encode({target, static_cast<uint16_t>(offset), value}));
  }
  return words;
}

TEST(Disassembly, NamesRegistersAndFields) {
  EXPECT_EQ(disassemble(encode({Target::kCna, 0x1020, 1 << 16 | 8})),
            "CNA.DATA_SIZE0 = 0x00010008\n        DATAIN_WIDTH = 0x1\n        DATAIN_HEIGHT = 0x8");
  EXPECT_EQ(disassemble(encode({Target::kCna, 0x1020, 8}), {.fields = false}), "CNA.DATA_SIZE0 = 0x00000008");
  EXPECT_EQ(disassemble(encode({Target::kCna, 0x1020, 8}), {.zero_fields = true}),
            "CNA.DATA_SIZE0 = 0x00000008\n        DATAIN_WIDTH = 0x0\n        DATAIN_HEIGHT = 0x8");
  EXPECT_EQ(disassemble(encode({Target::kDpu, 0x4020, 0x1000})), "DPU.DST_BASE_ADDR = 0x00001000");
  EXPECT_EQ(disassemble(encode({Target::kEnable, 8, 0x1d})), "enable 0x1d: PC CNA+CORE DPU DPU_RDMA");
  EXPECT_EQ(disassemble(encode({Target::kEnable, 8, 0})), "enable 0x0: nothing");
  EXPECT_EQ(disassemble(uint64_t{0}), "filler");
  EXPECT_EQ(disassemble(encode({Target::kBarrier, 0, 0})), "barrier");
  EXPECT_NE(disassemble(encode({Target::kPpu, 0x1014, 1})).find("another block"), std::string::npos);
  EXPECT_NE(disassemble(encode({Target::kCna, 0x1014, 1u << 31})).find("without a known meaning: 0x80000000"),
            std::string::npos);
}

TEST(Disassembly, SeparatesTasks) {
  std::vector<uint64_t> words = small_gemm();
  EXPECT_EQ(disassemble(words).find("next task"), std::string::npos);
  const std::vector<uint64_t> again = small_gemm();
  words.insert(words.end(), again.begin(), again.end());
  const std::string text = disassemble(words);
  EXPECT_NE(text.find("next task"), std::string::npos);
  EXPECT_EQ(text.find("next task"), text.rfind("next task"));
}

TEST(Disassembly, ChecksTasks) {
  const std::vector<uint64_t> good = small_gemm();
  EXPECT_EQ(check_commands(good), std::vector<std::string>{});
  std::vector<uint64_t> bad = good;
  bad[4] = encode({Target::kCna, 0x1028, 2});
  EXPECT_FALSE(check_commands(bad).empty());
  bad = good;
  bad[0] = encode({Target::kPpu, 0x1014, 1});
  EXPECT_EQ(check_commands(bad).size(), 1u);
  bad = good;
  bad[bad.size() - 2] = 0;
  EXPECT_NE(check_commands(bad).at(0).find("no barrier"), std::string::npos);
  bad = good;
  bad.pop_back();
  EXPECT_NE(check_commands(bad).at(0).find("without an enable word"), std::string::npos);
}

}  // namespace
}  // namespace npud::rknpu
