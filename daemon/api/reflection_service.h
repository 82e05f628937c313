// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rpc/reflection.grpc.pb.h"

namespace npud::api {

// grpc.reflection.v1alpha over the descriptors linked into the daemon. On the callback API, unlike the library's own,
// so that a tenant's server has no threads of its own.
class ReflectionService final : public grpc::reflection::v1alpha::ServerReflection::CallbackService {
 public:
  explicit ReflectionService(std::vector<std::string> services) : services_(std::move(services)) {}

  grpc::ServerBidiReactor<grpc::reflection::v1alpha::ServerReflectionRequest,
                          grpc::reflection::v1alpha::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;

 private:
  const std::vector<std::string> services_;
};

}  // namespace npud::api
