// SPDX-License-Identifier: Apache-2.0
// One node of a model as the NPU runs it: weights packed once, independent of the size of the input that comes later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "devices/rknpu/emit/plan.h"

namespace npud::rknpu {

enum class NodePrecision : uint8_t {
  fp16,  // fp16 operands, fp32 accumulation; fp32 results (depthwise: fp16)
  int8,  // W8A8: weights quantised by output channel, activations by row (matrix) or by image (convolution), exact
         // int32 sums
};

enum class NodeKind : uint8_t { matrix, convolution };

// What the engine hands over: fp32 weights in ONNX's order, matrices as [K][N], convolutions as [N][C/group][KH][KW].
struct NodeSpec {
  std::string name;
  NodeKind kind = NodeKind::matrix;
  NodePrecision precision = NodePrecision::fp16;
  Conv2d op;  // matrix: channels = K, kernels = N; height and width are set by each run
  std::vector<float> weights;
  std::vector<float> bias;  // empty, or one a kernel
  bool relu = false;        // applied after the bias
};

// Ready for upload, and for the cache on disk.
struct PackedNode {
  std::string name;
  NodeKind kind = NodeKind::matrix;
  NodePrecision precision = NodePrecision::fp16;
  Conv2d op;
  bool relu = false;
  std::vector<std::byte> weights;  // in the NPU's layout
  std::vector<float> bias;
  std::vector<float> scales;  // int8: fp32 weight = scale[n] * int8 weight
  int32_t exponent = 0;       // fp16: what is packed are the weights times 2^exponent (scaling.h)
  // For the check of results: what was packed, summed over the kernels ([C][KH][KW]; depthwise kernels stand alone:
  // [C][1][KH][KW]), the same of magnitudes, and, but for depthwise kernels, each kernel times its check_weight().
  std::vector<float> check, check_magnitude;
  std::vector<double> check_weighted;
};

// The factor of a kernel in the second sum of the check: no two kernels of a node have the same. Whole numbers for
// int8, whose sums are exact; for fp16 from 1 to 2, so that no result drowns in another's rounding.
double check_weight(NodePrecision precision, std::size_t kernel);

// Fails with invalid_argument when no plan exists for a small input, or when a weight is beyond fp16: then the node
// stays on the host.
Result<PackedNode> pack_node(const NodeSpec& spec);

}  // namespace npud::rknpu
