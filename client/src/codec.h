// SPDX-License-Identifier: Apache-2.0
// Wire messages ⇄ libnpud's values. No policy, no I/O.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "inference/grpc_service.pb.h"
#include "npud/client.h"

namespace npud::client {

// Moves the tensors' data into the message.
void encode(InferRequest&& request, inference::ModelInferRequest& message);

// Moves the data out of the message; typed contents of other servers become raw. Fails (data_loss) on an answer that
// contradicts itself.
Result<InferResult> decode(inference::ModelInferResponse&& message);

// The error of a failed status, with RetryInfo and ErrorInfo where npud sent them. `context` may be null: no trailing
// metadata then.
Error error_of(const grpc::Status& status, const grpc::ClientContext* context);

// The npud-path trailing metadata, or nothing.
std::string path_of(const grpc::ClientContext& context);

}  // namespace npud::client
