// SPDX-License-Identifier: Apache-2.0
#include "api/encode.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <format>
#include <vector>

#include "api/arena_message.h"
#include "inference/grpc_service.pb.h"

namespace npud::api {
namespace {

// Below it a copy is cheaper than a slice of its own.
constexpr std::size_t copy_up_to_bytes = 16 * 1024;
constexpr std::uint64_t protobuf_limit_bytes = (1ull << 31) - 1;

// Wire tags (field number << 3 | wire type 2) of the fields that are written by hand here; see
// proto/inference/grpc_service.proto.
constexpr char raw_output_contents_tag = (6 << 3) | 2;
constexpr char infer_response_tag = (2 << 3) | 2;

void append_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

std::size_t varint_size(std::uint64_t value) {
  std::size_t size = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++size;
  }
  return size;
}

const RegionOutput* region_of(std::span<const RegionOutput> region_outputs, const std::string& output) {
  const auto found = std::ranges::find(region_outputs, output, &RegionOutput::output);
  return found == region_outputs.end() ? nullptr : &*found;
}

// Everything but raw_output_contents.
void fill_head(const std::string& id, const Response& response, std::span<const RegionOutput> region_outputs,
               inference::ModelInferResponse& message) {
  message.set_model_name(response.model);
  message.set_model_version(std::to_string(response.version));
  message.set_id(id);
  for (const Tensor& tensor : response.outputs) {
    auto& output = *message.add_outputs();
    output.set_name(tensor.name);
    const std::string_view type = data_type_name(tensor.type);
    output.set_datatype(type.data(), type.size());
    output.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    if (const RegionOutput* region = region_of(region_outputs, tensor.name)) {
      auto& parameters = *output.mutable_parameters();
      parameters["shared_memory_region"].set_string_param(region->part.region);
      parameters["shared_memory_offset"].set_int64_param(static_cast<std::int64_t>(region->part.offset_bytes));
      parameters["shared_memory_byte_size"].set_int64_param(static_cast<std::int64_t>(tensor.data.size_bytes()));
    }
  }
}

grpc::Slice external_slice(const Buffer& buffer) {
  return grpc::Slice(
      buffer.bytes().data(), buffer.size_bytes(), [](void* owner) { delete static_cast<Buffer*>(owner); },
      new Buffer(buffer));
}

Result<grpc::ByteBuffer> encode(const std::string& id, const Response& response,
                                std::span<const RegionOutput> region_outputs, bool in_stream) {
  ArenaMessage<inference::ModelInferResponse> head;
  fill_head(id, response, region_outputs, *head.message);
  // Beside the bytes themselves, 16 are enough for a tag and a length.
  std::uint64_t total_bytes = head.message->ByteSizeLong(), copied_bytes = total_bytes + 16;
  for (const Tensor& tensor : response.outputs) {
    const std::uint64_t size_bytes = region_of(region_outputs, tensor.name) != nullptr ? 0 : tensor.data.size_bytes();
    total_bytes += 1 + varint_size(size_bytes) + size_bytes;
    copied_bytes += 16 + (size_bytes <= copy_up_to_bytes ? size_bytes : 0);
  }
  if (total_bytes > protobuf_limit_bytes - 16) {
    Error error{ErrorCode::resource_exhausted,
                std::format("the outputs have {} bytes, more than one message can carry: ask for them in shared memory",
                            total_bytes),
                {},
                {},
                {}};
    error.bytes_needed = total_bytes;
    return std::unexpected(error);
  }
  std::vector<grpc::Slice> slices;
  slices.reserve(2 * response.outputs.size() + 1);
  std::string pending;
  pending.reserve(copied_bytes);
  if (in_stream) {
    pending += infer_response_tag;
    append_varint(pending, total_bytes);
  }
  head.message->AppendToString(&pending);
  for (const Tensor& tensor : response.outputs) {
    const bool elsewhere = region_of(region_outputs, tensor.name) != nullptr;
    const std::size_t size_bytes = elsewhere ? 0 : tensor.data.size_bytes();
    pending += raw_output_contents_tag;
    append_varint(pending, size_bytes);
    if (size_bytes <= copy_up_to_bytes) {
      pending.append(reinterpret_cast<const char*>(tensor.data.bytes().data()), size_bytes);
    } else {
      slices.emplace_back(pending);
      pending.clear();
      slices.push_back(external_slice(tensor.data));
    }
  }
  if (!pending.empty() || slices.empty()) {
    slices.emplace_back(pending);
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace

Result<grpc::ByteBuffer> encode_response(const std::string& id, const Response& response,
                                         std::span<const RegionOutput> region_outputs) {
  return encode(id, response, region_outputs, false);
}

Result<grpc::ByteBuffer> encode_stream_response(const std::string& id, const Response& response,
                                                std::span<const RegionOutput> region_outputs) {
  return encode(id, response, region_outputs, true);
}

grpc::ByteBuffer encode_stream_error(const std::string& id, const std::string& model, const Error& error) {
  inference::ModelStreamInferResponse message;
  message.set_error_message(std::format("{}: {}", error_code_name(error.code), error.message));
  message.mutable_infer_response()->set_id(id);
  message.mutable_infer_response()->set_model_name(model);
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

std::string path_metadata(const PathTaken& path) {
  std::string text = "device=" + path.device;
  if (!path.reason.empty()) {
    text += "; reason=" + path.reason;
  }
  if (path.rearm_after) {
    text += std::format("; rearm_ms={}", std::chrono::ceil<std::chrono::milliseconds>(*path.rearm_after).count());
  }
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) {
      c = '?';  // header values are ASCII
    }
  }
  return text;
}

}  // namespace npud::api
