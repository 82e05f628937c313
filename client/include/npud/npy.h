// SPDX-License-Identifier: Apache-2.0
// Tensors from and to NumPy's .npy files (public description: numpy.lib.format, versions 1.0 to 3.0).
#pragma once

#include <string>
#include <string_view>

#include "npud/error.h"
#include "npud/tensor.h"

namespace npud::client {

// Read strictly: C order, little-endian (or one-byte) elements of a type that the protocol has, and exactly the bytes
// that the shape asks for. '<f2' is FP16. Strings ('|S…', '<U…') become BYTES; objects (pickles) are refused. The
// tensor's name is left empty.
[[nodiscard]] Result<Tensor> parse_npy(std::string_view file);
[[nodiscard]] Result<Tensor> read_npy(const std::string& path);

// Version 1.0, header padded to 64 bytes. BF16 has no NumPy type: it is written as '<u2'. BYTES are written as
// '|S<longest>', and fail where one ends with a zero byte, which that type cannot hold.
[[nodiscard]] Result<std::string> format_npy(const Tensor& tensor);
[[nodiscard]] Result<> write_npy(const std::string& path, const Tensor& tensor);

}  // namespace npud::client
