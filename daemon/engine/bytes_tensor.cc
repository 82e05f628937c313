// SPDX-License-Identifier: Apache-2.0
#include "engine/bytes_tensor.h"

#include <cstring>
#include <format>

namespace npud {
namespace {

std::uint32_t load_length(const std::byte* at) {
  std::uint32_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | std::to_integer<std::uint32_t>(at[i]);
  return length;
}

}  // namespace

Result<std::vector<std::string_view>> decode_bytes_tensor(std::span<const std::byte> raw, std::uint64_t count) {
  if (count > raw.size() / 4) {
    return fail(ErrorCode::invalid_argument, std::format("{} strings need at least {} bytes of lengths, there are {}",
                                                         count, count * 4, raw.size()));
  }
  std::vector<std::string_view> elements;
  elements.reserve(count);
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (raw.size() - at < 4)
      return fail(ErrorCode::invalid_argument, std::format("string {} of {} has no length", i, count));
    const std::uint32_t length = load_length(raw.data() + at);
    at += 4;
    if (raw.size() - at < length) {
      return fail(ErrorCode::invalid_argument, std::format("string {} of {} has a length of {} bytes, {} are left", i,
                                                           count, length, raw.size() - at));
    }
    elements.emplace_back(reinterpret_cast<const char*>(raw.data() + at), length);
    at += length;
  }
  if (at != raw.size()) {
    return fail(ErrorCode::invalid_argument,
                std::format("{} bytes follow the last of {} strings", raw.size() - at, count));
  }
  return elements;
}

Buffer encode_bytes_tensor(std::span<const std::string_view> elements) {
  std::size_t size = 0;
  for (auto element : elements) size += 4 + element.size();
  Buffer buffer = Buffer::allocate(size);
  std::byte* at = buffer.bytes().data();
  for (auto element : elements) {
    const auto length = static_cast<std::uint32_t>(element.size());
    for (int i = 0; i < 4; ++i) *at++ = static_cast<std::byte>(length >> (8 * i));
    if (!element.empty()) std::memcpy(at, element.data(), element.size());
    at += element.size();
  }
  return buffer;
}

std::size_t bytes_tensor_prefix(std::span<const std::byte> raw, std::uint64_t count) {
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) at += 4 + load_length(raw.data() + at);
  return at;
}

}  // namespace npud
