// SPDX-License-Identifier: Apache-2.0
#include "npud/tensor.h"

#include <array>
#include <cstring>
#include <format>

namespace npud::client {
namespace {

struct TypeFacts {
  std::string_view name;
  std::size_t size_bytes;
};

// In the order of DataType.
constexpr std::array<TypeFacts, 14> kTypes = {{{"BOOL", 1},
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
                                               {"BYTES", 0}}};
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 48;

}  // namespace

std::string_view data_type_name(DataType type) { return kTypes[static_cast<std::size_t>(type)].name; }

std::size_t data_type_size(DataType type) { return kTypes[static_cast<std::size_t>(type)].size_bytes; }

std::optional<DataType> data_type_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

Result<std::uint64_t> element_count(std::span<const std::int64_t> shape) {
  std::uint64_t count = 1;
  bool empty = false;
  for (std::int64_t dimension : shape) {
    if (dimension < 0)
      return fail(Code::invalid_argument, std::format("shape {} has a dimension without a size", shape_text(shape)));
    if (dimension == 0) {
      empty = true;
      continue;
    }
    if (static_cast<std::uint64_t>(dimension) > kMostElements / count) {
      return fail(Code::invalid_argument, std::format("shape {} has more than 2^48 elements", shape_text(shape)));
    }
    count *= static_cast<std::uint64_t>(dimension);
  }
  return empty ? 0 : count;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::int64_t dimension : shape) {
    if (text.size() > 1) text += ',';
    text += std::to_string(dimension);
  }
  return text + "]";
}

Tensor Tensor::of_strings(std::string name, std::vector<std::int64_t> shape, std::span<const std::string> values) {
  Tensor tensor{std::move(name), DataType::bytes, std::move(shape), {}, {}};
  for (const std::string& value : values) {
    auto length = static_cast<std::uint32_t>(value.size());
    for (int shift = 0; shift < 32; shift += 8) tensor.data += static_cast<char>(length >> shift & 0xff);
    tensor.data += value;
  }
  return tensor;
}

Result<std::vector<std::string>> Tensor::strings() const {
  if (type != DataType::bytes) return fail(Code::invalid_argument, mismatch(DataType::bytes));
  std::vector<std::string> out;
  std::string_view rest = data;
  while (!rest.empty()) {
    std::uint32_t length = 0;
    if (rest.size() < 4) return fail(Code::data_loss, std::format("tensor '{}' ends inside an element's length", name));
    for (int i = 3; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(rest[static_cast<std::size_t>(i)]);
    rest.remove_prefix(4);
    if (rest.size() < length) return fail(Code::data_loss, std::format("tensor '{}' ends inside an element", name));
    out.emplace_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  return out;
}

std::string Tensor::mismatch(DataType wanted) const {
  return std::format("tensor '{}' is {} {} of {} bytes; it can't be read as {}", name, data_type_name(type),
                     shape_text(shape), data.size(), data_type_name(wanted));
}

}  // namespace npud::client
