// SPDX-License-Identifier: Apache-2.0
#include "engine/offload_graph.h"

#include <algorithm>
#include <cstring>
#include <format>
#include <iterator>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace npud {
namespace {

using rknpu::NodeKind;
using rknpu::NodePrecision;
using rknpu::NodeSpec;

// A node that stays on the host, and why.
std::unexpected<std::string> stays(std::string why) { return std::unexpected(std::move(why)); }
template <class T>
using OrStays = std::expected<T, std::string>;

bool is_heavy(const onnx::NodeProto& node) {
  const std::string& op = node.op_type();
  return node.domain().empty() && (op == "MatMul" || op == "Gemm" || op == "Conv" || op == "ConvTranspose");
}

// Exporters may leave nodes without a name; what they compute has one.
std::string name_of(const onnx::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  return node.output_size() > 0 ? node.output(0) : node.op_type();
}

const onnx::AttributeProto* attribute(const onnx::NodeProto& node, const char* name) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

std::int64_t int_attribute(const onnx::NodeProto& node, const char* name, std::int64_t otherwise) {
  const auto* found = attribute(node, name);
  return found == nullptr ? otherwise : found->i();
}

float float_attribute(const onnx::NodeProto& node, const char* name, float otherwise) {
  const auto* found = attribute(node, name);
  return found == nullptr ? otherwise : found->f();
}

std::vector<std::int64_t> ints_attribute(const onnx::NodeProto& node, const char* name, std::size_t count,
                                         std::int64_t otherwise) {
  const auto* found = attribute(node, name);
  if (found == nullptr || found->ints_size() == 0) return std::vector<std::int64_t>(count, otherwise);
  return {found->ints().begin(), found->ints().end()};
}

// Values of a constant fp32 tensor; nothing when it is of another type, in a file of its own, or not as long as its
// shape says.
std::optional<std::vector<float>> float_values(const onnx::TensorProto& tensor) {
  if (tensor.data_type() != onnx::TensorProto::FLOAT || tensor.data_location() == onnx::TensorProto::EXTERNAL)
    return std::nullopt;
  std::size_t count = 1;
  for (std::int64_t dim : tensor.dims()) count *= static_cast<std::size_t>(dim);
  std::vector<float> values(count);
  if (tensor.has_raw_data()) {
    if (tensor.raw_data().size() != count * sizeof(float)) return std::nullopt;
    if (count > 0) std::memcpy(values.data(), tensor.raw_data().data(), count * sizeof(float));
  } else {
    if (static_cast<std::size_t>(tensor.float_data_size()) != count) return std::nullopt;
    std::ranges::copy(tensor.float_data(), values.begin());
  }
  return values;
}

// Constants that a node can see: those of its graph and of the graphs around it.
class Scope {
 public:
  Scope(const onnx::GraphProto& graph, const Scope* outer, std::int64_t ir_version) : outer_(outer) {
    for (const auto& tensor : graph.initializer()) constants_[tensor.name()] = &tensor;
    for (const auto& input : graph.input()) {
      // Since IR version 4 an initializer that is an input too is a default, not a constant.
      if (ir_version >= 4 || !constants_.contains(input.name())) constants_[input.name()] = nullptr;
    }
    for (const auto& node : graph.node()) {
      for (const auto& output : node.output()) constants_[output] = nullptr;
    }
  }
  const onnx::TensorProto* constant(const std::string& name) const {
    const auto found = constants_.find(name);
    if (found != constants_.end()) return found->second;
    return outer_ == nullptr ? nullptr : outer_->constant(name);
  }

 private:
  const Scope* outer_;
  std::unordered_map<std::string, const onnx::TensorProto*> constants_;  // null: known, and not constant
};

bool small_enough(const onnx::TensorProto& tensor) {
  return std::ranges::all_of(tensor.dims(), [](std::int64_t dim) { return dim > 0 && dim <= 1 << 20; });
}

OrStays<std::vector<float>> constant_input(const onnx::NodeProto& node, int index, const Scope& scope,
                                           const onnx::TensorProto*& tensor) {
  tensor = index < node.input_size() ? scope.constant(node.input(index)) : nullptr;
  if (tensor == nullptr) return stays("its weights aren't constant");
  if (!small_enough(*tensor)) return stays("its weights have an extent of 0 or above 2^20");
  auto values = float_values(*tensor);
  if (!values) return stays("its weights aren't FP32");
  return std::move(*values);
}

OrStays<NodeSpec> matmul_spec(const onnx::NodeProto& node, const Scope& scope) {
  const onnx::TensorProto* tensor = nullptr;
  auto weights = constant_input(node, 1, scope, tensor);
  if (!weights) {
    return stays(node.input_size() == 2 && scope.constant(node.input(0)) != nullptr
                     ? "its constant is the left operand; the NPU's weights are the right one"
                     : weights.error());
  }
  if (tensor->dims_size() != 2) return stays(std::format("its weights have {} dimensions, not 2", tensor->dims_size()));
  NodeSpec spec{.kind = NodeKind::matrix};
  spec.op.channels = static_cast<std::uint32_t>(tensor->dims(0));
  spec.op.kernels = static_cast<std::uint32_t>(tensor->dims(1));
  spec.weights = std::move(*weights);
  return spec;
}

OrStays<NodeSpec> gemm_spec(const onnx::NodeProto& node, const Scope& scope) {
  if (int_attribute(node, "transA", 0) != 0) return stays("its left operand is transposed");
  const onnx::TensorProto* tensor = nullptr;
  auto weights = constant_input(node, 1, scope, tensor);
  if (!weights) return stays(weights.error());
  if (tensor->dims_size() != 2) return stays("its weights aren't a matrix");
  const bool transposed = int_attribute(node, "transB", 0) != 0;
  const std::size_t k = static_cast<std::size_t>(tensor->dims(transposed ? 1 : 0)),
                    n = static_cast<std::size_t>(tensor->dims(transposed ? 0 : 1));
  NodeSpec spec{.kind = NodeKind::matrix};
  spec.op.channels = static_cast<std::uint32_t>(k);
  spec.op.kernels = static_cast<std::uint32_t>(n);
  spec.weights.resize(k * n);
  const float alpha = float_attribute(node, "alpha", 1), beta = float_attribute(node, "beta", 1);
  for (std::size_t row = 0; row < k; ++row) {
    for (std::size_t column = 0; column < n; ++column) {
      spec.weights[row * n + column] = alpha * (*weights)[transposed ? column * k + row : row * n + column];
    }
  }
  if (node.input_size() > 2 && !node.input(2).empty()) {
    const onnx::TensorProto* addend = nullptr;
    auto bias = constant_input(node, 2, scope, addend);
    if (!bias) return stays("its addend isn't constant");
    const bool a_row = addend->dims_size() < 2 || (addend->dims_size() == 2 && addend->dims(0) == 1);
    if (!a_row || (bias->size() != n && bias->size() != 1)) return stays("its addend isn't one value a column");
    spec.bias.resize(n);
    for (std::size_t i = 0; i < n; ++i) spec.bias[i] = beta * (*bias)[bias->size() == 1 ? 0 : i];
  }
  return spec;
}

// Padding before and after each axis; none when it depends on the size of the input.
OrStays<std::vector<std::int64_t>> padding(const onnx::NodeProto& node, const std::vector<std::int64_t>& kernel,
                                           const std::vector<std::int64_t>& strides) {
  const auto* mode = attribute(node, "auto_pad");
  const std::size_t axes = kernel.size();
  if (mode == nullptr || mode->s().empty() || mode->s() == "NOTSET") return ints_attribute(node, "pads", 2 * axes, 0);
  std::vector<std::int64_t> pads(2 * axes, 0);
  if (mode->s() == "VALID") return pads;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    if (strides[axis] != 1) return stays("its auto_pad with a stride depends on the size of the input");
    const std::int64_t all = kernel[axis] - 1, less = all / 2;
    pads[axis] = mode->s() == "SAME_LOWER" ? all - less : less;
    pads[axes + axis] = all - pads[axis];
  }
  return pads;
}

OrStays<NodeSpec> conv_spec(const onnx::NodeProto& node, const Scope& scope) {
  const onnx::TensorProto* tensor = nullptr;
  auto weights = constant_input(node, 1, scope, tensor);
  if (!weights) return stays(weights.error());
  const int rank = tensor->dims_size();
  if (rank != 3 && rank != 4) return stays(std::format("it has {} spatial dimensions, not 1 or 2", rank - 2));
  const std::size_t axes = static_cast<std::size_t>(rank - 2);
  const std::int64_t kernels = tensor->dims(0), per_group = tensor->dims(1), group = int_attribute(node, "group", 1);
  const bool depthwise = group > 1 && per_group == 1 && kernels == group;
  if (group != 1 && !depthwise)
    return stays(std::format("it has {} groups of {} channels; the NPU takes one group or one channel in each", group,
                             per_group));
  const std::vector<std::int64_t> kernel(tensor->dims().begin() + 2, tensor->dims().end());
  const auto strides = ints_attribute(node, "strides", axes, 1), dilations = ints_attribute(node, "dilations", axes, 1);
  if (std::ranges::any_of(dilations, [](std::int64_t d) { return d != 1; })) return stays("it is dilated");
  auto pads = padding(node, kernel, strides);
  if (!pads) return stays(pads.error());
  if (strides.size() != axes || pads->size() != 2 * axes) return stays("its strides or pads don't fit its weights");
  auto small = [](std::int64_t v) { return v >= 0 && v < 1 << 16; };
  if (!std::ranges::all_of(strides, small) || !std::ranges::all_of(*pads, small))
    return stays("its strides or pads are negative or huge");
  NodeSpec spec{.kind = NodeKind::convolution};
  auto u32 = [](std::int64_t v) { return static_cast<std::uint32_t>(v); };
  // One spatial dimension runs along the height, where the planner can cut it into bands.
  spec.op = {.channels = u32(depthwise ? group : per_group),
             .kernels = u32(kernels),
             .kernel_height = u32(kernel[0]),
             .kernel_width = axes == 2 ? u32(kernel[1]) : 1,
             .stride_y = u32(strides[0]),
             .stride_x = axes == 2 ? u32(strides[1]) : 1,
             .pad_top = u32((*pads)[0]),
             .pad_left = axes == 2 ? u32((*pads)[1]) : 0,
             .pad_bottom = u32((*pads)[axes]),
             .pad_right = axes == 2 ? u32((*pads)[3]) : 0,
             .depthwise = depthwise};
  spec.weights = std::move(*weights);
  if (node.input_size() > 2 && !node.input(2).empty()) {
    const onnx::TensorProto* addend = nullptr;
    auto bias = constant_input(node, 2, scope, addend);
    if (!bias || bias->size() != static_cast<std::size_t>(kernels)) return stays("its bias isn't constant");
    spec.bias = std::move(*bias);
  }
  return spec;
}

OrStays<NodeSpec> spec_of(const onnx::NodeProto& node, const Scope& scope) {
  if (node.op_type() == "MatMul") return matmul_spec(node, scope);
  if (node.op_type() == "Gemm") return gemm_spec(node, scope);
  if (node.op_type() == "Conv") return conv_spec(node, scope);
  return stays(std::format("npud has no NPU form of {}", node.op_type()));
}

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
    if (auto ok = check(settings_.int8_nodes, "npud.int8_nodes", heavy_names_, "MatMul, Gemm or Conv"); !ok) return ok;
    return check(settings_.fp16_nodes, "npud.fp16_nodes", heavy_names_, "MatMul, Gemm or Conv");
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
    auto spec = spec_of(node, scope);
    if (!spec) return refuse(spec.error());
    spec->name = name;
    const bool int8 = int8_asked || (!fp16_asked && settings_.precision == OffloadPrecision::int8);
    std::string reason = int8_asked   ? "npud.int8_nodes says so"
                         : fp16_asked ? "npud.fp16_nodes says so"
                                      : "constant weights";
    spec->precision = int8 ? NodePrecision::int8 : NodePrecision::fp16;
    if (int8 && !int8_asked && spec->op.depthwise) {
      spec->precision = NodePrecision::fp16;
      reason = "constant weights; fp16, since depthwise convolutions have no int8 form";
    }
    auto packed = rknpu::pack_node(*spec);
    if (!packed) return refuse(packed.error().message);
    on_npu_.push_back({.name = name,
                       .op = node.op_type(),
                       .device = device_,
                       .precision = spec->precision == NodePrecision::int8 ? "int8" : "fp16",
                       .reason = std::move(reason),
                       .weight_bytes = packed->weights.size()});
    const bool matrix = spec->kind == NodeKind::matrix;
    node.set_op_type(matrix ? "NpuMatMul" : "NpuConv");
    node.set_domain("npud");
    node.clear_attribute();
    auto* index = node.add_attribute();
    index->set_name("index");
    index->set_type(onnx::AttributeProto::INT);
    index->set_i(static_cast<std::int64_t>(offloaded_.nodes.size()));
    node.mutable_input()->DeleteSubrange(1, node.input_size() - 1);
    offloaded_.nodes.push_back(std::move(*packed));
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

// Weights that nobody uses any more leave the model, with the inputs of old files that declare them.
void drop_unused(onnx::GraphProto& graph, const std::unordered_set<std::string>& used) {
  std::unordered_set<std::string> dropped;
  for (const auto& tensor : graph.initializer()) {
    if (!used.contains(tensor.name())) dropped.insert(tensor.name());
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
      if (attribute.has_g()) drop_unused(*attribute.mutable_g(), used);
      for (auto& inner : *attribute.mutable_graphs()) drop_unused(inner, used);
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
  drop_unused(*model.mutable_graph(), used);
  auto* domain = model.add_opset_import();
  domain->set_domain("npud");
  domain->set_version(1);
  OffloadedGraph offloaded = rewriter.take();
  offloaded.model = std::move(model);
  return offloaded;
}

}  // namespace npud
