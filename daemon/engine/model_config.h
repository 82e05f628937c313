// SPDX-License-Identifier: Apache-2.0
// config.pbtxt against the model's file: completes what the configuration leaves open, refuses what doesn't go
// together, and says what it all means for core. Nothing here falls back: what can't be done as written is an error.
#pragma once

#include <string>

#include "core/error.h"
#include "core/servable.h"
#include "engine/onnx_file.h"
#include "engine/session.h"
#include "inference/model_config.pb.h"

namespace npud {

struct ModelPlan {
  Signature signature;
  QueueSettings queue;
  SessionSettings session;
  bool pinned = false;
  PriorityClass best_class = PriorityClass::realtime;  // jobs of the model run in no better class
};

// `config` is completed in place. Parameters that mean something, all optional:
//   npud.device     name of the device that runs it; must exist
//   npud.place      the same for its heavy nodes
//   npud.precision  "model": as the file has it
//   npud.pinned     "true": never leaves its device
//   npud.class      "realtime", "interactive", "batch": the best class its jobs run in
// Other keys that begin with "npud." are errors; those of other systems are kept and ignored.
Result<ModelPlan> plan_model(inference::ModelConfig& config, const OnnxInfo& info, const QueueSettings& defaults,
                             const std::string& device);

}  // namespace npud
