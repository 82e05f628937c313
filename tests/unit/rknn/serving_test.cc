// SPDX-License-Identifier: Apache-2.0
// Compiled models as the engine serves them: loader, configuration, arbiter, residency, down to the fake runtime.
#include <google/protobuf/text_format.h>

#include <thread>

#include "core/device_arbiter.h"
#include "core/events.h"
#include "core/tenants.h"
#include "engine/rknn_loader.h"
#include "engine_fixture.h"
#include "rknn_models.h"

namespace npud {
namespace {

using namespace std::chrono_literals;
using rknn::RknnDevice;
using test::FakeModel;

class RknnServing : public ::testing::Test {
 protected:
  void open(std::uint64_t aperture_bytes = 0, Duration run_timeout = 60s, const char* library = "librknnrt.so") {
    fake_ = std::make_unique<test::FakeRuntime>(library);
    auto opened = rknn::Library::open(fake_->path());
    ASSERT_TRUE(opened) << opened.error().message;
    device_ =
        std::make_unique<RknnDevice>(*opened, rknn::RknnDeviceOptions{.open_timeout = 60s, .run_timeout = run_timeout});
    arbiter_ = std::make_unique<DeviceArbiter>(
        DeviceArbiterSettings{
            .device = "rknn0", .cores = 3, .slots = 16, .aperture_bytes = aperture_bytes, .fairness = {}},
        clock_, tenants_, events_);
    loader_ = std::make_unique<RknnLoader>(RknnLoaderOptions{}, *device_, *arbiter_, clock_);
  }
  void TearDown() override {
    if (!arbiter_) return;
    EXPECT_TRUE(arbiter_->snapshot().programs.empty()) << "a program was never forgotten";
    arbiter_.reset();
    EXPECT_TRUE(fake_->contexts_become(0)) << "contexts were left behind";
  }

  Result<LoadedModel> load(const std::string& name, const std::string& file, const std::string& config = "") {
    const auto directory = directory_.path() / name;
    test::write_file(directory / "1/model.rknn", file);
    LoadRequest request{name, 1, directory, directory / "1", {}};
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString("platform: \"rknn\" " + config, &request.config))
        << config;
    return loader_->load(request);
  }
  LoadedModel loaded(const std::string& name, const FakeModel& model, const std::string& config = "") {
    auto result = load(name, model.file(), config);
    EXPECT_TRUE(result) << result.error().message;
    return result ? std::move(*result) : LoadedModel{};
  }
  std::string refusal(const FakeModel& model, const std::string& config) {
    auto result = load("refused", model.file(), config);
    return result ? "it was loaded" : result.error().message;
  }
  Result<Response> run(Servable& servable, std::vector<Tensor> inputs) {
    Request request;
    request.inputs = std::move(inputs);
    const Request* batch[] = {&request};
    test::TestContext context(clock_);
    auto responses = servable.run(context, batch);
    if (!responses) return std::unexpected(responses.error());
    return std::move(responses->at(0));
  }
  static std::vector<float> x() { return {1, -2, 3, 0.5f, 0, 4}; }
  static Tensor x_tensor() { return test::float_tensor("x", {1, 6}, x()); }
  template <class T>
  static Tensor tensor(const std::string& name, DataType type, std::vector<std::int64_t> shape,
                       const std::vector<T>& values) {
    return {name, type, std::move(shape), Buffer::copy_of(std::as_bytes(std::span(values)))};
  }
  void expect_right(const FakeModel& model, const Result<Response>& response) {
    ASSERT_TRUE(response) << response.error().message;
    const auto y = test::floats(response->outputs.at(0)), right = model.answer(x());
    ASSERT_EQ(y.size(), right.size());
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_FLOAT_EQ(y[i], right[i]);
    EXPECT_EQ(response->path.device, "rknn0");
  }

  test::TempDirectory directory_;
  SteadyClock clock_;
  TenantTable tenants_;
  EventBus events_{clock_};
  std::unique_ptr<test::FakeRuntime> fake_;
  std::unique_ptr<RknnDevice> device_;
  std::unique_ptr<DeviceArbiter> arbiter_;
  std::unique_ptr<RknnLoader> loader_;
};

TEST_F(RknnServing, completes_the_configuration_from_the_runtime) {
  open();
  const FakeModel model(5);
  const auto m = loaded("plain", model);
  ASSERT_EQ(m.config.input_size(), 1);
  EXPECT_EQ(m.config.input(0).data_type(), inference::TYPE_FP32);
  EXPECT_EQ(m.config.input(0).dims(1), 6);
  EXPECT_EQ(m.config.output(0).name(), "y");
  EXPECT_EQ(m.config.backend(), "rknn");
  EXPECT_EQ(m.config.default_model_filename(), "model.rknn");
  EXPECT_EQ(m.config.instance_group(0).count(), 3) << "as many as the device has cores";
  EXPECT_TRUE(m.servable->waits_for_device());
  expect_right(model, run(*m.servable, {x_tensor()}));
  // One context with the weights, two that share them: as the runtime said.
  const auto snapshot = arbiter_->snapshot();
  EXPECT_EQ(snapshot.programs.at(0).footprint.bytes, 6 * 4 * 4u + 3 * (4096 + 6 * 4 + 4 * 4u));
  EXPECT_EQ(snapshot.used_bytes, snapshot.programs.at(0).footprint.bytes);
  EXPECT_EQ(m.servable->placements().at(0).runs, 1u);
}

TEST_F(RknnServing, answers_in_the_models_numbers_or_in_floats_as_the_configuration_says) {
  open();
  const FakeModel model = FakeModel(6).with({"in x 2 3 2 3 0.5 1 6", "out y 2 3 2 -1 0.25 1 4"});
  const auto own = loaded("own", model);
  EXPECT_EQ(own.config.input(0).data_type(), inference::TYPE_INT8);
  EXPECT_EQ(own.config.parameters().at("npud.quantisation.x").string_value(), "value = (number - 3) * 0.5");
  EXPECT_EQ(own.config.parameters().at("npud.quantisation.y").string_value(), "value = (number - -1) * 0.25");
  // x as its quantised numbers: value / 0.5 + 3.
  const auto small = run(*own.servable, {tensor<std::int8_t>("x", DataType::int8, {1, 6}, {5, -1, 9, 4, 3, 11})});
  ASSERT_TRUE(small) << small.error().message;
  const auto right = model.answer(x());
  ASSERT_EQ(small->outputs[0].type, DataType::int8);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto number = static_cast<std::int8_t>(std::to_integer<int>(small->outputs[0].data.bytes()[i]));
    EXPECT_EQ(number, std::clamp(std::nearbyint(right[i] / 0.25f) - 1.0f, -128.0f, 127.0f)) << i;
  }
  const auto floats =
      loaded("floats", model, R"(input { name: "x" data_type: TYPE_FP32 } output { name: "y" data_type: TYPE_FP32 })");
  EXPECT_FALSE(floats.config.parameters().contains("npud.quantisation.y"));
  const auto y = run(*floats.servable, {x_tensor()});
  ASSERT_TRUE(y) << y.error().message;
  const auto values = test::floats(y->outputs[0]);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(values[i], right[i], 0.126) << "half a step of the output's scale";
  // A configuration that was answered can be written down.
  const auto again =
      load("own", model.file(),
           own.config.ShortDebugString().replace(0, 0, "").substr(own.config.ShortDebugString().find("input")));
  EXPECT_TRUE(again) << again.error().message;
}

TEST_F(RknnServing, images_come_in_either_order) {
  open();
  // 2×3 pixels of 2 channels, the model's way: channels last.
  const FakeModel model = FakeModel(7, 12, 2).with({"in x 0 1 0 0 1 1 2 3 2", "out y 0 3 0 0 1 2"});
  std::vector<float> last(12), first(12);
  for (int p = 0; p < 6; ++p)
    for (int c = 0; c < 2; ++c) last[p * 2 + c] = first[c * 6 + p] = static_cast<float>(10 * c + p);
  const auto right = model.answer(last);
  const auto hwc = loaded("hwc", model),
             chw = loaded("chw", model, R"(input { name: "x" format: FORMAT_NCHW dims: [1, 2, 2, 3] })");
  const auto a = run(*hwc.servable, {test::float_tensor("x", {1, 2, 3, 2}, last)}),
             b = run(*chw.servable, {test::float_tensor("x", {1, 2, 2, 3}, first)});
  ASSERT_TRUE(a && b);
  for (const auto* y : {&*a, &*b}) EXPECT_FLOAT_EQ(test::floats(y->outputs[0])[1], right[1]);
  std::vector<std::uint8_t> bytes(last.begin(), last.end());
  const auto raw = loaded("raw", model, R"(input { name: "x" data_type: TYPE_UINT8 })");
  const auto c = run(*raw.servable, {tensor("x", DataType::uint8, {1, 2, 3, 2}, bytes)});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_FLOAT_EQ(test::floats(c->outputs[0])[0], right[0]);
}

TEST_F(RknnServing, several_tensors_in_the_configurations_order_and_some_outputs_left_out) {
  open();
  const FakeModel model =
      FakeModel(8, 5, 5).with({"in a 0 3 0 0 1 2", "in b 0 3 0 0 1 3", "out p 0 3 0 0 1 2", "out q 0 3 0 0 1 3"});
  const auto m = loaded("several", model, R"(input [ { name: "b" }, { name: "a" } ] output { name: "q" })");
  EXPECT_EQ(m.servable->signature().inputs[0].name, "b");
  const auto y = run(*m.servable, {test::float_tensor("b", {3}, {3, 4, 5}), test::float_tensor("a", {2}, {1, 2})});
  ASSERT_TRUE(y) << y.error().message;
  ASSERT_EQ(y->outputs.size(), 1u);
  const auto right = model.answer({1, 2, 3, 4, 5});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(test::floats(y->outputs[0])[i], right[2 + i]);
}

TEST_F(RknnServing, refuses_what_does_not_go_together) {
  open();
  const FakeModel model;
  const std::pair<const char*, const char*> wrong[] = {
      {R"(input { name: "x" dims: [1, 7] })", "compiled for [1,6]"},
      {R"(input { name: "x" dims: [-1, 6] })", "compiled for [1,6]"},
      {R"(input { name: "z" })", "has input 'z', but the model has 'x'"},
      {R"(input { name: "x" data_type: TYPE_INT64 })", "TYPE_INT64 in config.pbtxt"},
      {R"(output { name: "y" data_type: TYPE_INT8 })", "TYPE_INT8 in config.pbtxt; the model has it as TYPE_FP32"},
      {R"(input [ { name: "x" }, { name: "x" } ])", "twice"},
      {R"(input { name: "x" format: FORMAT_NCHW })", "no image"},
      {"max_batch_size: 4", "max_batch_size"},
      {R"(backend: "onnxruntime")", "not \"onnxruntime\""},
      {R"(parameters { key: "npud.device" value { string_value: "host" } })", "run on \"rknn0\" alone"},
      {R"(parameters { key: "npud.precision" value { string_value: "int8" } })", "unknown for .rknn models"},
      {R"(parameters { key: "npud.quantisation.x" value { string_value: "x" } })", "npud.quantisation.x"},
      {R"(default_model_filename: "../model.rknn")", "must be the name of a file"},
      {R"(default_model_filename: "absent.rknn")", "absent.rknn"},
      {"optimization { graph { level: 1 } }", "compiled"},
      {R"(ensemble_scheduling { })", "ensemble"},
  };
  for (const auto& [config, text] : wrong) {
    const std::string message = refusal(model, config);
    EXPECT_TRUE(message.contains(text)) << config << ": " << message;
    EXPECT_TRUE(message.contains("'refused:1'")) << message;
  }
  EXPECT_TRUE(refusal(FakeModel().with({"in x 10 3 0 0 1 1 6", "out y 0 3 0 0 1 1 4"}), "").contains("4-bit"));
  EXPECT_TRUE(arbiter_->snapshot().programs.empty());
}

TEST_F(RknnServing, a_file_that_is_not_whole_never_reaches_the_runtime) {
  open();
  const std::string file = FakeModel().file();
  for (const std::string& broken : {std::string(), std::string("RKNN"), file.substr(0, file.size() / 2),
                                    file.substr(0, file.size() - 1), "x" + file}) {
    const auto result = load("broken", broken);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::data_loss) << result.error().message;
  }
  EXPECT_EQ(fake_->calls("rknn_init") + fake_->calls("info"), 0);
  const auto result = load("foreign", test::rknn_file("whole, but nothing that the runtime knows"));
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().message.contains("RKNN_ERR_MODEL_INVALID (-6)")) << result.error().message;
}

TEST_F(RknnServing, without_a_runtime_it_says_so_and_other_models_load) {
  struct Onnx final : Loader {
    int asked = 0;
    Result<LoadedModel> load(const LoadRequest&) override {
      ++asked;
      return LoadedModel{};
    }
  } onnx;
  LoaderByKind loader(onnx, nullptr, {ErrorCode::failed_precondition, "install it", {}, {}, {}});
  const auto directory = directory_.path() / "m";
  LoadRequest request{"m", 1, directory, directory / "1", {}};
  EXPECT_TRUE(loader.load(request));
  test::write_file(directory / "1/model.rknn", "x");
  auto refused = loader.load(request);
  ASSERT_FALSE(refused) << "the only file is a compiled model";
  EXPECT_EQ(refused.error().message, "model 'm:1': install it");
  test::write_file(directory / "1/model.onnx", "x");
  EXPECT_TRUE(loader.load(request));
  request.config.set_backend("rknn");
  EXPECT_FALSE(loader.load(request));
  EXPECT_EQ(onnx.asked, 2);
}

TEST_F(RknnServing, contexts_run_side_by_side_on_cores_of_their_own) {
  open();
  const FakeModel model = FakeModel(9).does("sleep", "20");
  const auto m = loaded("parallel", model);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 3; ++k) expect_right(model, run(*m.servable, {x_tensor()}));
    });
  }
  threads.clear();
  EXPECT_EQ(fake_->masks(), 7) << "each core had its turn";
  EXPECT_LE(fake_->most_running(), 3);
}

TEST_F(RknnServing, what_has_no_room_leaves_and_comes_back_the_same) {
  const FakeModel first(1), second(2);
  open(2 * (6 * 4 * 4u + 4096));  // for one, not for two
  const std::string one = "instance_group { count: 1 }";
  const auto a = loaded("a", first, one), b = loaded("b", second, one);
  for (int i = 0; i < 3; ++i) {
    expect_right(first, run(*a.servable, {x_tensor()}));
    expect_right(second, run(*b.servable, {x_tensor()}));
    EXPECT_EQ(fake_->contexts(), 1);
  }
  EXPECT_GE(arbiter_->snapshot().evicted, 5u);
  const auto large = load("large", FakeModel(3, 64, 64).with({"in x 0 3 0 0 1 64", "out y 0 3 0 0 1 64"}).file());
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::resource_exhausted) << large.error().message;
}

TEST_F(RknnServing, a_run_that_fails_says_why_and_the_next_has_a_new_context) {
  open();
  const FakeModel model(10);
  const auto m = loaded("fails", model);
  fake_->fail("rknn_run", -2);
  const auto failed = run(*m.servable, {x_tensor()});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(
      failed.error().message.contains("model 'fails': rknn_run failed with RKNN_ERR_TIMEOUT (-2) [librknnrt 2.3.2"))
      << failed.error().message;
  const int made = fake_->calls("rknn_init");
  expect_right(model, run(*m.servable, {x_tensor()}));
  EXPECT_EQ(fake_->calls("rknn_init"), made + 1);
  EXPECT_EQ(fake_->contexts(), 3);
  // A request that the runtime finds wrong says nothing against the context.
  fake_->fail("rknn_inputs_set", -8);
  EXPECT_FALSE(run(*m.servable, {x_tensor()}));
  expect_right(model, run(*m.servable, {x_tensor()}));
  EXPECT_EQ(fake_->calls("rknn_init"), made + 1);
}

TEST_F(RknnServing, a_model_that_hangs_holds_up_nobody_else_and_serves_again_when_its_calls_are_back) {
  open(0, 100ms);
  const auto flag = directory_.path() / "hang";
  const FakeModel hanging = FakeModel(11).does("hang", flag.string()), model(12);
  const auto h = loaded("hangs", hanging, "instance_group { count: 2 }"), m = loaded("fine", model);
  expect_right(hanging, run(*h.servable, {x_tensor()}));
  const std::uint64_t bytes = arbiter_->snapshot().used_bytes;
  test::write_file(flag, "");
  for (int i = 0; i < 2; ++i) {
    const auto late = run(*h.servable, {x_tensor()});
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code, ErrorCode::unavailable);
  }
  const auto given_up = run(*h.servable, {x_tensor()});
  ASSERT_FALSE(given_up);
  EXPECT_TRUE(given_up.error().message.contains("given up")) << given_up.error().message;
  EXPECT_TRUE(given_up.error().retry_after);
  expect_right(model, run(*m.servable, {x_tensor()}));
  EXPECT_EQ(device_->info().health, DeviceHealth::degraded);
  EXPECT_EQ(device_->info().notes.size(), 2u);
  EXPECT_EQ(arbiter_->snapshot().used_bytes, bytes) << "its memory isn't provably free";
  std::filesystem::remove(flag);
  for (int i = 0; i < 5000 && device_->info().health != DeviceHealth::ok; ++i) std::this_thread::sleep_for(2ms);
  EXPECT_EQ(device_->info().health, DeviceHealth::ok);
  expect_right(hanging, run(*h.servable, {x_tensor()}));
  EXPECT_EQ(arbiter_->snapshot().used_bytes, bytes);
}

TEST_F(RknnServing, an_overwritten_file_is_noticed_when_the_model_is_to_come_back) {
  const FakeModel model(13);
  open(2 * (6 * 4 * 4u + 4096));
  const std::string one = "instance_group { count: 1 }";
  const auto a = loaded("a", model, one), b = loaded("b", FakeModel(14), one);
  test::write_file(directory_.path() / "a/1/model.rknn", FakeModel(15).file());
  const auto changed = run(*a.servable, {x_tensor()});
  ASSERT_FALSE(changed);
  EXPECT_TRUE(changed.error().message.contains("has changed since")) << changed.error().message;
}

TEST_F(RknnServing, a_runtime_without_copies_serves_one_run_at_a_time) {
  open(0, 60s, "librknnrt_minimal.so");
  const FakeModel model(16);
  EXPECT_TRUE(refusal(model, "instance_group { count: 2 }").contains("rknn_dup_context"));
  const auto m = loaded("single", model, "instance_group { count: 1 }");
  expect_right(model, run(*m.servable, {x_tensor()}));
  EXPECT_TRUE(device_->info().notes.at(0).contains("rknn_set_core_mask"));
}

}  // namespace
}  // namespace npud
