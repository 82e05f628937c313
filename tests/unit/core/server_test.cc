// SPDX-License-Identifier: Apache-2.0
// What callers of a Server see: admission, versions, caps, draining, the end.
#include <random>

#include "server_fixture.h"

namespace npud {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

using ServerTest = ServerFixture;

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
  auto model = add_held({.max_queued = 2});
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
  auto model = add_held();
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
  auto model = add_held();
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
