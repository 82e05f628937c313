// SPDX-License-Identifier: Apache-2.0
// Tensors as a client holds them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "npud/error.h"

namespace npud::client {

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

[[nodiscard]] std::string_view data_type_name(DataType type);  // "FP32"
[[nodiscard]] std::optional<DataType> data_type_from_name(std::string_view name);
[[nodiscard]] std::size_t data_type_size(DataType type);  // bytes of an element; 0 for `bytes`
// Elements of a shape; fails for negative dimensions and beyond 2^48.
[[nodiscard]] Result<std::uint64_t> element_count(std::span<const std::int64_t> shape);
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);  // "[1,3,48,320]"

template <class T>
struct DataTypeOf;
template <>
struct DataTypeOf<bool> {
  static constexpr auto value = DataType::boolean;
};
template <>
struct DataTypeOf<std::uint8_t> {
  static constexpr auto value = DataType::uint8;
};
template <>
struct DataTypeOf<std::uint16_t> {
  static constexpr auto value = DataType::uint16;
};
template <>
struct DataTypeOf<std::uint32_t> {
  static constexpr auto value = DataType::uint32;
};
template <>
struct DataTypeOf<std::uint64_t> {
  static constexpr auto value = DataType::uint64;
};
template <>
struct DataTypeOf<std::int8_t> {
  static constexpr auto value = DataType::int8;
};
template <>
struct DataTypeOf<std::int16_t> {
  static constexpr auto value = DataType::int16;
};
template <>
struct DataTypeOf<std::int32_t> {
  static constexpr auto value = DataType::int32;
};
template <>
struct DataTypeOf<std::int64_t> {
  static constexpr auto value = DataType::int64;
};
template <>
struct DataTypeOf<float> {
  static constexpr auto value = DataType::fp32;
};
template <>
struct DataTypeOf<double> {
  static constexpr auto value = DataType::fp64;
};

// A piece of a registered shared memory region (npud/shared_memory.h).
struct RegionSpan {
  std::string region;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

// Row-major and dense; `data` in the protocol's raw form (little-endian elements; for `bytes` a 4-byte length and the
// data, each). With `shared`, the data lies there and `data` is empty.
struct Tensor {
  std::string name;
  DataType type = DataType::fp32;
  std::vector<std::int64_t> shape;
  std::string data;
  std::optional<RegionSpan> shared;

  template <class T>
  static Tensor of(std::string name, std::vector<std::int64_t> shape, std::span<const T> values) {
    return {std::move(name),
            DataTypeOf<T>::value,
            std::move(shape),
            std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes()),
            {}};
  }
  static Tensor of_strings(std::string name, std::vector<std::int64_t> shape, std::span<const std::string> values);

  // A copy of the elements as T; fails when T isn't the tensor's type or the bytes aren't a whole number of them.
  template <class T>
  Result<std::vector<T>> values() const {
    if (type != DataTypeOf<T>::value || data.size() % sizeof(T) != 0)
      return fail(Code::invalid_argument, mismatch(DataTypeOf<T>::value));
    std::vector<T> out(data.size() / sizeof(T));
    if (!out.empty()) __builtin_memcpy(out.data(), data.data(), data.size());
    return out;
  }
  Result<std::vector<std::string>> strings() const;

 private:
  std::string mismatch(DataType wanted) const;
};

// vector<bool> has no data(): booleans are bytes.
template <>
inline Result<std::vector<bool>> Tensor::values<bool>() const {
  if (type != DataType::boolean) return fail(Code::invalid_argument, mismatch(DataType::boolean));
  return std::vector<bool>(data.begin(), data.end());
}

}  // namespace npud::client
