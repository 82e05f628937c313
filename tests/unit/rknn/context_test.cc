// SPDX-License-Identifier: Apache-2.0
// One context against the fake runtime: what it computes, and that no call of the runtime hurts more than itself.
#include "devices/rknn/context.h"

#include "rknn_models.h"

namespace npud::rknn {
namespace {

using test::FakeModel;

class ContextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Library::open(fake_.path());
    ASSERT_TRUE(opened) << opened.error().message;
    library_ = *opened;
  }
  void TearDown() override { EXPECT_TRUE(fake_.contexts_become(0)) << "contexts were left behind"; }

  static std::shared_ptr<const std::vector<std::byte>> bytes(const FakeModel& model) {
    const std::string file = model.file();
    const auto* data = reinterpret_cast<const std::byte*>(file.data());
    return std::make_shared<std::vector<std::byte>>(data, data + file.size());
  }
  Result<std::unique_ptr<Context>> open(const FakeModel& model) {
    return Context::open(library_, bytes(model), options_);
  }
  std::unique_ptr<Context> opened(const FakeModel& model) {
    auto context = open(model);
    EXPECT_TRUE(context) << context.error().message;
    return context ? std::move(*context) : nullptr;
  }
  template <class T>
  static Buffer buffer(const std::vector<T>& values) {
    return Buffer::copy_of(std::as_bytes(std::span(values)));
  }
  template <class T>
  static std::vector<T> values(const Buffer& buffer) {
    std::vector<T> out(buffer.size_bytes() / sizeof(T));
    std::memcpy(out.data(), buffer.bytes().data(), out.size() * sizeof(T));
    return out;
  }
  Result<std::vector<Buffer>> run(Context& context, const std::vector<float>& x,
                                  std::optional<std::uint32_t> core = {}) {
    return context.run(core, {{buffer(x), abi::kFloat32, abi::kUndefined}}, {{true, 16}});
  }

  test::FakeRuntime fake_;
  std::shared_ptr<Library> library_;
  std::shared_ptr<CondemnedContexts> condemned_ = std::make_shared<CondemnedContexts>();
  ContextOptions options_{.name = "m:1",
                          .open_timeout = std::chrono::seconds(60),
                          .run_timeout = std::chrono::seconds(60),
                          .condemned = condemned_};
  const std::vector<float> x_{1, -2, 3, 0.5f, 0, 4};
};

TEST_F(ContextTest, computes_and_tells_its_tensors_and_memory) {
  const FakeModel model(3);
  const auto context = opened(model);
  ASSERT_EQ(context->inputs().size(), 1u);
  EXPECT_EQ(context->inputs()[0].name, "x");
  EXPECT_EQ(context->inputs()[0].dims, (std::vector<std::int64_t>{1, 6}));
  EXPECT_EQ(context->weight_bytes(), 6 * 4 * 4u);
  EXPECT_EQ(context->own_bytes(), 4096u + 6 * 4 + 4 * 4);
  const auto y = run(*context, x_);
  ASSERT_TRUE(y) << y.error().message;
  const auto ours = values<float>((*y)[0]), right = model.answer(x_);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(ours[i], right[i]);
  EXPECT_EQ(library_->driver_version(), "0.9.8");
}

TEST_F(ContextTest, runs_on_the_core_that_it_is_told) {
  const auto context = opened(FakeModel());
  for (const std::uint32_t core : {0u, 2u, 2u, 1u}) ASSERT_TRUE(run(*context, x_, core));
  EXPECT_EQ(fake_.masks(), 7);
  EXPECT_EQ(fake_.calls("rknn_set_core_mask"), 3) << "only where it changes";
}

TEST_F(ContextTest, a_copy_shares_the_weights_and_answers_alike) {
  const FakeModel model(4);
  auto context = opened(model);
  auto copy = context->duplicate();
  ASSERT_TRUE(copy && *copy) << copy.error().message;
  EXPECT_EQ((*copy)->weight_bytes(), 0u);
  context.reset();
  const auto y = run(**copy, x_);
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_FLOAT_EQ(values<float>((*y)[0])[2], model.answer(x_)[2]);
}

TEST_F(ContextTest, every_call_that_fails_is_named_with_its_code_and_both_versions) {
  struct Case {
    const char* call;
    int code;
    const char* name;
  };
  for (const auto& [call, code, name] :
       {Case{"rknn_init", -13, "RKNN_ERR_TARGET_PLATFORM_UNMATCH (-13)"},
        Case{"rknn_init", -4, "RKNN_ERR_MALLOC_FAIL (-4)"}, Case{"rknn_query", -5, "RKNN_ERR_PARAM_INVALID (-5)"}}) {
    fake_.fail(call, code);
    const auto context = open(FakeModel());
    ASSERT_FALSE(context) << call;
    for (const char* part : {call, name, "librknnrt 2.3.2", "driver"})
      EXPECT_TRUE(context.error().message.contains(part)) << context.error().message;
    EXPECT_TRUE(fake_.contexts_become(0)) << call;
  }
  const auto context = opened(FakeModel());
  for (const auto& [call, code, name] :
       {Case{"rknn_set_core_mask", -10, "RKNN_ERR_DEVICE_UNMATCH (-10)"},
        Case{"rknn_inputs_set", -8, "RKNN_ERR_INPUT_INVALID (-8)"}, Case{"rknn_run", -1, "RKNN_ERR_FAIL (-1)"},
        Case{"rknn_run", -2, "RKNN_ERR_TIMEOUT (-2)"}, Case{"rknn_outputs_get", -9, "RKNN_ERR_OUTPUT_INVALID (-9)"},
        Case{"rknn_outputs_release", -7, "RKNN_ERR_CTX_INVALID (-7)"}}) {
    fake_.fail(call, code);
    const auto y = run(*context, x_, 1);
    ASSERT_FALSE(y) << call;
    for (const char* part : {call, name, "librknnrt 2.3.2", "driver 0.9.8"})
      EXPECT_TRUE(y.error().message.contains(part)) << y.error().message;
  }
  fake_.fail("rknn_dup_context", -4);
  const auto copy = context->duplicate();
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, ErrorCode::resource_exhausted);
  EXPECT_TRUE(run(*context, x_)) << "errors of calls leave the context usable";
}

TEST_F(ContextTest, answers_that_can_not_be_are_refused) {
  for (const char* twist : {"rank", "size", "type", "elements"}) {
    const auto context = open(FakeModel().does("twist", twist));
    ASSERT_FALSE(context) << twist;
    EXPECT_EQ(context.error().code, ErrorCode::data_loss) << twist;
  }
  EXPECT_EQ(opened(FakeModel().does("twist", "name"))->inputs()[0].name, std::string(256, 'x'))
      << "a name that never ends";
  EXPECT_FALSE(open(FakeModel(1, 12, 4).with({"in x 0 3 0 0 1 6", "in x 0 3 0 0 1 6", "out y 0 3 0 0 1 4"})))
      << "the same name twice";
  const auto shortened = opened(FakeModel().does("shorten", "1"));
  const auto y = run(*shortened, x_);
  ASSERT_FALSE(y);
  EXPECT_EQ(y.error().code, ErrorCode::data_loss);
  EXPECT_TRUE(y.error().message.contains("15 bytes instead of 16")) << y.error().message;
}

TEST_F(ContextTest, a_run_that_hangs_costs_its_own_context_until_it_comes_back) {
  test::TempDirectory directory;
  const auto flag = directory.path() / "hang";
  test::write_file(flag, "");
  options_.run_timeout = std::chrono::milliseconds(50);
  auto hanging = opened(FakeModel().does("hang", flag.string()));
  options_.run_timeout = std::chrono::seconds(60);
  const auto other = opened(FakeModel(2));
  const auto y = run(*hanging, x_);
  ASSERT_FALSE(y);
  EXPECT_EQ(y.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(y.error().message.contains("rknn_run didn't return in time")) << y.error().message;
  EXPECT_TRUE(hanging->condemned());
  EXPECT_FALSE(hanging->gone());
  ASSERT_EQ(condemned_->all().size(), 1u);
  EXPECT_EQ(condemned_->all()[0].what, "model 'm:1': rknn_run has not returned");
  EXPECT_EQ(condemned_->all()[0].bytes, hanging->weight_bytes() + hanging->own_bytes());
  EXPECT_FALSE(run(*hanging, x_)) << "nothing more is asked of it";
  EXPECT_TRUE(run(*other, x_)) << "others go on meanwhile";
  hanging.reset();  // nobody waits for it
  EXPECT_EQ(fake_.contexts(), 2) << "it isn't gone";
  std::filesystem::remove(flag);
  EXPECT_TRUE(fake_.contexts_become(1)) << "its thread destroys it when the call is back";
  for (int i = 0; i < 5000 && !condemned_->all().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(condemned_->all().empty());
}

TEST_F(ContextTest, says_what_it_would_take_without_taking_it) {
  auto asked = ask_memory(library_, bytes(FakeModel()), options_);
  ASSERT_TRUE(asked && *asked);
  EXPECT_EQ(**asked, 6 * 4 * 4u + 4096);
  EXPECT_EQ(fake_.contexts(), 0);
  EXPECT_EQ(fake_.calls("rknn_init"), 0);
  fake_.fail("info", -1);
  asked = ask_memory(library_, bytes(FakeModel()), options_);
  EXPECT_TRUE(asked && !*asked) << "a runtime that can't tell isn't an error";
}

}  // namespace
}  // namespace npud::rknn
