// SPDX-License-Identifier: Apache-2.0
// Networks that others trained, whole, with their heavy nodes on the virtual board: answers within tolerance of the
// host's, and how much of the arithmetic the NPU does. The models' directory is in NPUD_TEST_MODELS (tools/models lay).
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "model_macs.h"
#include "npu_fixture.h"

namespace npud {
namespace {

using test::Dims;
using test::float_tensor;

std::filesystem::path file_of(const std::string& model) {
  const char* directory = std::getenv("NPUD_TEST_MODELS");
  EXPECT_NE(directory, nullptr) << "NPUD_TEST_MODELS must name what `tools/models lay` made";
  return std::filesystem::path(directory == nullptr ? "" : directory) / model / "1" / "model.onnx";
}

onnx::ModelProto read_model(const std::string& name) {
  onnx::ModelProto model;
  std::ifstream in(file_of(name), std::ios::binary);
  EXPECT_TRUE(in && model.ParseFromIstream(&in)) << file_of(name);
  return model;
}

// Something with edges, as pages have them: dark bars of several lengths and heights on white, normalised to about
// -2…2.
Tensor picture(const std::string& name, std::int64_t height, std::int64_t width) {
  std::vector<float> pixels(static_cast<std::size_t>(3 * height * width), 2.0f);
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const bool bar =
          y / 6 % 3 == 1 && x > 8 && x < width - 8 - (y / 18 * 23) % (width / 2) && (x * 7 / (3 + y / 18)) % 5 < 3;
      if (!bar) continue;
      for (std::int64_t c = 0; c < 3; ++c)
        pixels[static_cast<std::size_t>((c * height + y) * width + x)] = -1.8f + 0.1f * static_cast<float>(c);
    }
  }
  return float_tensor(name, {1, 3, height, width}, pixels);
}

class RealModelsTest : public test::NpuTest {
 protected:
  // The largest difference; relative to the largest magnitude where that is above 1: these networks give probabilities.
  static double difference(const Tensor& ours, const Tensor& reference) {
    double largest = 1e-9;
    for (float v : test::floats(reference)) largest = std::max<double>(largest, std::fabs(v));
    return distance(ours, reference) * std::min(1.0, largest);
  }

  struct Measured {
    double share = 0, difference = 0;
    std::vector<Tensor> ours, reference;
  };

  Measured compare(const std::string& name, const std::vector<Tensor>& inputs, const Parameters& parameters) {
    const auto model = read_model(name);
    const auto counted = test::all_macs(engine_, model, inputs);
    EXPECT_TRUE(counted) << counted.error().message;
    const std::uint64_t whole = counted.value_or(1);
    const auto host = load(name + "_host", model, {}), npu = load(name + "_npu", model, parameters);
    if (!host || !npu) return {};
    const std::uint64_t before = device_->counters().macs, jobs = device_->counters().jobs,
                        tasks = device_->counters().tasks;
    const Response ours = answer(*npu, inputs), reference = answer(*host, inputs);
    EXPECT_EQ(ours.path.device, "rknpu0+host") << ours.path.reason;
    Measured measured{static_cast<double>(device_->counters().macs - before) / static_cast<double>(whole), 0,
                      ours.outputs, reference.outputs};
    for (std::size_t i = 0; i < ours.outputs.size(); ++i)
      measured.difference = std::max(measured.difference, difference(ours.outputs[i], reference.outputs.at(i)));
    std::printf("%s: %.2f %% of %.1f million multiply-adds on the NPU in %llu jobs of %llu tasks, difference %.2g\n",
                name.c_str(), measured.share * 100, static_cast<double>(whole) / 1e6,
                static_cast<unsigned long long>(device_->counters().jobs - jobs),
                static_cast<unsigned long long>(device_->counters().tasks - tasks), measured.difference);
    for (const auto& node : npu->placements()) {
      if (node.device == "host")
        std::printf("  on the host: %s %s: %s\n", node.op.c_str(), node.name.c_str(), node.reason.c_str());
    }
    EXPECT_EQ(device_->counters().wrong_results, 0u);
    EXPECT_EQ(device_->counters().retries, 0u);
    return measured;
  }

  void SetUp() override {
    Options options;
    options.space_bytes = 256u << 20;
    open(options);
  }

  static std::vector<std::size_t> best_classes(const Tensor& probabilities) {
    const auto values = test::floats(probabilities);
    const auto classes = static_cast<std::size_t>(probabilities.shape.back());
    std::vector<std::size_t> best;
    for (std::size_t at = 0; at < values.size(); at += classes) {
      best.push_back(
          static_cast<std::size_t>(std::max_element(values.begin() + static_cast<std::ptrdiff_t>(at),
                                                    values.begin() + static_cast<std::ptrdiff_t>(at + classes)) -
                                   values.begin()) -
          at);
    }
    return best;
  }

  const Parameters checked_{{"npud.device", "rknpu0"}, {"npud.verify", "always"}};
};

TEST_F(RealModelsTest, TextDetection) {
  const auto measured = compare("ocr_det", {picture("x", 96, 160)}, checked_);
  EXPECT_GE(measured.share, 0.95);
  EXPECT_LT(measured.difference, 0.05);
}

TEST_F(RealModelsTest, TextRecognition) {
  const auto measured = compare("ocr_rec", {picture("x", 48, 160)}, checked_);
  EXPECT_GE(measured.share, 0.95);
  EXPECT_LT(measured.difference, 0.02);
  ASSERT_EQ(measured.ours.size(), 1u);
  EXPECT_EQ(best_classes(measured.ours[0]), best_classes(measured.reference[0]));
}

TEST_F(RealModelsTest, TextDirection) {
  const auto measured = compare("ocr_cls", {picture("x", 48, 192)}, checked_);
  EXPECT_GE(measured.share, 0.95);
  EXPECT_LT(measured.difference, 0.02);
}

TEST_F(RealModelsTest, VoiceActivity) {
  const auto model = read_model("silero_vad");
  const auto host = load("host", model, {}), npu = load("npu", model, checked_);
  ASSERT_TRUE(host && npu);
  std::vector<float> wave(512);
  for (std::size_t i = 0; i < wave.size(); ++i)
    wave[i] = 0.3f * std::sin(0.05f * static_cast<float>(i)) + 0.2f * std::sin(0.31f * static_cast<float>(i));
  std::int64_t rate = 16000;
  std::map<std::string, Tensor> ours_state, host_state;
  double worst = 0;
  std::vector<float> state(256);
  auto ours = float_tensor("state", {2, 1, 128}, state), reference = ours;
  for (int chunk = 0; chunk < 4; ++chunk) {
    const Tensor sr{"sr", DataType::int64, {}, Buffer::copy_of(std::as_bytes(std::span(&rate, 1)))};
    const auto input = float_tensor("input", {1, 512}, wave);
    const Response a = answer(*npu, {input, ours, sr}), b = answer(*host, {input, reference, sr});
    ASSERT_EQ(a.outputs.size(), 2u);
    EXPECT_EQ(a.path.device, "rknpu0+host") << a.path.reason;
    worst = std::max(worst, difference(a.outputs[0], b.outputs[0]));
    EXPECT_LT(difference(a.outputs[1], b.outputs[1]), 0.1) << "the state that goes from chunk to chunk";
    ours = a.outputs[1], reference = b.outputs[1];
    ours.name = reference.name = "state";
  }
  EXPECT_LT(worst, 0.02);
  std::size_t ran = 0, on_npu = 0;
  for (const auto& node : npu->placements()) {
    on_npu += node.device == "rknpu0";
    ran += node.runs > 0;
    if (node.device == "host")
      std::printf("  on the host: %s %s: %s\n", node.op.c_str(), node.name.c_str(), node.reason.c_str());
  }
  std::printf("silero_vad: %zu convolutions on the NPU, %zu of the branch that ran; difference %.2g\n", on_npu, ran,
              worst);
  EXPECT_EQ(on_npu, npu->placements().size()) << "every convolution of both branches";
  EXPECT_EQ(ran, 6u);
}

}  // namespace
}  // namespace npud
