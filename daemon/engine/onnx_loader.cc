// SPDX-License-Identifier: Apache-2.0
#include "engine/onnx_loader.h"

#include <unistd.h>

#include <format>

#include "engine/host_program.h"
#include "engine/model_config.h"
#include "engine/model_source.h"
#include "engine/offload.h"
#include "engine/onnx_servable.h"
#include "engine/warmup.h"

namespace npud {
OnnxLoader::OnnxLoader(OnnxLoaderOptions options, Runtime& runtime, HostDevice& host, Arbiter& host_arbiter,
                       Clock& clock, NpuTarget* npu)
    : options_(std::move(options)), runtime_(runtime), host_(host), arbiter_(host_arbiter), clock_(clock), npu_(npu) {}

OnnxLoader::~OnnxLoader() {
  if (claim_ >= 0) ::close(claim_);
}

Result<std::unique_ptr<OnnxLoader>> OnnxLoader::create(OnnxLoaderOptions options, Runtime& runtime, HostDevice& host,
                                                       Arbiter& host_arbiter, Clock& clock, NpuTarget* npu) {
  int claim = -1;
  if (!options.snapshot_directory.empty()) {
    auto claimed = claim_snapshot_directory(options.snapshot_directory);
    if (!claimed) return std::unexpected(claimed.error());
    claim = *claimed;
  }
  std::unique_ptr<OnnxLoader> loader(new OnnxLoader(std::move(options), runtime, host, host_arbiter, clock, npu));
  loader->claim_ = claim;
  return loader;
}

Result<LoadedModel> OnnxLoader::load(const LoadRequest& request) {
  const std::string name = std::format("{}:{}", request.model, request.version);
  auto named = [&](const Error& error) {
    Error result = error;
    if (!error.message.contains("'" + name + "'")) result.message = std::format("model '{}': {}", name, error.message);
    return std::unexpected<Error>(std::move(result));
  };
  auto file = file_of_version(request.version_directory, request.config.default_model_filename().empty()
                                                             ? "model.onnx"
                                                             : request.config.default_model_filename());
  if (!file) return named(file.error());
  auto source = ModelSource::open(*file, options_.snapshot_directory, options_.max_model_bytes);
  if (!source) return named(source.error());
  inference::ModelConfig config = request.config;
  config.set_name(request.model);
  const std::optional<NpuChoice> npu = npu_ == nullptr ? std::nullopt : std::optional(npu_->choice());
  auto plan = plan_model(config, (*source)->info(), options_.queue_defaults, host_.name(), npu ? &*npu : nullptr);
  if (!plan) return named(plan.error());
  plan->session.memory_limit_bytes = host_.aperture_bytes();

  std::unique_ptr<Offload> offload;
  if (plan->offload.wanted) {
    auto made = Offload::create(name, **source, *plan, options_.snapshot_directory, runtime_, host_, *npu_);
    if (!made) return named(made.error());
    offload = std::move(*made);
  }
  auto program = std::make_shared<HostProgram>(name, *source, plan->session, plan->residence.pinned,
                                               (*source)->info().weight_bytes, runtime_, host_, clock_);
  auto servable = std::make_shared<OnnxServable>(request.model, request.version, std::move(*plan), std::move(program),
                                                 arbiter_, std::move(offload));
  if (auto ok = servable->bring_in(options_.load_tenant); !ok) return named(ok.error());
  if (auto ok = run_warmups(*servable, config, request.model_directory, options_.load_tenant, clock_); !ok)
    return named(ok.error());
  return LoadedModel{std::move(servable), std::move(config)};
}

}  // namespace npud
