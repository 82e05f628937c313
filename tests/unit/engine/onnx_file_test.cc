// SPDX-License-Identifier: Apache-2.0
#include "engine/onnx_file.h"

#include <gmock/gmock.h>

#include "onnx_models.h"

namespace npud {
namespace {

using ::testing::HasSubstr;

Result<OnnxInfo> inspect(const onnx::ModelProto& model) {
  const std::string bytes = model.SerializeAsString();
  return inspect_onnx(std::as_bytes(std::span(bytes)));
}

std::string why(const Result<OnnxInfo>& result) { return result ? "it was accepted" : result.error().message; }

TEST(OnnxFile, SaysWhatTheModelTakesAndGives) {
  auto info = inspect(test::matmul_model(3, 5, 1));
  ASSERT_TRUE(info) << info.error().message;
  ASSERT_EQ(info->inputs.size(), 1u);
  EXPECT_EQ(info->inputs[0].name, "x");
  EXPECT_EQ(info->inputs[0].type, DataType::fp32);
  EXPECT_EQ(*info->inputs[0].shape, (std::vector<std::int64_t>{-1, 3}));
  EXPECT_EQ(*info->outputs[0].shape, (std::vector<std::int64_t>{-1, 5}));
  EXPECT_EQ(info->weight_bytes, 60u);
  EXPECT_EQ(info->opsets.at(""), 13);
  EXPECT_EQ(info->node_count, 1u);
}

TEST(OnnxFile, RefusesEveryTruncation) {
  const std::string whole = test::matmul_model(3, 5, 1).SerializeAsString();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    auto info = inspect_onnx(std::as_bytes(std::span(whole).first(size)));
    // Cut between two fields, what is left may be a smaller model; it must then still be one with a graph.
    if (info) {
      EXPECT_FALSE(info->outputs.empty()) << size;
    } else {
      EXPECT_EQ(info.error().code, ErrorCode::data_loss) << size << ": " << info.error().message;
    }
  }
  EXPECT_THAT(why(inspect_onnx({})), HasSubstr("no ONNX graph"));
}

TEST(OnnxFile, RefusesWeightsThatDontFillTheirShape) {
  auto model = test::matmul_model(3, 5, 1);
  model.mutable_graph()->mutable_initializer(0)->mutable_raw_data()->resize(59);
  EXPECT_THAT(why(inspect(model)), HasSubstr("weight 'w' has 59 bytes, its shape needs 60"));
}

TEST(OnnxFile, RefusesHugeAndNegativeDimensions) {
  auto model = test::matmul_model(3, 5, 1);
  auto* weight = model.mutable_graph()->mutable_initializer(0);
  weight->set_dims(0, std::int64_t{1} << 62);
  EXPECT_THAT(why(inspect(model)), HasSubstr("more than 2^40"));
  weight->set_dims(0, -3);
  EXPECT_THAT(why(inspect(model)), HasSubstr("dimension of -3"));
  EXPECT_THAT(why(inspect(test::add_model({1ll << 30, 1ll << 30, 1ll << 30}))), HasSubstr("more than 2^40"));
}

TEST(OnnxFile, RefusesExternalDataOutsideTheDirectory) {
  for (std::string location : {"../weights", "/etc/passwd", "a/../../b", "", "..\\up"}) {
    auto model = test::matmul_model(3, 5, 1);
    auto* weight = model.mutable_graph()->mutable_initializer(0);
    weight->clear_raw_data();
    weight->set_data_location(onnx::TensorProto::EXTERNAL);
    auto* entry = weight->add_external_data();
    entry->set_key("location");
    entry->set_value(location);
    EXPECT_THAT(why(inspect(model)), HasSubstr("beside the model")) << location;
  }
}

TEST(OnnxFile, RefusesACycle) {
  auto info = inspect(test::cyclic_model());
  EXPECT_THAT(why(info), HasSubstr("cycle"));
}

TEST(OnnxFile, RefusesDeeplyNestedSubgraphs) {
  onnx::ModelProto model = test::identity_model(onnx::TensorProto::FLOAT, {1});
  onnx::GraphProto* graph = model.mutable_graph();
  for (int i = 0; i < 20; ++i) {
    auto* node = graph->add_node();
    node->set_op_type("If");
    auto* attribute = node->add_attribute();
    attribute->set_name("then_branch");
    attribute->set_type(onnx::AttributeProto::GRAPH);
    graph = attribute->mutable_g();
  }
  EXPECT_FALSE(inspect(model));
}

TEST(OnnxFile, KnowsInputsWithDefaults) {
  auto model = test::add_model({2});
  test::add_weight(model, "b", {2}, {1, 2});
  auto info = inspect(model);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_FALSE(info->inputs[0].has_default);
  EXPECT_TRUE(info->inputs[1].has_default);
  model.set_ir_version(3);  // then every weight is listed among the inputs
  EXPECT_EQ(inspect(model)->inputs.size(), 1u);
}

TEST(OnnxFile, RefusesTypesThatTheProtocolCantCarry) {
  EXPECT_THAT(why(inspect(test::identity_model(onnx::TensorProto::COMPLEX64, {2}))), HasSubstr("can't carry"));
}

}  // namespace
}  // namespace npud
