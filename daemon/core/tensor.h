// SPDX-License-Identifier: Apache-2.0
// Tensors as values: a type, a shape and a piece of memory that somebody keeps alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace npud {

// The Open Inference Protocol's data types.
enum class DataType : std::uint8_t {
  boolean,
  uint8,
  uint16,
  uint32,
  uint64,
  int8,
  int16,
  int32,
  int64,
  fp16,
  bf16,
  fp32,
  fp64,
  bytes,
};

// "FP32"; and back, nullopt for an unknown name.
[[nodiscard]] std::string_view data_type_name(DataType type);
[[nodiscard]] std::optional<DataType> data_type_from_name(std::string_view name);
// Bytes of one element; 0 for `bytes`, whose elements each carry a 4-byte little-endian length.
[[nodiscard]] std::size_t data_type_size(DataType type);

// Number of elements of a shape without -1; fails on negative dimensions and when the product exceeds 2^48.
[[nodiscard]] Result<std::uint64_t> element_count(std::span<const std::int64_t> shape);
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);  // "[1,3,48,-1]"

// A piece of memory that lives as long as somebody holds it. Where it lies in a file (memfd, POSIX shared memory,
// dma-buf) the descriptor comes along, so that a device can take (fd, offset, length) instead of bytes. Copying a
// Buffer copies the reference.
class Buffer {
 public:
  Buffer() = default;
  // Own memory, 64-byte aligned, uninitialised. Empty buffer for 0 bytes; throws std::bad_alloc like new.
  static Buffer allocate(std::size_t size_bytes);
  static Buffer copy_of(std::span<const std::byte> bytes);
  // Memory kept alive by `owner`; `fd` (-1: none) belongs to the owner too.
  Buffer(std::shared_ptr<void> owner, std::span<std::byte> bytes, int fd = -1, std::uint64_t fd_offset_bytes = 0)
      : owner_(std::move(owner)), bytes_(bytes), fd_(fd), fd_offset_bytes_(fd_offset_bytes) {}

  std::span<std::byte> bytes() const { return bytes_; }
  std::size_t size_bytes() const { return bytes_.size(); }
  int fd() const { return fd_; }
  std::uint64_t fd_offset_bytes() const { return fd_offset_bytes_; }
  Buffer slice(std::size_t offset_bytes, std::size_t size_bytes) const;  // precondition: inside

 private:
  std::shared_ptr<void> owner_;
  std::span<std::byte> bytes_;
  int fd_ = -1;
  std::uint64_t fd_offset_bytes_ = 0;
};

// What a model declares: -1 in a shape is a dimension of any size ≥ 0.
struct TensorInfo {
  std::string name;
  DataType type = DataType::fp32;
  std::vector<std::int64_t> shape;
  bool optional = false;
};

// A value: row-major, dense. For DataType::bytes the data is the protocol's raw form (length + bytes, each).
struct Tensor {
  std::string name;
  DataType type = DataType::fp32;
  std::vector<std::int64_t> shape;
  Buffer data;
};

}  // namespace npud
