// SPDX-License-Identifier: Apache-2.0
#include "engine/offload_graph.h"

#include <algorithm>
#include <format>
#include <iterator>
#include <set>
#include <unordered_set>

namespace npud {
namespace {

using rknpu::NodePrecision;

class Rewriter {
 public:
  Rewriter(const OffloadSettings& settings, const std::string& device, std::int64_t ir_version)
      : settings_(settings), device_(device), ir_version_(ir_version) {}

  Result<> graph(onnx::GraphProto& graph, const Scope* outer) {
    const Scope scope(graph, outer, ir_version_);
    for (auto& node : *graph.mutable_node()) {
      names_.insert(name_of(node));
      for (auto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) {
          if (auto ok = this->graph(*attribute.mutable_g(), &scope); !ok) return ok;
        }
        for (auto& inner : *attribute.mutable_graphs()) {
          if (auto ok = this->graph(inner, &scope); !ok) return ok;
        }
      }
      if (is_heavy(node)) {
        heavy_names_.insert(name_of(node));
        if (auto ok = place(node, scope); !ok) return ok;
      }
    }
    return {};
  }

  Result<> check_patterns() const {
    auto check = [](const std::vector<std::string>& patterns, const char* key, const std::set<std::string>& names,
                    const char* what) -> Result<> {
      for (const std::string& pattern : patterns) {
        if (std::ranges::any_of(names, [&](const std::string& name) { return matches_any({pattern}, name); })) continue;
        std::string some;
        for (const std::string& name : names) {
          if (some.size() > 200) {
            some += ", …";
            break;
          }
          some += (some.empty() ? "" : ", ") + name;
        }
        return fail(
            ErrorCode::invalid_argument,
            std::format("parameter {}: '{}' matches no {} of the graph; there are: {}", key, pattern, what, some));
      }
      return {};
    };
    if (auto ok = check(settings_.host_nodes, "npud.host_nodes", names_, "node"); !ok) return ok;
    if (auto ok = check(settings_.int8_nodes, "npud.int8_nodes", heavy_names_, "MatMul, Gemm, Conv or ConvTranspose");
        !ok)
      return ok;
    return check(settings_.fp16_nodes, "npud.fp16_nodes", heavy_names_, "MatMul, Gemm, Conv or ConvTranspose");
  }

  OffloadedGraph take() {
    offloaded_.placements = std::move(on_npu_);
    std::ranges::move(on_host_, std::back_inserter(offloaded_.placements));
    return std::move(offloaded_);
  }

 private:
  Result<> place(onnx::NodeProto& node, const Scope& scope) {
    const std::string name = name_of(node);
    auto keep = [&](std::string why) {
      on_host_.push_back(
          {.name = name, .op = node.op_type(), .device = "host", .precision = "fp32", .reason = std::move(why)});
    };
    if (matches_any(settings_.host_nodes, name)) {
      keep("npud.host_nodes says so");
      return {};
    }
    const bool int8_asked = matches_any(settings_.int8_nodes, name),
               fp16_asked = !int8_asked && matches_any(settings_.fp16_nodes, name);
    auto refuse = [&](const std::string& why) -> Result<> {
      if (int8_asked || fp16_asked) {
        return fail(ErrorCode::invalid_argument,
                    std::format("parameter {} names node '{}', which can't run on {}: {}",
                                int8_asked ? "npud.int8_nodes" : "npud.fp16_nodes", name, device_, why));
      }
      keep(why);
      return {};
    };
    const bool int8 = int8_asked || (!fp16_asked && settings_.precision == OffloadPrecision::int8);
    auto made = npu_node(node, scope, int8 ? NodePrecision::int8 : NodePrecision::fp16, int8_asked);
    if (!made) return refuse(made.error());
    std::string reason = int8_asked   ? "npud.int8_nodes says so"
                         : fp16_asked ? "npud.fp16_nodes says so"
                                      : "constant weights";
    if (int8 && made->packed.precision == NodePrecision::fp16)
      reason += "; fp16, since depthwise convolutions have no int8 form";
    if (made->window.form == NodeForm::unfolded)
      reason += "; the host lays its windows out as rows, since the NPU can't walk them";
    if (made->window.form == NodeForm::scattered)
      reason += "; the host adds up what the NPU makes of each pixel, since blocks overlap or are padded";
    on_npu_.push_back({.name = name,
                       .op = node.op_type(),
                       .device = device_,
                       .precision = made->packed.precision == NodePrecision::int8 ? "int8" : "fp16",
                       .reason = std::move(reason),
                       .weight_bytes = made->packed.weights.size()});
    node.set_op_type(node.op_type() == "MatMul" || node.op_type() == "Gemm" ? "NpuMatMul" : "NpuConv");
    node.set_domain("npud");
    node.clear_attribute();
    auto* index = node.add_attribute();
    index->set_name("index");
    index->set_type(onnx::AttributeProto::INT);
    index->set_i(static_cast<std::int64_t>(offloaded_.nodes.size()));
    node.mutable_input()->DeleteSubrange(1, node.input_size() - 1);
    offloaded_.nodes.push_back(std::move(*made));
    return {};
  }

  const OffloadSettings& settings_;
  const std::string& device_;
  const std::int64_t ir_version_;
  OffloadedGraph offloaded_;
  std::vector<NodePlacement> on_npu_, on_host_;
  std::set<std::string> names_, heavy_names_;
};

void collect_used(const onnx::GraphProto& graph, std::unordered_set<std::string>& used) {
  for (const auto& output : graph.output()) used.insert(output.name());
  for (const auto& node : graph.node()) {
    used.insert(node.input().begin(), node.input().end());
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) collect_used(attribute.g(), used);
      for (const auto& inner : attribute.graphs()) collect_used(inner, used);
    }
  }
}

// Weights that nobody uses any more leave the model, with the inputs of old files (before IR version 4) that declare
// them; in newer ones an initializer that is an input too is a default that stays.
void drop_unused(onnx::GraphProto& graph, const std::unordered_set<std::string>& used, std::int64_t ir_version) {
  std::unordered_set<std::string> dropped;
  for (const auto& tensor : graph.initializer()) {
    if (!used.contains(tensor.name())) dropped.insert(tensor.name());
  }
  if (ir_version >= 4) {
    for (const auto& input : graph.input()) dropped.erase(input.name());
  }
  auto& tensors = *graph.mutable_initializer();
  tensors.erase(std::remove_if(tensors.begin(), tensors.end(),
                               [&](const auto& tensor) { return dropped.contains(tensor.name()); }),
                tensors.end());
  auto& inputs = *graph.mutable_input();
  inputs.erase(
      std::remove_if(inputs.begin(), inputs.end(), [&](const auto& input) { return dropped.contains(input.name()); }),
      inputs.end());
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) drop_unused(*attribute.mutable_g(), used, ir_version);
      for (auto& inner : *attribute.mutable_graphs()) drop_unused(inner, used, ir_version);
    }
  }
}

}  // namespace

Result<OffloadedGraph> offload_graph(onnx::ModelProto model, const OffloadSettings& settings,
                                     const std::string& device) {
  Rewriter rewriter(settings, device, model.ir_version());
  if (auto ok = rewriter.graph(*model.mutable_graph(), nullptr); !ok) return std::unexpected(ok.error());
  if (auto ok = rewriter.check_patterns(); !ok) return std::unexpected(ok.error());
  std::unordered_set<std::string> used;
  collect_used(model.graph(), used);
  drop_unused(*model.mutable_graph(), used, model.ir_version());
  auto* domain = model.add_opset_import();
  domain->set_domain("npud");
  domain->set_version(1);
  OffloadedGraph offloaded = rewriter.take();
  offloaded.model = std::move(model);
  return offloaded;
}

}  // namespace npud
