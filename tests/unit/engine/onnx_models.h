// SPDX-License-Identifier: Apache-2.0
// Small ONNX models for tests.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace npud::test {

using Dims = std::vector<std::int64_t>;  // -1: any size

// An empty model with opset 13 and IR version 8.
onnx::ModelProto empty_model();
void add_input(onnx::ModelProto& model, const std::string& name, int type, const Dims& dims);
void add_output(onnx::ModelProto& model, const std::string& name, int type, const Dims& dims);
onnx::NodeProto& add_node(onnx::ModelProto& model, const std::string& op, const std::vector<std::string>& inputs,
                          const std::vector<std::string>& outputs);
onnx::TensorProto& add_weight(onnx::ModelProto& model, const std::string& name, const Dims& dims,
                              const std::vector<float>& values);

onnx::ModelProto add_model(const Dims& dims);                  // sum = a + b, FP32
onnx::ModelProto scale_model(const Dims& dims, float factor);  // y = x * factor, FP32
onnx::ModelProto matmul_model(std::int64_t inner, std::int64_t outer,
                              float seed);                    // y[n,outer] = x[n,inner] · w, w from the seed
onnx::ModelProto identity_model(int type, const Dims& dims);  // y = x
onnx::ModelProto expand_model();                              // y = value expanded to shape (INT64 input)
onnx::ModelProto cyclic_model();

void write_file(const std::filesystem::path& path, const std::string& text);  // makes the directories
void write_model(const std::filesystem::path& path, const onnx::ModelProto& model);

// A directory that goes with the object.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace npud::test
