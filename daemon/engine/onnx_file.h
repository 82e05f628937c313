// SPDX-License-Identifier: Apache-2.0
// What an ONNX file says about itself, read with libonnx and checked before ONNX Runtime sees the file: files come from
// whoever may write the repository, and a bad one has to end as one clear sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace npud {

struct OnnxTensor {
  std::string name;
  DataType type = DataType::fp32;
  std::optional<std::vector<std::int64_t>> shape;  // -1: any size; nullopt: not even the rank is declared
  bool has_default = false;                        // an input with an initializer: may be left out
};

// Weights that lie in a file of their own.
struct OnnxExternalData {
  std::filesystem::path location;  // relative, without "..", below the directory of the model's file
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
};

struct OnnxInfo {
  std::vector<OnnxTensor> inputs, outputs;
  std::map<std::string, std::int64_t> opsets;  // "" is ONNX's own domain
  std::int64_t ir_version = 0;
  std::string producer;
  std::size_t node_count = 0;
  std::uint64_t weight_bytes = 0;  // of all initializers, external ones included
  std::vector<OnnxExternalData> external;
};

// data_loss: not an ONNX model, cut off, or inconsistent; invalid_argument: refused (path that leaves the directory,
// sizes that don't add up, a cycle); unimplemented: types that can't be served. Messages don't name the model: the
// caller does.
Result<OnnxInfo> inspect_onnx(std::span<const std::byte> file);

// Reads and inspects a file; it must be regular and at most max_bytes.
Result<OnnxInfo> inspect_onnx_file(const std::filesystem::path& path, std::uint64_t max_bytes);

}  // namespace npud
