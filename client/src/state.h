// SPDX-License-Identifier: Apache-2.0
// The connection that a Client, its copies and a Control share.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "inference/grpc_service.grpc.pb.h"
#include "npud/client.h"
#include "npud/v1/control.grpc.pb.h"

namespace npud::client {

struct Client::State {
  std::string address;
  std::chrono::milliseconds timeout;  // of calls that have no time of their own
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<inference::GRPCInferenceService::Stub> inference;
  std::unique_ptr<v1::Control::Stub> control;
};

}  // namespace npud::client
