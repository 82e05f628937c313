// SPDX-License-Identifier: Apache-2.0
#include "codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpc/status_details.pb.h"

namespace npud::client {
namespace {

TEST(Encode, PutsEachInputWhereTheProtocolWantsIt) {
  InferRequest request{.model = "m", .version = "2", .id = "i", .priority = 3, .timeout = std::chrono::milliseconds(5)};
  request.inputs.push_back(Tensor::of<float>("a", {1}, std::vector<float>{1}));
  request.inputs.push_back({"b", DataType::uint8, {4}, "", RegionSpan{"r", 64, 4}});
  request.inputs.push_back({"c", DataType::uint8, {2}, "xy", {}});
  request.outputs.push_back({"y", RegionSpan{"r", 0, 8}});
  request.parameters["flag"] = true;
  inference::ModelInferRequest message;
  encode(std::move(request), message);
  EXPECT_EQ(message.model_name(), "m");
  EXPECT_EQ(message.model_version(), "2");
  EXPECT_EQ(message.parameters().at("priority").uint64_param(), 3u);
  EXPECT_EQ(message.parameters().at("timeout").int64_param(), 5000);
  EXPECT_TRUE(message.parameters().at("flag").bool_param());
  ASSERT_EQ(message.inputs_size(), 3);
  EXPECT_EQ(message.inputs(1).parameters().at("shared_memory_offset").int64_param(), 64);
  ASSERT_EQ(message.raw_input_contents_size(), 2) << "what lies in shared memory has no entry";
  EXPECT_EQ(message.raw_input_contents(1), "xy");
  EXPECT_EQ(message.outputs(0).parameters().at("shared_memory_byte_size").int64_param(), 8);
  EXPECT_FALSE(message.outputs(0).parameters().contains("shared_memory_offset"));
}

void add_output(inference::ModelInferResponse& message, const char* name, const char* type, std::int64_t size,
                const char* region = nullptr) {
  auto& output = *message.add_outputs();
  output.set_name(name);
  output.set_datatype(type);
  output.add_shape(size);
  if (region != nullptr) (*output.mutable_parameters())["shared_memory_region"].set_string_param(region);
}

TEST(Decode, FindsRawDataWithAndWithoutEntriesForSharedOutputs) {
  for (bool entry_for_shared : {false, true}) {
    inference::ModelInferResponse message;
    add_output(message, "a", "UINT8", 2, "r");
    add_output(message, "b", "UINT8", 3);
    if (entry_for_shared) message.add_raw_output_contents("");
    message.add_raw_output_contents("xyz");
    auto result = decode(std::move(message));
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->outputs[0].shared->region, "r");
    EXPECT_EQ(result->output("b")->data, "xyz");
    EXPECT_EQ(result->output("c"), nullptr);
  }
}

TEST(Decode, TypedContentsBecomeRaw) {
  inference::ModelInferResponse message;
  add_output(message, "a", "INT8", 2);
  message.mutable_outputs(0)->mutable_contents()->add_int_contents(-1);
  message.mutable_outputs(0)->mutable_contents()->add_int_contents(5);
  add_output(message, "b", "BYTES", 1);
  message.mutable_outputs(1)->mutable_contents()->add_bytes_contents("hi");
  auto result = decode(std::move(message));
  ASSERT_TRUE(result);
  EXPECT_EQ(*result->outputs[0].values<std::int8_t>(), (std::vector<std::int8_t>{-1, 5}));
  EXPECT_EQ(*result->outputs[1].strings(), std::vector<std::string>{"hi"});
}

TEST(Decode, AnAnswerThatContradictsItselfIsRefused) {
  for (int kind = 0; kind < 4; ++kind) {
    inference::ModelInferResponse message;
    add_output(message, "a", kind == 0 ? "COMPLEX" : "FP32", kind == 1 ? -1 : 2);
    if (kind != 2) message.add_raw_output_contents(kind == 3 ? "1234567" : "12345678");
    auto result = decode(std::move(message));
    ASSERT_FALSE(result) << kind;
  }
}

TEST(ErrorOf, CarriesWhatNpudSays) {
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(20'000'000);
  google::rpc::ErrorInfo info;
  (*info.mutable_metadata())["bytes_needed"] = "4096";
  (*info.mutable_metadata())["bytes_free"] = "not a number";
  details.add_details()->PackFrom(retry);
  details.add_details()->PackFrom(info);
  Error error = error_of(
      grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "queue is full", details.SerializeAsString()), nullptr);
  EXPECT_EQ(error.code, Code::resource_exhausted);
  EXPECT_EQ(error.retry_after, std::chrono::milliseconds(20));
  EXPECT_EQ(error.bytes_needed, 4096u);
  EXPECT_FALSE(error.bytes_free);
  EXPECT_EQ(to_string(error), "RESOURCE_EXHAUSTED: queue is full (retry in 20.0 ms)");
}

TEST(ErrorOf, SurvivesDetailsThatAreNone) {
  Error error = error_of(grpc::Status(grpc::StatusCode::INTERNAL, "m", "\xff\xff garbage"), nullptr);
  EXPECT_EQ(error.code, Code::internal);
  EXPECT_FALSE(error.retry_after);
}

TEST(Connect, SaysWhatIsWrongWithAnAddress) {
  using ::testing::HasSubstr;
  auto message = [](const char* address) {
    auto client = Client::connect({.address = address, .timeout = std::chrono::milliseconds(50)});
    return client ? std::string("connected") : client.error().message;
  };
  EXPECT_THAT(message("/nonexistent/npud.sock"), HasSubstr("there is no socket"));
  EXPECT_THAT(message("unix:"), HasSubstr("names no socket"));
  EXPECT_THAT(message("localhost:1"), HasSubstr("certificate"));
  EXPECT_THAT(message("/dev/null"), HasSubstr("is no socket"));
}

}  // namespace
}  // namespace npud::client
