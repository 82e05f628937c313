// SPDX-License-Identifier: Apache-2.0
#include "engine/offload_nodes.h"

#include <algorithm>
#include <cstring>
#include <format>
#include <optional>

namespace npud {
namespace {

using rknpu::NodeKind;
using rknpu::NodePrecision;
using rknpu::NodeSpec;

// A node that stays on the host, and why.
std::unexpected<std::string> stays(std::string why) { return std::unexpected(std::move(why)); }
template <class T>
using OrStays = std::expected<T, std::string>;

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

bool small_enough(const onnx::TensorProto& tensor) {
  std::int64_t count = 1;
  for (std::int64_t dim : tensor.dims()) {
    if (dim <= 0 || dim > 1 << 20) return false;
    count *= dim;
    if (count > 1ll << 31) return false;
  }
  return true;
}

OrStays<std::vector<float>> constant_input(const onnx::NodeProto& node, int index, const Scope& scope,
                                           const onnx::TensorProto*& tensor) {
  tensor = index < node.input_size() ? scope.constant(node.input(index)) : nullptr;
  if (tensor == nullptr) return stays("its weights aren't constant");
  if (!small_enough(*tensor)) return stays("its weights have an extent of 0 or above 2^20, or more than 2^31 values");
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
                                           const std::vector<std::int64_t>& strides,
                                           const std::vector<std::int64_t>& dilations) {
  const auto* mode = attribute(node, "auto_pad");
  const std::size_t axes = kernel.size();
  if (mode == nullptr || mode->s().empty() || mode->s() == "NOTSET") return ints_attribute(node, "pads", 2 * axes, 0);
  std::vector<std::int64_t> pads(2 * axes, 0);
  if (mode->s() == "VALID") return pads;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    if (strides[axis] != 1) return stays("its auto_pad with a stride depends on the size of the input");
    const std::int64_t all = dilations[axis] * (kernel[axis] - 1), less = all / 2;
    pads[axis] = mode->s() == "SAME_LOWER" ? all - less : less;
    pads[axes + axis] = all - pads[axis];
  }
  return pads;
}

// A bias of one value a kernel, where there is one.
OrStays<std::vector<float>> bias_of(const onnx::NodeProto& node, const Scope& scope, std::int64_t kernels) {
  if (node.input_size() < 3 || node.input(2).empty()) return std::vector<float>{};
  const onnx::TensorProto* addend = nullptr;
  auto bias = constant_input(node, 2, scope, addend);
  if (!bias || bias->size() != static_cast<std::size_t>(kernels)) return stays("its bias isn't constant");
  return bias;
}

std::uint32_t u32(std::int64_t value) { return static_cast<std::uint32_t>(value); }

struct ConvNode {
  NodeSpec spec;
  NodeWindow window;  // of the convolution itself
};

// The weights of a convolution over one or two spatial dimensions.
struct WindowWeights {
  const onnx::TensorProto* tensor = nullptr;
  std::vector<float> values;
  std::size_t axes = 0;
};

OrStays<WindowWeights> window_weights(const onnx::NodeProto& node, const Scope& scope) {
  WindowWeights made;
  auto weights = constant_input(node, 1, scope, made.tensor);
  if (!weights) return stays(weights.error());
  made.values = std::move(*weights);
  const int rank = made.tensor->dims_size();
  if (rank != 3 && rank != 4) return stays(std::format("it has {} spatial dimensions, not 1 or 2", rank - 2));
  made.axes = static_cast<std::size_t>(rank - 2);
  return made;
}

OrStays<ConvNode> conv_node(const onnx::NodeProto& node, const Scope& scope) {
  auto constant = window_weights(node, scope);
  if (!constant) return stays(constant.error());
  auto& [tensor, weights, axes] = *constant;
  const std::int64_t kernels = tensor->dims(0), per_group = tensor->dims(1), group = int_attribute(node, "group", 1);
  const bool depthwise = group > 1 && per_group == 1 && kernels == group;
  if (group != 1 && !depthwise)
    return stays(std::format("it has {} groups of {} channels; the NPU takes one group or one channel in each", group,
                             per_group));
  const std::vector<std::int64_t> kernel(tensor->dims().begin() + 2, tensor->dims().end());
  const auto strides = ints_attribute(node, "strides", axes, 1), dilations = ints_attribute(node, "dilations", axes, 1);
  if (strides.size() != axes || dilations.size() != axes)
    return stays("its strides or dilations don't fit its weights");
  auto small = [](std::int64_t v) { return v >= 0 && v < 1 << 16; };
  auto positive = [](std::int64_t v) { return v > 0 && v < 1 << 16; };
  if (!std::ranges::all_of(strides, positive) || !std::ranges::all_of(dilations, positive))
    return stays("its strides or dilations are 0, negative or huge");
  auto pads = padding(node, kernel, strides, dilations);
  if (!pads) return stays(pads.error());
  if (pads->size() != 2 * axes || !std::ranges::all_of(*pads, small)) return stays("its pads are negative or huge");
  auto bias = bias_of(node, scope, kernels);
  if (!bias) return stays(bias.error());
  ConvNode made{.spec = {.kind = NodeKind::convolution}, .window = {}};
  // One spatial dimension runs along the height, where the planner can cut it into bands.
  made.window = {.form = NodeForm::unfolded,
                 .channels = u32(depthwise ? group : per_group),
                 .kernel_height = u32(kernel[0]),
                 .kernel_width = axes == 2 ? u32(kernel[1]) : 1,
                 .stride_y = u32(strides[0]),
                 .stride_x = axes == 2 ? u32(strides[1]) : 1,
                 .dilation_y = u32(dilations[0]),
                 .dilation_x = axes == 2 ? u32(dilations[1]) : 1,
                 .pad_top = u32((*pads)[0]),
                 .pad_left = axes == 2 ? u32((*pads)[1]) : 0,
                 .pad_bottom = u32((*pads)[axes]),
                 .pad_right = axes == 2 ? u32((*pads)[3]) : 0};
  const NodeWindow& window = made.window;
  made.spec.op = {.channels = window.channels,
                  .kernels = u32(kernels),
                  .kernel_height = window.kernel_height,
                  .kernel_width = window.kernel_width,
                  .stride_y = window.stride_y,
                  .stride_x = window.stride_x,
                  .pad_top = window.pad_top,
                  .pad_left = window.pad_left,
                  .pad_bottom = window.pad_bottom,
                  .pad_right = window.pad_right,
                  .depthwise = depthwise};
  made.spec.weights = std::move(weights);
  made.spec.bias = std::move(*bias);
  return made;
}

// [N][C][KH][KW] as the [C·KH·KW][N] that rows of windows are multiplied with.
NodeSpec unfolded(NodeSpec spec) {
  const std::size_t n = spec.op.kernels, k = spec.weights.size() / n;
  std::vector<float> matrix(spec.weights.size());
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t i = 0; i < k; ++i) matrix[i * n + row] = spec.weights[row * k + i];
  }
  spec.kind = NodeKind::matrix;
  spec.op = {.channels = static_cast<std::uint32_t>(k), .kernels = spec.op.kernels};
  spec.weights = std::move(matrix);
  return spec;
}

// Each input pixel makes a block of its own, so it is a pointwise convolution to block size × channels. Where blocks
// overlap, are padded or have gaps, the host adds them up.
OrStays<ConvNode> transposed_node(const onnx::NodeProto& node, const Scope& scope) {
  auto constant = window_weights(node, scope);
  if (!constant) return stays(constant.error());
  auto& [tensor, weights, axes] = *constant;
  if (int_attribute(node, "group", 1) != 1) return stays("it is a transposed convolution in groups");
  const std::vector<std::int64_t> kernel(tensor->dims().begin() + 2, tensor->dims().end());
  const auto strides = ints_attribute(node, "strides", axes, 1), dilations = ints_attribute(node, "dilations", axes, 1),
             extra = ints_attribute(node, "output_padding", axes, 0), pads = ints_attribute(node, "pads", 2 * axes, 0);
  const auto* mode = attribute(node, "auto_pad");
  const bool automatic = mode != nullptr && !mode->s().empty() && mode->s() != "NOTSET" && mode->s() != "VALID";
  if (automatic || attribute(node, "output_shape") != nullptr)
    return stays("it is a transposed convolution whose pads follow from its output's size");
  auto small = [](std::int64_t v) { return v >= 0 && v < 1 << 16; };
  auto positive = [](std::int64_t v) { return v > 0 && v < 1 << 16; };
  if (strides.size() != axes || dilations.size() != axes || extra.size() != axes || pads.size() != 2 * axes ||
      !std::ranges::all_of(strides, positive) || !std::ranges::all_of(dilations, positive) ||
      !std::ranges::all_of(extra, small) || !std::ranges::all_of(pads, small))
    return stays("its strides, dilations or pads don't fit its weights, or are negative or huge");
  auto zero = [](std::int64_t v) { return v == 0; };
  const bool apart = strides == kernel && std::ranges::all_of(dilations, [](std::int64_t d) { return d == 1; }) &&
                     std::ranges::all_of(extra, zero) && std::ranges::all_of(pads, zero);
  const std::size_t channels = static_cast<std::size_t>(tensor->dims(0)),
                    made_channels = static_cast<std::size_t>(tensor->dims(1)),
                    block = static_cast<std::size_t>(kernel[0] * (axes == 2 ? kernel[1] : 1)),
                    n = made_channels * block;
  auto bias = bias_of(node, scope, tensor->dims(1));
  if (!bias) return stays(bias.error());
  ConvNode made{.spec = {.kind = NodeKind::convolution}, .window = {}};
  made.window = {.form = apart ? NodeForm::shuffled : NodeForm::scattered,
                 .channels = static_cast<std::uint32_t>(made_channels),
                 .kernel_height = u32(kernel[0]),
                 .kernel_width = axes == 2 ? u32(kernel[1]) : 1,
                 .stride_y = u32(strides[0]),
                 .stride_x = axes == 2 ? u32(strides[1]) : 1,
                 .dilation_y = u32(dilations[0]),
                 .dilation_x = axes == 2 ? u32(dilations[1]) : 1,
                 .pad_top = u32(pads[0]),
                 .pad_left = axes == 2 ? u32(pads[1]) : 0,
                 .pad_bottom = u32(pads[axes]),
                 .pad_right = axes == 2 ? u32(pads[3]) : 0,
                 .extra_y = u32(extra[0]),
                 .extra_x = axes == 2 ? u32(extra[1]) : 0};
  made.spec.op = {.channels = static_cast<std::uint32_t>(channels), .kernels = static_cast<std::uint32_t>(n)};
  made.spec.weights.resize(n * channels);
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = 0; i < n; ++i) made.spec.weights[i * channels + c] = weights[c * n + i];
  }
  if (!apart) {
    made.window.bias = std::move(*bias);
  } else if (!bias->empty()) {
    made.spec.bias.resize(n);
    for (std::size_t i = 0; i < n; ++i) made.spec.bias[i] = (*bias)[i / block];
  }
  return made;
}

OrStays<NpuNode> packed(const NodeSpec& spec, const NodeWindow& window) {
  auto node = rknpu::pack_node(spec);
  if (!node) return stays(node.error().message);
  return NpuNode{std::move(*node), window};
}

}  // namespace

Scope::Scope(const onnx::GraphProto& graph, const Scope* outer, std::int64_t ir_version) : outer_(outer) {
  for (const auto& tensor : graph.initializer()) constants_[tensor.name()] = &tensor;
  for (const auto& tensor : graph.sparse_initializer()) constants_[tensor.values().name()] = nullptr;
  for (const auto& input : graph.input()) {
    // Since IR version 4 an initializer that is an input too is a default, not a constant.
    if (ir_version >= 4 || !constants_.contains(input.name())) constants_[input.name()] = nullptr;
  }
  for (const auto& node : graph.node()) {
    for (const auto& output : node.output()) constants_[output] = nullptr;
  }
}

const onnx::TensorProto* Scope::constant(const std::string& name) const {
  const auto found = constants_.find(name);
  if (found != constants_.end()) return found->second;
  return outer_ == nullptr ? nullptr : outer_->constant(name);
}

bool is_heavy(const onnx::NodeProto& node) {
  const std::string& op = node.op_type();
  return node.domain().empty() && (op == "MatMul" || op == "Gemm" || op == "Conv" || op == "ConvTranspose");
}

std::string name_of(const onnx::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  return node.output_size() > 0 ? node.output(0) : node.op_type();
}

std::expected<NpuNode, std::string> npu_node(const onnx::NodeProto& node, const Scope& scope, NodePrecision precision,
                                             bool int8_only) {
  const std::string name = name_of(node);
  if (node.op_type() == "MatMul" || node.op_type() == "Gemm") {
    auto spec = node.op_type() == "MatMul" ? matmul_spec(node, scope) : gemm_spec(node, scope);
    if (!spec) return stays(spec.error());
    spec->name = name;
    spec->precision = precision;
    return packed(*spec, {});
  }
  auto made = node.op_type() == "Conv" ? conv_node(node, scope) : transposed_node(node, scope);
  if (!made) return stays(made.error());
  NodeSpec& spec = made->spec;
  const NodeWindow& window = made->window;
  spec.name = name;
  spec.precision = spec.op.depthwise && !int8_only ? NodePrecision::fp16 : precision;
  if (window.form != NodeForm::unfolded) return packed(spec, window);
  OrStays<NpuNode> direct = stays("it is dilated");
  if (window.dilation_y == 1 && window.dilation_x == 1) direct = packed(spec, {});
  if (direct || spec.op.depthwise) return direct;
  auto rows = packed(unfolded(std::move(spec)), window);
  return rows ? rows : direct;
}

}  // namespace npud
