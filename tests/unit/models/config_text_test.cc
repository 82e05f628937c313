// SPDX-License-Identifier: Apache-2.0
#include "models/config_text.h"

#include <gmock/gmock.h>

namespace npud {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string why(const Result<inference::ModelConfig>& result) {
  return result ? "it was accepted" : result.error().message;
}

TEST(ConfigText, ReadsWhatPeopleWrite) {
  auto config = parse_config_text(R"(
    # a comment
    name: "resnet"
    platform: "onnxruntime_onnx"
    max_batch_size: 8
    input [ { name: "data" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] format: FORMAT_NCHW } ]
    output [ { name: "prob" data_type: TYPE_FP32 dims: [ 1000 ] label_filename: "labels.txt" } ]
    instance_group [ { count: 2 kind: KIND_CPU } ]
    version_policy: { latest { num_versions: 2 } }
    dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
    parameters { key: "npud.pinned" value: { string_value: "true" } })",
                                  "m/config.pbtxt");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->input(0).dims_size(), 3);
  EXPECT_EQ(config->version_policy().latest().num_versions(), 2u);
  EXPECT_EQ(config->parameters().at("npud.pinned").string_value(), "true");
}

TEST(ConfigText, ErrorsNameFileLineAndColumn) {
  EXPECT_THAT(why(parse_config_text("name: \"a\"\n  nome: \"b\"\n", "m/config.pbtxt")),
              StartsWith("m/config.pbtxt:2:7: "));
  EXPECT_THAT(why(parse_config_text("name: \"a\"\n  nome: \"b\"\n", "m/config.pbtxt")), HasSubstr("nome"));
  EXPECT_THAT(why(parse_config_text("max_batch_size: 99999999999", "f")), StartsWith("f:1:"));
  EXPECT_THAT(why(parse_config_text("name: \"a\" name: \"b\"", "f")), HasSubstr("name"));
  EXPECT_THAT(why(parse_config_text("input [ { name: 'x' ", "f")), StartsWith("f:1:"));
  EXPECT_THAT(why(parse_config_text("input { data_type: TYPE_FP31 }", "f")), HasSubstr("TYPE_FP31"));
}

TEST(ConfigText, RefusesHostileText) {
  EXPECT_THAT(why(parse_config_text(std::string("name: \"a\0b\"", 10), "f")), HasSubstr("zero byte"));
  EXPECT_THAT(why(parse_config_text(std::string(5 << 20, '#'), "f")), HasSubstr("4 MiB"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "input { ";
  EXPECT_FALSE(parse_config_text(deep, "f"));
  EXPECT_FALSE(parse_config_text("\xff\xfe", "f"));
  EXPECT_FALSE(parse_config_text("[type.googleapis.com/inference.ModelConfig] { name: 'x' }", "f"));
  EXPECT_TRUE(parse_config_text("", "f"));
}

TEST(ConfigText, AnOverrideMayBeJson) {
  auto config =
      parse_config_override(R"( {"maxBatchSize": 4, "parameters": {"npud.class": {"string_value": "batch"}}})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->max_batch_size(), 4);
  EXPECT_TRUE(parse_config_override(R"({"max_batch_size": 4})"));
  EXPECT_TRUE(parse_config_override("max_batch_size: 4"));
  EXPECT_FALSE(parse_config_override(R"({"max_batch_sice": 4})"));
  EXPECT_FALSE(parse_config_override("{\"a\":"));
}

}  // namespace
}  // namespace npud
