// SPDX-License-Identifier: Apache-2.0
// Errors on the wire: the code one to one, the sentence as the message, and google.rpc details (RetryInfo, ErrorInfo)
// for programs.
#pragma once

#include <grpcpp/support/status.h>

#include "core/error.h"

namespace npud::api {

[[nodiscard]] grpc::Status to_status(const Error& error);

}  // namespace npud::api
