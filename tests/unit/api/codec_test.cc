// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "api/decode.h"
#include "api/encode.h"
#include "api/status.h"
#include "core/utf8.h"
#include "rpc/status_details.pb.h"

namespace npud::api {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<inference::ModelInferRequest> request_with_raw(std::string raw, const char* type = "FP32",
                                                               std::int64_t count = 2) {
  auto message = std::make_shared<inference::ModelInferRequest>();
  message->set_model_name("m");
  message->set_id("id");
  auto* input = message->add_inputs();
  input->set_name("X");
  input->set_datatype(type);
  input->add_shape(count);
  message->add_raw_input_contents(std::move(raw));
  return message;
}

std::string wire(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string out;
  for (const grpc::Slice& slice : slices) out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return out;
}

TEST(Decode, RawContentsAreNotCopiedAndLiveAsLongAsTheirBuffer) {
  auto message = request_with_raw(std::string(100000, 'a'), "UINT8", 100000);
  const void* where = message->raw_input_contents(0).data();
  auto decoded = decode_infer(message, {});
  ASSERT_TRUE(decoded) << decoded.error().message;
  message.reset();
  Buffer data = std::move(decoded->request.inputs[0].data);
  decoded = fail(ErrorCode::internal, "gone");
  EXPECT_EQ(data.bytes().data(), where);
  EXPECT_EQ(static_cast<char>(data.bytes()[99999]), 'a');
}

TEST(Decode, TheEarlierOfDeadlineAndTimeoutHolds) {
  DecodeContext context{.now = TimePoint{Duration(1000)}, .deadline = TimePoint{Duration(5000)}};
  auto message = request_with_raw(std::string(8, '\0'));
  EXPECT_EQ(decode_infer(message, context)->request.deadline, TimePoint{Duration(5000)});
  (*message->mutable_parameters())["timeout"].set_int64_param(100);
  EXPECT_EQ(decode_infer(message, context)->request.deadline, TimePoint{Duration(1100)});
  (*message->mutable_parameters())["timeout"].set_uint64_param(100000);
  EXPECT_EQ(decode_infer(message, context)->request.deadline, TimePoint{Duration(5000)});
  (*message->mutable_parameters())["timeout"].set_uint64_param(~0ull);
  EXPECT_EQ(decode_infer(message, context)->request.deadline, TimePoint{Duration(5000)});
}

TEST(Decode, AClassMayBeLoweredAndNotRaised) {
  auto message = request_with_raw(std::string(8, '\0'));
  DecodeContext context;
  EXPECT_EQ(decode_infer(message, context)->request.priority_class, PriorityClass::interactive);
  (*message->mutable_parameters())["npud.class"].set_string_param("batch");
  EXPECT_EQ(decode_infer(message, context)->request.priority_class, PriorityClass::batch);
  (*message->mutable_parameters())["npud.class"].set_string_param("realtime");
  EXPECT_EQ(decode_infer(message, context).error().code, ErrorCode::permission_denied);
  context.highest_class = PriorityClass::realtime;
  EXPECT_EQ(decode_infer(message, context)->request.priority_class, PriorityClass::realtime);
  message->mutable_parameters()->clear();
  EXPECT_EQ(decode_infer(message, context)->request.priority_class, PriorityClass::interactive)
      << "not asked for, not given";
  context.highest_class = PriorityClass::batch;
  EXPECT_EQ(decode_infer(message, context)->request.priority_class, PriorityClass::batch);
}

TEST(Decode, TypedContentsBecomeRawBytes) {
  auto message = request_with_raw("", "INT16", 2);
  message->clear_raw_input_contents();
  message->mutable_inputs(0)->mutable_contents()->add_int_contents(-2);
  message->mutable_inputs(0)->mutable_contents()->add_int_contents(258);
  auto decoded = decode_infer(message, {});
  ASSERT_TRUE(decoded) << decoded.error().message;
  const std::int16_t wanted[] = {-2, 258};
  ASSERT_EQ(decoded->request.inputs[0].data.size_bytes(), sizeof wanted);
  EXPECT_EQ(std::memcmp(decoded->request.inputs[0].data.bytes().data(), wanted, sizeof wanted), 0);
  EXPECT_EQ(decoded->request.payload_bytes, sizeof wanted);
}

TEST(Decode, NamesInMessagesArePrintableAndShort) {
  auto message = request_with_raw("");
  message->mutable_inputs(0)->set_datatype(std::string("\n\x1b[31m") + std::string(1000, 'x'));
  const std::string error = decode_infer(message, {}).error().message;
  EXPECT_THAT(error, HasSubstr("\\x0a\\x1b[31m"));
  EXPECT_LT(error.size(), 400u);
  message->mutable_inputs(0)->set_datatype("x" + std::string(63, 'x').replace(62, 1, "é") +
                                           "y");  // é is bytes 63 and 64
  EXPECT_TRUE(is_utf8(decode_infer(message, {}).error().message)) << "cut inside a character";
}

TEST(Decode, SharedMemoryWithoutARegionStoreIsRefused) {
  auto message = request_with_raw("");
  message->clear_raw_input_contents();
  auto& parameters = *message->mutable_inputs(0)->mutable_parameters();
  parameters["shared_memory_region"].set_string_param("r");
  EXPECT_THAT(decode_infer(message, {}).error().message, HasSubstr("shared_memory_byte_size"));
  parameters["shared_memory_byte_size"].set_int64_param(8);
  EXPECT_EQ(decode_infer(message, {}).error().code, ErrorCode::permission_denied);
}

TEST(Encode, ParsesAsTheGeneratedMessageSmallAndLarge) {
  for (const std::size_t size : {0u, 1u, 127u, 128u, 16384u, 16385u, 1u << 20}) {
    Response response;
    response.model = "m";
    response.version = 3;
    Buffer data = Buffer::allocate(size);
    std::ranges::fill(data.bytes(), std::byte{'z'});
    response.outputs.push_back({"Y", DataType::uint8, {static_cast<std::int64_t>(size)}, data});
    response.outputs.push_back({"Z", DataType::uint8, {1}, Buffer::copy_of(std::as_bytes(std::span("q", 1)))});
    auto encoded = encode_response("id", response, {});
    ASSERT_TRUE(encoded);
    inference::ModelInferResponse message;
    ASSERT_TRUE(message.ParseFromString(wire(*encoded)));
    EXPECT_EQ(message.model_version(), "3");
    ASSERT_EQ(message.raw_output_contents_size(), 2);
    EXPECT_EQ(message.raw_output_contents(0), std::string(size, 'z'));
    EXPECT_EQ(message.raw_output_contents(1), "q");
    inference::ModelStreamInferResponse in_stream;
    ASSERT_TRUE(in_stream.ParseFromString(wire(*encode_stream_response("id", response, {}))));
    EXPECT_EQ(in_stream.infer_response().SerializeAsString(), message.SerializeAsString());
  }
}

TEST(Encode, AnOutputInSharedMemoryHasAnEmptyEntryAndParameters) {
  Response response;
  response.outputs.push_back({"Y", DataType::uint8, {4}, Buffer::allocate(4)});
  const RegionOutput region{"Y", {"r", 16, 100}};
  inference::ModelInferResponse message;
  ASSERT_TRUE(message.ParseFromString(wire(*encode_response("", response, {&region, 1}))));
  ASSERT_EQ(message.raw_output_contents_size(), 1);
  EXPECT_EQ(message.raw_output_contents(0), "");
  EXPECT_EQ(message.outputs(0).parameters().at("shared_memory_region").string_param(), "r");
  EXPECT_EQ(message.outputs(0).parameters().at("shared_memory_byte_size").int64_param(), 4);
}

TEST(Encode, PathIsAHeaderValue) {
  EXPECT_EQ(path_metadata({"host", "", {}}), "device=host");
  EXPECT_EQ(path_metadata({"host", "rknpu0 is dead\n", Duration(1500)}),
            "device=host; reason=rknpu0 is dead?; rearm_ms=2");
}

TEST(Status, CarriesDetailsThatDecode) {
  Error error{ErrorCode::resource_exhausted, "full", std::chrono::milliseconds(1250), 10, 3};
  const grpc::Status status = to_status(error);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::RetryInfo retry;
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&retry));
  ASSERT_TRUE(details.details(1).UnpackTo(&info));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 250000000);
  EXPECT_EQ(info.metadata().at("bytes_needed"), "10");
  EXPECT_EQ(info.metadata().at("bytes_free"), "3");
}

TEST(Status, CutsLongSentencesBetweenCharacters) {
  std::string text;
  while (text.size() < 3000) text += "é";
  const grpc::Status status = to_status({ErrorCode::internal, "x" + text, {}, {}, {}});
  EXPECT_LE(status.error_message().size(), 2052u);
  EXPECT_TRUE(status.error_message().ends_with("é…"));
}

}  // namespace
}  // namespace npud::api
