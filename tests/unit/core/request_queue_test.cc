// SPDX-License-Identifier: Apache-2.0
#include "core/request_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace npud {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

QueuedRequest item(RequestKey key, std::uint32_t tenant = 1, std::uint64_t priority = 0, std::uint64_t shape = 1) {
  QueuedRequest request;
  request.key = key;
  request.tenant = TenantId{tenant};
  request.priority = priority;
  request.shape = shape;
  return request;
}

std::vector<RequestKey> next(RequestQueue& queue, TimePoint now = {}) {
  const auto batch = queue.peek(now);
  if (!batch) return {};
  queue.take(*batch);
  return batch->requests;
}

TEST(RequestQueue, PriorityThenAge) {
  QueueSettings settings;
  settings.priority_levels = 3;
  settings.default_priority = 2;
  RequestQueue queue(settings, 0);
  ASSERT_TRUE(queue.push(item(1), {}));
  ASSERT_TRUE(queue.push(item(2, 1, 3), {}));
  ASSERT_TRUE(queue.push(item(3, 1, 1), {}));
  ASSERT_TRUE(queue.push(item(4), {}));
  EXPECT_THAT(next(queue), ElementsAre(3u));
  EXPECT_THAT(next(queue), ElementsAre(1u));
  EXPECT_THAT(next(queue), ElementsAre(4u));
  EXPECT_THAT(next(queue), ElementsAre(2u));
  EXPECT_THAT(next(queue), ElementsAre());
}

TEST(RequestQueue, WithoutLevelsAPriorityMeansNothing) {
  RequestQueue queue({}, 0);
  ASSERT_TRUE(queue.push(item(1, 1, 9), {}));
  ASSERT_TRUE(queue.push(item(2, 1, 1), {}));
  EXPECT_THAT(next(queue), ElementsAre(1u));
}

TEST(RequestQueue, TheLowestPriorityIsPassedOverForALimitedTime) {
  QueueSettings settings;
  settings.priority_levels = 2;
  RequestQueue queue(settings, 0);
  ASSERT_TRUE(queue.push(item(1, 1, 2), {}));
  ASSERT_TRUE(queue.push(item(2, 1, 1), TimePoint{900ms}));
  EXPECT_THAT(queue.peek(TimePoint{950ms})->requests, ElementsAre(2u));
  EXPECT_THAT(queue.peek(TimePoint{} + RequestQueue::passed_over_limit)->requests, ElementsAre(1u));
}

TEST(RequestQueue, FullIsFull) {
  QueueSettings settings;
  settings.max_queued = 2;
  RequestQueue queue(settings, 0);
  ASSERT_TRUE(queue.push(item(1), {}));
  ASSERT_TRUE(queue.push(item(2), {}));
  EXPECT_EQ(queue.push(item(3), {}).error().code, ErrorCode::resource_exhausted);
  EXPECT_TRUE(queue.remove(1));
  EXPECT_FALSE(queue.remove(1));
  EXPECT_TRUE(queue.push(item(3), {}));
  EXPECT_EQ(queue.peak(), 2u);
}

TEST(RequestQueue, APreferredSizeIsTakenAtOnceTheRestAfterTheDelay) {
  QueueSettings settings;
  settings.preferred_batch_sizes = {2, 4};
  settings.max_queue_delay = 5ms;
  RequestQueue queue(settings, 8);
  for (RequestKey key = 1; key <= 3; ++key) ASSERT_TRUE(queue.push(item(key), {}));
  EXPECT_FALSE(queue.peek(TimePoint{4ms}));
  EXPECT_EQ(queue.next_event(TimePoint{4ms}), TimePoint{5ms});
  ASSERT_TRUE(queue.push(item(4), TimePoint{4ms}));
  EXPECT_THAT(next(queue, TimePoint{4ms}), ElementsAre(1u, 2u, 3u, 4u));
  for (RequestKey key = 5; key <= 7; ++key) ASSERT_TRUE(queue.push(item(key), TimePoint{10ms}));
  EXPECT_THAT(next(queue, TimePoint{15ms}), ElementsAre(5u, 6u));
  EXPECT_THAT(next(queue, TimePoint{15ms}), ElementsAre(7u));
}

TEST(RequestQueue, BatchesNeverMixTenantsOrShapesOrExceedTheLimit) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    QueueSettings settings;
    settings.max_queued = 1000;
    const auto limit = static_cast<std::int64_t>(1 + random() % 8);
    RequestQueue queue(settings, limit);
    std::map<RequestKey, QueuedRequest> all;
    for (RequestKey key = 1; key <= 100; ++key) {
      QueuedRequest request = item(key, 1 + random() % 3, 0, random() % 3);
      request.elements = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
      all[key] = request;
      ASSERT_TRUE(queue.push(request, {}));
    }
    while (auto batch = queue.peek({})) {
      std::int64_t elements = 0;
      ASSERT_FALSE(batch->requests.empty());
      for (const RequestKey key : batch->requests) {
        EXPECT_EQ(all.at(key).tenant, batch->tenant);
        EXPECT_EQ(all.at(key).shape, all.at(batch->requests[0]).shape);
        elements += all.at(key).elements;
      }
      EXPECT_LE(elements, limit);
      queue.take(*batch);
      for (const RequestKey key : batch->requests) all.erase(key);
    }
    EXPECT_TRUE(all.empty());
  }
}

TEST(RequestQueue, TenantsTakeTurnsByWeight) {
  RequestQueue queue({}, 0);
  for (RequestKey key = 1; key <= 40; ++key) {
    QueuedRequest request = item(key, key <= 20 ? 1 : 2);
    request.weight = key <= 20 ? 1 : 3;
    ASSERT_TRUE(queue.push(request, {}));
  }
  int heavy = 0;
  for (int i = 0; i < 20; ++i) heavy += next(queue)[0] > 20 ? 1 : 0;
  EXPECT_EQ(heavy, 15);
}

TEST(RequestQueue, ExpiredOnesAreGone) {
  RequestQueue queue({}, 0);
  QueuedRequest late = item(1);
  late.deadline = TimePoint{3ms};
  ASSERT_TRUE(queue.push(late, {}));
  ASSERT_TRUE(queue.push(item(2), {}));
  EXPECT_EQ(queue.next_event({}), TimePoint{3ms});
  EXPECT_THAT(queue.expire(TimePoint{2ms}), ElementsAre());
  EXPECT_THAT(queue.expire(TimePoint{3ms}), ElementsAre(1u));
  EXPECT_THAT(next(queue), ElementsAre(2u));
}

TEST(RequestQueue, OnlyAsGoodAClassAsAskedFor) {
  RequestQueue queue({}, 0);
  ASSERT_TRUE(queue.push(item(1), {}));
  EXPECT_FALSE(queue.peek({}, PriorityClass::realtime));
  QueuedRequest urgent = item(2);
  urgent.priority_class = PriorityClass::realtime;
  ASSERT_TRUE(queue.push(urgent, {}));
  EXPECT_THAT(queue.peek({}, PriorityClass::realtime)->requests, ElementsAre(2u));
  EXPECT_THAT(next(queue), ElementsAre(2u));
}

}  // namespace
}  // namespace npud
