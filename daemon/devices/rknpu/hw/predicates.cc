// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/hw/predicates.h"

#include <algorithm>
#include <format>

namespace npud::rknpu {
namespace {

constexpr uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

}  // namespace

bool is_compute_precision(Precision in) { return in == Precision::kInt8 || in == Precision::kFp16; }

bool is_input_precision(Precision in) { return is_compute_precision(in) || in == Precision::kBf16; }

bool is_output_precision(Precision in, Precision out, bool depthwise) {
  if (in == Precision::kInt8)
    return out == Precision::kInt8 || ((out == Precision::kInt32 || out == Precision::kFp32) && !depthwise);
  if (in == Precision::kBf16) return out == Precision::kFp32 && !depthwise;
  if (in == Precision::kFp16) return out == Precision::kFp16 || (out == Precision::kFp32 && !depthwise);
  return false;
}

uint32_t surfaces_per_group(Precision in, Precision out, bool depthwise) {
  // A kernel group's channels over the output atom's: 32 / 4, 32 / 16, 16 / 4, 16 / 8; depthwise groups of 64 and 32.
  const uint32_t group = depthwise ? depthwise_group(in) : kernel_group(in);
  return group / atom_channels(out);
}

uint32_t data_entries(uint32_t width, uint32_t channels, Precision in) {
  const uint64_t line_bytes = static_cast<uint64_t>(width) * ceil_div(channels, atom_channels(in)) * kAtomBytes;
  return static_cast<uint32_t>(ceil_div(line_bytes, kCbufEntryBytes));
}

uint32_t feature_banks(uint32_t width, uint32_t height, uint32_t channels, Precision in) {
  const uint64_t entries = static_cast<uint64_t>(height) * data_entries(width, channels, in);
  return static_cast<uint32_t>(std::min<uint64_t>(ceil_div(entries, kCbufBankEntries), UINT32_MAX));
}

uint32_t max_feature_banks(uint32_t kernel_bytes, Precision in) {
  if (in != Precision::kInt8) return kCbufBanks - 1;
  // Rows reported right for int8 GEMMs: 704 at K = 512, 320 at 1024, 128 at 2048, 64 at 4096. So the weights keep a
  // bank for each 512 bytes of a kernel, and four at most.
  return kCbufBanks - std::clamp<uint32_t>(static_cast<uint32_t>(ceil_div(kernel_bytes, 512)), 1, 4);
}

uint32_t lines_in_banks(uint32_t banks, uint32_t width, uint32_t channels, Precision in) {
  return banks * kCbufBankEntries / std::max(data_entries(width, channels, in), 1u);
}

uint32_t gemm_k_multiple(Precision) { return kChannelGroup; }

uint32_t gemm_n_multiple(Precision in) { return kernel_group(in); }

uint32_t gemm_max_rows(uint32_t k, Precision in) {
  const uint64_t row_bytes = static_cast<uint64_t>(k) * element_bytes(in);
  if (row_bytes == 0 || row_bytes > kCbufBankBytes) return 0;
  const uint32_t banks = max_feature_banks(static_cast<uint32_t>(row_bytes), in);
  return std::min(lines_in_banks(banks, 1, k, in), kMaxFeatureExtent) & ~3u;
}

Refusal gemm_refusal(const GemmShape& s, bool short_rows) {
  if (!is_compute_precision(s.in)) return "the input precision must be int8 or fp16";
  if (s.k == 0 || s.k % gemm_k_multiple(s.in) != 0)
    return std::format("K is {}: it must be a multiple of {}", s.k, gemm_k_multiple(s.in));
  if (s.n == 0 || s.n % gemm_n_multiple(s.in) != 0)
    return std::format("N is {}: it must be a multiple of {}", s.n, gemm_n_multiple(s.in));
  const bool is_short = short_rows && s.m > 0 && s.m < kMinRows;
  if (!is_short && (s.m < kMinRows || s.m % 4 != 0)) return std::format("M is {}: it must be a multiple of 4", s.m);
  if (s.in == Precision::kFp16 && s.k == 128) return "K is 128: fp16 GEMMs of that K are reported wrong; pad it to 160";
  if (const uint32_t rows = gemm_max_rows(s.k, s.in); s.m > rows) {
    return std::format("M is {}: the CBUF holds at most {} rows of K = {}", s.m, rows, s.k);
  }
  ConvShape conv{.width = 1,
                 .height = s.m,
                 .channels = s.k,
                 .kernels = s.n,
                 .out_width = 1,
                 .out_height = s.m,
                 .in = s.in,
                 .out = s.out};
  return conv_refusal(conv);
}

uint32_t conv_kernel_bytes(const ConvShape& s) {
  return s.kernel_width * s.kernel_height * s.channels * element_bytes(s.in);
}

uint32_t conv_weight_bytes(const ConvShape& s) { return conv_kernel_bytes(s) * (s.depthwise ? 1 : s.kernels); }

Refusal conv_shape_refusal(const ConvShape& s) {
  if (!is_input_precision(s.in)) return "the input precision must be int8, fp16 or bf16";
  if (!is_output_precision(s.in, s.out, s.depthwise)) {
    return s.depthwise ? "a depthwise convolution writes the precision it reads"
                       : "int8 gives int32, fp32 or int8, fp16 gives fp32 or fp16, bf16 gives fp32";
  }
  auto outside = [](const char* what, uint32_t value, uint32_t low, uint32_t high) -> Refusal {
    if (value >= low && value <= high) return std::nullopt;
    return std::format("{} is {}: it must be {} to {}", what, value, low, high);
  };
  for (const auto& refusal :
       {outside("the input width", s.width, 1, kMaxFeatureExtent),
        outside("the input height", s.height, 1, kMaxFeatureExtent),
        outside("the output width", s.out_width, 1, kMaxFeatureExtent),
        outside("the output height", s.out_height, 1, kMaxCubeExtent),
        outside("the number of channels", s.channels, 1, kMaxChannels),
        outside("the number of kernels", s.kernels, 1, kMaxCubeExtent),
        outside("the kernel width", s.kernel_width, 1, kMaxKernelExtent),
        outside("the kernel height", s.kernel_height, 1, kMaxKernelExtent),
        outside("the stride in x", s.stride_x, 1, kMaxStride), outside("the stride in y", s.stride_y, 1, kMaxStride),
        outside("the dilation in x", s.dilation_x, 1, kMaxDilation),
        outside("the dilation in y", s.dilation_y, 1, kMaxDilation),
        outside("the padding at the left", s.pad_left, 0, kMaxPad),
        outside("the padding at the top", s.pad_top, 0, kMaxPad)}) {
    if (refusal) return refusal;
  }
  if (s.channels % atom_channels(s.in) != 0) {
    return std::format("the number of channels is {}: it must be a multiple of {}", s.channels, atom_channels(s.in));
  }
  if (s.depthwise && s.kernels != s.channels) return "a depthwise convolution has as many kernels as channels";
  if (s.pad_left >= s.reach_x() || s.pad_top >= s.reach_y()) {
    return "the padding must be smaller than the kernel";
  }
  // The last output position must begin inside the padded input, or it would be made of padding alone.
  if ((s.out_width - 1) * s.stride_x >= s.width + s.pad_left ||
      (s.out_height - 1) * s.stride_y >= s.height + s.pad_top) {
    return "the output reaches beyond the input";
  }
  const uint32_t kernel_bytes = conv_kernel_bytes(s);
  if (kernel_bytes > kCbufBankBytes) {
    return std::format("a kernel has {} bytes: it must fit a CBUF bank of {}", kernel_bytes, kCbufBankBytes);
  }
  return std::nullopt;
}

Refusal conv_refusal(const ConvShape& s) {
  if (!is_compute_precision(s.in)) return "the input precision must be int8 or fp16";
  if (auto refusal = conv_shape_refusal(s)) return refusal;
  if (s.kernels > kSafeCubeExtent || s.out_height > kSafeCubeExtent) {
    return std::format("the output has {} channels and {} rows: beyond {} it is doubted", s.kernels, s.out_height,
                       kSafeCubeExtent);
  }
  const uint32_t kernel_bytes = conv_kernel_bytes(s);
  const uint32_t banks = feature_banks(s.width, s.height, s.channels, s.in);
  if (const uint32_t most = max_feature_banks(kernel_bytes, s.in); banks > most) {
    return std::format("the features need {} CBUF banks: at most {} are left beside the weights", banks, most);
  }
  return std::nullopt;
}

}  // namespace npud::rknpu
