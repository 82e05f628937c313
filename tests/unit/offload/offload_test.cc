// SPDX-License-Identifier: Apache-2.0
// Models whose heavy nodes run on the NPU: the host's answers within tolerance, and when the NPU drops, stalls or lies,
// the host's answers with the reason.
#include <gmock/gmock.h>

#include "npu_fixture.h"

namespace npud {
namespace {

using test::add_input;
using test::add_node;
using test::add_output;
using test::add_weight;
using test::Dims;
using test::float_tensor;
using ::testing::HasSubstr;

constexpr int kFloat = onnx::TensorProto::FLOAT;

void set_ints(onnx::NodeProto& node, const std::string& name, const Dims& values) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INTS);
  for (auto value : values) attribute.add_ints(value);
}
void set_int(onnx::NodeProto& node, const std::string& name, std::int64_t value) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}
void set_float(onnx::NodeProto& node, const std::string& name, float value) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::FLOAT);
  attribute.set_f(value);
}

class OffloadTest : public test::NpuTest {
 protected:
  // Convolution, depthwise, pointwise, pooling, and a Gemm with all its attributes.
  onnx::ModelProto network() {
    auto model = test::empty_model();
    add_input(model, "x", kFloat, {-1, 3, -1, -1});
    add_output(model, "y", kFloat, {-1, 10});
    add_weight(model, "w1", {24, 3, 3, 3}, noise(24 * 27, 0.3f));
    add_weight(model, "b1", {24}, noise(24));
    add_weight(model, "w2", {24, 1, 3, 3}, noise(24 * 9, 0.3f));
    add_weight(model, "w3", {40, 24, 1, 1}, noise(40 * 24, 0.2f));
    add_weight(model, "w4", {10, 40}, noise(400, 0.2f));
    add_weight(model, "b4", {10}, noise(10));
    auto& conv = add_node(model, "Conv", {"x", "w1", "b1"}, {"c1"});
    conv.set_name("stem");
    set_ints(conv, "pads", {1, 1, 1, 1});
    set_ints(conv, "strides", {2, 2});
    add_node(model, "Relu", {"c1"}, {"r1"});
    auto& depthwise = add_node(model, "Conv", {"r1", "w2"}, {"c2"});
    depthwise.set_name("block/depthwise");
    set_int(depthwise, "group", 24);
    set_ints(depthwise, "pads", {1, 1, 1, 1});
    add_node(model, "Conv", {"c2", "w3"}, {"c3"}).set_name("block/pointwise");
    add_node(model, "GlobalAveragePool", {"c3"}, {"p"});
    add_node(model, "Flatten", {"p"}, {"f"});
    auto& gemm = add_node(model, "Gemm", {"f", "w4", "b4"}, {"y"});
    gemm.set_name("head");
    set_int(gemm, "transB", 1);
    set_float(gemm, "alpha", 0.5f);
    set_float(gemm, "beta", 2.0f);
    return model;
  }

  onnx::ModelProto product(std::int64_t k, std::int64_t n) {
    auto model = test::empty_model();
    add_input(model, "x", kFloat, {-1, k});
    add_output(model, "y", kFloat, {-1, n});
    add_weight(model, "w", {k, n}, noise(static_cast<std::size_t>(k * n), 1 / std::sqrt(static_cast<float>(k))));
    add_node(model, "MatMul", {"x", "w"}, {"y"}).set_name("product");
    return model;
  }

  const Parameters on_npu_{{"npud.device", "rknpu0"}, {"npud.verify", "always"}};
};

TEST_F(OffloadTest, ANetworkGivesTheHostsAnswersAndSaysWhereItRan) {
  open();
  const auto model = network();
  const auto host = load("host", model, {}), npu = load("npu", model, on_npu_);
  ASSERT_TRUE(host && npu);
  for (const Dims& dims : {Dims{1, 3, 32, 32}, Dims{2, 3, 17, 45}, Dims{1, 3, 3, 3}}) {
    const auto input = noise_tensor("x", dims);
    const Response ours = answer(*npu, {input}), reference = answer(*host, {input});
    ASSERT_EQ(ours.outputs.size(), 1u);
    EXPECT_LT(distance(ours.outputs[0], reference.outputs[0]), 5e-3) << shape_text(dims);
    EXPECT_EQ(ours.path.device, "rknpu0+host");
    EXPECT_EQ(ours.path.reason, "");
    EXPECT_EQ(reference.path.device, "host");
  }
  const auto placements = npu->placements();
  ASSERT_EQ(placements.size(), 4u);
  for (const auto& node : placements) {
    EXPECT_EQ(node.device, "rknpu0") << node.name << ": " << node.reason;
    EXPECT_EQ(node.precision, "fp16");
    EXPECT_EQ(node.runs, node.op == "Gemm" ? 3u : 4u) << node.name;  // convolutions run image by image
    EXPECT_GT(node.macs, 0u);
    EXPECT_GT(node.weight_bytes, 0u);
  }
  EXPECT_TRUE(host->placements().empty());
  EXPECT_EQ(device_->counters().wrong_results, 0u);
  EXPECT_GE(device_->counters().jobs, 15u);
}

TEST_F(OffloadTest, ProductsOverAnyRankAndConvolutionsOfLinesAgree) {
  open();
  auto wide = test::empty_model();
  add_input(wide, "x", kFloat, {-1, -1, 20});
  add_output(wide, "y", kFloat, {-1, -1, 33});
  add_weight(wide, "w", {20, 33}, noise(660));
  add_node(wide, "MatMul", {"x", "w"}, {"y"});
  auto line = test::empty_model();
  add_input(line, "x", kFloat, {-1, 5, -1});
  add_output(line, "y", kFloat, {-1, 16, -1});
  add_weight(line, "w", {16, 5, 7}, noise(560, 0.3f));
  auto& conv = add_node(line, "Conv", {"x", "w"}, {"y"});
  set_ints(conv, "pads", {3, 3});
  set_ints(conv, "strides", {2});
  const auto wide_host = load("wide_host", wide, {}), wide_npu = load("wide_npu", wide, on_npu_),
             line_host = load("line_host", line, {}), line_npu = load("line_npu", line, on_npu_);
  ASSERT_TRUE(wide_host && wide_npu && line_host && line_npu);
  for (const Dims& dims : {Dims{1, 1, 20}, Dims{3, 7, 20}, Dims{2, 0, 20}}) {
    const auto input = noise_tensor("x", dims);
    const Response ours = answer(*wide_npu, {input});
    EXPECT_LT(distance(ours.outputs.at(0), answer(*wide_host, {input}).outputs.at(0)), 3e-3) << shape_text(dims);
    EXPECT_EQ(ours.path.device, "rknpu0");
  }
  for (const Dims& dims : {Dims{1, 5, 1}, Dims{2, 5, 64}, Dims{1, 5, 1000}}) {
    const auto input = noise_tensor("x", dims);
    EXPECT_LT(distance(answer(*line_npu, {input}).outputs.at(0), answer(*line_host, {input}).outputs.at(0)), 3e-3)
        << shape_text(dims);
  }
  auto wrong = engine_.run_one(*wide_npu, {float_tensor("x", {1, 1, 19}, std::vector<float>(19))});
  ASSERT_FALSE(wrong) << "rows of the wrong length must be the request's own fault";
  EXPECT_EQ(wrong.error().code, ErrorCode::invalid_argument);
}

struct Form {
  const char* name;
  Dims weights;
  std::vector<std::pair<const char*, Dims>> ints;
  const char* auto_pad = "";
  const char* op = "Conv";
  const char* device = "rknpu0";
  std::int64_t group = 1;
};
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class OffloadFormTest : public OffloadTest, public ::testing::WithParamInterface<Form> {};

// Every attribute that a convolution can have, each in a graph of its own, in several sizes and both precisions.
TEST_P(OffloadFormTest, GivesTheHostsAnswer) {
  const Form& form = GetParam();
  open();
  const bool line = form.weights.size() == 3, transposed = std::string_view(form.op) == "ConvTranspose";
  const std::int64_t channels = transposed ? form.weights[0] : form.weights[1] * form.group,
                     kernels = transposed ? form.weights[1] * form.group : form.weights[0];
  std::int64_t count = 1;
  for (auto dim : form.weights) count *= dim;
  auto model = test::empty_model();
  add_input(model, "x", kFloat, line ? Dims{-1, channels, -1} : Dims{-1, channels, -1, -1});
  add_output(model, "y", kFloat, line ? Dims{-1, kernels, -1} : Dims{-1, kernels, -1, -1});
  add_weight(model, "w", form.weights, noise(static_cast<std::size_t>(count), 0.2f));
  add_weight(model, "b", {kernels}, noise(static_cast<std::size_t>(kernels)));
  auto& node = add_node(model, form.op, {"x", "w", "b"}, {"y"});
  for (const auto& [name, values] : form.ints) set_ints(node, name, values);
  set_int(node, "group", form.group);
  if (*form.auto_pad != 0) {
    auto& attribute = *node.add_attribute();
    attribute.set_name("auto_pad");
    attribute.set_type(onnx::AttributeProto::STRING);
    attribute.set_s(form.auto_pad);
  }
  const auto host = load("host", model, {});
  ASSERT_TRUE(host);
  if (std::string_view(form.device) == "host") {
    EXPECT_THAT(refusal(model, on_npu_), HasSubstr("nothing of it can run on rknpu0"));
    return;
  }
  const auto fp16 = load("fp16", model, on_npu_),
             int8 = load("int8", model,
                         {{"npud.device", "rknpu0"}, {"npud.verify", "always"}, {"npud.precision", "int8"}});
  ASSERT_TRUE(fp16 && int8);
  for (const Dims& size : {Dims{1, 19, 23}, Dims{3, 64, 40}, Dims{1, 200, 9}}) {
    Dims dims{size[0], channels, size[1]};
    if (!line) dims.push_back(size[2]);
    const auto input = noise_tensor("x", dims);
    const Response reference = answer(*host, {input}), ours = answer(*fp16, {input}), eighth = answer(*int8, {input});
    EXPECT_EQ(ours.path.device, "rknpu0") << ours.path.reason;
    EXPECT_EQ(eighth.path.device, "rknpu0") << eighth.path.reason;
    EXPECT_LT(distance(ours.outputs.at(0), reference.outputs.at(0)), 3e-3) << shape_text(dims);
    EXPECT_LT(distance(eighth.outputs.at(0), reference.outputs.at(0)), 3e-2) << shape_text(dims);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, OffloadFormTest,
    ::testing::Values(
        Form{"uneven_pads", {12, 5, 3, 4}, {{"pads", {0, 2, 1, 3}}}},
        Form{"strides", {8, 6, 5, 3}, {{"strides", {3, 2}}}}, Form{"same_upper", {9, 4, 4, 2}, {}, "SAME_UPPER"},
        Form{"same_lower", {9, 4, 4, 2}, {}, "SAME_LOWER"}, Form{"valid", {9, 4, 3, 3}, {}, "VALID"},
        Form{"same_with_stride", {9, 4, 3, 3}, {{"strides", {2, 2}}}, "SAME_UPPER", "Conv", "host"},
        Form{"dilated", {10, 7, 3, 3}, {{"dilations", {2, 3}}, {"pads", {2, 3, 1, 0}}}},
        Form{"dilated_depthwise", {10, 1, 3, 3}, {{"dilations", {2, 2}}}, "", "Conv", "host", 10},
        Form{"groups", {8, 3, 3, 3}, {}, "", "Conv", "host", 4},
        Form{"depthwise", {70, 1, 5, 3}, {{"pads", {2, 1, 2, 1}}, {"strides", {2, 1}}}, "", "Conv", "rknpu0", 70},
        Form{"long_stride", {6, 3, 2, 2}, {{"strides", {9, 8}}}},
        Form{"wide_pads", {6, 3, 17, 17}, {{"pads", {16, 16, 16, 16}}}},
        Form{"long_line", {33, 2, 40}, {{"strides", {17}}, {"pads", {20, 21}}}},
        Form{"line_dilated", {5, 3, 3}, {{"dilations", {7}}}},
        Form{"transposed", {24, 5, 2, 2}, {{"strides", {2, 2}}}, "", "ConvTranspose"},
        Form{"transposed_oblong", {7, 3, 3, 2}, {{"strides", {3, 2}}}, "", "ConvTranspose"},
        Form{"transposed_line", {7, 3, 4}, {{"strides", {4}}}, "", "ConvTranspose"},
        Form{"transposed_overlapping", {7, 3, 3, 3}, {{"strides", {2, 2}}}, "", "ConvTranspose"},
        Form{"transposed_padded", {7, 3, 2, 2}, {{"strides", {2, 2}}, {"pads", {1, 1, 0, 0}}}, "", "ConvTranspose"},
        Form{"transposed_longer", {7, 3, 2, 2}, {{"strides", {2, 2}}, {"output_padding", {1, 0}}}, "", "ConvTranspose"},
        Form{"transposed_usual", {16, 8, 4, 4}, {{"strides", {2, 2}}, {"pads", {1, 1, 1, 1}}}, "", "ConvTranspose"},
        Form{"transposed_dilated",
             {5, 4, 3, 2},
             {{"strides", {1, 3}}, {"dilations", {2, 3}}, {"pads", {1, 0, 4, 2}}, {"output_padding", {0, 2}}},
             "",
             "ConvTranspose"},
        Form{"transposed_line_overlapping", {6, 3, 5}, {{"strides", {2}}, {"pads", {2, 1}}}, "", "ConvTranspose"},
        Form{"transposed_same", {7, 3, 3, 3}, {{"strides", {2, 2}}}, "SAME_UPPER", "ConvTranspose", "host"},
        Form{"transposed_groups", {8, 3, 3, 3}, {{"strides", {2, 2}}}, "", "ConvTranspose", "host", 2}),
    [](const auto& info) { return info.param.name; });

TEST_F(OffloadTest, ImagesTooWideForTheConvolutionBufferRunInStrips) {
  open();
  for (const std::int64_t stride : {1, 2}) {
    auto model = test::empty_model();
    add_input(model, "x", kFloat, {-1, 96, -1, -1});
    add_output(model, "y", kFloat, {-1, 40, -1, -1});
    add_weight(model, "w", {40, 96, 5, 5}, noise(40 * 96 * 25, 0.03f));
    add_weight(model, "b", {40}, noise(40));
    auto& conv = add_node(model, "Conv", {"x", "w", "b"}, {"y"});
    set_ints(conv, "pads", {2, 2, 2, 2});
    set_ints(conv, "strides", {stride, stride});
    const auto host = load("host", model, {}), npu = load("npu", model, on_npu_);
    ASSERT_TRUE(host && npu);
    for (const Dims& dims : {Dims{1, 96, 5, 701}, Dims{2, 96, 7, 350}, Dims{1, 96, 9, 20}}) {
      const auto input = noise_tensor("x", dims);
      const Response ours = answer(*npu, {input});
      EXPECT_EQ(ours.path.device, "rknpu0") << ours.path.reason;
      EXPECT_LT(distance(ours.outputs.at(0), answer(*host, {input}).outputs.at(0)), 3e-3) << shape_text(dims);
    }
  }
}

TEST_F(OffloadTest, WeightsThatOthersUseStayInTheGraph) {
  open();
  auto model = test::empty_model();
  add_input(model, "x", kFloat, {-1, 16});
  add_output(model, "y", kFloat, {-1, 16});
  add_output(model, "z", kFloat, {16, 16});
  add_weight(model, "w", {16, 16}, noise(256, 0.2f));
  add_node(model, "MatMul", {"x", "w"}, {"p"}).set_name("first");
  auto& gemm = add_node(model, "Gemm", {"p", "w"}, {"y"});
  gemm.set_name("second");
  set_int(gemm, "transB", 1);
  add_input(model, "s", kFloat, {1});
  add_node(model, "Mul", {"w", "s"}, {"z"});
  const auto host = load("host", model, {}), npu = load("npu", model, on_npu_);
  ASSERT_TRUE(host && npu);
  const std::vector<Tensor> inputs{noise_tensor("x", {6, 16}), noise_tensor("s", {1})};
  const Response ours = answer(*npu, inputs), reference = answer(*host, inputs);
  EXPECT_LT(distance(ours.outputs.at(0), reference.outputs.at(0)), 3e-3);
  EXPECT_EQ(distance(ours.outputs.at(1), reference.outputs.at(1)), 0);
  EXPECT_EQ(npu->placements().size(), 2u);
  EXPECT_EQ(npu->placements()[0].runs + npu->placements()[1].runs, 2u);
}

TEST_F(OffloadTest, AWeightThatARequestMayReplaceIsNoConstant) {
  open();
  auto model = product(16, 8);
  add_input(model, "w", kFloat, {16, 8});
  EXPECT_THAT(refusal(model, on_npu_), HasSubstr("aren't constant"));
}

TEST_F(OffloadTest, ADepthwiseResultBeyondFp16GoesToTheHost) {
  open();
  auto model = test::empty_model();
  add_input(model, "x", kFloat, {-1, 8, -1, -1});
  add_output(model, "y", kFloat, {-1, 8, -1, -1});
  add_weight(model, "w", {8, 1, 3, 3}, std::vector<float>(72, 100.0f));
  set_int(add_node(model, "Conv", {"x", "w"}, {"y"}), "group", 8);
  const auto host = load("host", model, {});
  for (const char* verify : {"off", "always"}) {
    const auto npu = load(std::string("npu_") + verify, model, {{"npud.device", "rknpu0"}, {"npud.verify", verify}});
    const auto large = float_tensor("x", {1, 8, 5, 5}, std::vector<float>(200, 1000.0f));
    const Response ours = answer(*npu, {large});
    EXPECT_EQ(ours.path.device, "host");
    EXPECT_THAT(ours.path.reason, HasSubstr("65504"));
    EXPECT_EQ(distance(ours.outputs.at(0), answer(*host, {large}).outputs.at(0)), 0);
    EXPECT_FALSE(device_->suspected());
  }
}

TEST_F(OffloadTest, MixedPrecisionsAgreeAndAreReported) {
  open();
  const auto model = network();
  const auto host = load("host", model, {});
  const auto npu = load("npu", model,
                        {{"npud.device", "rknpu"},
                         {"npud.precision", "int8"},
                         {"npud.host_nodes", "he*"},
                         {"npud.fp16_nodes", "stem"},
                         {"npud.verify", "always"}});
  ASSERT_TRUE(host && npu);
  const auto input = noise_tensor("x", {1, 3, 24, 24});
  EXPECT_LT(distance(answer(*npu, {input}).outputs.at(0), answer(*host, {input}).outputs.at(0)), 5e-2);
  std::map<std::string, NodePlacement> by_name;
  for (const auto& node : npu->placements()) by_name[node.name] = node;
  EXPECT_EQ(by_name.at("stem").precision, "fp16");
  EXPECT_THAT(by_name.at("stem").reason, HasSubstr("npud.fp16_nodes"));
  EXPECT_EQ(by_name.at("block/depthwise").precision, "fp16");
  EXPECT_THAT(by_name.at("block/depthwise").reason, HasSubstr("no int8 form"));
  EXPECT_EQ(by_name.at("block/pointwise").precision, "int8");
  EXPECT_EQ(by_name.at("head").device, "host");
  EXPECT_THAT(by_name.at("head").reason, HasSubstr("npud.host_nodes"));
}

TEST_F(OffloadTest, WhatCannotBeDoneAsWrittenIsAnErrorAtLoad) {
  open();
  const auto model = network();
  EXPECT_THAT(refusal(model, {{"npud.device", "rknpu7"}}), HasSubstr("there is \"host\" and \"rknpu0\""));
  EXPECT_THAT(refusal(model, {{"npud.device", "rknpu0"}, {"npud.speed", "fast"}}), HasSubstr("npud.speed is unknown"));
  EXPECT_THAT(refusal(model, {{"npud.device", "rknpu0"}, {"npud.precision", "fp32"}}),
              HasSubstr("\"fp16\" or \"int8\""));
  EXPECT_THAT(refusal(model, {{"npud.device", "rknpu0"}, {"npud.precision", "model"}}),
              HasSubstr("\"fp16\" or \"int8\""));
  EXPECT_THAT(refusal(model, {{"npud.device", "rknpu0"}, {"npud.verify", "never"}}), HasSubstr("npud.verify"));
  EXPECT_THAT(refusal(model, {{"npud.host_nodes", "stem"}}), HasSubstr("is for models on an NPU"));
  EXPECT_THAT(refusal(model, {{"npud.device", "rknpu0"}, {"npud.host_nodes", "stem, haed"}}),
              HasSubstr("'haed' matches no node"));
  EXPECT_THAT(refusal(model, {{"npud.device", "rknpu0"}, {"npud.host_nodes", " ,"}}), HasSubstr("has no pattern"));
  EXPECT_THAT(refusal(model, {{"npud.device", "rknpu0"}, {"npud.int8_nodes", "block/*"}}),
              HasSubstr("has no int8 form"));
  auto dynamic = test::empty_model();
  add_input(dynamic, "a", kFloat, {-1, 8});
  add_input(dynamic, "b", kFloat, {8, -1});
  add_output(dynamic, "y", kFloat, {-1, -1});
  add_node(dynamic, "MatMul", {"a", "b"}, {"y"}).set_name("both");
  EXPECT_THAT(refusal(dynamic, {{"npud.device", "rknpu0"}, {"npud.fp16_nodes", "both"}}), HasSubstr("aren't constant"));
  EXPECT_THAT(refusal(dynamic, {{"npud.device", "rknpu0"}}), HasSubstr("nothing of it can run on rknpu0"));
  EXPECT_TRUE(load("dynamic", dynamic, {{"npud.device", "auto"}}));
}

TEST_F(OffloadTest, AutoMeansTheNpuOnlyWhereItIsHealthy) {
  const auto model = product(32, 16);
  EXPECT_EQ(
      answer(*load("none", model, {{"npud.device", "auto"}, {"npud.precision", "int8"}}), {noise_tensor("x", {2, 32})})
          .path.device,
      "host");
  open();
  EXPECT_EQ(answer(*load("there", model, {{"npud.device", "auto"}}), {noise_tensor("x", {2, 32})}).path.device,
            "rknpu0");
}

TEST_F(OffloadTest, ADeadDeviceLeavesItsModelsToTheHostWithTheReason) {
  Options options;
  options.dead = true;
  options.target.first_backoff = std::chrono::hours(1);
  options.target.most_backoff = std::chrono::hours(2);
  open(options);
  const auto model = product(32, 16);
  const auto automatic = load("auto", model, {{"npud.device", "auto"}}), asked = load("asked", model, on_npu_);
  ASSERT_TRUE(automatic && asked);
  const Response ours = answer(*asked, {noise_tensor("x", {2, 32})});
  EXPECT_EQ(ours.path.device, "host");
  EXPECT_NE(ours.path.reason, "");
  EXPECT_TRUE(ours.path.rearm_after);
  EXPECT_EQ(answer(*automatic, {noise_tensor("x", {2, 32})}).path.reason, "");
}

struct Strike {
  const char* name;
  std::uint32_t kind;
};
void PrintTo(const Strike& strike, std::ostream* out) { *out << strike.name; }

class OffloadFaultTest : public OffloadTest, public ::testing::WithParamInterface<Strike> {};

TEST_P(OffloadFaultTest, OneStrikeCostsARetryAndTheNextRequestACanary) {
  open();
  const auto model = product(64, 48);
  const auto host = load("host", model, {}), npu = load("npu", model, on_npu_);
  const auto input = noise_tensor("x", {20, 64});
  port_->arm(GetParam().kind, VBOARD_FAULT_ANY_CORE, 0, 1);
  const Response struck = answer(*npu, {input});
  EXPECT_EQ(struck.path.device, "rknpu0");
  EXPECT_LT(distance(struck.outputs.at(0), answer(*host, {input}).outputs.at(0)), 3e-3);
  EXPECT_EQ(device_->counters().retries, 1u);
  EXPECT_TRUE(device_->suspected());
  EXPECT_EQ(answer(*npu, {input}).path.device, "rknpu0");
  EXPECT_FALSE(device_->suspected());
}

TEST_P(OffloadFaultTest, StrikesWithoutEndSendRequestsToTheHostUntilACanaryIsRight) {
  Options options;
  options.target.first_backoff = options.target.most_backoff = Duration{0};
  open(options);
  const auto model = network();
  const auto host = load("host", model, {}), npu = load("npu", model, on_npu_);
  const auto input = noise_tensor("x", {1, 3, 16, 16});
  const auto reference = answer(*host, {input});
  port_->arm(GetParam().kind, VBOARD_FAULT_ANY_CORE, 0, 0);
  for (int i = 0; i < 3; ++i) {
    const Response ours = answer(*npu, {input});
    EXPECT_EQ(ours.path.device, "host");
    EXPECT_NE(ours.path.reason, "");
    EXPECT_TRUE(ours.path.rearm_after);
    EXPECT_LT(distance(ours.outputs.at(0), reference.outputs.at(0)), 1e-5)
        << "the host's answer isn't the host's answer";
  }
  port_->clear();
  const Response again = answer(*npu, {input});
  EXPECT_EQ(again.path.device, "rknpu0+host") << again.path.reason;
  EXPECT_LT(distance(again.outputs.at(0), reference.outputs.at(0)), 5e-3);
  EXPECT_EQ(device_->info().health, DeviceHealth::ok);
}

TEST_P(OffloadFaultTest, WithoutTheHostARequestFailsAndSaysWhy) {
  Options options;
  options.target = {
      .host_fallback = false, .first_backoff = std::chrono::hours(1), .most_backoff = std::chrono::hours(1)};
  open(options);
  const auto npu = load("npu", product(64, 48), on_npu_);
  port_->arm(GetParam().kind, VBOARD_FAULT_ANY_CORE, 0, 0);
  for (int i = 0; i < 2; ++i) {
    auto refused = engine_.run_one(*npu, {noise_tensor("x", {20, 64})});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
    EXPECT_THAT(refused.error().message, HasSubstr("the host may not stand in"));
    EXPECT_TRUE(refused.error().retry_after);
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, OffloadFaultTest,
                         ::testing::Values(Strike{"dropped", VBOARD_FAULT_DISPATCH_DROP},
                                           Strike{"stalled", VBOARD_FAULT_STALL},
                                           Strike{"wrong_bit", VBOARD_FAULT_WRONG_BIT}),
                         [](const auto& info) { return info.param.name; });

TEST_F(OffloadTest, AFailedDeviceIsLeftAloneUntilItsTime) {
  Options options;
  options.target.first_backoff = options.target.most_backoff = std::chrono::hours(1);
  open(options);
  const auto npu = load("npu", product(64, 48), on_npu_);
  port_->arm(VBOARD_FAULT_DISPATCH_DROP, VBOARD_FAULT_ANY_CORE, 0, 0);
  EXPECT_EQ(answer(*npu, {noise_tensor("x", {20, 64})}).path.device, "host");
  port_->clear();
  const std::uint64_t jobs = device_->counters().jobs;
  const Response ours = answer(*npu, {noise_tensor("x", {20, 64})});
  EXPECT_EQ(ours.path.device, "host");
  EXPECT_GT(*ours.path.rearm_after, std::chrono::minutes(50));
  EXPECT_EQ(device_->counters().jobs, jobs);
}

TEST_F(OffloadTest, WhatFailsForOneTenantDisarmsTheNpuForNobodyElse) {
  Options options;
  options.target.first_backoff = options.target.most_backoff = std::chrono::hours(1);
  open(options);
  const auto failing = load("failing", product(96, 32), on_npu_), other = load("other", product(64, 48), on_npu_);
  auto path = [&](Servable& servable, std::uint32_t tenant, const Tensor& input) {
    test::TestContext context(engine_.clock, {}, TenantId{tenant});
    Request request;
    request.inputs = {input};
    const Request* batch[] = {&request};
    auto responses = servable.run(context, batch);
    EXPECT_TRUE(responses) << responses.error().message;
    return responses ? responses->at(0).path : PathTaken{};
  };
  const auto narrow = noise_tensor("x", {20, 96}), wide = noise_tensor("x", {20, 64});
  int wrong = 2;  // the run and its retry
  port_->falsify = [&](std::span<std::byte> cube) {
    if (cube.size() != 20 * 32 * 4 || wrong == 0) return;
    --wrong;
    cube[2] ^= std::byte{0x40};
  };
  const PathTaken struck = path(*failing, 1, narrow);
  EXPECT_EQ(struck.device, "host");
  EXPECT_THAT(struck.reason, HasSubstr("failed its check"));
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(path(*failing, 1, narrow).device, "host") << "its pause is an hour";
  EXPECT_EQ(path(*other, 1, wide).device, "rknpu0");
  EXPECT_EQ(path(*other, 2, wide).device, "rknpu0");
  EXPECT_EQ(path(*failing, 2, narrow).device, "rknpu0");
  EXPECT_EQ(device_->info().health, DeviceHealth::ok);
}

TEST_F(OffloadTest, ValuesBeyondFp16GoToTheHostAndSayNothingAgainstTheDevice) {
  open();
  const auto model = product(32, 16);
  const auto host = load("host", model, {}), npu = load("npu", model, on_npu_);
  const auto huge = noise_tensor("x", {4, 32}, 1e7f);
  const Response ours = answer(*npu, {huge});
  EXPECT_EQ(ours.path.device, "host");
  EXPECT_THAT(ours.path.reason, HasSubstr("65504"));
  EXPECT_FALSE(ours.path.rearm_after);
  EXPECT_EQ(distance(ours.outputs.at(0), answer(*host, {huge}).outputs.at(0)), 0);
  EXPECT_FALSE(device_->suspected());
  EXPECT_EQ(answer(*npu, {noise_tensor("x", {4, 32})}).path.device, "rknpu0");
}

TEST_F(OffloadTest, ALogarithmOfAFaintSpectrumIsTheHosts) {
  open();
  auto model = test::empty_model();
  add_input(model, "x", kFloat, {-1, 257});
  add_output(model, "y", kFloat, {-1, 40});
  std::vector<float> bands(257 * 40);
  for (std::size_t band = 0; band < 40; ++band)
    for (std::size_t bin = band * 6; bin < band * 6 + 12; ++bin) bands[bin * 40 + band] = 0.01f;
  add_weight(model, "w", {257, 40}, bands);
  add_node(model, "MatMul", {"x", "w"}, {"mel"}).set_name("mel");
  add_node(model, "Log", {"mel"}, {"y"});
  const auto host = load("host", model, {}), npu = load("npu", model, on_npu_);
  auto power = noise(3 * 257);
  for (float& v : power) v = v * v * 1e-8f + 1e-12f;
  const auto input = test::float_tensor("x", {3, 257}, power);
  const Response ours = answer(*npu, {input});
  EXPECT_EQ(ours.path.device, "rknpu0+host") << ours.path.reason;
  const auto y = test::floats(ours.outputs.at(0)), want = test::floats(answer(*host, {input}).outputs.at(0));
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], want[i], 2e-3);
}

TEST_F(OffloadTest, AProgramThatHadToLeaveComesBackTheSame) {
  Options options;
  options.space_bytes = 8u << 20;
  open(options);
  // 4 MiB of weights each, and room for 6.
  const auto model_a = product(1024, 2048), model_b = product(1024, 2048);
  const auto a = load("a", model_a, {{"npud.device", "rknpu0"}}), b = load("b", model_b, {{"npud.device", "rknpu0"}}),
             host_a = load("host_a", model_a, {}), host_b = load("host_b", model_b, {});
  ASSERT_TRUE(a && b && host_a && host_b);
  const auto input = noise_tensor("x", {3, 1024});
  const auto want_a = answer(*host_a, {input}), want_b = answer(*host_b, {input});
  std::vector<float> first_a, first_b;
  for (int round = 0; round < 3; ++round) {
    const Response ours_a = answer(*a, {input}), ours_b = answer(*b, {input});
    EXPECT_EQ(ours_a.path.device, "rknpu0") << ours_a.path.reason;
    EXPECT_EQ(ours_b.path.device, "rknpu0") << ours_b.path.reason;
    EXPECT_LT(distance(ours_a.outputs.at(0), want_a.outputs.at(0)), 3e-3);
    EXPECT_LT(distance(ours_b.outputs.at(0), want_b.outputs.at(0)), 3e-3);
    if (round == 0) {
      first_a = test::floats(ours_a.outputs.at(0));
      first_b = test::floats(ours_b.outputs.at(0));
    }
    EXPECT_EQ(test::floats(ours_a.outputs.at(0)), first_a);
    EXPECT_EQ(test::floats(ours_b.outputs.at(0)), first_b);
  }
  EXPECT_GE(arbiter_->snapshot().evicted, 5u);
  auto giant = engine_.load("giant", product(2048, 2048), config({{"npud.device", "rknpu0"}}));
  ASSERT_FALSE(giant);
  EXPECT_EQ(giant.error().code, ErrorCode::resource_exhausted);
}

// Of weights 4 MiB; with many rows its activations take more than is left beside those.
TEST_F(OffloadTest, ActivationsWithoutRoomMoveAProgramToTheNextSpace) {
  Options options;
  options.space_bytes = 8u << 20;
  options.spaces = 2;
  open(options);
  const auto heavy = load("heavy", product(1024, 2048), on_npu_), wide = load("wide", product(64, 1024), on_npu_);
  EXPECT_EQ(answer(*heavy, {noise_tensor("x", {1, 1024})}).path.device, "rknpu0");
  ASSERT_EQ(device_->info().apertures.size(), 1u);
  const auto input = noise_tensor("x", {1100, 64});
  const Response ours = answer(*wide, {input});
  EXPECT_EQ(ours.path.device, "rknpu0") << ours.path.reason;
  EXPECT_EQ(device_->info().apertures.size(), 2u) << "the second space is used";
  EXPECT_EQ(answer(*heavy, {noise_tensor("x", {1, 1024})}).path.device, "rknpu0");
  for (const ApertureInfo& aperture : device_->info().apertures) EXPECT_LE(aperture.used_bytes, aperture.limit_bytes);
  EXPECT_EQ(arbiter_->snapshot().evicted, 1u) << "only the one that moved";
}

TEST_F(OffloadTest, ActivationsWithoutRoomMakeAnIdleProgramLeave) {
  Options options;
  options.space_bytes = 8u << 20;
  open(options);
  const auto heavy = load("heavy", product(1024, 2048), on_npu_), wide = load("wide", product(64, 1024), on_npu_);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(answer(*heavy, {noise_tensor("x", {1, 1024})}).path.device, "rknpu0");
    const Response ours = answer(*wide, {noise_tensor("x", {1100, 64})});
    EXPECT_EQ(ours.path.device, "rknpu0") << ours.path.reason;
  }
  // More than a whole space: the host's, and nobody leaves for it.
  const std::uint64_t evicted = arbiter_->snapshot().evicted;
  const Response ours = answer(*wide, {noise_tensor("x", {4000, 64})});
  EXPECT_EQ(ours.path.device, "host");
  EXPECT_THAT(ours.path.reason, HasSubstr("full"));
  EXPECT_EQ(arbiter_->snapshot().evicted, evicted);
}

TEST_F(OffloadTest, AModelIsLoadedWhereActivationsOfIdleOnesHaveFilledTheSpace) {
  Options options;
  options.space_bytes = 8u << 20;
  open(options);
  const auto wide = load("wide", product(64, 1024), on_npu_);
  EXPECT_EQ(answer(*wide, {noise_tensor("x", {1100, 64})}).path.device, "rknpu0");
  for (const char* device : {"rknpu0", "auto"}) {
    const auto heavy = load(std::string("heavy_") + device, product(1024, 2048), {{"npud.device", device}});
    ASSERT_TRUE(heavy);
    EXPECT_EQ(answer(*heavy, {noise_tensor("x", {1, 1024})}).path.device, "rknpu0");
  }
}

TEST_F(OffloadTest, NodesInsideBranchesRunThereToo) {
  open();
  auto model = test::empty_model();
  add_input(model, "which", onnx::TensorProto::BOOL, {1});
  add_input(model, "x", kFloat, {-1, 16});
  add_output(model, "y", kFloat, {-1, 8});
  auto& choice = add_node(model, "If", {"which"}, {"y"});
  for (const char* branch : {"then_branch", "else_branch"}) {
    auto inner = test::empty_model();
    add_output(inner, "out", kFloat, {-1, 8});
    add_weight(inner, "w", {16, 8}, noise(128));
    add_node(inner, "MatMul", {"x", "w"}, {"out"}).set_name(std::string(branch) + "/product");
    auto& attribute = *choice.add_attribute();
    attribute.set_name(branch);
    attribute.set_type(onnx::AttributeProto::GRAPH);
    *attribute.mutable_g() = inner.graph();
  }
  const auto host = load("host", model, {}), npu = load("npu", model, on_npu_);
  ASSERT_TRUE(host && npu);
  EXPECT_EQ(npu->placements().size(), 2u);
  for (const std::uint8_t which : {0, 1}) {
    const std::vector<Tensor> inputs{
        {"which", DataType::boolean, {1}, Buffer::copy_of(std::as_bytes(std::span(&which, 1)))},
        noise_tensor("x", {5, 16})};
    const Response ours = answer(*npu, inputs);
    EXPECT_LT(distance(ours.outputs.at(0), answer(*host, inputs).outputs.at(0)), 3e-3);
    EXPECT_EQ(ours.path.device, "rknpu0+host");
  }
  EXPECT_EQ(npu->placements()[0].runs + npu->placements()[1].runs, 2u);
}

}  // namespace
}  // namespace npud
