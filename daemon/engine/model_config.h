// SPDX-License-Identifier: Apache-2.0
// config.pbtxt against the model's file: completes what the configuration leaves open, refuses what doesn't go
// together, and says what it all means for core. Nothing here falls back: what can't be done as written is an error.
#pragma once

#include <string>

#include "core/error.h"
#include "core/servable.h"
#include "engine/config_common.h"
#include "engine/offload_settings.h"
#include "engine/onnx_file.h"
#include "engine/session.h"
#include "inference/model_config.pb.h"

namespace npud {

struct ModelPlan {
  Signature signature;
  QueueSettings queue;
  SessionSettings session;
  OffloadSettings offload;
  ResidencePlan residence;
};

// `config` is completed in place. Parameters that mean something, all optional:
//   npud.device      "host" (the default), the name or kind of an NPU ("rknpu0", "rknpu"), or "auto": the NPU where
//   there is a healthy one npud.place       the same, for its heavy nodes only: stronger than npud.device
//   npud.precision   "model": as the file has it; on an NPU "fp16" (the default) or "int8"
//   npud.host_nodes, npud.int8_nodes, npud.fp16_nodes   glob patterns over node names, the first list that matches
//   decides; NPU only npud.verify      "off", "sampled", "always": how many results of the NPU are checked; NPU only
//   npud.pinned     "true": never leaves its device
//   npud.class      "realtime", "interactive", "batch": the best class its jobs run in
// Other keys that begin with "npud." are errors; those of other systems are kept and ignored.
Result<ModelPlan> plan_model(inference::ModelConfig& config, const OnnxInfo& info, const QueueSettings& defaults,
                             const std::string& device, const NpuChoice* npu = nullptr);

}  // namespace npud
