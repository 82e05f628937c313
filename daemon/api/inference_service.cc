// SPDX-License-Identifier: Apache-2.0
#include "api/inference_service.h"

#include <chrono>

#include "api/decode.h"
#include "api/infer_call.h"
#include "api/infer_stream.h"
#include "api/unary.h"
#include "api/version.h"

namespace npud::api {
namespace {

void fill_sum(inference::StatisticDuration* out, const DurationSum& sum) {
  out->set_count(sum.count);
  out->set_ns(static_cast<std::uint64_t>(std::chrono::nanoseconds(sum.total).count()));
}

// As clients must send it: with the batch dimension that the signature implies.
void fill_tensor(inference::ModelMetadataResponse::TensorMetadata* out, const TensorInfo& info, bool batched) {
  out->set_name(info.name);
  const std::string_view type = data_type_name(info.type);
  out->set_datatype(type.data(), type.size());
  if (batched) {
    out->add_shape(-1);
  }
  out->mutable_shape()->Add(info.shape.begin(), info.shape.end());
}

}  // namespace

InferenceService::Reactor* InferenceService::ModelInfer(Context* context, const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return InferCall::start(backend_, callers_, context, request, response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* InferenceService::ModelStreamInfer(Context* context) {
  return new InferStream(backend_, callers_, context);
}

InferenceService::Reactor* InferenceService::ServerLive(Context* context, const inference::ServerLiveRequest*,
                                                        inference::ServerLiveResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    out->set_live(true);
    return {};
  });
}

InferenceService::Reactor* InferenceService::ServerReady(Context* context, const inference::ServerReadyRequest*,
                                                         inference::ServerReadyResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    out->set_ready(backend_.ready());
    return {};
  });
}

InferenceService::Reactor* InferenceService::ModelReady(Context* context, const inference::ModelReadyRequest* request,
                                                        inference::ModelReadyResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    auto version = decode_version(request->version());
    if (!version) {
      return std::unexpected(version.error());
    }
    out->set_ready(backend_.repository.ready(request->name(), *version));
    return {};
  });
}

InferenceService::Reactor* InferenceService::ServerMetadata(Context* context, const inference::ServerMetadataRequest*,
                                                            inference::ServerMetadataResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller& caller) -> Result<> {
    out->set_name("npud");
    out->set_version(daemon_version);
    for (const char* extension : {"model_configuration", "model_repository", "schedule_policy", "statistics"}) {
      out->add_extensions(extension);
    }
    if (regions_for(caller)) {
      out->add_extensions("system_shared_memory");
    }
    return {};
  });
}

InferenceService::Reactor* InferenceService::ModelMetadata(Context* context,
                                                           const inference::ModelMetadataRequest* request,
                                                           inference::ModelMetadataResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    auto version = decode_version(request->version());
    if (!version) {
      return std::unexpected(version.error());
    }
    auto metadata = backend_.repository.metadata(request->name(), *version);
    if (!metadata) {
      return std::unexpected(metadata.error());
    }
    out->set_name(metadata->model);
    for (const std::int64_t number : metadata->versions) {
      out->add_versions(std::to_string(number));
    }
    out->set_platform(metadata->platform);
    const bool batched = metadata->signature.max_batch_size > 0;
    for (const TensorInfo& info : metadata->signature.inputs) {
      fill_tensor(out->add_inputs(), info, batched);
    }
    for (const TensorInfo& info : metadata->signature.outputs) {
      fill_tensor(out->add_outputs(), info, batched);
    }
    out->mutable_properties()->insert(metadata->properties.begin(), metadata->properties.end());
    return {};
  });
}

InferenceService::Reactor* InferenceService::ModelConfig(Context* context, const inference::ModelConfigRequest* request,
                                                         inference::ModelConfigResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    auto version = decode_version(request->version());
    if (!version) {
      return std::unexpected(version.error());
    }
    auto config = backend_.repository.config(request->name(), *version);
    if (!config) {
      return std::unexpected(config.error());
    }
    *out->mutable_config() = std::move(*config);
    return {};
  });
}

InferenceService::Reactor* InferenceService::ModelStatistics(Context* context,
                                                             const inference::ModelStatisticsRequest* request,
                                                             inference::ModelStatisticsResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    auto version = decode_version(request->version());
    if (!version) {
      return std::unexpected(version.error());
    }
    if (!request->name().empty()) {
      if (auto known = backend_.server.find(request->name(), *version); !known) {
        return std::unexpected(known.error());
      }
    }
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    for (const ModelStatisticsSnapshot& from : backend_.server.statistics(request->name(), *version)) {
      inference::ModelStatistics& to = *out->add_model_stats();
      to.set_name(from.model);
      to.set_version(std::to_string(from.version));
      if (from.last_inference_age) {
        to.set_last_inference(static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::milliseconds>(now - *from.last_inference_age).count()));
      }
      to.set_inference_count(from.inference_count);
      to.set_execution_count(from.execution_count);
      inference::InferStatistics& stats = *to.mutable_inference_stats();
      fill_sum(stats.mutable_success(), from.success);
      fill_sum(stats.mutable_fail(), from.fail);
      fill_sum(stats.mutable_queue(), from.queue);
      fill_sum(stats.mutable_compute_input(), from.compute_input);
      fill_sum(stats.mutable_compute_infer(), from.compute_infer);
      fill_sum(stats.mutable_compute_output(), from.compute_output);
      for (const auto& [size, batch] : from.batches) {
        inference::InferBatchStatistics& b = *to.add_batch_stats();
        b.set_batch_size(size);
        fill_sum(b.mutable_compute_input(), batch.compute_input);
        fill_sum(b.mutable_compute_infer(), batch.compute_infer);
        fill_sum(b.mutable_compute_output(), batch.compute_output);
      }
    }
    return {};
  });
}

}  // namespace npud::api
