// SPDX-License-Identifier: Apache-2.0
// Takes the heavy nodes with constant weights out of an ONNX graph and puts operators of domain "npud" in their place.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/servable.h"
#include "engine/offload_nodes.h"
#include "engine/offload_settings.h"

namespace npud {

struct OffloadedGraph {
  // Its npud nodes (NpuMatMul: rows [..., K] to [..., N]; NpuConv: [B, C, H, W] or [B, C, L]) have an attribute `index`
  // into `nodes`.
  onnx::ModelProto model;
  std::vector<NpuNode> nodes;
  std::vector<NodePlacement> placements;  // of MatMul, Gemm, Conv, ConvTranspose; first those of `nodes` in their order
};

// `model`: optimised, weights inside. MatMul and Gemm with a constant right side, Conv (one group, or depthwise with
// one kernel a channel; fixed padding) and ConvTranspose (one group, fixed padding) go over when the hardware's
// predicates take them; the rest stays, with the reason in `placements`. invalid_argument: a pattern that matches no
// node, or a node that was asked for by a precision pattern and can't go there.
Result<OffloadedGraph> offload_graph(onnx::ModelProto model, const OffloadSettings& settings,
                                     const std::string& device);

}  // namespace npud
