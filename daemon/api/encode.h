// SPDX-License-Identifier: Apache-2.0
// From core's Response to the wire, without copying large outputs: gRPC sends them from where the model left them.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <span>
#include <string>

#include "api/decode.h"
#include "core/request.h"

namespace npud::api {

// A serialised inference.ModelInferResponse. There is one raw_output_contents entry for each output, in their order,
// empty for those in shared memory (`region_outputs`, whose tensors carry the shared_memory_* parameters instead), as
// Triton does it. Outputs in shared memory must have been written already; their Tensor::data gives the size. Fails
// when it exceeds protobuf's 2 GiB.
Result<grpc::ByteBuffer> encode_response(const std::string& id, const Response& response,
                                         std::span<const RegionOutput> region_outputs);

// The same inside an inference.ModelStreamInferResponse.
Result<grpc::ByteBuffer> encode_stream_response(const std::string& id, const Response& response,
                                                std::span<const RegionOutput> region_outputs);

// A stream's answer to a request that failed: error_message, and the id in an otherwise empty infer_response.
grpc::ByteBuffer encode_stream_error(const std::string& id, const std::string& model, const Error& error);

// "device=host", "device=host; reason=…; rearm_ms=250": the value of the npud-path trailing metadata, printable ASCII.
std::string path_metadata(const PathTaken& path);

}  // namespace npud::api
