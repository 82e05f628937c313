// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime.h"

#include <google/protobuf/stubs/logging.h>
#include <onnx/defs/schema.h>
#include <onnxruntime_cxx_api.h>

#include <cstdio>
#include <format>
#include <mutex>
#include <set>
#include <thread>

namespace npud {
namespace {

// Called by ONNX Runtime, at any time until the environment is gone.
void forward_message(void* param, OrtLoggingLevel level, const char* category, const char*, const char*,
                     const char* message) {
  const auto& options = *static_cast<const RuntimeOptions*>(param);
  const RuntimeLogLevel ours = level >= ORT_LOGGING_LEVEL_ERROR     ? RuntimeLogLevel::error
                               : level == ORT_LOGGING_LEVEL_WARNING ? RuntimeLogLevel::warning
                                                                    : RuntimeLogLevel::info;
  if (options.log) {
    options.log(ours, std::format("ONNX Runtime ({}): {}", category, message));
  } else if (ours != RuntimeLogLevel::info) {
    std::fprintf(stderr, "ONNX Runtime (%s): %s\n", category, message);
  }
}

// libonnx fills its registry when it is first looked into; ONNX Runtime registers the operators itself when its
// environment is made and only later looks into it. Looked into and emptied before, nothing is registered twice (see
// the class).
void empty_schema_registry() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::set<std::string> domains;
    for (const auto& schema : onnx::OpSchemaRegistry::get_all_schemas_with_history()) domains.insert(schema.domain());
    for (const auto& domain : domains) onnx::OpSchemaRegistry::OpSchemaDeregisterAll(domain);
  });
}

}  // namespace

Runtime::Runtime(RuntimeOptions options) : options_(std::move(options)) {}
Runtime::~Runtime() = default;

Result<std::unique_ptr<Runtime>> Runtime::create(RuntimeOptions options) {
  empty_schema_registry();
  std::uint32_t threads = options.threads;
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(options)));
  try {
    Ort::ThreadingOptions threading;
    // A run's own thread computes too: n in the pool's terms are n - 1 threads and the caller.
    threading.SetGlobalIntraOpNumThreads(static_cast<int>(threads));
    threading.SetGlobalInterOpNumThreads(1);
    threading.SetGlobalSpinControl(runtime->options_.spin ? 1 : 0);
    runtime->env_ =
        std::make_unique<Ort::Env>(threading, forward_message, &runtime->options_, ORT_LOGGING_LEVEL_WARNING, "npud");
    runtime->env_->DisableTelemetryEvents();
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, std::format("ONNX Runtime can't start: {}", error.what()));
  }
  return runtime;
}

std::string Runtime::version() { return Ort::GetVersionString(); }

}  // namespace npud
