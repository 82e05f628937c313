// SPDX-License-Identifier: Apache-2.0
// A request from the wire: whatever the bytes are, decoding ends with a request whose tensors lie inside of the
// message, or with an error that has a sentence. What was decoded is sent back as an answer, whose encoding must parse.
#include <google/protobuf/stubs/logging.h>

#include <cstdlib>

#include "api/decode.h"
#include "api/encode.h"
#include "api/status.h"

namespace {

using namespace npud;

void require(bool condition) {
  if (!condition) std::abort();
}

// Regions of a fixed size, so that the arithmetic of offsets is exercised too.
class OneRegion : public api::Regions {
 public:
  Result<> add(const api::RegionOwner&, std::uint32_t, const api::RegionInfo&) override { return {}; }
  void remove(const api::RegionOwner&, const std::string&) override {}
  Result<std::vector<api::RegionInfo>> list(const api::RegionOwner&, const std::string&) const override {
    return std::vector<api::RegionInfo>{};
  }
  Result<Buffer> read(const api::RegionOwner& owner, const api::RegionPart& part) override {
    if (auto checked = check(owner, part); !checked) return std::unexpected(checked.error());
    return Buffer::allocate(part.size_bytes);
  }
  Result<> check(const api::RegionOwner&, const api::RegionPart& part) const override {
    if (part.offset_bytes > 4096 || part.size_bytes > 4096 - part.offset_bytes)
      return fail(ErrorCode::invalid_argument, "outside");
    return {};
  }
  Result<> write(const api::RegionOwner&, const api::RegionPart&, std::span<const std::byte>) override { return {}; }
  std::uint64_t region_count() const override { return 1; }
  std::uint64_t bytes_in_flight() const override { return 0; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  [[maybe_unused]] static const auto quiet = google::protobuf::SetLogHandler(nullptr);
  auto message = std::make_shared<inference::ModelInferRequest>();
  if (!message->ParseFromArray(data, static_cast<int>(size))) {
    return 0;
  }
  OneRegion regions;
  const api::DecodeContext context{.tenant = {1}, .region_owner = "uid:1", .regions = &regions};
  auto decoded = api::decode_infer(message, context);
  if (!decoded) {
    require(!decoded.error().message.empty());
    require(!api::to_status(decoded.error()).ok());
    return 0;
  }
  std::uint64_t bytes = 0;
  Response response;
  response.model = decoded->request.model;
  response.version = 1;
  unsigned sum = 0;
  for (const Tensor& tensor : decoded->request.inputs) {
    bytes += tensor.data.size_bytes();
    for (const std::byte b : tensor.data.bytes()) sum += static_cast<unsigned>(b);
    response.outputs.push_back(tensor);
  }
  require(bytes == decoded->request.payload_bytes);
  auto encoded = api::encode_stream_response(decoded->request.id, response, decoded->region_outputs);
  require(encoded.has_value());
  std::vector<grpc::Slice> slices;
  require(encoded->Dump(&slices).ok());
  std::string wire;
  for (const grpc::Slice& slice : slices) wire.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  inference::ModelStreamInferResponse back;
  require(back.ParseFromString(wire));
  require(back.infer_response().raw_output_contents_size() == static_cast<int>(response.outputs.size()));
  return sum == 0xffffffffu ? -1 : 0;
}
