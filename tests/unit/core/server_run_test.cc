// SPDX-License-Identifier: Apache-2.0
// What happens to a request once it is queued: expiry, the thread it runs on, cancellation, batches.
#include "server_fixture.h"

namespace npud {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

using ServerRunTest = ServerFixture;

TEST_F(ServerRunTest, ARequestThatExpiresInTheQueueNeverRuns) {
  make({4, 0, 0}, &manual);
  auto model = add_held();
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

TEST_F(ServerRunTest, AResultAfterItsTimeIsNoSuccess) {
  make({4, 0, 0}, &manual);
  auto model = add_held();
  Request slow = request("m");
  slow.deadline = manual.now() + 10ms;
  auto result = submit(std::move(slow));
  model->wait_running(1);
  manual.advance(11ms);
  model->release();
  EXPECT_EQ(result.get().error().code, ErrorCode::deadline_exceeded);
}

class InlineTest : public ServerRunTest {
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
    ServerRunTest::TearDown();
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

TEST_F(ServerRunTest, CancellingAQueuedRequestEndsItAtOnce) {
  auto model = add_held();
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

TEST_F(ServerRunTest, CancellingARunningRequestTellsTheRun) {
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

TEST_F(ServerRunTest, BatchesRequestsOfOneTenantAndShape) {
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

TEST_F(ServerRunTest, MemoryTooSmallForOneAnswerLeavesTheBatchTheirs) {
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

TEST_F(ServerRunTest, ABatchWaitsForItsDelayAndNoLonger) {
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

TEST_F(ServerRunTest, AFailedRunFailsItsRequestsAndCountsThem) {
  auto model = std::make_shared<Doubler>("m");
  model->failing = true;
  server->add(model);
  EXPECT_EQ(submit(request("m")).get().error().code, ErrorCode::data_loss);
  wait_empty();
  EXPECT_EQ(server->statistics("m", 1)[0].fail.count, 1u);
  EXPECT_EQ(server->statistics("m", 1)[0].success.count, 0u);
}

TEST_F(ServerRunTest, AFloodOfOneTenantDoesntHoldUpAnother) {
  auto model = add_held({.max_queued = 100});
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

TEST_F(ServerRunTest, OutputsGoToTheClientsMemoryInTheOrderAskedFor) {
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

}  // namespace
}  // namespace npud
