// SPDX-License-Identifier: Apache-2.0
// What offloaded models are charged for, from their servables down to the arbiter's account. The arbiter's clock stands
// still but for the jobs, each of which takes what its size says, so that no scheduler of this machine has a say.
#include <algorithm>
#include <condition_variable>
#include <thread>

#include "core/manual_clock.h"
#include "npu_fixture.h"

namespace npud {
namespace {

using test::Dims;

class Shares : public test::NpuTest {
 protected:
  static constexpr std::uint32_t heavy_uid = 1, light_uid = 2;

  // As the fixture's, but for one core and a clock of its own.
  void open_one_core() {
    open();
    engine_.loader.reset();
    target_.reset();
    arbiter_ = std::make_unique<DeviceArbiter>(
        DeviceArbiterSettings{.device = "rknpu0", .cores = 1, .slots = 64, .aperture_bytes = 24u << 20, .fairness = {}},
        clock_, engine_.tenants, engine_.events);
    target_ = std::make_unique<NpuTarget>(*device_, *arbiter_, engine_.clock, engine_.events);
    auto loader =
        OnnxLoader::create({}, test::shared_runtime(), engine_.host, engine_.arbiter, engine_.clock, target_.get());
    ASSERT_TRUE(loader) << loader.error().message;
    engine_.loader = std::move(*loader);
    const std::vector<TenantRule> rules{{"heavy", {heavy_uid}, {}, {.weight = 3}},
                                        {"light", {light_uid}, {}, {.weight = 1}}};
    ASSERT_TRUE(engine_.tenants.configure({}, rules));
  }

  onnx::ModelProto product(std::int64_t k, std::int64_t n, int layers) {
    auto model = test::empty_model();
    test::add_input(model, "x0", onnx::TensorProto::FLOAT, {-1, k});
    test::add_output(model, "x" + std::to_string(layers), onnx::TensorProto::FLOAT, {-1, n});
    for (int i = 0; i < layers; ++i) {
      const std::string in = "x" + std::to_string(i), out = "x" + std::to_string(i + 1), w = "w" + std::to_string(i);
      test::add_weight(model, w, {k, n}, noise(static_cast<std::size_t>(k * n), 0.1f));
      test::add_node(model, "MatMul", {in, w}, {out});
    }
    return model;
  }

  Duration charged(TenantId tenant) const {
    for (const auto& account : arbiter_->snapshot().tenants)
      if (account.tenant == tenant) return account.charged;
    return Duration{0};
  }

  ManualClock clock_;
};

TEST_F(Shares, of_the_npu_follow_the_weights_for_models_of_different_shapes) {
  open_one_core();
  const TenantId heavy = *engine_.tenants.for_uid(heavy_uid), light = *engine_.tenants.for_uid(light_uid);
  // One large product a request, and three small ones with the host between them.
  const auto large = load("large", product(128, 128, 1), {{"npud.device", "rknpu0"}}),
             small = load("small", product(64, 64, 3), {{"npud.device", "rknpu0"}});
  ASSERT_TRUE(large && small);
  constexpr Duration large_cost{7000}, small_cost{2000};
  const Duration before_heavy = charged(heavy), before_light = charged(light);

  std::atomic<bool> stop{false};
  std::atomic<int> jobs{0};
  Duration at_heavy{0}, at_light{0}, slack{0};
  port_->on_run = [&](const rknpu::Submission&) {
    if (stop) return;
    const auto runs = arbiter_->snapshot().running;
    ASSERT_EQ(runs.size(), 1u);
    // Both always have something waiting: otherwise weights say nothing.
    auto waits = [&](TenantId tenant) {
      const auto waiting = arbiter_->snapshot().waiting;
      return std::ranges::find(waiting, tenant, &WaitingJobSnapshot::tenant) != waiting.end();
    };
    while (!waits(heavy) || !waits(light)) std::this_thread::yield();
    if (++jobs == 120) {
      const auto snapshot = arbiter_->snapshot();
      at_heavy = charged(heavy), at_light = charged(light), slack = snapshot.fairness_slack;
      stop = true;
    }
    clock_.advance(runs[0].program.starts_with("large") ? large_cost : small_cost);
  };
  auto work = [&](Servable& servable, TenantId tenant, std::int64_t k) {
    const std::vector<float> values(static_cast<std::size_t>(4 * k), 0.5f);
    Request request;
    request.inputs = {test::float_tensor("x0", {4, k}, values)};
    const Request* batch[] = {&request};
    test::TestContext context(engine_.clock, {}, tenant);
    while (!stop) {
      auto responses = servable.run(context, batch);
      ASSERT_TRUE(responses) << responses.error().message;
      ASSERT_EQ(responses->at(0).path.device, "rknpu0");
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] { work(*large, heavy, 128); });
      threads.emplace_back([&] { work(*small, light, 64); });
    }
  }
  port_->on_run = {};
  const auto us = [](Duration d) { return static_cast<double>(d.count()); };
  const double got_heavy = us(at_heavy - before_heavy), got_light = us(at_light - before_light);
  // core/fair_queue.h has the bound; the job that ran when it was read isn't in the account yet.
  const double bound =
      (us(slack) + us(large_cost)) / 3 + us(slack) + us(small_cost) + std::max(us(large_cost) / 3, us(small_cost));
  EXPECT_GT(got_light, 20 * us(small_cost));
  EXPECT_LE(std::abs(got_heavy / 3 - got_light), bound) << got_heavy << " us against " << got_light;
}

}  // namespace
}  // namespace npud
