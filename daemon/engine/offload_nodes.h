// SPDX-License-Identifier: Apache-2.0
// One node of an ONNX graph as the NPU can compute it.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <expected>
#include <string>
#include <unordered_map>
#include <vector>

#include "devices/rknpu/operation.h"

namespace npud {

// What the host does around the NPU's part.
enum class NodeForm : std::uint8_t {
  plain,      // nothing: rows as they are, or image by image
  shuffled,   // transposed convolution whose stride is its kernel: the NPU makes a block of pixels as channels of one
  scattered,  // any other transposed convolution: the same, and the host adds the blocks up where they lie
  unfolded,   // convolution whose windows the NPU can't walk itself: each window becomes a row of a matrix
};

// How pixels lie in a node that isn't `plain`; as ONNX has it.
struct NodeWindow {
  NodeForm form = NodeForm::plain;
  std::uint32_t channels = 0;  // unfolded: of the image; shuffled and scattered: of the result
  std::uint32_t kernel_height = 1, kernel_width = 1;
  std::uint32_t stride_y = 1, stride_x = 1;
  std::uint32_t dilation_y = 1, dilation_x = 1;
  std::uint32_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  std::uint32_t extra_y = 0, extra_x = 0;  // scattered: ONNX's output_padding
  std::vector<float> bias;                 // scattered: added once a pixel, hence by the host

  // Of a scattered node. 0: nothing is left within the pads.
  std::uint64_t scattered_height(std::uint64_t height) const {
    return scattered_extent(height, kernel_height, dilation_y, stride_y, extra_y, pad_top + pad_bottom);
  }
  std::uint64_t scattered_width(std::uint64_t width) const {
    return scattered_extent(width, kernel_width, dilation_x, stride_x, extra_x, pad_left + pad_right);
  }

  // Of an unfolded node. 0: the padded image is smaller than the window.
  std::uint64_t out_height(std::uint64_t height) const {
    return out_extent(height + pad_top + pad_bottom, kernel_height, dilation_y, stride_y);
  }
  std::uint64_t out_width(std::uint64_t width) const {
    return out_extent(width + pad_left + pad_right, kernel_width, dilation_x, stride_x);
  }

 private:
  static std::uint64_t scattered_extent(std::uint64_t extent, std::uint64_t kernel, std::uint64_t dilation,
                                        std::uint64_t stride, std::uint64_t extra, std::uint64_t pads) {
    const std::uint64_t all = (extent - 1) * stride + dilation * (kernel - 1) + 1 + extra;
    return extent == 0 || all < pads ? 0 : all - pads;
  }
  static std::uint64_t out_extent(std::uint64_t padded, std::uint64_t kernel, std::uint64_t dilation,
                                  std::uint64_t stride) {
    const std::uint64_t window = dilation * (kernel - 1) + 1;
    return padded < window ? 0 : (padded - window) / stride + 1;
  }
};

// Constants that a node can see: those of its graph and of the graphs around it. The graphs must outlive it.
class Scope {
 public:
  Scope(const onnx::GraphProto& graph, const Scope* outer, std::int64_t ir_version);
  // Null when the name is none of a constant's.
  const onnx::TensorProto* constant(const std::string& name) const;

 private:
  const Scope* outer_;
  std::unordered_map<std::string, const onnx::TensorProto*> constants_;  // null: known, and not constant
};

// MatMul, Gemm, Conv, ConvTranspose of ONNX's own domain.
bool is_heavy(const onnx::NodeProto& node);
// Exporters may leave nodes without a name; what they compute has one.
std::string name_of(const onnx::NodeProto& node);

struct NpuNode {
  rknpu::PackedNode packed;
  NodeWindow window;
};
// Packs a heavy node with constant weights. int8 for a depthwise convolution becomes fp16 unless `int8_only`. Otherwise
// the reason why it has to stay on the host.
std::expected<NpuNode, std::string> npu_node(const onnx::NodeProto& node, const Scope& scope,
                                             rknpu::NodePrecision precision, bool int8_only);

}  // namespace npud
