// SPDX-License-Identifier: Apache-2.0
// Who is calling, as the kernel or a client certificate says it; never from the message.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <string>

#include "api/regions.h"
#include "core/error.h"
#include "core/request.h"

namespace npud::api {

struct Caller {
  TenantId tenant;
  std::string tenant_name;
  std::optional<std::uint32_t> uid;  // none: over TLS
  RegionOwner key;                   // "uid:1000", "cert:camera": what belongs to it is kept under this
  bool admin = false;
  PriorityClass highest_class = PriorityClass::interactive;
};

// One for each server. Thread-safe, called for each call.
class CallerResolver {
 public:
  virtual ~CallerResolver() = default;
  virtual Result<std::shared_ptr<const Caller>> resolve(const grpc::CallbackServerContext& context) = 0;
};

}  // namespace npud::api
