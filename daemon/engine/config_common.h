// SPDX-License-Identifier: Apache-2.0
// What config.pbtxt means whatever kind of model it belongs to. Nothing here falls back: what can't be done as written
// is an error.
#pragma once

#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/servable.h"
#include "inference/model_config.pb.h"

namespace npud {

// From parameters of any kind of model.
struct ResidencePlan {
  bool pinned = false;                                 // npud.pinned: never leaves its device
  PriorityClass best_class = PriorityClass::realtime;  // npud.class: jobs of the model run in no better class
};

// unimplemented or invalid_argument for what no kind of model here can be.
Result<> check_served(const inference::ModelConfig& config);

// The model's file; `name` must be that of a file in the version's directory.
Result<std::filesystem::path> file_of_version(const std::filesystem::path& version_directory, const std::string& name);

// npud.pinned and npud.class; false: the key is another.
Result<bool> apply_residence(const std::string& key, const std::string& value, ResidencePlan& plan);

// instance_group and dynamic_batching; what they leave open comes from `defaults` and is completed in `config`.
Result<QueueSettings> queue_settings(inference::ModelConfig& config, const QueueSettings& defaults);

}  // namespace npud
