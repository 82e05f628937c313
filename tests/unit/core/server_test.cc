// SPDX-License-Identifier: Apache-2.0
// Server with real threads: admission, queues, batches, cancellation at every stage, replacing and draining.
#include "core/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include "core/manual_clock.h"

namespace npud {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

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
      response.timings.compute = 3us;
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

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
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
  void wait_empty() { ASSERT_TRUE(server->drain(clock.now() + 20s)); }

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

TEST_F(ServerTest, AnswersARequest) {
  server->add(std::make_shared<Doubler>("m"));
  auto result = submit(request("m", {1.5f, -2})).get();
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(result->outputs.size(), 1u);
  const auto* y = reinterpret_cast<const float*>(result->outputs[0].data.bytes().data());
  EXPECT_EQ(y[0], 3.0f);
  EXPECT_EQ(y[1], -4.0f);
  EXPECT_EQ(result->model, "m");
  EXPECT_EQ(result->version, 1);
  wait_empty();
  const auto statistics = server->statistics("m", std::nullopt);
  ASSERT_EQ(statistics.size(), 1u);
  EXPECT_EQ(statistics[0].inference_count, 1u);
  EXPECT_EQ(statistics[0].execution_count, 1u);
  EXPECT_EQ(statistics[0].success.count, 1u);
  EXPECT_EQ(statistics[0].compute_infer.total, 3us);
}

TEST_F(ServerTest, RefusesWhatItDoesntKnow) {
  server->add(std::make_shared<Doubler>("m", 3));
  EXPECT_EQ(submit(request("nobody")).get().error().code, ErrorCode::not_found);
  Request wrong_version = request("m");
  wrong_version.version = 7;
  const auto result = submit(std::move(wrong_version)).get();
  EXPECT_EQ(result.error().code, ErrorCode::not_found);
  EXPECT_THAT(result.error().message, HasSubstr("loaded are 3"));
  Request wrong_type = request("m");
  wrong_type.inputs[0].type = DataType::int32;
  EXPECT_EQ(submit(std::move(wrong_type)).get().error().code, ErrorCode::invalid_argument);
}

TEST_F(ServerTest, TheNewestVersionIsTheDefault) {
  server->add(std::make_shared<Doubler>("m", 2));
  server->add(std::make_shared<Doubler>("m", 10));
  EXPECT_EQ(submit(request("m")).get()->version, 10);
  ASSERT_TRUE(server->remove("m", 10));
  EXPECT_EQ(submit(request("m")).get()->version, 2);
  wait_empty();
}

TEST_F(ServerTest, AFullQueueSaysWhenToComeBack) {
  QueueSettings settings;
  settings.max_queued = 2;
  auto model = std::make_shared<Doubler>("m", 1, settings);
  server->add(model);
  model->hold();
  std::vector<std::future<Result<Response>>> futures;
  futures.push_back(submit(request("m")));
  model->wait_running(1);
  futures.push_back(submit(request("m")));
  futures.push_back(submit(request("m")));
  const auto result = submit(request("m")).get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::resource_exhausted);
  EXPECT_TRUE(result.error().retry_after);
  model->release();
  for (auto& future : futures) EXPECT_TRUE(future.get());
  wait_empty();
  EXPECT_EQ(server->snapshot().tenants[0].rejected, 1u);
}

TEST_F(ServerTest, ATenantsCapsHoldAndAreSaid) {
  auto watcher = events.subscribe();
  auto model = std::make_shared<Doubler>("m");
  server->add(model);
  model->hold();
  auto first = submit(request("m", {1}, capped)), second = submit(request("m", {1}, capped));
  const auto third = submit(request("m", {1}, capped)).get();
  EXPECT_EQ(third.error().code, ErrorCode::resource_exhausted);
  EXPECT_THAT(third.error().message, HasSubstr("'capped' has 2 requests in flight"));
  model->release();
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
  const auto big = submit(request("m", std::vector<float>(300), capped)).get();
  EXPECT_EQ(big.error().code, ErrorCode::resource_exhausted);
  EXPECT_EQ(big.error().bytes_needed, 1200u);
  EXPECT_FALSE(big.error().retry_after);
  wait_empty();
  bool throttled = false;
  while (auto event = watcher->try_next())
    throttled |= event->kind == EventKind::tenant_throttled && event->tenant == capped;
  EXPECT_TRUE(throttled);
}

TEST_F(ServerTest, ClassesHaveACeiling) {
  server->add(std::make_shared<Doubler>("m"));
  Request greedy = request("m", {1}, capped);
  greedy.priority_class = PriorityClass::realtime;
  EXPECT_EQ(submit(std::move(greedy)).get().error().code, ErrorCode::permission_denied);
  EXPECT_TRUE(submit(request("m", {1}, nightly)).get());  // asked for nothing: gets what it may
  wait_empty();
}

TEST_F(ServerTest, ARequestThatExpiresInTheQueueNeverRuns) {
  make({4, 0, 0}, &manual);
  auto model = std::make_shared<Doubler>("m");
  server->add(model);
  model->hold();
  auto first = submit(request("m"));
  model->wait_running(1);
  Request late = request("m");
  late.id = "late";
  late.deadline = manual.now() + 10ms;
  auto second = submit(std::move(late));
  manual.advance(10ms);
  server->wake();
  EXPECT_EQ(second.get().error().code, ErrorCode::deadline_exceeded);  // while the model is still held
  model->release();
  EXPECT_TRUE(first.get());
  EXPECT_THAT(model->ids(), ElementsAre(""));
  Request too_late = request("m");
  too_late.deadline = manual.now();
  EXPECT_EQ(submit(std::move(too_late)).get().error().code, ErrorCode::deadline_exceeded);
  while (server->snapshot().in_flight != 0) std::this_thread::yield();
  model.reset();
}

TEST_F(ServerTest, AResultAfterItsTimeIsNoSuccess) {
  make({4, 0, 0}, &manual);
  auto model = std::make_shared<Doubler>("m");
  server->add(model);
  model->hold();
  Request slow = request("m");
  slow.deadline = manual.now() + 10ms;
  auto result = submit(std::move(slow));
  model->wait_running(1);
  manual.advance(11ms);
  model->release();
  EXPECT_EQ(result.get().error().code, ErrorCode::deadline_exceeded);
}

class InlineTest : public ServerTest {
 protected:
  InlineTest() {
    make({.workers = 4, .inline_below = 200us}, &manual);
    server->add(model);
    EXPECT_TRUE(submit(request("m")).get());  // its time isn't known before
    EXPECT_FALSE(model->ran_here());
    wait_idle();
  }
  void wait_idle() {
    while (server->snapshot().workers_busy != 0) std::this_thread::yield();
  }
  void TearDown() override {
    wait_idle();
    model.reset();
    ServerTest::TearDown();
  }
  std::shared_ptr<Doubler> model = std::make_shared<Doubler>("m");
};

TEST_F(InlineTest, AQuickModelRunsOnTheSubmittingThread) {
  auto result = submit(request("m", {4}));
  EXPECT_TRUE(model->ran_here());
  EXPECT_TRUE(result.get());
  EXPECT_EQ(server->snapshot().workers_busy, 0u);
}

TEST_F(InlineTest, NotWhileSomethingLongerRuns) {
  auto longer = std::make_shared<Doubler>("longer");
  longer->hold();
  server->add(longer);
  auto held = submit(request("longer"));
  longer->wait_running(1);
  EXPECT_TRUE(submit(request("m")).get());
  EXPECT_FALSE(model->ran_here());
  longer->release();
  EXPECT_TRUE(held.get());
  wait_idle();
  EXPECT_TRUE(submit(request("m")).get());
  EXPECT_TRUE(model->ran_here());
}

TEST_F(InlineTest, NeverWhatWaitsForADevice) {
  auto waiting = std::make_shared<Doubler>("waiting");
  waiting->waits = true;
  server->add(waiting);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(submit(request("waiting")).get());
    EXPECT_FALSE(waiting->ran_here());
    wait_idle();
  }
}

TEST_F(InlineTest, ARunThatTookLongUnexpectedlyMeansProbationLongerEachTime) {
  for (const std::uint32_t probation : {inline_probation, 2 * inline_probation}) {
    model->on_run = [&] { manual.advance(200us * inline_surprise + 1us); };
    EXPECT_TRUE(submit(request("m")).get());
    EXPECT_TRUE(model->ran_here());
    model->on_run = nullptr;
    for (std::uint32_t i = 0; i < probation; ++i) {  // quick on average again long before
      EXPECT_TRUE(submit(request("m")).get());
      EXPECT_FALSE(model->ran_here());
      wait_idle();
    }
    EXPECT_TRUE(submit(request("m")).get());
    EXPECT_TRUE(model->ran_here());
  }
}

TEST_F(InlineTest, WhatComesMeanwhileIsRunToo) {
  // Its only instance runs inline when the others come.
  std::vector<std::future<Result<Response>>> others;
  model->on_run = [&] {
    model->on_run = nullptr;
    std::thread([&] {
      for (int i = 0; i < 40; ++i) others.push_back(submit(request("m")));
    }).join();
  };
  EXPECT_TRUE(submit(request("m")).get());
  for (auto& other : others) EXPECT_TRUE(other.get());
}

TEST_F(ServerTest, CancellingAQueuedRequestEndsItAtOnce) {
  auto model = std::make_shared<Doubler>("m");
  server->add(model);
  model->hold();
  auto first = submit(request("m"));
  model->wait_running(1);
  std::stop_source stop;
  Request second = request("m");
  second.cancelled = stop.get_token();
  auto result = submit(std::move(second));
  stop.request_stop();
  EXPECT_EQ(result.get().error().code, ErrorCode::cancelled);
  EXPECT_EQ(server->snapshot().queued, 0u);
  Request third = request("m");
  third.cancelled = stop.get_token();
  EXPECT_EQ(submit(std::move(third)).get().error().code, ErrorCode::cancelled);
  model->release();
  EXPECT_TRUE(first.get());
  wait_empty();
}

TEST_F(ServerTest, CancellingARunningRequestTellsTheRun) {
  auto model = std::make_shared<Doubler>("m");
  model->heed_cancellation = true;
  server->add(model);
  model->hold();
  std::stop_source stop;
  Request r = request("m");
  r.cancelled = stop.get_token();
  auto result = submit(std::move(r));
  model->wait_running(1);
  stop.request_stop();
  EXPECT_EQ(result.get().error().code, ErrorCode::cancelled);
  model->release();
  wait_empty();
}

TEST_F(ServerTest, BatchesRequestsOfOneTenantAndShape) {
  QueueSettings settings;
  settings.max_queued = 64;
  auto model = std::make_shared<Doubler>("m", 1, settings, 4);
  server->add(model);
  const auto batched = [&](std::vector<std::int64_t> shape, TenantId tenant) {
    std::int64_t count = shape[0] * shape[1];
    Request r = request("m", std::vector<float>(static_cast<std::size_t>(count), 1), tenant);
    r.inputs[0].shape = std::move(shape);
    return r;
  };
  model->hold();
  std::vector<std::future<Result<Response>>> futures;
  futures.push_back(submit(batched({1, 2}, free_)));
  model->wait_running(1);
  for (int i = 0; i < 4; ++i) futures.push_back(submit(batched({1, 2}, free_)));
  futures.push_back(submit(batched({1, 3}, free_)));
  futures.push_back(submit(batched({1, 2}, nightly)));
  model->release();
  for (auto& future : futures) {
    const auto result = future.get();
    ASSERT_TRUE(result) << result.error().message;
  }
  EXPECT_THAT(model->sizes(), testing::UnorderedElementsAre(1u, 4u, 1u, 1u));
  EXPECT_EQ(submit(batched({5, 2}, free_)).get().error().code, ErrorCode::invalid_argument);
  wait_empty();
  EXPECT_EQ(server->statistics("m", 1)[0].batches.at(4).compute_infer.count, 1u);
}

TEST_F(ServerTest, MemoryTooSmallForOneAnswerLeavesTheBatchTheirs) {
  auto model = std::make_shared<Doubler>("m", 1, QueueSettings{}, 4);
  server->add(model);
  const auto row = [&](std::size_t room_bytes) {
    Request r = request("m", {4, 5});
    r.inputs[0].shape = {1, 2};
    r.outputs.push_back({"y", Buffer::allocate(room_bytes)});
    return r;
  };
  model->hold();
  auto first = submit(row(8));
  model->wait_running(1);
  auto enough = submit(row(8)), too_small = submit(row(4));
  model->release();
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(enough.get());
  const auto refused = too_small.get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().bytes_needed, 8u);
  EXPECT_THAT(model->sizes(), ElementsAre(1u, 2u));
  wait_empty();
}

TEST_F(ServerTest, ABatchWaitsForItsDelayAndNoLonger) {
  make({4, 0, 0}, &manual);
  QueueSettings settings;
  settings.max_queue_delay = 5ms;
  auto model = std::make_shared<Doubler>("m", 1, settings, 8);
  server->add(model);
  Request r = request("m", {1, 2});
  r.inputs[0].shape = {1, 2};
  auto result = submit(std::move(r));
  EXPECT_EQ(result.wait_for(20ms), std::future_status::timeout);
  manual.advance(5ms);
  server->wake();
  EXPECT_TRUE(result.get());
}

TEST_F(ServerTest, AReplacedVersionEndsWhatItHasAndIsLetGo) {
  auto old = std::make_shared<Doubler>("m", 1);
  std::weak_ptr<Doubler> watch = old;
  server->add(old);
  old->hold();
  auto running = submit(request("m"));
  old->wait_running(1);
  auto queued = submit(request("m"));
  server->add(std::make_shared<Doubler>("m", 1));
  EXPECT_TRUE(submit(request("m")).get());  // by the new one
  EXPECT_EQ(server->wait_retired("m", clock.now() + 5ms).error().code, ErrorCode::deadline_exceeded);
  old->release();
  old.reset();
  EXPECT_TRUE(running.get());
  EXPECT_TRUE(queued.get());
  EXPECT_TRUE(server->wait_retired("m", clock.now() + 20s));
  EXPECT_TRUE(watch.expired());
  wait_empty();
}

TEST_F(ServerTest, ADrainedModelRefusesAndResumes) {
  auto model = std::make_shared<Doubler>("m");
  server->add(model);
  model->hold();
  auto running = submit(request("m"));
  model->wait_running(1);
  EXPECT_EQ(server->drain_model("m", clock.now() + 5ms).error().code, ErrorCode::deadline_exceeded);
  EXPECT_EQ(submit(request("m")).get().error().code, ErrorCode::failed_precondition);
  model->release();
  EXPECT_TRUE(server->drain_model("m", clock.now() + 20s));
  EXPECT_TRUE(running.get());
  EXPECT_TRUE(server->resume_model("m"));
  EXPECT_TRUE(submit(request("m")).get());
  EXPECT_EQ(server->drain_model("nobody", clock.now()).error().code, ErrorCode::not_found);
  wait_empty();
  EXPECT_EQ(submit(request("m")).get().error().code, ErrorCode::unavailable);
}

TEST_F(ServerTest, AFailedRunFailsItsRequestsAndCountsThem) {
  auto model = std::make_shared<Doubler>("m");
  model->failing = true;
  server->add(model);
  EXPECT_EQ(submit(request("m")).get().error().code, ErrorCode::data_loss);
  wait_empty();
  EXPECT_EQ(server->statistics("m", 1)[0].fail.count, 1u);
  EXPECT_EQ(server->statistics("m", 1)[0].success.count, 0u);
}

TEST_F(ServerTest, AFloodOfOneTenantDoesntHoldUpAnother) {
  QueueSettings settings;
  settings.max_queued = 100;
  auto model = std::make_shared<Doubler>("m", 1, settings);
  server->add(model);
  model->hold();
  std::vector<std::future<Result<Response>>> futures;
  for (int i = 0; i < 50; ++i) futures.push_back(submit(request("m")));
  model->wait_running(1);
  futures.push_back(submit(request("m", {1}, capped)));
  model->release();
  for (auto& future : futures) EXPECT_TRUE(future.get());
  const auto order = model->tenants();
  const auto place = std::ranges::find(order, capped.value) - order.begin();
  EXPECT_LE(place, 2);
  wait_empty();
}

TEST_F(ServerTest, OutputsGoToTheClientsMemoryInTheOrderAskedFor) {
  server->add(std::make_shared<Doubler>("m"));
  Request r = request("m", {4, 5});
  Buffer mine = Buffer::allocate(8);
  r.outputs.push_back({"y", mine});
  const auto result = submit(std::move(r)).get();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->outputs[0].data.size_bytes(), 0u);
  EXPECT_EQ(reinterpret_cast<const float*>(mine.bytes().data())[1], 10.0f);
  Request small = request("m", {4, 5});
  small.outputs.push_back({"y", Buffer::allocate(4)});
  EXPECT_EQ(submit(std::move(small)).get().error().code, ErrorCode::invalid_argument);
  Request unknown = request("m");
  unknown.outputs.push_back({"z", {}});
  EXPECT_THAT(submit(std::move(unknown)).get().error().message, HasSubstr("outputs are 'y'"));
  wait_empty();
}

TEST_F(ServerTest, GoingDownEndsEverything) {
  auto model = std::make_shared<Doubler>("m");
  model->heed_cancellation = true;
  server->add(model);
  model->hold();
  auto running = submit(request("m"));
  model->wait_running(1);
  auto queued = submit(request("m"));
  server.reset();
  EXPECT_FALSE(running.get());
  EXPECT_EQ(queued.get().error().code, ErrorCode::unavailable);
}

TEST_F(ServerTest, SurvivesThreadsThatDoEverythingAtOnce) {
  QueueSettings settings;
  settings.instances = 2;
  settings.max_queued = 32;
  for (int m = 0; m < 3; ++m) server->add(std::make_shared<Doubler>("m" + std::to_string(m), 1, settings));
  std::atomic<int> answered = 0, sent = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(static_cast<std::uint64_t>(t) + 1);
        std::vector<std::stop_source> stops;
        for (int i = 0; i < 300; ++i) {
          const std::string name = "m" + std::to_string(random() % 3);
          Request r = request(name, {1, 2, 3}, t % 2 == 0 ? free_ : nightly);
          stops.emplace_back();
          r.cancelled = stops.back().get_token();
          if (random() % 4 == 0) r.deadline = clock.now() + Duration{static_cast<Duration::rep>(random() % 500)};
          r.done = [&](Result<Response>) { ++answered; };
          ++sent;
          server->submit(std::move(r));
          if (random() % 3 == 0) stops[random() % stops.size()].request_stop();
          if (random() % 60 == 0) server->add(std::make_shared<Doubler>(name, 1, settings));
          if (random() % 100 == 0) server->snapshot();
        }
      });
    }
  }
  wait_empty();
  EXPECT_EQ(answered, sent);
  for (int m = 0; m < 3; ++m) EXPECT_TRUE(server->wait_retired("m" + std::to_string(m), clock.now() + 20s));
  EXPECT_EQ(Doubler::alive, 3);
}

}  // namespace
}  // namespace npud
