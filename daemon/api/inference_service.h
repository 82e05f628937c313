// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/backend.h"
#include "api/caller.h"
#include "inference/grpc_service.grpc.pb.h"

namespace npud::api {

// inference.GRPCInferenceService for the callers that one resolver tells apart. ModelInfer and ModelStreamInfer take and give bytes:
// parsing goes into an arena, answers are sent from where the model left them. The rest is the generated callback API.
class InferenceService final
    : public inference::GRPCInferenceService::WithRawCallbackMethod_ModelInfer<
          inference::GRPCInferenceService::WithRawCallbackMethod_ModelStreamInfer<inference::GRPCInferenceService::CallbackService>> {
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
  Reactor* ServerMetadata(Context*, const inference::ServerMetadataRequest*, inference::ServerMetadataResponse*) override;
  Reactor* ModelMetadata(Context*, const inference::ModelMetadataRequest*, inference::ModelMetadataResponse*) override;
  Reactor* ModelConfig(Context*, const inference::ModelConfigRequest*, inference::ModelConfigResponse*) override;
  Reactor* ModelStatistics(Context*, const inference::ModelStatisticsRequest*, inference::ModelStatisticsResponse*) override;

  // repository_calls.cc
  Reactor* RepositoryIndex(Context*, const inference::RepositoryIndexRequest*, inference::RepositoryIndexResponse*) override;
  Reactor* RepositoryModelLoad(Context*, const inference::RepositoryModelLoadRequest*, inference::RepositoryModelLoadResponse*) override;
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
