// SPDX-License-Identifier: Apache-2.0
#include "onnx_models.h"

#include <stdlib.h>

#include <fstream>
#include <stdexcept>

namespace npud::test {
namespace {

void describe(onnx::ValueInfoProto& value, const std::string& name, int type, const Dims& dims) {
  value.set_name(name);
  auto* tensor = value.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  auto* shape = tensor->mutable_shape();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    auto* dim = shape->add_dim();
    if (dims[i] >= 0) {
      dim->set_dim_value(dims[i]);
    } else {
      dim->set_dim_param("d" + std::to_string(i));
    }
  }
}

}  // namespace

onnx::ModelProto empty_model() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  auto* opset = model.add_opset_import();
  opset->set_domain("");
  opset->set_version(13);
  model.mutable_graph()->set_name("test");
  return model;
}

void add_input(onnx::ModelProto& model, const std::string& name, int type, const Dims& dims) {
  describe(*model.mutable_graph()->add_input(), name, type, dims);
}

void add_output(onnx::ModelProto& model, const std::string& name, int type, const Dims& dims) {
  describe(*model.mutable_graph()->add_output(), name, type, dims);
}

onnx::NodeProto& add_node(onnx::ModelProto& model, const std::string& op, const std::vector<std::string>& inputs,
                          const std::vector<std::string>& outputs) {
  auto& node = *model.mutable_graph()->add_node();
  node.set_op_type(op);
  node.set_name(op + std::to_string(model.graph().node_size()));
  for (const auto& name : inputs) node.add_input(name);
  for (const auto& name : outputs) node.add_output(name);
  return node;
}

onnx::TensorProto& add_weight(onnx::ModelProto& model, const std::string& name, const Dims& dims,
                              const std::vector<float>& values) {
  auto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  for (auto dim : dims) tensor.add_dims(dim);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

onnx::ModelProto add_model(const Dims& dims) {
  auto model = empty_model();
  add_input(model, "a", onnx::TensorProto::FLOAT, dims);
  add_input(model, "b", onnx::TensorProto::FLOAT, dims);
  add_output(model, "sum", onnx::TensorProto::FLOAT, dims);
  add_node(model, "Add", {"a", "b"}, {"sum"});
  return model;
}

onnx::ModelProto scale_model(const Dims& dims, float factor) {
  auto model = empty_model();
  add_input(model, "x", onnx::TensorProto::FLOAT, dims);
  add_output(model, "y", onnx::TensorProto::FLOAT, dims);
  add_weight(model, "factor", {1}, {factor});
  add_node(model, "Mul", {"x", "factor"}, {"y"});
  return model;
}

onnx::ModelProto matmul_model(std::int64_t inner, std::int64_t outer, float seed) {
  auto model = empty_model();
  add_input(model, "x", onnx::TensorProto::FLOAT, {-1, inner});
  add_output(model, "y", onnx::TensorProto::FLOAT, {-1, outer});
  std::vector<float> weights(inner * outer);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = seed + static_cast<float>(i % 17);
  add_weight(model, "w", {inner, outer}, weights);
  add_node(model, "MatMul", {"x", "w"}, {"y"});
  return model;
}

onnx::ModelProto identity_model(int type, const Dims& dims) {
  auto model = empty_model();
  add_input(model, "x", type, dims);
  add_output(model, "y", type, dims);
  add_node(model, "Identity", {"x"}, {"y"});
  return model;
}

onnx::ModelProto expand_model() {
  auto model = empty_model();
  add_input(model, "value", onnx::TensorProto::FLOAT, {1});
  add_input(model, "shape", onnx::TensorProto::INT64, {-1});
  add_output(model, "y", onnx::TensorProto::FLOAT, {-1, -1});
  add_node(model, "Expand", {"value", "shape"}, {"y"});
  return model;
}

onnx::ModelProto cyclic_model() {
  auto model = empty_model();
  add_input(model, "x", onnx::TensorProto::FLOAT, {2});
  add_output(model, "y", onnx::TensorProto::FLOAT, {2});
  add_node(model, "Add", {"x", "y"}, {"p"});
  add_node(model, "Relu", {"p"}, {"y"});
  return model;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  if (!file.flush()) throw std::runtime_error("can't write " + path.string());
}

void write_model(const std::filesystem::path& path, const onnx::ModelProto& model) {
  write_file(path, model.SerializeAsString());
}

TempDirectory::TempDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "npud-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("can't make a temporary directory");
  path_ = name;
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace npud::test
