// SPDX-License-Identifier: Apache-2.0
// More models than the device has room for.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "engine_fixture.h"

namespace npud {
namespace {

using test::float_tensor;

TEST(HostResidency, TenModelsTakeTurnsOnFourSlots) {
  test::EngineParts engine(4);
  std::vector<LoadedModel> models;
  for (int i = 0; i < 10; ++i) {
    auto loaded = engine.load("m" + std::to_string(i), test::matmul_model(16, 8, static_cast<float>(i)));
    ASSERT_TRUE(loaded) << loaded.error().message;
    models.push_back(std::move(*loaded));
  }
  const std::vector<float> x(16, 0.5f);
  std::vector<std::vector<float>> first;
  for (auto& model : models) {
    auto outputs = engine.run_one(*model.servable, {float_tensor("x", {1, 16}, x)});
    ASSERT_TRUE(outputs) << outputs.error().message;
    first.push_back(test::floats(outputs->at(0)));
  }
  EXPECT_NE(first[0], first[1]);
  for (int round = 0; round < 3; ++round) {
    for (int i = 9; i >= 0; --i) {
      auto outputs = engine.run_one(*models[i].servable, {float_tensor("x", {1, 16}, x)});
      ASSERT_TRUE(outputs) << outputs.error().message;
      EXPECT_EQ(test::floats(outputs->at(0)), first[i]) << i;
    }
  }
  auto snapshot = engine.arbiter.snapshot();
  EXPECT_LE(snapshot.slots_used, 4u);
  EXPECT_GE(snapshot.evicted, 12u);
  EXPECT_EQ(snapshot.programs.size(), 10u);
  models.clear();
  EXPECT_TRUE(engine.arbiter.snapshot().programs.empty());
  EXPECT_EQ(engine.host.used_bytes(), 0u);
}

TEST(HostResidency, ManyThreadsGetTheRightAnswers) {
  test::EngineParts engine(3);
  std::vector<LoadedModel> models;
  for (int i = 0; i < 6; ++i) {
    auto loaded = engine.load("m" + std::to_string(i), test::scale_model({-1}, static_cast<float>(i + 1)));
    ASSERT_TRUE(loaded) << loaded.error().message;
    models.push_back(std::move(*loaded));
  }
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 40; ++i) {
          const int m = (i * 7 + t) % 6;
          auto outputs = engine.run_one(*models[m].servable, {float_tensor("x", {2}, {1, static_cast<float>(t)})});
          if (!outputs || test::floats(outputs->at(0)) != std::vector<float>{m + 1.0f, (m + 1.0f) * t}) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  models.clear();
  EXPECT_EQ(engine.host.used_bytes(), 0u);
}

TEST(HostResidency, BytesAreABoundToo) {
  test::EngineParts engine(8, 10 << 20);
  auto first = engine.load("a", test::matmul_model(1024, 1024, 1));
  ASSERT_TRUE(first) << first.error().message;
  auto second = engine.load("b", test::matmul_model(1024, 1024, 2));
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_LE(engine.host.used_bytes(), 10u << 20);
  auto never = engine.load("c", test::matmul_model(2048, 2048, 3));
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, ErrorCode::resource_exhausted) << never.error().message;
  EXPECT_TRUE(engine.run_one(*first->servable, {float_tensor("x", {1, 1024}, std::vector<float>(1024, 1))}));
}

TEST(HostResidency, AModelComesBackWhateverHappenedToItsFile) {
  test::EngineParts engine(1);
  auto first = engine.load("a", test::scale_model({-1}, 3));
  ASSERT_TRUE(first) << first.error().message;
  test::write_file(engine.directory.path() / "models/a/1/model.onnx", "half a cop");
  auto second = engine.load("b", test::scale_model({-1}, 5));
  ASSERT_TRUE(second) << second.error().message;
  auto outputs = engine.run_one(*first->servable, {float_tensor("x", {1}, {2})});
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(test::floats(outputs->at(0)), (std::vector<float>{6}));
}

TEST(HostResidency, APinnedModelStays) {
  test::EngineParts engine(2);
  inference::ModelConfig config;
  (*config.mutable_parameters())["npud.pinned"].set_string_value("true");
  auto pinned = engine.load("pinned", test::scale_model({-1}, 3), config);
  ASSERT_TRUE(pinned) << pinned.error().message;
  std::vector<LoadedModel> others;
  for (int i = 0; i < 4; ++i) {
    auto loaded = engine.load("o" + std::to_string(i), test::scale_model({-1}, 5));
    ASSERT_TRUE(loaded) << loaded.error().message;
    others.push_back(std::move(*loaded));
  }
  for (const auto& program : engine.arbiter.snapshot().programs) {
    if (program.name == "pinned:1") {
      EXPECT_EQ(program.state, ResidencyState::resident);
    }
  }
}

}  // namespace
}  // namespace npud
