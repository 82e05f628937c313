// SPDX-License-Identifier: Apache-2.0
// config.pbtxt of a compiled .rknn model against what the runtime says of it: shapes and types are completed from
// there, what doesn't go together is refused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/servable.h"
#include "devices/rknn/context.h"
#include "engine/config_common.h"
#include "inference/model_config.pb.h"

namespace npud {

// How many contexts, where, for whom: known before the model is opened.
struct RknnPlacement {
  QueueSettings queue;
  ResidencePlan residence;
  std::uint32_t contexts = 1;  // runs at once; each has its own activations
};

// Parameters that mean something: npud.device (the device's name, "rknn", or "auto"), npud.pinned, npud.class, and
// npud.quantisation.TENSOR, which plan_rknn_tensors() writes and refuses in any other wording. Shapes are fixed when a
// model is compiled: max_batch_size stays 0.
Result<RknnPlacement> plan_rknn_placement(inference::ModelConfig& config, const QueueSettings& defaults,
                                          const std::string& device, std::uint32_t cores);

struct RknnTensors {
  Signature signature;  // in the order of config.pbtxt, which may leave outputs out
  // In the model's order.
  struct In {
    std::size_t in_signature = 0;
    rknn::abi::Type type = rknn::abi::kFloat32;  // as clients send it
    rknn::abi::Format format = rknn::abi::kUndefined;
    std::uint64_t bytes = 0;
  };
  struct Out {
    std::int64_t in_signature = -1;  // -1: computed and dropped
    bool as_float = false;
    std::uint64_t bytes = 0;
  };
  std::vector<In> inputs;
  std::vector<Out> outputs;
};

// Types: an input is sent in the model's own, or as TYPE_FP32, TYPE_FP16 or TYPE_UINT8, which the runtime converts as
// the model was compiled (mean, scale, quantisation); an output comes in the model's own, or as TYPE_FP32. Left open:
// the model's own, and the parameter npud.quantisation.TENSOR tells what its numbers mean. Shapes: as the runtime has
// them; an input of four dimensions may have `format` FORMAT_NCHW or FORMAT_NHWC, and then has its dims in that order.
Result<RknnTensors> plan_rknn_tensors(inference::ModelConfig& config, const std::vector<rknn::TensorAttributes>& inputs,
                                      const std::vector<rknn::TensorAttributes>& outputs);

}  // namespace npud
