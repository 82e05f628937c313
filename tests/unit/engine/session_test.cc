// SPDX-License-Identifier: Apache-2.0
#include "engine/session.h"

#include <gmock/gmock.h>

#include <cstring>

#include "engine/onnx_file.h"
#include "engine_fixture.h"

namespace npud {
namespace {

using test::float_tensor;
using ::testing::HasSubstr;

class SessionTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> make(const onnx::ModelProto& model, std::uint64_t limit_bytes = 0) {
    test::write_model(directory.path() / "model.onnx", model);
    auto session = Session::create(test::shared_runtime(), host, directory.path() / "model.onnx",
                                   {.memory_limit_bytes = limit_bytes}, nullptr);
    EXPECT_TRUE(session) << session.error().message;
    return session ? std::move(*session) : nullptr;
  }
  void TearDown() override { EXPECT_EQ(host.used_bytes(), 0u); }

  test::TempDirectory directory;
  HostDevice host{{}};
};

TEST_F(SessionTest, Computes) {
  auto session = make(test::add_model({-1, 2}));
  std::vector<Tensor> inputs{float_tensor("a", {2, 2}, {1, 2, 3, 4}), float_tensor("b", {2, 2}, {10, 20, 30, 40})};
  std::vector<OutputRequest> wanted{{.name = "sum"}};
  auto outputs = session->run(inputs, wanted, {});
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(outputs->at(0).shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(test::floats(outputs->at(0)), (std::vector<float>{11, 22, 33, 44}));
}

TEST_F(SessionTest, WritesIntoTheDestination) {
  auto session = make(test::scale_model({-1}, 2));
  Buffer destination = Buffer::allocate(12);
  std::vector<Tensor> inputs{float_tensor("x", {3}, {1, 2, 3})};
  std::vector<OutputRequest> wanted{{.name = "y", .type = DataType::fp32, .shape = {3}, .destination = destination}};
  auto outputs = session->run(inputs, wanted, {});
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(outputs->at(0).data.bytes().data(), destination.bytes().data());
  EXPECT_EQ(test::floats(outputs->at(0)), (std::vector<float>{2, 4, 6}));
}

TEST_F(SessionTest, TakesInputsAtAnyAddress) {
  auto session = make(test::scale_model({-1}, 2));
  Buffer memory = Buffer::allocate(13);
  const float value[] = {1, 2, 3};
  std::memcpy(memory.bytes().data() + 1, value, 12);
  std::vector<Tensor> inputs{{"x", DataType::fp32, {3}, memory.slice(1, 12)}};
  std::vector<OutputRequest> wanted{{.name = "y"}};
  auto outputs = session->run(inputs, wanted, {});
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(test::floats(outputs->at(0)), (std::vector<float>{2, 4, 6}));
}

TEST_F(SessionTest, TakesEmptyTensorsAndScalars) {
  auto session = make(test::scale_model({-1}, 2));
  std::vector<Tensor> inputs{float_tensor("x", {0}, {})};
  std::vector<OutputRequest> wanted{{.name = "y"}};
  auto outputs = session->run(inputs, wanted, {});
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(outputs->at(0).shape, (std::vector<std::int64_t>{0}));
  EXPECT_EQ(outputs->at(0).data.size_bytes(), 0u);
  session = make(test::identity_model(onnx::TensorProto::FLOAT, {}));
  inputs = {float_tensor("x", {}, {7})};
  outputs = session->run(inputs, wanted, {});
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_TRUE(outputs->at(0).shape.empty());
  EXPECT_EQ(test::floats(outputs->at(0)), (std::vector<float>{7}));
}

TEST_F(SessionTest, CarriesStringsByTheirLength) {
  auto session = make(test::identity_model(onnx::TensorProto::STRING, {-1}));
  const std::vector<std::string> values{"", "text", std::string("a\0b", 3), std::string(100'000, 'x')};
  std::vector<Tensor> inputs{test::string_tensor("x", {4}, values)};
  std::vector<OutputRequest> wanted{{.name = "y"}};
  auto outputs = session->run(inputs, wanted, {});
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(test::strings(outputs->at(0)), values);
  inputs[0].shape = {1'000'000'000};  // the shape is the client's word
  EXPECT_EQ(session->run(inputs, wanted, {}).error().code, ErrorCode::invalid_argument);
  inputs = {test::string_tensor("x", {0}, {})};
  outputs = session->run(inputs, wanted, {});
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(outputs->at(0).data.size_bytes(), 0u);
}

TEST_F(SessionTest, CarriesEveryType) {
  for (int type :
       {onnx::TensorProto::BOOL, onnx::TensorProto::UINT8, onnx::TensorProto::UINT16, onnx::TensorProto::UINT32,
        onnx::TensorProto::UINT64, onnx::TensorProto::INT8, onnx::TensorProto::INT16, onnx::TensorProto::INT32,
        onnx::TensorProto::INT64, onnx::TensorProto::FLOAT16, onnx::TensorProto::FLOAT, onnx::TensorProto::DOUBLE,
        onnx::TensorProto::BFLOAT16}) {
    auto session = make(test::identity_model(type, {-1}));
    ASSERT_TRUE(session) << type;
    const DataType ours = inspect_onnx_file(directory.path() / "model.onnx", 1 << 20)->inputs[0].type;
    Buffer data = Buffer::allocate(2 * data_type_size(ours));
    std::memset(data.bytes().data(), 1, data.size_bytes());
    std::vector<Tensor> inputs{{"x", ours, {2}, data}};
    std::vector<OutputRequest> wanted{{.name = "y"}};
    auto outputs = session->run(inputs, wanted, {});
    ASSERT_TRUE(outputs) << data_type_name(ours) << ": " << outputs.error().message;
    EXPECT_EQ(outputs->at(0).type, ours);
    ASSERT_EQ(outputs->at(0).data.size_bytes(), data.size_bytes());
    EXPECT_EQ(std::memcmp(outputs->at(0).data.bytes().data(), data.bytes().data(), data.size_bytes()), 0);
  }
}

TEST_F(SessionTest, BadShapesFailTheRunOnly) {
  auto session = make(test::add_model({-1}));
  std::vector<OutputRequest> wanted{{.name = "sum"}};
  std::vector<Tensor> inputs{float_tensor("a", {2}, {1, 2}), float_tensor("b", {3}, {1, 2, 3})};
  EXPECT_EQ(session->run(inputs, wanted, {}).error().code, ErrorCode::invalid_argument);
  inputs[1] = float_tensor("b", {-2}, {});
  EXPECT_FALSE(session->run(inputs, wanted, {}));
  inputs[1] = {"b", DataType::fp32, {2}, Buffer::allocate(7)};
  EXPECT_THAT(session->run(inputs, wanted, {}).error().message, HasSubstr("7 bytes"));
  inputs[1] = float_tensor("b", {2}, {3, 4});
  EXPECT_TRUE(session->run(inputs, wanted, {}));
}

TEST_F(SessionTest, ARunCantTakeMoreMemoryThanItMay) {
  auto session = make(test::expand_model(), 16 << 20);
  std::vector<OutputRequest> wanted{{.name = "y"}};
  std::vector<Tensor> inputs{float_tensor("value", {1}, {1}), test::int64_tensor("shape", {2}, {1 << 20, 1 << 10})};
  auto result = session->run(inputs, wanted, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::resource_exhausted) << result.error().message;
  EXPECT_GE(result.error().bytes_needed.value_or(0), 4ull << 30);
  inputs[1] = test::int64_tensor("shape", {2}, {4, 4});
  EXPECT_TRUE(session->run(inputs, wanted, {}));
}

TEST_F(SessionTest, CountsItsWeightsAndGivesThemBack) {
  {
    auto session = make(test::matmul_model(1024, 1024, 1));
    EXPECT_GE(session->created_bytes(), 4u << 20);
    EXPECT_LE(session->created_bytes(), 10u << 20);
    EXPECT_EQ(host.used_bytes(), session->held_bytes());
  }
  EXPECT_EQ(host.used_bytes(), 0u);
  test::write_model(directory.path() / "model.onnx", test::matmul_model(1024, 1024, 1));
  auto refused = Session::create(test::shared_runtime(), host, directory.path() / "model.onnx",
                                 {.memory_limit_bytes = 1 << 20}, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted) << refused.error().message;
}

TEST_F(SessionTest, LetsGoWhatABigRunTook) {
  auto session = make(test::expand_model());
  std::vector<OutputRequest> wanted{{.name = "y"}};
  std::vector<Tensor> inputs{float_tensor("value", {1}, {1}), test::int64_tensor("shape", {2}, {1 << 10, 1 << 12})};
  ASSERT_TRUE(session->run(inputs, wanted, {}));
  EXPECT_GE(session->held_bytes(), 16u << 20);
  inputs[1] = test::int64_tensor("shape", {2}, {1, 1});
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(session->run(inputs, wanted, {}));
  EXPECT_LT(session->held_bytes(), 1u << 20);
}

TEST_F(SessionTest, ACancelledRunSaysSo) {
  auto session = make(test::scale_model({-1}, 2));
  std::stop_source source;
  source.request_stop();
  std::vector<Tensor> inputs{float_tensor("x", {1}, {1})};
  std::vector<OutputRequest> wanted{{.name = "y"}};
  auto result = session->run(inputs, wanted, source.get_token());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::cancelled);
}

TEST_F(SessionTest, AFileThatOnnxRuntimeRefusesIsOneSentence) {
  auto model = test::scale_model({1}, 2);
  model.mutable_graph()->mutable_node(0)->set_op_type("NoSuchOperator");
  test::write_model(directory.path() / "model.onnx", model);
  auto refused = Session::create(test::shared_runtime(), host, directory.path() / "model.onnx", {}, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("NoSuchOperator"));
  EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace npud
