// SPDX-License-Identifier: Apache-2.0
// DeviceArbiter with real threads. Programs check for themselves that nobody runs on them while they are away.
#include "core/device_arbiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <random>
#include <thread>

#include "core/manual_clock.h"

namespace npud {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Counts what is on the device, and complains about every misuse.
struct FakeDevice {
  std::atomic<int> slots{0}, most_slots{0};
  std::atomic<std::int64_t> bytes{0}, most_bytes{0};
  std::atomic<int> misuse{0};
};

class FakeProgram : public Program {
 public:
  FakeProgram(std::string name, FakeDevice& device, Footprint footprint = {1, 100}, bool pinned = false)
      : device_(device), name_(std::move(name)), footprint_(footprint), pinned_(pinned) {}
  ~FakeProgram() override {
    if (resident_) ++device_.misuse;
  }

  const std::string& name() const override { return name_; }
  Footprint footprint() const override { return resident_ && real_ ? *real_ : footprint_; }
  bool pinned() const override { return pinned_; }
  Duration bring_back_estimate() const override { return 1ms; }
  Result<> make_resident() override {
    if (failing) return fail(ErrorCode::data_loss, "the canary gave a wrong answer");
    if (resident_.exchange(true)) ++device_.misuse;
    note(device_.slots += static_cast<int>(footprint_.slots), device_.most_slots);
    note(device_.bytes += static_cast<std::int64_t>(footprint_.bytes), device_.most_bytes);
    ++made;
    return {};
  }
  void evict() noexcept override {
    if (!resident_.exchange(false) || running != 0) ++device_.misuse;
    device_.slots -= static_cast<int>(footprint_.slots);
    device_.bytes -= static_cast<std::int64_t>(footprint_.bytes);
    ++left;
  }
  Result<> work() {
    ++running;
    if (!resident_) ++device_.misuse;
    std::this_thread::yield();
    --running;
    return {};
  }

  void turns_out_to_take(Footprint footprint) { real_ = footprint; }
  bool resident() const { return resident_; }
  std::atomic<bool> failing{false};
  std::atomic<int> running{0}, made{0}, left{0};

 private:
  template <class T>
  static void note(T value, std::atomic<T>& most) {
    T seen = most;
    while (seen < value && !most.compare_exchange_weak(seen, value)) {
    }
  }
  FakeDevice& device_;
  std::string name_;
  Footprint footprint_;
  std::optional<Footprint> real_;
  bool pinned_;
  std::atomic<bool> resident_{false};
};

class DeviceArbiterTest : public testing::Test {
 protected:
  std::unique_ptr<DeviceArbiter> make(std::uint32_t cores = 1, std::uint32_t slots = 2, std::uint64_t bytes = 0) {
    return std::make_unique<DeviceArbiter>(DeviceArbiterSettings{"npu0", cores, slots, bytes, {}}, clock, tenants,
                                           events);
  }
  std::shared_ptr<FakeProgram> program(const std::string& name, Footprint footprint = {1, 100}, bool pinned = false) {
    return std::make_shared<FakeProgram>(name, device, footprint, pinned);
  }
  static Job job(const std::shared_ptr<FakeProgram>& program, std::uint32_t tenant = 1) {
    Job job;
    job.tenant = TenantId{tenant};
    job.program = program;
    job.run = [program] { return program->work(); };
    return job;
  }
  static void wait_for_waiting(DeviceArbiter& arbiter, std::size_t count) {
    while (arbiter.snapshot().waiting.size() != count) std::this_thread::yield();
  }
  void TearDown() override { EXPECT_EQ(device.misuse, 0); }

  FakeDevice device;
  SteadyClock clock;
  TenantTable tenants;
  EventBus events{clock};
};

// Holds a core until it is told to go on.
struct Holder {
  explicit Holder(Arbiter& arbiter, const std::shared_ptr<FakeProgram>& program)
      : thread([this, &arbiter, program] {
          Job job;
          job.tenant = TenantId{99};
          job.program = program;
          job.run = [this, program]() -> Result<> {
            ++program->running;
            started.count_down();
            go_on.wait();
            --program->running;
            return {};
          };
          EXPECT_TRUE(arbiter.submit_and_wait(std::move(job)));
        }) {
    started.wait();
  }
  void release() {
    if (!std::exchange(released, true)) go_on.count_down();
  }
  ~Holder() { release(); }
  bool released = false;
  std::latch started{1}, go_on{1};
  std::jthread thread;
};

TEST_F(DeviceArbiterTest, BringsAColdProgramInAndRunsIt) {
  auto arbiter = make();
  auto a = program("a:1");
  const auto first = arbiter->submit_and_wait(job(a));
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->brought_in);
  const auto second = arbiter->submit_and_wait(job(a));
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->brought_in);
  const ArbiterSnapshot snapshot = arbiter->snapshot();
  EXPECT_EQ(snapshot.slots_used, 1u);
  EXPECT_EQ(snapshot.jobs_done, 2u);
  ASSERT_EQ(snapshot.programs.size(), 1u);
  EXPECT_EQ(snapshot.programs[0].name, "a:1");
  EXPECT_EQ(snapshot.programs[0].state, ResidencyState::resident);
}

TEST_F(DeviceArbiterTest, EvictsWhenTheSlotsAreFullButNeverThePinned) {
  auto arbiter = make(1, 2);
  auto pinned = program("pinned:1", {1, 100}, true), b = program("b:1"), c = program("c:1");
  ASSERT_TRUE(arbiter->submit_and_wait(job(pinned)));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(arbiter->submit_and_wait(job(b)));
    const auto report = arbiter->submit_and_wait(job(c));
    ASSERT_TRUE(report);
    EXPECT_EQ(report->evicted, 1u);
  }
  EXPECT_EQ(pinned->left, 0);
  EXPECT_EQ(arbiter->snapshot().evicted, 5u);
}

// The bytes add up, but the room that is left isn't in one piece.
struct Cramped : FakeProgram {
  using FakeProgram::FakeProgram;
  Result<> make_resident() override {
    if (beside->resident()) return fail(ErrorCode::resource_exhausted, "the space is full");
    return FakeProgram::make_resident();
  }
  std::shared_ptr<FakeProgram> beside;
};

TEST_F(DeviceArbiterTest, AnIdleProgramLeavesWhereTheDeviceItselfHasNoRoom) {
  auto arbiter = make(2, 4, 1000);
  auto idle = program("idle:1"), used = program("used:1");
  auto cramped = std::make_shared<Cramped>("cramped:1", device);
  ASSERT_TRUE(arbiter->submit_and_wait(job(used)));
  ASSERT_TRUE(arbiter->submit_and_wait(job(idle)));
  cramped->beside = idle;
  const auto report = arbiter->submit_and_wait(job(cramped));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_GE(report->evicted, 1u);
  EXPECT_FALSE(idle->resident());
  EXPECT_TRUE(arbiter->vacate(*cramped));
  EXPECT_FALSE(arbiter->vacate(*cramped)) << "it has left";
  // What runs stays.
  ASSERT_TRUE(arbiter->submit_and_wait(job(used)));
  cramped->beside = used;
  Holder holder(*arbiter, used);
  EXPECT_FALSE(arbiter->vacate(*used));
  const auto refused = arbiter->submit_and_wait(job(cramped));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  EXPECT_TRUE(used->resident());
  holder.release();
}

TEST_F(DeviceArbiterTest, SaysWhatAProgramThatNeverFitsNeedsAndWhatIsFree) {
  auto arbiter = make(1, 2, 1000);
  auto pinned = program("pinned:1", {1, 600}, true), big = program("big:1", {1, 500});
  ASSERT_TRUE(arbiter->submit_and_wait(job(pinned)));
  const auto report = arbiter->submit_and_wait(job(big));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::resource_exhausted);
  EXPECT_EQ(report.error().bytes_needed, 500u);
  EXPECT_EQ(report.error().bytes_free, 400u);
  EXPECT_THAT(report.error().message, HasSubstr("'big:1'"));
}

TEST_F(DeviceArbiterTest, AProgramThatTakesMoreThanItSaidLeavesAgainAndTheOthersStay) {
  auto arbiter = make(1, 4, 1000);
  auto a = program("a:1", {1, 600}), liar = program("liar:1", {1, 100});
  liar->turns_out_to_take({1, 5000});
  ASSERT_TRUE(arbiter->submit_and_wait(job(a)));
  const auto report = arbiter->submit_and_wait(job(liar));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::resource_exhausted);
  EXPECT_EQ(report.error().bytes_needed, 5000u);
  EXPECT_FALSE(liar->resident());
  ASSERT_TRUE(arbiter->submit_and_wait(job(a)));
}

TEST_F(DeviceArbiterTest, AProgramThatTakesMoreThanItSaidComesBackWithRoomForIt) {
  auto arbiter = make(1, 4, 1000);
  auto a = program("a:1", {1, 600}), b = program("b:1", {1, 100});
  b->turns_out_to_take({1, 700});
  ASSERT_TRUE(arbiter->submit_and_wait(job(a)));
  ASSERT_TRUE(arbiter->submit_and_wait(job(b)));
  EXPECT_EQ(a->left, 1);
  EXPECT_EQ(b->made, 2);
  EXPECT_EQ(arbiter->snapshot().used_bytes, 700u);
}

TEST_F(DeviceArbiterTest, AFailedBringInFailsTheJobAndLeavesNothing) {
  auto arbiter = make();
  auto a = program("a:1");
  a->failing = true;
  auto watcher = events.subscribe();
  const auto report = arbiter->submit_and_wait(job(a));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::data_loss);
  EXPECT_EQ(arbiter->snapshot().slots_used, 0u);
  EXPECT_EQ(watcher->try_next()->kind, EventKind::fault);
  a->failing = false;
  EXPECT_TRUE(arbiter->submit_and_wait(job(a)));
}

TEST_F(DeviceArbiterTest, ADeadlineThatPassesInTheQueueNeverRuns) {
  ManualClock manual;
  DeviceArbiter arbiter({"npu0", 1, 2, 0, {}}, manual, tenants, events);
  auto a = program("a:1");
  Holder holder(arbiter, a);
  std::atomic<bool> ran = false;
  auto late = std::async(std::launch::async, [&] {
    Job mine = job(a);
    mine.deadline = TimePoint{10ms};
    mine.run = [&]() -> Result<> {
      ran = true;
      return {};
    };
    return arbiter.submit_and_wait(std::move(mine));
  });
  wait_for_waiting(arbiter, 1);
  manual.advance(11ms);
  arbiter.wake();
  const auto report = late.get();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::deadline_exceeded);
  holder.release();
  EXPECT_FALSE(ran);
}

TEST_F(DeviceArbiterTest, CancellationEndsTheWaitAtOnce) {
  auto arbiter = make();
  auto a = program("a:1");
  Holder holder(*arbiter, a);
  std::stop_source stop;
  auto waiting = std::async(std::launch::async, [&] {
    Job mine = job(a);
    mine.cancelled = stop.get_token();
    return arbiter->submit_and_wait(std::move(mine));
  });
  wait_for_waiting(*arbiter, 1);
  stop.request_stop();
  const auto report = waiting.get();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(arbiter->snapshot().waiting.empty());
}

TEST_F(DeviceArbiterTest, ForgetWaitsWhileTheProgramRunsThenEvictsIt) {
  auto arbiter = make();
  auto a = program("a:1");
  Holder holder(*arbiter, a);
  auto queued = std::async(std::launch::async, [&] { return arbiter->submit_and_wait(job(a)); });
  wait_for_waiting(*arbiter, 1);
  auto forgotten = std::async(std::launch::async, [&] { arbiter->forget(*a); });
  const auto report = queued.get();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::failed_precondition);
  EXPECT_EQ(forgotten.wait_for(20ms), std::future_status::timeout);
  EXPECT_TRUE(a->resident());
  holder.release();
  forgotten.get();
  EXPECT_FALSE(a->resident());
  EXPECT_TRUE(arbiter->snapshot().programs.empty());
}

TEST_F(DeviceArbiterTest, DrainedItStartsNothingAndResetEvictsAll) {
  auto arbiter = make(2, 2);
  auto a = program("a:1"), pinned = program("pinned:1", {1, 100}, true);
  EXPECT_EQ(arbiter->reset([]() -> Result<> { return {}; }).error().code, ErrorCode::failed_precondition);
  ASSERT_TRUE(arbiter->submit_and_wait(job(a)));
  ASSERT_TRUE(arbiter->submit_and_wait(job(pinned)));
  {
    Holder holder(*arbiter, a);
    EXPECT_EQ(arbiter->drain(clock.now() + 5ms).error().code, ErrorCode::deadline_exceeded);
  }
  ASSERT_TRUE(arbiter->drain(TimePoint::never()));
  auto waiting = std::async(std::launch::async, [&] { return arbiter->submit_and_wait(job(a)); });
  wait_for_waiting(*arbiter, 1);
  const auto left = arbiter->reset([]() -> Result<> { return {}; });
  ASSERT_TRUE(left);
  EXPECT_EQ(*left, 2u);
  EXPECT_EQ(arbiter->snapshot().slots_used, 0u);
  EXPECT_EQ(waiting.wait_for(5ms), std::future_status::timeout);
  arbiter->resume();
  const auto report = waiting.get();
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->brought_in);
}

TEST_F(DeviceArbiterTest, ADeadDeviceFailsWhatWaitsAndWhatComes) {
  auto arbiter = make();
  auto a = program("a:1");
  Holder holder(*arbiter, a);
  auto waiting = std::async(std::launch::async, [&] { return arbiter->submit_and_wait(job(a)); });
  wait_for_waiting(*arbiter, 1);
  arbiter->set_dead("the firmware doesn't answer; power-cycle the board");
  EXPECT_EQ(waiting.get().error().code, ErrorCode::unavailable);
  EXPECT_THAT(arbiter->submit_and_wait(job(a)).error().message, HasSubstr("power-cycle"));
  holder.release();
  holder.thread.join();
  EXPECT_FALSE(a->resident());
  arbiter->set_alive();
  EXPECT_TRUE(arbiter->submit_and_wait(job(a)));
}

TEST_F(DeviceArbiterTest, AnExceptionBecomesAnErrorAndTheCoreIsFreeAgain) {
  auto arbiter = make();
  auto a = program("a:1");
  Job bad = job(a);
  bad.run = []() -> Result<> { throw std::runtime_error("no luck"); };
  const auto report = arbiter->submit_and_wait(std::move(bad));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::internal);
  EXPECT_TRUE(arbiter->submit_and_wait(job(a)));
}

TEST_F(DeviceArbiterTest, ANewProgramAtTheAddressOfAnOldOneIsNotTakenForIt) {
  auto arbiter = make();
  alignas(FakeProgram) std::byte memory[sizeof(FakeProgram)];
  const auto place = [&](const std::string& name) {
    return std::shared_ptr<FakeProgram>(new (memory) FakeProgram(name, device, {9, 0}),
                                        [](FakeProgram* p) { p->~FakeProgram(); });
  };
  auto first = place("first:1");
  EXPECT_FALSE(arbiter->submit_and_wait(job(first)));  // never fits
  first.reset();
  auto second = place("second:1");
  EXPECT_THAT(arbiter->submit_and_wait(job(second)).error().message, HasSubstr("second:1"));
}

// Ten programs on four slots, many threads, cancellations, deadlines, forgetting: nothing is misused, nothing is lost.
TEST_F(DeviceArbiterTest, SurvivesThreadsThatDoEverythingAtOnce) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    auto arbiter = make(3, 4, 1000);
    std::vector<std::shared_ptr<FakeProgram>> programs;
    for (int i = 0; i < 10; ++i) {
      programs.push_back(
          program("p" + std::to_string(i) + ":1", {1u + (i % 3 == 0), 50u + 30u * static_cast<unsigned>(i)}, i == 1));
    }
    std::atomic<int> ended = 0;
    constexpr int threads = 8, rounds = 150;
    {
      std::vector<std::jthread> workers;
      for (int t = 0; t < threads; ++t) {
        workers.emplace_back([&, t] {
          std::mt19937_64 random(seed * 100 + static_cast<std::uint64_t>(t));
          for (int i = 0; i < rounds; ++i) {
            const auto& p = programs[random() % programs.size()];
            Job mine = job(p, static_cast<std::uint32_t>(1 + t % 4));
            mine.priority_class = static_cast<PriorityClass>(random() % 3);
            std::stop_source stop;
            mine.cancelled = stop.get_token();
            if (random() % 10 == 0) mine.deadline = clock.now() + Duration{static_cast<Duration::rep>(random() % 300)};
            if (random() % 10 == 0) stop.request_stop();
            const auto report = arbiter->submit_and_wait(std::move(mine));
            if (!report) {
              ASSERT_TRUE(report.error().code == ErrorCode::deadline_exceeded ||
                          report.error().code == ErrorCode::cancelled ||
                          report.error().code == ErrorCode::failed_precondition)
                  << report.error().message;
            }
            ++ended;
            if (random() % 40 == 0) arbiter->forget(*p);
            if (random() % 50 == 0) arbiter->snapshot();
          }
        });
      }
    }
    EXPECT_EQ(ended, threads * rounds);
    EXPECT_LE(device.most_slots, 4);
    EXPECT_LE(device.most_bytes, 1000);
    const ArbiterSnapshot snapshot = arbiter->snapshot();
    EXPECT_EQ(snapshot.cores_busy, 0u);
    EXPECT_TRUE(snapshot.waiting.empty());
    EXPECT_EQ(snapshot.slots_used, static_cast<std::uint32_t>(device.slots));
    for (const auto& p : programs) arbiter->forget(*p);
    EXPECT_EQ(device.slots, 0);
    EXPECT_EQ(device.bytes, 0);
  }
}

}  // namespace
}  // namespace npud
