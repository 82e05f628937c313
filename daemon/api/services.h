// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_builder.h>

#include "api/backend.h"
#include "api/caller.h"
#include "api/control_service.h"
#include "api/inference_service.h"
#include "api/reflection_service.h"

namespace npud::api {

// All services for the callers that one resolver tells apart. Must outlive the grpc::Server it was added to.
class Services {
 public:
  Services(Backend& backend, CallerResolver& callers)
      : inference_(backend, callers),
        control_(backend, callers),
        reflection_({"inference.GRPCInferenceService", "npud.v1.Control", "grpc.health.v1.Health",
                     "grpc.reflection.v1alpha.ServerReflection"}) {}

  void add_to(grpc::ServerBuilder& builder) {
    builder.RegisterService(&inference_);
    builder.RegisterService(&control_);
    builder.RegisterService(&reflection_);
  }

 private:
  InferenceService inference_;
  ControlService control_;
  ReflectionService reflection_;
};

}  // namespace npud::api
