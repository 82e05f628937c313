// SPDX-License-Identifier: Apache-2.0
#include "engine/model_config.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include "onnx_models.h"

namespace npud {
namespace {

using ::testing::HasSubstr;

OnnxInfo info_of(const onnx::ModelProto& model) {
  const std::string bytes = model.SerializeAsString();
  return inspect_onnx(std::as_bytes(std::span(bytes))).value();
}

inference::ModelConfig config_of(const std::string& text) {
  inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

// The error for a model y = x · w with x [n,3], y [n,5]; empty if it was accepted.
std::string refusal(const std::string& text) {
  auto config = config_of(text);
  auto plan = plan_model(config, info_of(test::matmul_model(3, 5, 1)), {}, "host");
  return plan ? "" : plan.error().message;
}

TEST(ModelConfig, IsCompletedFromTheFile) {
  inference::ModelConfig config;
  auto plan = plan_model(config, info_of(test::matmul_model(3, 5, 1)), {}, "host");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(config.platform(), "onnxruntime_onnx");
  ASSERT_EQ(config.input_size(), 1);
  EXPECT_EQ(config.input(0).name(), "x");
  EXPECT_EQ(config.input(0).data_type(), inference::TYPE_FP32);
  EXPECT_EQ(config.input(0).dims(0), -1);
  EXPECT_EQ(config.output(0).dims(1), 5);
  EXPECT_EQ(plan->signature.max_batch_size, 0);
  EXPECT_EQ(plan->signature.inputs[0].shape, (std::vector<std::int64_t>{-1, 3}));
  EXPECT_EQ(plan->queue.instances, 1u);
  EXPECT_FALSE(plan->residence.pinned);
}

TEST(ModelConfig, WithoutInstanceGroupHasAsManyInstancesAsTheDaemonSays) {
  QueueSettings defaults;
  defaults.instances = 4;
  inference::ModelConfig config;
  auto plan = plan_model(config, info_of(test::matmul_model(3, 5, 1)), defaults, "host");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->queue.instances, 4u);
  EXPECT_EQ(config.instance_group(0).count(), 4);

  config = config_of("max_batch_size: 8 dynamic_batching { preserve_ordering: true }");
  plan = plan_model(config, info_of(test::matmul_model(3, 5, 1)), defaults, "host");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->queue.instances, 1u) << "several at once would lose the order";
}

TEST(ModelConfig, LeavesOutTheBatchDimension) {
  auto config = config_of("max_batch_size: 8");
  auto plan = plan_model(config, info_of(test::matmul_model(3, 5, 1)), {}, "host");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->signature.inputs[0].shape, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(config.input(0).dims_size(), 1);
  auto fixed = config_of("max_batch_size: 8");
  EXPECT_FALSE(plan_model(fixed, info_of(test::add_model({4, 3})), {}, "host"));
}

TEST(ModelConfig, ReadsQueueAndPlacement) {
  auto config = config_of(R"(max_batch_size: 8
    instance_group { count: 2 kind: KIND_CPU } instance_group { count: 1 }
    dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 500 priority_levels: 3 default_priority_level: 2
      default_queue_policy { default_timeout_microseconds: 7000 max_queue_size: 9 } }
    parameters { key: "npud.pinned" value { string_value: "true" } } parameters { key: "npud.class" value { string_value: "batch" } }
    parameters { key: "npud.device" value { string_value: "host" } } parameters { key: "their.own" value { string_value: "kept" } })");
  auto plan = plan_model(config, info_of(test::matmul_model(3, 5, 1)), {.max_queued = 64}, "host");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->queue.instances, 3u);
  EXPECT_EQ(plan->queue.preferred_batch_sizes, (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(plan->queue.max_queue_delay, Duration{500});
  EXPECT_EQ(plan->queue.default_priority, 2u);
  EXPECT_EQ(plan->queue.default_timeout, Duration{7000});
  EXPECT_EQ(plan->queue.max_queued, 9u);
  EXPECT_TRUE(plan->residence.pinned);
  EXPECT_EQ(plan->residence.best_class, PriorityClass::batch);
}

TEST(ModelConfig, SaysWhatDoesntGoTogetherWithTheFile) {
  EXPECT_EQ(refusal("input { name: 'x' data_type: TYPE_FP32 dims: [-1, 3] }"), "");
  EXPECT_EQ(refusal("input { name: 'x' data_type: TYPE_FP32 dims: [7, 3] }"), "")
      << "a fixed size within a variable dimension";
  EXPECT_THAT(refusal("input { name: 'z' data_type: TYPE_FP32 dims: [-1, 3] }"),
              HasSubstr("input 'z', but the file has 'x'"));
  EXPECT_THAT(refusal("input { name: 'x' data_type: TYPE_INT8 dims: [-1, 3] }"),
              HasSubstr("write data_type: TYPE_FP32"));
  EXPECT_THAT(refusal("input { name: 'x' data_type: TYPE_FP32 dims: [-1, 4] }"),
              HasSubstr("[-1,4] in config.pbtxt, but [-1,3]"));
  EXPECT_THAT(refusal("input { name: 'x' data_type: TYPE_FP32 dims: [-1, -1] }"), HasSubstr("in the file"));
  EXPECT_THAT(refusal("input { name: 'x' data_type: TYPE_FP32 dims: [3] }"), HasSubstr("in the file"));
  EXPECT_THAT(refusal("input { name: 'x' } input { name: 'x' }"), HasSubstr("twice"));
  EXPECT_THAT(refusal("input { name: 'x' dims: [-7, 3] }"), HasSubstr("dimension of -7"));
  EXPECT_THAT(refusal("input { name: 'x' dims: [9223372036854775807, 9223372036854775807, 2] }"), HasSubstr("dims"));
  EXPECT_THAT(refusal("input { name: 'x' optional: true }"), HasSubstr("no default"));
  EXPECT_THAT(refusal("output { name: 'x' }"), HasSubstr("the file has 'y'"));
}

TEST(ModelConfig, RefusesWhatItCantDoByName) {
  EXPECT_THAT(refusal("platform: 'tensorflow_graphdef'"), HasSubstr("onnxruntime_onnx"));
  EXPECT_THAT(refusal("backend: 'python'"), HasSubstr("\"python\" isn't served"));
  EXPECT_THAT(refusal("ensemble_scheduling { }"), HasSubstr("ensemble_scheduling isn't supported yet"));
  EXPECT_THAT(refusal("sequence_batching { }"), HasSubstr("sequence_batching isn't supported yet"));
  EXPECT_THAT(refusal("instance_group { kind: KIND_GPU }"), HasSubstr("GPU"));
  EXPECT_THAT(refusal("instance_group { count: -1 }"), HasSubstr("-1"));
  EXPECT_THAT(refusal("dynamic_batching { }"), HasSubstr("max_batch_size"));
  EXPECT_THAT(refusal("max_batch_size: -1"), HasSubstr("max_batch_size is -1"));
  EXPECT_THAT(refusal("max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }"),
              HasSubstr("preferred_batch_size 8"));
}

TEST(ModelConfig, RefusesPlacementsThatDontExist) {
  auto parameter = [](const std::string& key, const std::string& value) {
    return refusal("parameters { key: '" + key + "' value { string_value: '" + value + "' } }");
  };
  EXPECT_THAT(parameter("npud.device", "rknpu"), HasSubstr("no such device"));
  EXPECT_THAT(parameter("npud.place", "rknpu"), HasSubstr("no such device"));
  EXPECT_THAT(parameter("npud.precision", "int8"), HasSubstr("npud.precision"));
  EXPECT_THAT(parameter("npud.pinned", "yes"), HasSubstr("\"true\" or \"false\""));
  EXPECT_THAT(parameter("npud.class", "urgent"), HasSubstr("\"realtime\""));
  EXPECT_THAT(parameter("npud.pined", "true"), HasSubstr("npud.pined is unknown"));
  EXPECT_EQ(parameter("npud.precision", "model"), "");
}

}  // namespace
}  // namespace npud
