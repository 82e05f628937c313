// SPDX-License-Identifier: Apache-2.0
#include "engine/rknn_loader.h"

#include <format>

#include "engine/config_common.h"
#include "engine/model_source.h"
#include "engine/rknn_plan.h"
#include "engine/rknn_servable.h"
#include "engine/warmup.h"

namespace npud {
namespace {

constexpr const char* default_file = "model.rknn";

bool is_compiled(const LoadRequest& request) {
  const inference::ModelConfig& config = request.config;
  if (config.platform() == "rknn" || config.backend() == "rknn") return true;
  if (!config.platform().empty() || !config.backend().empty()) return false;
  if (!config.default_model_filename().empty()) return config.default_model_filename().ends_with(".rknn");
  std::error_code ignored;
  return std::filesystem::exists(request.version_directory / default_file, ignored) &&
         !std::filesystem::exists(request.version_directory / "model.onnx", ignored);
}

}  // namespace

RknnLoader::RknnLoader(RknnLoaderOptions options, rknn::RknnDevice& device, Arbiter& arbiter, Clock& clock)
    : options_(std::move(options)), device_(device), arbiter_(arbiter), clock_(clock) {}

Result<LoadedModel> RknnLoader::load(const LoadRequest& request) {
  const std::string name = std::format("{}:{}", request.model, request.version);
  auto loaded = load_named(request, name);
  if (!loaded && !loaded.error().message.contains("'" + name + "'"))
    loaded.error().message = std::format("model '{}': {}", name, loaded.error().message);
  return loaded;
}

Result<LoadedModel> RknnLoader::load_named(const LoadRequest& request, const std::string& name) {
  inference::ModelConfig config = request.config;
  config.set_name(request.model);
  if (config.default_model_filename().empty()) config.set_default_model_filename(default_file);
  auto path = file_of_version(request.version_directory, config.default_model_filename());
  if (!path) return std::unexpected(path.error());
  auto placement = plan_rknn_placement(config, options_.queue_defaults, device_.name(), device_.cores());
  if (!placement) return std::unexpected(placement.error());
  auto source = ModelSource::open_single_file(*path, options_.snapshot_directory, options_.max_model_bytes);
  if (!source) return std::unexpected(source.error());
  auto file = read_rknn_file(**source);
  if (!file) return std::unexpected(file.error());
  std::uint64_t expected = (*file)->size();
  if (auto asked = rknn::ask_memory(device_.library(), std::move(*file), device_.context_options(name)); !asked) {
    return std::unexpected(asked.error());
  } else if (*asked) {
    expected = **asked;
  }
  auto program = std::make_shared<RknnProgram>(name, *source, placement->contexts, placement->residence.pinned,
                                               expected, device_, clock_);
  // What the tensors are is known when the model is open, which takes its turn on the device.
  auto come = arbiter_.submit_and_wait(
      {.tenant = options_.load_tenant, .priority_class = PriorityClass::batch, .program = program, .run = [] {
         return Result<>{};
       }});
  auto tensors = come ? plan_rknn_tensors(config, program->inputs(), program->outputs())
                      : Result<RknnTensors>(std::unexpected(come.error()));
  if (!tensors) {
    arbiter_.forget(*program);
    return std::unexpected(tensors.error());
  }
  auto servable = std::make_shared<RknnServable>(request.model, request.version, std::move(*placement),
                                                 std::move(*tensors), std::move(program), arbiter_);
  if (auto ok = run_warmups(*servable, config, request.model_directory, options_.load_tenant, clock_); !ok)
    return std::unexpected(ok.error());
  return LoadedModel{std::move(servable), std::move(config)};
}

Result<LoadedModel> LoaderByKind::load(const LoadRequest& request) {
  if (!is_compiled(request)) return onnx_.load(request);
  if (rknn_ != nullptr) return rknn_->load(request);
  Error error = why_no_rknn_;
  error.message = std::format("model '{}:{}': {}", request.model, request.version, error.message);
  return std::unexpected(std::move(error));
}

}  // namespace npud
