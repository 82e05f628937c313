// SPDX-License-Identifier: Apache-2.0
// A Server with real threads, a model that doubles, and tenants with and without caps.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <thread>

#include "core/manual_clock.h"
#include "core/server.h"

namespace npud {

// Answers twice its input. Can be held, so that requests stay running.
class Doubler : public Servable {
 public:
  explicit Doubler(std::string model, std::int64_t version = 1, QueueSettings settings = {}, std::int64_t max_batch = 0)
      : model_(std::move(model)), version_(version), settings_(std::move(settings)) {
    signature_ = {{{"x", DataType::fp32, {-1}, false}}, {{"y", DataType::fp32, {-1}, false}}, max_batch};
    ++alive;
  }
  ~Doubler() override { --alive; }
  const std::string& model() const override { return model_; }
  std::int64_t version() const override { return version_; }
  const Signature& signature() const override { return signature_; }
  const QueueSettings& queue_settings() const override { return settings_; }
  bool waits_for_device() const override { return waits; }

  Result<std::vector<Response>> run(ExecutionContext& context, std::span<const Request* const> batch) override {
    {
      std::unique_lock lock(mutex_);
      ++running_;
      sizes_.push_back(batch.size());
      tenants_.push_back(context.tenant().value);
      for (const Request* request : batch) ids_.push_back(request->id);
      threads_.push_back(std::this_thread::get_id());
      changed_.notify_all();
      if (heed_cancellation) {
        changed_.wait(lock, context.cancelled(), [&] { return !held_; });
      } else {
        changed_.wait(lock, [&] { return !held_; });
      }
      --running_;
      if (context.cancelled().stop_requested()) return fail(ErrorCode::cancelled, "told to stop");
    }
    if (on_run) on_run();
    if (failing) return fail(ErrorCode::data_loss, "the device answered nonsense");
    std::vector<Response> responses;
    for (const Request* request : batch) {
      const Tensor& x = request->inputs[0];
      Tensor y{"y", DataType::fp32, x.shape, Buffer::allocate(x.data.size_bytes())};
      const auto* in = reinterpret_cast<const float*>(x.data.bytes().data());
      auto* out = reinterpret_cast<float*>(y.data.bytes().data());
      for (std::size_t i = 0; i < x.data.size_bytes() / 4; ++i) out[i] = 2 * in[i];
      Response response;
      response.outputs.push_back(std::move(y));
      response.timings.compute = std::chrono::microseconds(3);
      responses.push_back(std::move(response));
    }
    return responses;
  }

  void hold() { set_held(true); }
  void release() { set_held(false); }
  void wait_running(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_ >= count; });
  }
  std::vector<std::size_t> sizes() {
    const std::lock_guard lock(mutex_);
    return sizes_;
  }
  std::vector<std::string> ids() {
    const std::lock_guard lock(mutex_);
    return ids_;
  }
  std::vector<std::uint32_t> tenants() {
    const std::lock_guard lock(mutex_);
    return tenants_;
  }

  // Where the last run was.
  bool ran_here() {
    const std::lock_guard lock(mutex_);
    return threads_.back() == std::this_thread::get_id();
  }

  std::atomic<bool> failing{false}, heed_cancellation{false};
  std::function<void()> on_run;  // set while nothing runs
  bool waits = false;            // set before it is added
  static inline std::atomic<int> alive{0};

 private:
  void set_held(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  std::string model_;
  std::int64_t version_;
  QueueSettings settings_;
  Signature signature_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool held_ = false;
  int running_ = 0;
  std::vector<std::size_t> sizes_;
  std::vector<std::string> ids_;
  std::vector<std::uint32_t> tenants_;
  std::vector<std::thread::id> threads_;
};

class ServerFixture : public testing::Test {
 protected:
  ServerFixture() {
    std::vector<TenantRule> rules{{"capped", {1}, {}, {1.0, 2, 1000, PriorityClass::interactive}},
                                  {"free", {2}, {}, {1.0, 0, 0, PriorityClass::realtime}},
                                  {"nightly", {3}, {}, {1.0, 0, 0, PriorityClass::batch}}};
    EXPECT_TRUE(tenants.configure({}, std::move(rules)));
    capped = *tenants.for_uid(1);
    free_ = *tenants.for_uid(2);
    nightly = *tenants.for_uid(3);
    make();
  }
  void make(ServerSettings settings = {4, 0, 0}, Clock* with = nullptr) {
    server.reset();
    server = std::make_unique<Server>(settings, with != nullptr ? *with : clock, tenants, events);
  }

  Request request(const std::string& model, std::vector<float> values = {1, 2}, std::optional<TenantId> tenant = {}) {
    Request r;
    r.model = model;
    r.tenant = tenant.value_or(free_);
    r.inputs.push_back({"x",
                        DataType::fp32,
                        {static_cast<std::int64_t>(values.size())},
                        Buffer::copy_of(std::as_bytes(std::span(values)))});
    r.payload_bytes = values.size() * 4;
    return r;
  }
  // A model "m" whose runs stay until it is released.
  std::shared_ptr<Doubler> add_held(QueueSettings settings = {}) {
    auto model = std::make_shared<Doubler>("m", 1, std::move(settings));
    server->add(model);
    model->hold();
    return model;
  }
  std::future<Result<Response>> submit(Request r) {
    auto promise = std::make_shared<std::promise<Result<Response>>>();
    auto future = promise->get_future();
    r.done = [promise](Result<Response> result) { promise->set_value(std::move(result)); };
    server->submit(std::move(r));
    return future;
  }
  void wait_queued(std::uint64_t count) {
    while (server->snapshot().queued != count) std::this_thread::yield();
  }
  void wait_empty() { ASSERT_TRUE(server->drain(clock.now() + std::chrono::seconds(20))); }

  void TearDown() override {
    if (server != nullptr) {
      const ServerSnapshot snapshot = server->snapshot();
      EXPECT_EQ(snapshot.in_flight, 0u);
      EXPECT_EQ(snapshot.queued, 0u);
      EXPECT_EQ(snapshot.payload_bytes, 0u);
      for (const TenantSnapshot& tenant : snapshot.tenants) {
        EXPECT_EQ(tenant.in_flight, 0u);
        EXPECT_EQ(tenant.bytes, 0u);
      }
    }
    server.reset();
    EXPECT_EQ(Doubler::alive, 0);
  }

  SteadyClock clock;
  ManualClock manual;
  TenantTable tenants;
  EventBus events{clock};
  TenantId capped, free_, nightly;
  std::unique_ptr<Server> server;
};

}  // namespace npud
