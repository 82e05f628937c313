// SPDX-License-Identifier: Apache-2.0
// The same data types in the words of ONNX files and ONNX Runtime (whose numbers agree), config.pbtxt and the protocol.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.h"
#include "inference/model_config.pb.h"

namespace npud {

// onnx::TensorProto::DataType ⇄ DataType; nullopt for what the protocol can't carry (complex, 8-bit floats, 4-bit
// integers).
[[nodiscard]] std::optional<DataType> data_type_from_onnx(std::int32_t onnx_type);
[[nodiscard]] std::int32_t onnx_from_data_type(DataType type);

[[nodiscard]] std::optional<DataType> data_type_from_config(inference::DataType type);  // nullopt: TYPE_INVALID
[[nodiscard]] inference::DataType config_from_data_type(DataType type);

// Bits of one element of any ONNX type, as weights are stored; 0 for strings and unknown types.
[[nodiscard]] std::uint32_t onnx_type_bits(std::int32_t onnx_type);

}  // namespace npud
