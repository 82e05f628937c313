// SPDX-License-Identifier: Apache-2.0
// Loads compiled .rknn models, and decides which models those are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "core/arbiter.h"
#include "core/clock.h"
#include "devices/rknn/rknn_device.h"
#include "engine/loader.h"

namespace npud {

struct RknnLoaderOptions {
  QueueSettings queue_defaults;
  TenantId load_tenant;
  std::uint64_t max_model_bytes = 2ull << 30;
  std::filesystem::path snapshot_directory;  // as OnnxLoaderOptions has it; claimed by whoever made that loader
};

// Thread-safe. Everything handed in must outlive it and the models it loaded.
class RknnLoader final : public Loader {
 public:
  RknnLoader(RknnLoaderOptions options, rknn::RknnDevice& device, Arbiter& arbiter, Clock& clock);
  Result<LoadedModel> load(const LoadRequest& request) override;

 private:
  Result<LoadedModel> load_named(const LoadRequest& request, const std::string& name);

  const RknnLoaderOptions options_;
  rknn::RknnDevice& device_;
  Arbiter& arbiter_;
  Clock& clock_;
};

// Hands each model to the loader of its kind: a model is compiled when its platform or backend is "rknn", or, where it
// says neither, its file ends in ".rknn" or the only one there is model.rknn. Without a loader for those (null) they
// fail with `why_no_rknn`.
class LoaderByKind final : public Loader {
 public:
  LoaderByKind(Loader& onnx, Loader* rknn, Error why_no_rknn)
      : onnx_(onnx), rknn_(rknn), why_no_rknn_(std::move(why_no_rknn)) {}
  Result<LoadedModel> load(const LoadRequest& request) override;

 private:
  Loader& onnx_;
  Loader* const rknn_;
  const Error why_no_rknn_;
};

}  // namespace npud
