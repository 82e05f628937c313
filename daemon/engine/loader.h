// SPDX-License-Identifier: Apache-2.0
// Turns one version of a model, as it lies in a directory, into something that runs. The repository sees only this
// interface; the one for ONNX files is engine/onnx_loader.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "core/error.h"
#include "core/servable.h"
#include "inference/model_config.pb.h"

namespace npud {

struct LoadRequest {
  std::string model;
  std::int64_t version = 0;
  std::filesystem::path model_directory;    // <repository>/<model>: warmup/ lies here
  std::filesystem::path version_directory;  // <repository>/<model>/<version>
  inference::ModelConfig config;            // as written, or empty but for the name
};

struct LoadedModel {
  std::shared_ptr<Servable> servable;
  inference::ModelConfig config;  // completed from the model's file: what ModelConfig answers
};

// Thread-safe.
class Loader {
 public:
  virtual ~Loader() = default;

  // Inspects the file, completes the configuration from it and checks one against the other, makes the program resident
  // once (waiting for its turn on the device), runs the warm-ups. On failure nothing is left behind. Errors name the
  // model and what to change: invalid_argument (configuration), not_found (no file), data_loss (corrupt file),
  // unimplemented, resource_exhausted.
  virtual Result<LoadedModel> load(const LoadRequest& request) = 0;
};

}  // namespace npud
