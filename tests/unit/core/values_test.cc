// SPDX-License-Identifier: Apache-2.0
// Tensors, the check against signatures, tenants, events, percentiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "core/events.h"
#include "core/latency.h"
#include "core/manual_clock.h"
#include "core/tenants.h"
#include "core/tensor.h"
#include "core/validate.h"

namespace npud {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(Tensor, TypesHaveNamesAndSizes) {
  for (int i = 0; i <= static_cast<int>(DataType::bytes); ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(data_type_from_name(data_type_name(type)), type);
  }
  EXPECT_EQ(data_type_name(DataType::bf16), "BF16");
  EXPECT_EQ(data_type_size(DataType::bf16), 2u);
  EXPECT_EQ(data_type_size(DataType::bytes), 0u);
  EXPECT_FALSE(data_type_from_name("FP8"));
}

TEST(Tensor, CountsElementsWithoutOverflow) {
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(*element_count(Shape{}), 1u);
  EXPECT_EQ(*element_count(Shape{2, 3, 4}), 24u);
  EXPECT_EQ(*element_count(Shape{INT64_MAX, 0, INT64_MAX}), 0u);
  EXPECT_FALSE(element_count(Shape{2, -1}));
  EXPECT_FALSE(element_count(Shape{INT64_MAX, INT64_MAX}));
  EXPECT_FALSE(element_count(Shape{1 << 24, 1 << 24, 2}));
  EXPECT_TRUE(element_count(Shape{1 << 24, 1 << 24}));
  EXPECT_EQ(shape_text(Shape{1, -1, 3}), "[1,-1,3]");
}

TEST(Tensor, BuffersAreAlignedAndSlicesKeepThemAlive) {
  Buffer slice;
  {
    Buffer whole = Buffer::allocate(100);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(whole.bytes().data()) % 64, 0u);
    std::memset(whole.bytes().data(), 7, 100);
    slice = whole.slice(90, 10);
  }
  EXPECT_EQ(slice.size_bytes(), 10u);
  EXPECT_EQ(slice.bytes()[9], std::byte{7});
  EXPECT_EQ(Buffer::allocate(0).size_bytes(), 0u);
}

class Validate : public testing::Test {
 protected:
  static Tensor tensor(std::string name, DataType type, std::vector<std::int64_t> shape, std::size_t bytes) {
    Tensor t{std::move(name), type, std::move(shape), Buffer::allocate(bytes)};
    std::ranges::fill(t.data.bytes(), std::byte{0});
    return t;
  }
  std::string error(const Request& request) const {
    const auto result = check_inputs(signature, request);
    if (result) return "";
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    return result.error().message;
  }
  Signature signature{{{"a", DataType::fp32, {-1, 3}, false}, {"b", DataType::bytes, {-1}, true}},
                      {{"y", DataType::fp32, {-1}, false}},
                      0};
};

TEST_F(Validate, SaysWhatIsWrong) {
  Request r;
  EXPECT_THAT(error(r), HasSubstr("input 'a' is missing"));
  r.inputs = {tensor("a", DataType::fp32, {2, 3}, 24)};
  EXPECT_EQ(error(r), "");
  r.inputs = {tensor("q", DataType::fp32, {2, 3}, 24)};
  EXPECT_THAT(error(r), HasSubstr("inputs are 'a', 'b'"));
  r.inputs = {tensor("a", DataType::fp16, {2, 3}, 12)};
  EXPECT_THAT(error(r), HasSubstr("has data type FP16, but the model expects FP32"));
  r.inputs = {tensor("a", DataType::fp32, {2, 4}, 32)};
  EXPECT_THAT(error(r), HasSubstr("has shape [2,4], but the model expects [-1,3]"));
  r.inputs = {tensor("a", DataType::fp32, {2, 3}, 23)};
  EXPECT_THAT(error(r), HasSubstr("has 23 bytes of data, but shape [2,3] of FP32 means 24"));
  r.inputs = {tensor("a", DataType::fp32, {-2, 3}, 24)};
  EXPECT_THAT(error(r), HasSubstr("negative dimension"));
  r.inputs = {tensor("a", DataType::fp32, {INT64_MAX / 2, 3}, 24)};
  EXPECT_THAT(error(r), HasSubstr("2^48"));
  r.inputs = {tensor("a", DataType::fp32, {0, 3}, 0)};
  EXPECT_EQ(error(r), "");
  r.inputs = {tensor("a", DataType::fp32, {2, 3}, 24), tensor("a", DataType::fp32, {2, 3}, 24)};
  EXPECT_THAT(error(r), HasSubstr("given twice"));
}

TEST_F(Validate, ReadsBytesElementByElement) {
  const auto with = [&](std::vector<unsigned char> raw, std::int64_t count) {
    Request r;
    r.inputs = {tensor("a", DataType::fp32, {2, 3}, 24),
                {"b", DataType::bytes, {count}, Buffer::copy_of(std::as_bytes(std::span(raw)))}};
    return error(r);
  };
  EXPECT_EQ(with({2, 0, 0, 0, 'h', 'i', 0, 0, 0, 0}, 2), "");
  EXPECT_THAT(with({2, 0, 0, 0, 'h', 'i'}, 2), HasSubstr("ends in element 1"));
  EXPECT_THAT(with({3, 0, 0, 0, 'h', 'i'}, 1), HasSubstr("says that it has 3 bytes, but 2 are left"));
  EXPECT_THAT(with({255, 255, 255, 255, 'h'}, 1), HasSubstr("4294967295"));
  EXPECT_THAT(with({0, 0, 0, 0, 9}, 1), HasSubstr("1 bytes after its last element"));
  EXPECT_THAT(with({}, INT64_C(1) << 40), HasSubstr("ends in element 0"));
}

TEST_F(Validate, KnowsTheBatchDimension) {
  signature = {
      {{"a", DataType::fp32, {3}, false}, {"b", DataType::int8, {1}, false}}, {{"y", DataType::fp32, {-1}, false}}, 4};
  Request r;
  r.inputs = {tensor("a", DataType::fp32, {2, 3}, 24), tensor("b", DataType::int8, {2, 1}, 2)};
  const auto summary = check_inputs(signature, r);
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->batch_elements, 2);
  Request other;
  other.inputs = {tensor("b", DataType::int8, {3, 1}, 3), tensor("a", DataType::fp32, {3, 3}, 36)};
  EXPECT_EQ(check_inputs(signature, other)->shape, summary->shape);
  r.inputs[1] = tensor("b", DataType::int8, {1, 1}, 1);
  EXPECT_THAT(error(r), HasSubstr("all must have the same"));
  r.inputs = {tensor("a", DataType::fp32, {5, 3}, 60), tensor("b", DataType::int8, {5, 1}, 5)};
  EXPECT_THAT(error(r), HasSubstr("the model takes 1 to 4"));
}

TEST_F(Validate, NamesFromMessagesArePrintable) {
  Request r;
  r.inputs = {tensor(std::string("\n\x01") + std::string(500, 'z'), DataType::fp32, {2, 3}, 24)};
  EXPECT_THAT(error(r), HasSubstr("'??zz"));
  EXPECT_LT(error(r).size(), 300u);
}

TEST(Tenants, RulesGroupPeersAndIdsSurviveAReload) {
  TenantTable table;
  const TenantId before = *table.for_uid(1000);
  EXPECT_EQ(table.name(before), "uid:1000");
  ASSERT_TRUE(table.configure({}, {{"family", {1000, 1001}, {"laptop"}, {3.0, 5, 0, PriorityClass::batch}}}));
  const TenantId family = *table.for_uid(1000);
  EXPECT_NE(family, before);
  EXPECT_EQ(*table.for_uid(1001), family);
  EXPECT_EQ(*table.for_certificate("laptop"), family);
  EXPECT_EQ(table.settings(family).weight, 3.0);
  ASSERT_TRUE(table.configure({}, {}));
  EXPECT_EQ(*table.for_uid(1000), before);
  EXPECT_EQ(table.settings(family).weight, 1.0);
}

TEST(Tenants, WrongRulesChangeNothing) {
  TenantTable table;
  ASSERT_TRUE(table.configure({}, {{"a", {1}, {}, {2.0}}}));
  const auto wrong = [&](std::vector<TenantRule> rules) {
    return table.configure({}, std::move(rules)).error().message;
  };
  EXPECT_THAT(wrong({{"a", {1}, {}, {}}, {"b", {1}, {}, {}}}), HasSubstr("uid 1 belongs to tenants 'a' and 'b'"));
  EXPECT_THAT(wrong({{"a", {}, {}, {}}, {"a", {}, {}, {}}}), HasSubstr("configured twice"));
  EXPECT_THAT(wrong({{"a", {}, {}, {0.0}}}), HasSubstr("above 0"));
  EXPECT_THAT(wrong({{"a", {}, {}, {std::nan("")}}}), HasSubstr("above 0"));
  EXPECT_THAT(wrong({{"", {}, {}, {}}}), HasSubstr("no name"));
  EXPECT_EQ(table.settings(*table.for_uid(1)).weight, 2.0);
}

TEST(Tenants, AreBounded) {
  TenantTable table({}, 2);
  ASSERT_TRUE(table.for_uid(1));
  ASSERT_TRUE(table.for_uid(2));
  EXPECT_EQ(table.for_uid(3).error().code, ErrorCode::resource_exhausted);
  EXPECT_TRUE(table.for_uid(1));
  EXPECT_EQ(table.for_certificate("").error().code, ErrorCode::permission_denied);
}

TEST(Events, AReaderSeesThemInOrderAndASlowOneHearsWhatItMissed) {
  ManualClock clock;
  EventBus bus(clock, 4);
  bus.publish({.kind = EventKind::loaded});  // before anybody reads
  auto fast = bus.subscribe(), slow = bus.subscribe();
  std::uint64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    bus.publish({.kind = EventKind::evicted});
    const auto event = fast->try_next();
    ASSERT_TRUE(event);
    EXPECT_GT(event->sequence, last);
    last = event->sequence;
  }
  EXPECT_FALSE(fast->try_next());
  const auto missed = slow->try_next();
  EXPECT_EQ(missed->kind, EventKind::missed);
  EXPECT_EQ(missed->count, 6u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(slow->try_next()->kind, EventKind::evicted);
  EXPECT_FALSE(slow->try_next());
}

TEST(Events, WaitingEndsWithAnEventOrWhenToldTo) {
  SteadyClock clock;
  EventBus bus(clock);
  auto reader = bus.subscribe();
  std::stop_source stop;
  std::jthread publisher([&] { bus.publish({.kind = EventKind::fault}); });
  EXPECT_EQ(reader->next(stop.get_token())->kind, EventKind::fault);
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_FALSE(reader->next(stop.get_token()));
}

TEST(Events, NoCallAfterTheSubscriptionIsGone) {
  SteadyClock clock;
  EventBus bus(clock);
  std::jthread publisher([&](std::stop_token stop) {
    while (!stop.stop_requested()) bus.publish({.kind = EventKind::fault});
  });
  for (int i = 0; i < 100; ++i) {
    auto alive = std::make_unique<std::atomic<bool>>(true);
    auto subscription = bus.subscribe([flag = alive.get()] { ASSERT_TRUE(*flag); });
    std::this_thread::yield();
    subscription.reset();
    *alive = false;
    alive.reset();  // a late call would touch freed memory
  }
}

TEST(Latency, QuantilesAreNeverTooLowAndAtMostASixteenthTooHigh) {
  std::mt19937_64 random(1);
  LatencyHistogram histogram;
  std::vector<std::int64_t> values;
  for (int i = 0; i < 5000; ++i) {
    values.push_back(static_cast<std::int64_t>(random() >> (24 + random() % 40)));
    histogram.add(Duration{values.back()});
  }
  std::ranges::sort(values);
  for (const double q : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const auto exact = values[static_cast<std::size_t>(std::ceil(q * 5000)) - 1];
    const auto estimate = histogram.quantile(q).count();
    EXPECT_GE(estimate, exact);
    EXPECT_LE(estimate, exact + exact / 16 + 1);
  }
  EXPECT_EQ(LatencyHistogram().quantile(0.5), 0us);
}

}  // namespace
}  // namespace npud
