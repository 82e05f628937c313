// SPDX-License-Identifier: Apache-2.0
#include "devices/rknn/model_file.h"

#include <cstring>
#include <format>
#include <limits>
#include <string_view>

namespace npud::rknn {
namespace {

constexpr std::size_t short_header = 24, long_header = 64;

std::uint64_t read_u64(std::span<const std::byte> bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value |= std::to_integer<std::uint64_t>(bytes[at + i]) << (8 * i);
  return value;
}

}  // namespace

Result<ModelFile> inspect_model_file(std::span<const std::byte> bytes) {
  auto begins = [&](std::string_view magic) {
    return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  auto corrupt = [](std::string why) {
    return fail(ErrorCode::data_loss, std::format("it is no whole .rknn file: {}", why));
  };
  if (begins("CYPTRKNN"))
    return fail(ErrorCode::unimplemented, "it is encrypted, which npud doesn't serve; export it unencrypted");
  if (begins("VPMN"))
    return fail(
        ErrorCode::unimplemented,
        "it is of the first generation (RKNPU1), whose runtime npud doesn't use; convert it with rknn-toolkit2");
  if (!begins(std::string_view("RKNN\0\0\0\0", 8))) return corrupt("it doesn't begin with \"RKNN\"");
  if (bytes.size() < short_header) return corrupt(std::format("it has {} bytes, not even a header", bytes.size()));
  // rknn_init takes the size as 32 bits.
  if (bytes.size() > std::numeric_limits<std::uint32_t>::max())
    return fail(ErrorCode::unimplemented,
                std::format("it has {} bytes; the runtime takes files below 4 GiB", bytes.size()));

  ModelFile file;
  file.version = read_u64(bytes, 8);
  const std::uint64_t data_bytes = read_u64(bytes, 16), kind = file.version & 0xfff;
  if (kind == 0 || file.version > 0x1fff)
    return corrupt(std::format("its header has the version {:#x}, which no toolkit writes", file.version));
  const std::size_t header = kind == 1 ? short_header : long_header;
  if (data_bytes == 0) return corrupt("its model is empty");
  // Each difference is checked before it is taken.
  if (bytes.size() < header + 8 || data_bytes > bytes.size() - header - 8)
    return corrupt(std::format("it has {} bytes, its header speaks of {} of data", bytes.size(), data_bytes));
  const std::size_t after = header + static_cast<std::size_t>(data_bytes);
  const std::uint64_t description_bytes = read_u64(bytes, after);
  if (description_bytes > bytes.size() - after - 8)
    return corrupt(std::format("its description has {} bytes, of which {} are there", description_bytes,
                               bytes.size() - after - 8));
  file.data = bytes.subspan(header, static_cast<std::size_t>(data_bytes));
  file.description = bytes.subspan(after + 8, static_cast<std::size_t>(description_bytes));
  if (file.description.empty() || file.description.front() != std::byte{'{'})
    return corrupt("its description isn't JSON");
  return file;
}

}  // namespace npud::rknn
