// SPDX-License-Identifier: Apache-2.0
#include "engine/onnx_types.h"

#include <onnx/onnx_pb.h>

#include <array>

namespace npud {
namespace {

struct Row {
  DataType type;
  std::int32_t onnx;
  inference::DataType config;
};
using Onnx = onnx::TensorProto;
constexpr std::array<Row, 14> rows{{
    {DataType::boolean, Onnx::BOOL, inference::TYPE_BOOL},
    {DataType::uint8, Onnx::UINT8, inference::TYPE_UINT8},
    {DataType::uint16, Onnx::UINT16, inference::TYPE_UINT16},
    {DataType::uint32, Onnx::UINT32, inference::TYPE_UINT32},
    {DataType::uint64, Onnx::UINT64, inference::TYPE_UINT64},
    {DataType::int8, Onnx::INT8, inference::TYPE_INT8},
    {DataType::int16, Onnx::INT16, inference::TYPE_INT16},
    {DataType::int32, Onnx::INT32, inference::TYPE_INT32},
    {DataType::int64, Onnx::INT64, inference::TYPE_INT64},
    {DataType::fp16, Onnx::FLOAT16, inference::TYPE_FP16},
    {DataType::bf16, Onnx::BFLOAT16, inference::TYPE_BF16},
    {DataType::fp32, Onnx::FLOAT, inference::TYPE_FP32},
    {DataType::fp64, Onnx::DOUBLE, inference::TYPE_FP64},
    {DataType::bytes, Onnx::STRING, inference::TYPE_STRING},
}};

}  // namespace

std::optional<DataType> data_type_from_onnx(std::int32_t onnx_type) {
  for (const Row& row : rows)
    if (row.onnx == onnx_type) return row.type;
  return std::nullopt;
}

std::int32_t onnx_from_data_type(DataType type) {
  for (const Row& row : rows)
    if (row.type == type) return row.onnx;
  return Onnx::UNDEFINED;
}

std::optional<DataType> data_type_from_config(inference::DataType type) {
  for (const Row& row : rows)
    if (row.config == type) return row.type;
  return std::nullopt;
}

inference::DataType config_from_data_type(DataType type) {
  for (const Row& row : rows)
    if (row.type == type) return row.config;
  return inference::TYPE_INVALID;
}

std::uint32_t onnx_type_bits(std::int32_t onnx_type) {
  switch (onnx_type) {
    case Onnx::INT4:
    case Onnx::UINT4:
      return 4;
    case Onnx::BOOL:
    case Onnx::UINT8:
    case Onnx::INT8:
    case Onnx::FLOAT8E4M3FN:
    case Onnx::FLOAT8E4M3FNUZ:
    case Onnx::FLOAT8E5M2:
    case Onnx::FLOAT8E5M2FNUZ:
      return 8;
    case Onnx::UINT16:
    case Onnx::INT16:
    case Onnx::FLOAT16:
    case Onnx::BFLOAT16:
      return 16;
    case Onnx::UINT32:
    case Onnx::INT32:
    case Onnx::FLOAT:
      return 32;
    case Onnx::UINT64:
    case Onnx::INT64:
    case Onnx::DOUBLE:
    case Onnx::COMPLEX64:
      return 64;
    case Onnx::COMPLEX128:
      return 128;
    default:
      return 0;
  }
}

}  // namespace npud
