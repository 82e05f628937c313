// SPDX-License-Identifier: Apache-2.0
// From the wire to core's Request. No policy: what a model wants is checked by core against its signature.
#pragma once

#include <memory>
#include <vector>

#include "api/regions.h"
#include "core/request.h"
#include "inference/grpc_service.pb.h"

namespace npud::api {

// What decoding needs to know besides the message.
struct DecodeContext {
  TenantId tenant;
  PriorityClass highest_class = PriorityClass::interactive;  // a request may ask for this or a lower one
  RegionOwner region_owner;
  Regions* regions = nullptr;  // null: no shared memory for this caller
  TimePoint now;
  TimePoint deadline = TimePoint::never();  // gRPC's
};

// An output that goes to the client's shared memory.
struct RegionOutput {
  std::string output;
  RegionPart part;
};

struct DecodedRequest {
  Request request;  // without done and cancelled
  std::vector<RegionOutput> region_outputs;
};

// Raw contents are not copied: the buffers point into the message and keep it alive. The error is invalid_argument with
// a sentence that names the field, unimplemented for sequences and classification, or what the region store says.
Result<DecodedRequest> decode_infer(std::shared_ptr<inference::ModelInferRequest> message,
                                    const DecodeContext& context);

// "" is none; a positive integer otherwise.
Result<std::optional<std::int64_t>> decode_version(const std::string& text);

}  // namespace npud::api
