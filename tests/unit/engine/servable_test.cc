// SPDX-License-Identifier: Apache-2.0
// Loading and batching, through the loader and the arbiter.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include "core/validate.h"
#include "engine_fixture.h"

namespace npud {
namespace {

using test::Dims;
using test::float_tensor;
using ::testing::HasSubstr;

class ServableTest : public test::EngineTest {
 protected:
  static inference::ModelConfig config(const std::string& text) {
    inference::ModelConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
    return config;
  }
};

TEST_F(ServableTest, AnswersARequest) {
  auto loaded = engine.load("add", test::add_model({-1, 2}));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->config.name(), "add");
  auto responses =
      engine.run(*loaded->servable, {{float_tensor("a", {1, 2}, {1, 2}), float_tensor("b", {1, 2}, {3, 4})}});
  ASSERT_TRUE(responses) << responses.error().message;
  ASSERT_EQ(responses->size(), 1u);
  EXPECT_EQ(responses->at(0).model, "add");
  EXPECT_EQ(responses->at(0).path.device, "host");
  EXPECT_EQ(test::floats(responses->at(0).outputs.at(0)), (std::vector<float>{4, 6}));
}

TEST_F(ServableTest, JoinsABatchAndTakesItApart) {
  auto loaded = engine.load("scale", test::scale_model({-1, 2}, 10), config("max_batch_size: 8"));
  ASSERT_TRUE(loaded) << loaded.error().message;
  auto responses = engine.run(*loaded->servable, {{float_tensor("x", {1, 2}, {1, 2})},
                                                  {float_tensor("x", {3, 2}, {3, 4, 5, 6, 7, 8})},
                                                  {float_tensor("x", {1, 2}, {9, 10})}});
  ASSERT_TRUE(responses) << responses.error().message;
  ASSERT_EQ(responses->size(), 3u);
  EXPECT_EQ(test::floats(responses->at(0).outputs.at(0)), (std::vector<float>{10, 20}));
  EXPECT_EQ(responses->at(1).outputs.at(0).shape, (Dims{3, 2}));
  EXPECT_EQ(test::floats(responses->at(1).outputs.at(0)), (std::vector<float>{30, 40, 50, 60, 70, 80}));
  EXPECT_EQ(test::floats(responses->at(2).outputs.at(0)), (std::vector<float>{90, 100}));
  EXPECT_EQ(responses->at(0).timings.batch_size, 5u);
}

TEST_F(ServableTest, JoinsStringsToo) {
  auto loaded =
      engine.load("text", test::identity_model(onnx::TensorProto::STRING, {-1, 1}), config("max_batch_size: 8"));
  ASSERT_TRUE(loaded) << loaded.error().message;
  auto responses = engine.run(*loaded->servable, {{test::string_tensor("x", {2, 1}, {"one", ""})},
                                                  {test::string_tensor("x", {1, 1}, {"three"})}});
  ASSERT_TRUE(responses) << responses.error().message;
  EXPECT_EQ(test::strings(responses->at(0).outputs.at(0)), (std::vector<std::string>{"one", ""}));
  EXPECT_EQ(test::strings(responses->at(1).outputs.at(0)), (std::vector<std::string>{"three"}));
}

TEST_F(ServableTest, AModelThatMixesItsBatchIsFoundOut) {
  auto model = test::empty_model();
  test::add_input(model, "x", onnx::TensorProto::FLOAT, {-1, 2});
  test::add_output(model, "y", onnx::TensorProto::FLOAT, {-1, 2});
  test::add_node(model, "ReduceSum", {"x"}, {"y"});
  auto loaded = engine.load("mix", model, config("max_batch_size: 8"));
  if (!loaded) return;  // refused at load: as good
  auto responses =
      engine.run(*loaded->servable, {{float_tensor("x", {1, 2}, {1, 2})}, {float_tensor("x", {1, 2}, {3, 4})}});
  EXPECT_FALSE(responses);
}

TEST_F(ServableTest, FillsTheClientsMemory) {
  auto loaded = engine.load("scale", test::scale_model({-1, 2}, 10), config("max_batch_size: 8"));
  ASSERT_TRUE(loaded) << loaded.error().message;
  Request request;
  request.inputs.push_back(float_tensor("x", {2, 2}, {1, 2, 3, 4}));
  Buffer destination = Buffer::allocate(16), small = Buffer::allocate(12);
  request.outputs.push_back({"y", destination});
  test::TestContext context(engine.clock);
  const Request* batch[] = {&request};
  auto responses = loaded->servable->run(context, batch);
  ASSERT_TRUE(responses) << responses.error().message;
  EXPECT_EQ(responses->at(0).outputs.at(0).data.bytes().data(), destination.bytes().data());
  EXPECT_EQ(responses->at(0).outputs.at(0).shape, (Dims{2, 2}));
  EXPECT_EQ(test::floats({"", DataType::fp32, {4}, destination}), (std::vector<float>{10, 20, 30, 40}));
  request.outputs[0].destination = small;
  responses = loaded->servable->run(context, batch);
  ASSERT_TRUE(responses) << responses.error().message;
  auto refused = finish_outputs(request, responses->at(0));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().bytes_needed, 16u);
}

TEST_F(ServableTest, WarmsUpBeforeItServes) {
  const std::string good = R"(max_batch_size: 8 model_warmup { name: "w" batch_size: 4 count: 3
    inputs { key: "x" value { data_type: TYPE_FP32 dims: 2 random_data: true } } })";
  auto loaded = engine.load("scale", test::scale_model({-1, 2}, 10), config(good));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(engine.arbiter.snapshot().jobs_done, 4u);  // one to bring it in
  auto refusal = [&](const std::string& text) {
    auto result = engine.load("scale", test::scale_model({-1, 2}, 10), config(text));
    return result ? "it was accepted" : result.error().message;
  };
  EXPECT_THAT(refusal(R"(model_warmup { name: "w" })"), HasSubstr("model_warmup 'w': input 'x' is missing"));
  EXPECT_THAT(
      refusal(
          R"(model_warmup { name: "w" inputs { key: "x" value { data_type: TYPE_FP32 dims: [1, 3] zero_data: true } } })"),
      HasSubstr("[1,3]"));
  EXPECT_THAT(
      refusal(
          R"(model_warmup { name: "w" inputs { key: "x" value { data_type: TYPE_FP32 dims: [1, 2] input_data_file: "../x" } } })"),
      HasSubstr("must be the name of a file"));
  test::write_file(engine.directory.path() / "models/scale/warmup/data", std::string(7, 'x'));
  EXPECT_THAT(
      refusal(
          R"(model_warmup { name: "w" inputs { key: "x" value { data_type: TYPE_FP32 dims: [1, 2] input_data_file: "data" } } })"),
      HasSubstr("has 7 bytes"));
}

TEST_F(ServableTest, CorruptFilesAreRefusedWithTheModelsName) {
  const auto version = engine.directory.path() / "models/bad/1";
  test::write_file(version / "model.onnx", "this is not a model");
  auto loaded = engine.load_file("bad", version);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("'bad:1'"));
  const std::string whole = test::matmul_model(64, 64, 1).SerializeAsString();
  test::write_file(version / "model.onnx", whole.substr(0, whole.size() / 2));
  EXPECT_EQ(engine.load_file("bad", version).error().code, ErrorCode::data_loss);
  std::filesystem::remove(version / "model.onnx");
  EXPECT_EQ(engine.load_file("bad", version).error().code, ErrorCode::not_found);
  EXPECT_FALSE(engine.load_file("bad", version, config("default_model_filename: '../../x'")));
  EXPECT_TRUE(engine.arbiter.snapshot().programs.empty());
}

}  // namespace
}  // namespace npud
