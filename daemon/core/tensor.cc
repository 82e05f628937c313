// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <array>
#include <cassert>
#include <cstring>
#include <format>
#include <new>

namespace npud {
namespace {

struct TypeRow {
  std::string_view name;
  std::size_t size_bytes;
};

// In the order of DataType.
constexpr std::array<TypeRow, 14> types{{
    {"BOOL", 1},
    {"UINT8", 1},
    {"UINT16", 2},
    {"UINT32", 4},
    {"UINT64", 8},
    {"INT8", 1},
    {"INT16", 2},
    {"INT32", 4},
    {"INT64", 8},
    {"FP16", 2},
    {"BF16", 2},
    {"FP32", 4},
    {"FP64", 8},
    {"BYTES", 0},
}};
static_assert(static_cast<std::size_t>(DataType::bytes) + 1 == types.size());

constexpr std::uint64_t max_elements = std::uint64_t{1} << 48;
constexpr std::size_t alignment_bytes = 64;

}  // namespace

std::string_view data_type_name(DataType type) { return types.at(static_cast<std::size_t>(type)).name; }

std::optional<DataType> data_type_from_name(std::string_view name) {
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i].name == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

std::size_t data_type_size(DataType type) { return types.at(static_cast<std::size_t>(type)).size_bytes; }

Result<std::uint64_t> element_count(std::span<const std::int64_t> shape) {
  bool has_zero = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) {
      return fail(
          ErrorCode::invalid_argument,
          std::format("shape {} has a negative dimension; every dimension must be 0 or more", shape_text(shape)));
    }
    has_zero |= dimension == 0;
  }
  if (has_zero) return 0;
  std::uint64_t count = 1;
  for (const std::int64_t dimension : shape) {
    if (static_cast<std::uint64_t>(dimension) > max_elements / count) {
      return fail(ErrorCode::invalid_argument, std::format("shape {} has more than 2^48 elements", shape_text(shape)));
    }
    count *= static_cast<std::uint64_t>(dimension);
  }
  return count;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i == 16 && shape.size() > 17) {
      text += std::format(",… {} more", shape.size() - i);
      break;
    }
    if (i != 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

Buffer Buffer::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return {};
  constexpr std::align_val_t alignment{alignment_bytes};
  std::shared_ptr<void> owner(::operator new(size_bytes, alignment),
                              [](void* memory) { ::operator delete(memory, std::align_val_t{alignment_bytes}); });
  auto* first = static_cast<std::byte*>(owner.get());
  return Buffer(std::move(owner), std::span<std::byte>(first, size_bytes));
}

Buffer Buffer::copy_of(std::span<const std::byte> bytes) {
  Buffer copy = allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.bytes_.data(), bytes.data(), bytes.size());
  return copy;
}

Buffer Buffer::slice(std::size_t offset_bytes, std::size_t size_bytes) const {
  assert(offset_bytes <= bytes_.size() && size_bytes <= bytes_.size() - offset_bytes);
  return Buffer(owner_, bytes_.subspan(offset_bytes, size_bytes), fd_, fd_offset_bytes_ + offset_bytes);
}

}  // namespace npud
