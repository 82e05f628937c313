// SPDX-License-Identifier: Apache-2.0
// model_warmup of config.pbtxt: requests that a version answers before it serves.
#pragma once

#include <filesystem>

#include "core/clock.h"
#include "core/error.h"
#include "core/servable.h"
#include "inference/model_config.pb.h"

namespace npud {

// Runs each warm-up `count` times. Files of inputs lie in <model directory>/warmup/ and hold the tensor's raw form.
// Errors name the warm-up.
Result<> run_warmups(Servable& servable, const inference::ModelConfig& config,
                     const std::filesystem::path& model_directory, TenantId tenant, Clock& clock);

}  // namespace npud
