// SPDX-License-Identifier: Apache-2.0
// The protocol's raw form of string tensors: for each element a 4-byte little-endian length and that many bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace npud {

// The elements, pointing into `raw`. invalid_argument when `raw` doesn't hold exactly `count` elements.
Result<std::vector<std::string_view>> decode_bytes_tensor(std::span<const std::byte> raw, std::uint64_t count);
Buffer encode_bytes_tensor(std::span<const std::string_view> elements);

// Bytes that the `count` elements from the start of `raw` take; precondition: decode_bytes_tensor() took `raw`.
std::size_t bytes_tensor_prefix(std::span<const std::byte> raw, std::uint64_t count);

}  // namespace npud
