// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/backend.h"
#include "api/caller.h"
#include "inference/grpc_service.grpc.pb.h"

namespace npud::api {

// The generated layers, one a method: bytes for the two that carry tensors, messages for the rest. (The generated
// CallbackService has messages for all, and its stream can't be overridden by one of bytes.)
namespace layers {
using Generated = inference::GRPCInferenceService;
using SystemSharedMemoryUnregister = Generated::WithCallbackMethod_SystemSharedMemoryUnregister<Generated::Service>;
using SystemSharedMemoryRegister =
    Generated::WithCallbackMethod_SystemSharedMemoryRegister<SystemSharedMemoryUnregister>;
using SystemSharedMemoryStatus = Generated::WithCallbackMethod_SystemSharedMemoryStatus<SystemSharedMemoryRegister>;
using RepositoryModelUnload = Generated::WithCallbackMethod_RepositoryModelUnload<SystemSharedMemoryStatus>;
using RepositoryModelLoad = Generated::WithCallbackMethod_RepositoryModelLoad<RepositoryModelUnload>;
using RepositoryIndex = Generated::WithCallbackMethod_RepositoryIndex<RepositoryModelLoad>;
using ModelStatistics = Generated::WithCallbackMethod_ModelStatistics<RepositoryIndex>;
using ModelConfig = Generated::WithCallbackMethod_ModelConfig<ModelStatistics>;
using ModelMetadata = Generated::WithCallbackMethod_ModelMetadata<ModelConfig>;
using ServerMetadata = Generated::WithCallbackMethod_ServerMetadata<ModelMetadata>;
using ModelReady = Generated::WithCallbackMethod_ModelReady<ServerMetadata>;
using ServerReady = Generated::WithCallbackMethod_ServerReady<ModelReady>;
using ServerLive = Generated::WithCallbackMethod_ServerLive<ServerReady>;
using ModelStreamInfer = Generated::WithRawCallbackMethod_ModelStreamInfer<ServerLive>;
using ModelInfer = Generated::WithRawCallbackMethod_ModelInfer<ModelStreamInfer>;
}  // namespace layers

// inference.GRPCInferenceService for the callers that one resolver tells apart. ModelInfer and ModelStreamInfer take
// and give bytes: parsing goes into an arena, answers are sent from where the model left them.
class InferenceService final : public layers::ModelInfer {
 public:
  InferenceService(Backend& backend, CallerResolver& callers) : backend_(backend), callers_(callers) {}

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  // infer_call.cc, infer_stream.cc
  Reactor* ModelInfer(Context*, const grpc::ByteBuffer*, grpc::ByteBuffer*) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ModelStreamInfer(Context*) override;

  // inference_service.cc
  Reactor* ServerLive(Context*, const inference::ServerLiveRequest*, inference::ServerLiveResponse*) override;
  Reactor* ServerReady(Context*, const inference::ServerReadyRequest*, inference::ServerReadyResponse*) override;
  Reactor* ModelReady(Context*, const inference::ModelReadyRequest*, inference::ModelReadyResponse*) override;
  Reactor* ServerMetadata(Context*, const inference::ServerMetadataRequest*,
                          inference::ServerMetadataResponse*) override;
  Reactor* ModelMetadata(Context*, const inference::ModelMetadataRequest*, inference::ModelMetadataResponse*) override;
  Reactor* ModelConfig(Context*, const inference::ModelConfigRequest*, inference::ModelConfigResponse*) override;
  Reactor* ModelStatistics(Context*, const inference::ModelStatisticsRequest*,
                           inference::ModelStatisticsResponse*) override;

  // repository_calls.cc
  Reactor* RepositoryIndex(Context*, const inference::RepositoryIndexRequest*,
                           inference::RepositoryIndexResponse*) override;
  Reactor* RepositoryModelLoad(Context*, const inference::RepositoryModelLoadRequest*,
                               inference::RepositoryModelLoadResponse*) override;
  Reactor* RepositoryModelUnload(Context*, const inference::RepositoryModelUnloadRequest*,
                                 inference::RepositoryModelUnloadResponse*) override;
  Reactor* SystemSharedMemoryStatus(Context*, const inference::SystemSharedMemoryStatusRequest*,
                                    inference::SystemSharedMemoryStatusResponse*) override;
  Reactor* SystemSharedMemoryRegister(Context*, const inference::SystemSharedMemoryRegisterRequest*,
                                      inference::SystemSharedMemoryRegisterResponse*) override;
  Reactor* SystemSharedMemoryUnregister(Context*, const inference::SystemSharedMemoryUnregisterRequest*,
                                        inference::SystemSharedMemoryUnregisterResponse*) override;

 private:
  Result<Regions*> regions_for(const Caller& caller) const;

  Backend& backend_;
  CallerResolver& callers_;
};

}  // namespace npud::api
