// SPDX-License-Identifier: Apache-2.0
// How much arithmetic a model has, by running it on the host.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/offload_nodes.h"
#include "engine_fixture.h"

namespace npud::test {

// Multiply-accumulates of all MatMul, Conv and ConvTranspose (its blocks not overlapping) of the graph for this input:
// their outputs become the graph's, so that the run itself says how large they are.
inline Result<std::uint64_t> all_macs(EngineParts& engine, onnx::ModelProto model, const std::vector<Tensor>& inputs) {
  auto& graph = *model.mutable_graph();
  std::map<std::string, Dims> constants;
  for (const auto& tensor : graph.initializer())
    constants[tensor.name()] = {tensor.dims().begin(), tensor.dims().end()};
  std::vector<const onnx::NodeProto*> heavy;
  std::set<std::string> outputs;
  for (const auto& output : graph.output()) outputs.insert(output.name());
  auto show = [&](const std::string& name) {
    if (!outputs.insert(name).second) return;
    auto& output = *graph.add_output();
    output.set_name(name);
    output.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  };
  for (const auto& node : graph.node()) {
    if (node.op_type() == "Constant") {
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_t()) constants[node.output(0)] = {attribute.t().dims().begin(), attribute.t().dims().end()};
      }
    }
    if (is_heavy(node)) heavy.push_back(&node);
  }
  for (const auto* node : heavy) {
    show(node->output(0));
    if (!constants.contains(node->input(1))) show(node->input(0));
  }
  auto probe = engine.load("probe", model);
  if (!probe) return std::unexpected(probe.error());
  auto computed = engine.run_one(*probe->servable, inputs);
  if (!computed) return std::unexpected(computed.error());
  std::map<std::string, Dims> shapes;
  for (const auto& tensor : *computed) shapes[tensor.name] = tensor.shape;
  std::uint64_t macs = 0;
  for (const auto* node : heavy) {
    std::uint64_t each = 1;
    if (const auto weights = constants.find(node->input(1)); weights == constants.end()) {
      each = static_cast<std::uint64_t>(shapes.at(node->input(0)).back());
    } else if (node->op_type() == "Conv") {
      for (std::size_t i = 1; i < weights->second.size(); ++i) each *= static_cast<std::uint64_t>(weights->second[i]);
    } else if (node->op_type() == "Gemm") {
      return fail(ErrorCode::unimplemented, "the transB of a Gemm would have to be looked at");
    } else {
      each = static_cast<std::uint64_t>(weights->second[0]);
    }
    for (auto dim : shapes.at(node->output(0))) each *= static_cast<std::uint64_t>(dim);
    macs += each;
  }
  return macs;
}

}  // namespace npud::test
