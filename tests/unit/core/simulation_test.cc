// SPDX-License-Identifier: Apache-2.0
// Fair queueing and residency under simulated load: the bounds that their headers state, for many seeds.
#include "tests/unit/core/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace npud::simulation {
namespace {

using namespace std::chrono_literals;

double us(Duration d) { return static_cast<double>(d.count()); }

// A tenant that always has `depth` jobs waiting or running, of the given programs in turn (or at random).
struct Loop {
  TenantId tenant;
  double weight = 1;
  PriorityClass priority_class = PriorityClass::interactive;
  std::vector<ProgramKey> programs;
  Duration shortest{1000}, longest{1000};
  int depth = 4;
};

class Loops {
 public:
  Loops(std::vector<Loop> loops, std::uint64_t seed) : loops_(std::move(loops)), random_(seed) {}

  void start(ArbiterSimulation& simulation, TimePoint stop_at) {
    simulation.on_done = [this, &simulation, stop_at](const SimDone& done) {
      finished.push_back(done);
      if (simulation.now >= stop_at) return std::vector<SimJob>{};
      return std::vector<SimJob>{make(loop_of(done.job.tenant), simulation.now)};
    };
    for (const Loop& loop : loops_) {
      for (int i = 0; i < loop.depth; ++i) simulation.add(make(loop, TimePoint{}));
    }
  }

  std::vector<SimDone> finished;

 private:
  const Loop& loop_of(TenantId tenant) const { return *std::ranges::find(loops_, tenant, &Loop::tenant); }

  SimJob make(const Loop& loop, TimePoint at) {
    SimJob job;
    job.arrives = at;
    job.tenant = loop.tenant;
    job.weight = loop.weight;
    job.priority_class = loop.priority_class;
    job.program = loop.programs[std::uniform_int_distribution<std::size_t>(0, loop.programs.size() - 1)(random_)];
    job.run =
        Duration{std::uniform_int_distribution<Duration::rep>(loop.shortest.count(), loop.longest.count())(random_)};
    return job;
  }

  std::vector<Loop> loops_;
  std::mt19937_64 random_;
};

// Checks after every step that the device is never overcommitted, and that what runs or is pinned stays.
void check_invariants(ArbiterSimulation& simulation, Device device, std::set<ProgramKey> pinned) {
  simulation.check = [=](const ArbiterSimulation& s) {
    const Footprint used = s.residency.used();
    ASSERT_LE(used.slots, device.slots);
    if (device.bytes != 0) {
      ASSERT_LE(used.bytes, device.bytes);
    }
    std::uint32_t running = 0;
    for (const auto& [key, entry] : s.residency.entries()) {
      running += entry.running;
      if (entry.running > 0) {
        ASSERT_TRUE(entry.state == ResidencyState::resident || entry.state == ResidencyState::coming);
      }
    }
    ASSERT_LE(running, device.cores);
  };
  simulation.on_evict = [&simulation, pinned](ProgramKey victim) {
    ASSERT_FALSE(pinned.contains(victim)) << "a pinned program was evicted";
    ASSERT_EQ(simulation.residency.entry(victim).running, 0u) << "a running program was evicted";
  };
}

std::map<TenantId, Duration> charged_by_tenant(const std::vector<SimDone>& done) {
  std::map<TenantId, Duration> sums;
  for (const SimDone& d : done) sums[d.job.tenant] += d.charged;
  return sums;
}

TEST(Fairness, WeightsDecideTheShares) {
  const Device device{1, 4, 0};
  ArbiterSimulation simulation(device, {}, {{1, {1, 10}, 5ms}, {2, {1, 10}, 5ms}});
  Loops loops({{TenantId{1}, 1, PriorityClass::interactive, {1}, 1ms, 1ms},
               {TenantId{2}, 3, PriorityClass::interactive, {2}, 1ms, 1ms}},
              1);
  loops.start(simulation, TimePoint{10s});
  simulation.run(TimePoint{10s});
  auto charged = charged_by_tenant(loops.finished);
  EXPECT_NEAR(us(charged[TenantId{2}]) / us(charged[TenantId{1}]), 3.0, 0.05);
}

TEST(Fairness, NumberAndLengthOfJobsDontDecide) {
  ArbiterSimulation simulation({1, 4, 0}, {}, {{1, {1, 10}, 1ms}, {2, {1, 10}, 1ms}});
  Loops loops({{TenantId{1}, 1, PriorityClass::interactive, {1}, 1ms, 1ms, 64},
               {TenantId{2}, 1, PriorityClass::interactive, {2}, 20ms, 20ms, 2}},
              1);
  loops.start(simulation, TimePoint{20s});
  simulation.run(TimePoint{20s});
  auto charged = charged_by_tenant(loops.finished);
  EXPECT_NEAR(us(charged[TenantId{1}]) / us(charged[TenantId{2}]), 1.0, 0.05);
}

// The bound of fair_queue.h, at every start of a job, for every pair.
TEST(Fairness, StaysWithinTheStatedBoundAtEveryMoment) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    const int program_count = pick(1, 8);
    std::vector<SimProgram> programs;
    for (int i = 1; i <= program_count; ++i)
      programs.push_back({static_cast<ProgramKey>(i), {1, 10}, Duration{pick(0, 40000)}});
    const Device device{1, static_cast<std::uint32_t>(pick(1, 4)), 0};
    std::vector<Loop> tenants;
    const int tenant_count = pick(2, 6);
    Duration longest{0};
    for (int i = 1; i <= tenant_count; ++i) {
      Loop loop{TenantId{static_cast<std::uint32_t>(i)},
                std::array{0.5, 1.0, 2.0, 5.0}[static_cast<std::size_t>(pick(0, 3))]};
      for (int p = pick(1, 3); p > 0; --p) loop.programs.push_back(static_cast<ProgramKey>(pick(1, program_count)));
      loop.shortest = Duration{pick(1, 2000)};
      loop.longest = loop.shortest + Duration{pick(0, 20000)};
      loop.depth = pick(2, 12);  // two at least: while one runs, one waits
      longest = std::max(longest, loop.longest);
      tenants.push_back(loop);
    }
    Duration dearest_switch{0};
    for (const SimProgram& program : programs) dearest_switch = std::max(dearest_switch, program.bring_in);

    ArbiterSimulation simulation(device, {}, programs);
    check_invariants(simulation, device, {});
    Loops loops(tenants, seed);
    std::map<TenantId, double> work;
    Duration slack{0};
    simulation.on_start = [&](const SimDone& start) {
      slack = std::max(slack, simulation.queue.slack());
      work[start.job.tenant] += us(start.charged) / start.job.weight;
      for (const Loop& f : tenants) {
        for (const Loop& g : tenants) {
          // Placement costs are smoothed estimates; a switch may be charged less or more than it takes.
          const double dearest = us(longest + dearest_switch * 2);
          const double bound = (us(slack) + dearest) / f.weight + (us(slack) + dearest) / g.weight;
          ASSERT_LE(std::abs(work[f.tenant] - work[g.tenant]), bound)
              << f.tenant.value << " against " << g.tenant.value;
        }
      }
    };
    loops.start(simulation, TimePoint{3s});
    simulation.run(TimePoint{3s});
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST(Fairness, AnIdleTenantSavesNothingUp) {
  ArbiterSimulation simulation({1, 4, 0}, {}, {{1, {1, 10}, 0ms}, {2, {1, 10}, 0ms}});
  Loops loops({{TenantId{1}, 1, PriorityClass::interactive, {1}, 1ms, 1ms}}, 1);
  std::vector<SimDone> late;
  loops.start(simulation, TimePoint{10s});
  const auto loop = simulation.on_done;
  simulation.on_done = [&](const SimDone& done) {
    if (done.job.tenant == TenantId{2}) {
      late.push_back(done);
      return std::vector<SimJob>{};
    }
    return loop(done);
  };
  // After five seconds alone, the other one comes with a second's worth of jobs.
  for (int i = 0; i < 1000; ++i)
    simulation.add({TimePoint{5s}, TenantId{2}, 1, PriorityClass::interactive, 2, 1ms, {}});
  simulation.run(TimePoint{10s});
  ASSERT_EQ(late.size(), 1000u);
  // They share from then on: the last ends after about two seconds, not after one.
  EXPECT_GT(late.back().finished, TimePoint{6900ms});
}

TEST(Classes, RealtimeGoesFirstUpToItsShare) {
  FairQueueSettings settings;
  settings.realtime_share = 0.3;
  ArbiterSimulation simulation({1, 4, 0}, settings, {{1, {1, 10}, 0ms}, {2, {1, 10}, 0ms}});
  // A greedy realtime tenant with a small weight: beyond its budget it competes by weight.
  Loops loops({{TenantId{1}, 1, PriorityClass::realtime, {1}, 1ms, 1ms, 8},
               {TenantId{2}, 9, PriorityClass::interactive, {2}, 1ms, 1ms, 8}},
              1);
  loops.start(simulation, TimePoint{30s});
  simulation.run(TimePoint{30s});
  auto charged = charged_by_tenant(loops.finished);
  const double share = us(charged[TenantId{1}]) / us(charged[TenantId{1}] + charged[TenantId{2}]);
  EXPECT_GT(share, 0.28);
  EXPECT_LT(share, 0.40);
}

TEST(Classes, APoliteRealtimeJobNeverWaitsLongerThanARunningJob) {
  ArbiterSimulation simulation({1, 4, 0}, {}, {{1, {1, 10}, 1ms, true}, {2, {1, 10}, 1ms}, {3, {1, 10}, 1ms}});
  Loops loops({{TenantId{2}, 5, PriorityClass::interactive, {2, 3}, 2ms, 4ms, 16}}, 3);
  loops.start(simulation, TimePoint{5s});
  const auto loop = simulation.on_done;
  Duration longest_wait{0};
  simulation.on_start = [&](const SimDone& start) {
    if (start.job.tenant == TenantId{1}) longest_wait = std::max(longest_wait, start.started - start.job.arrives);
  };
  simulation.on_done = [&](const SimDone& done) {
    return done.job.tenant == TenantId{1} ? std::vector<SimJob>{} : loop(done);
  };
  for (int i = 0; i < 100; ++i)
    simulation.add({TimePoint{Duration{i * 40'000}}, TenantId{1}, 1, PriorityClass::realtime, 1, 2ms, {}});
  simulation.run(TimePoint{5s});
  EXPECT_LE(longest_wait, 5ms);
}

TEST(Classes, BatchFillsWhatIsLeftAndIsNeverStarved) {
  FairQueueSettings settings;
  settings.batch_age = 500ms;
  ArbiterSimulation simulation({1, 4, 0}, settings, {{1, {1, 10}, 1ms}, {2, {1, 10}, 1ms}});
  Loops loops({{TenantId{1}, 1, PriorityClass::interactive, {1}, 2ms, 2ms, 8},
               {TenantId{2}, 1, PriorityClass::batch, {2}, 2ms, 2ms, 8}},
              1);
  loops.start(simulation, TimePoint{10s});
  simulation.run(TimePoint{10s});
  std::vector<TimePoint> batch_starts;
  for (const SimDone& done : loops.finished) {
    if (done.job.tenant == TenantId{2}) batch_starts.push_back(done.started);
  }
  // One every 500 ms, and not many more while interactive work is there.
  ASSERT_GE(batch_starts.size(), 18u);
  EXPECT_LE(batch_starts.size(), 22u);
  for (std::size_t i = 1; i < batch_starts.size(); ++i) EXPECT_LE(batch_starts[i] - batch_starts[i - 1], 500ms + 6ms);
}

TEST(Starvation, ABigProgramGetsInAmongManySmallOnes) {
  const Device device{3, 4, 0};
  ArbiterSimulation simulation(
      device, {}, {{1, {1, 1}, 5ms}, {2, {1, 1}, 5ms}, {3, {1, 1}, 5ms}, {4, {1, 1}, 5ms}, {5, {4, 1}, 20ms}});
  check_invariants(simulation, device, {});
  Loops loops({{TenantId{1}, 1, PriorityClass::interactive, {1, 2, 3, 4}, 1ms, 9ms, 16},
               {TenantId{2}, 1, PriorityClass::interactive, {5}, 3ms, 3ms, 2}},
              1);
  loops.start(simulation, TimePoint{20s});
  Duration longest_wait{0};
  simulation.on_start = [&](const SimDone& start) {
    if (start.job.program == 5) longest_wait = std::max(longest_wait, start.started - start.job.arrives);
  };
  simulation.run(TimePoint{20s});
  const auto big = std::ranges::count(loops.finished, 5u, [](const SimDone& d) { return d.job.program; });
  EXPECT_GT(big, 20);
  EXPECT_LT(longest_wait, 1500ms);
}

// Many cores, slots, bytes, classes, pins: nothing is lost, nothing waits for ever, nothing is overcommitted.
TEST(Properties, HoldUnderRandomLoad) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed * 7919);
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    const Device device{static_cast<std::uint32_t>(pick(1, 4)), static_cast<std::uint32_t>(pick(2, 6)),
                        pick(0, 1) == 0 ? 0u : 1000u};
    std::vector<SimProgram> programs;
    std::set<ProgramKey> pinned;
    const int program_count = pick(1, 12);
    for (int i = 1; i <= program_count; ++i) {
      SimProgram program{static_cast<ProgramKey>(i),
                         {static_cast<std::uint32_t>(pick(1, 2)), static_cast<std::uint64_t>(pick(0, 500))},
                         Duration{pick(0, 30000)}};
      program.pinned = i == 1 && pick(0, 2) == 0 && device.slots > 3;
      if (program.pinned) {
        program.footprint = {1, 100};
        pinned.insert(program.key);
      }
      programs.push_back(program);
    }
    std::vector<Loop> tenants;
    const int tenant_count = pick(1, 8);
    for (int i = 1; i <= tenant_count; ++i) {
      Loop loop{TenantId{static_cast<std::uint32_t>(i)},
                std::array{0.1, 1.0, 2.0}[static_cast<std::size_t>(pick(0, 2))],
                static_cast<PriorityClass>(pick(0, 2))};
      for (int p = pick(1, 4); p > 0; --p) loop.programs.push_back(static_cast<ProgramKey>(pick(1, program_count)));
      loop.shortest = Duration{pick(0, 500)};
      loop.longest = loop.shortest + Duration{pick(0, 8000)};
      loop.depth = pick(1, 10);
      tenants.push_back(loop);
    }
    ArbiterSimulation simulation(device, {}, programs);
    check_invariants(simulation, device, pinned);
    Loops loops(tenants, seed);
    loops.start(simulation, TimePoint{2s});
    simulation.run();  // until all that was submitted has ended
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(simulation.queue.size(), 0u);
    std::map<TenantId, int> count;
    Duration longest_wait{0};
    for (const SimDone& done : loops.finished) {
      ++count[done.job.tenant];
      longest_wait = std::max(longest_wait, done.started - done.job.arrives);
    }
    EXPECT_EQ(count.size(), tenants.size());
    // The weights are up to 20 to 1 and a tenant has up to 10 jobs ahead of its newest; batch waits 2 s for each at
    // worst.
    EXPECT_LT(longest_wait, 25s);
    for (const auto& [key, entry] : simulation.residency.entries()) EXPECT_EQ(entry.running, 0u);
  }
}

TEST(Switches, AreSparedInsideTheSlackOnly) {
  // Two tenants, two programs, one slot: strict fairness would switch at each job.
  const std::vector<SimProgram> programs{{1, {1, 10}, 10ms}, {2, {1, 10}, 10ms}};
  const std::vector<Loop> tenants{{TenantId{1}, 1, PriorityClass::interactive, {1}, 1ms, 1ms, 16},
                                  {TenantId{2}, 1, PriorityClass::interactive, {2}, 1ms, 1ms, 16}};
  FairQueueSettings strict;
  strict.slack_per_switch = 0;
  ArbiterSimulation without({1, 1, 0}, strict, programs), with({1, 1, 0}, {}, programs);
  Loops loops_without(tenants, 1), loops_with(tenants, 1);
  loops_without.start(without, TimePoint{10s});
  loops_with.start(with, TimePoint{10s});
  without.run(TimePoint{10s});
  with.run(TimePoint{10s});
  EXPECT_GT(loops_with.finished.size(), 4 * loops_without.finished.size());
  auto charged = charged_by_tenant(loops_with.finished);
  EXPECT_NEAR(us(charged[TenantId{1}]) / us(charged[TenantId{2}]), 1.0, 0.05);
}

TEST(Switches, ATenantsOldestJobIsOvertakenByNoMoreThanTheSlack) {
  ArbiterSimulation simulation({1, 1, 0}, {}, {{1, {1, 10}, 5ms}, {2, {1, 10}, 5ms}});
  Loops loops({{TenantId{1}, 1, PriorityClass::interactive, {1, 1, 1, 1, 1, 1, 1, 2}, 1ms, 1ms, 32}}, 5);
  loops.start(simulation, TimePoint{5s});
  std::map<JobId, Duration> overtaken;
  Duration slack{0};
  std::set<JobId> started;
  JobId oldest = 1;
  Duration since_oldest{0};
  simulation.on_start = [&](const SimDone& start) {
    slack = std::max(slack, simulation.queue.slack());
    started.insert(start.id);
    if (start.id != oldest) since_oldest += start.charged;
    while (started.contains(oldest)) {
      ++oldest;
      since_oldest = Duration{0};
    }
    ASSERT_LE(since_oldest, slack + 1ms + 5ms);
  };
  simulation.run(TimePoint{5s});
  EXPECT_GT(slack, 0ms);
}

TEST(FairQueueUnit, ExpiredAndRemovedJobsAreGone) {
  FairQueue queue({}, 1);
  queue.push({1, TenantId{1}, 1, PriorityClass::interactive, 1, 1ms, TimePoint{10ms}}, TimePoint{});
  queue.push({2, TenantId{1}, 1, PriorityClass::interactive, 1, 1ms, TimePoint{20ms}}, TimePoint{});
  queue.push({3, TenantId{2}, 1, PriorityClass::batch, 2, 1ms, TimePoint::never()}, TimePoint{});
  EXPECT_EQ(queue.next_deadline(), TimePoint{10ms});
  EXPECT_THAT(queue.expire(TimePoint{9ms}), testing::IsEmpty());
  EXPECT_THAT(queue.expire(TimePoint{10ms}), testing::ElementsAre(1u));
  EXPECT_EQ(queue.waiting_for(1), 1u);
  EXPECT_TRUE(queue.remove(2));
  EXPECT_FALSE(queue.remove(2));
  EXPECT_EQ(queue.waiting_for(1), 0u);
  EXPECT_TRUE(queue.next_deadline().is_never());
  EXPECT_THAT(queue.waiting(), testing::ElementsAre(3u));
}

// The way past an empty queue is the way through it: the same random jobs, on two queues.
TEST(FairQueueUnit, PassIsPushChooseAndTake) {
  std::mt19937 random(11);
  FairQueue passing({}, 2), queueing({}, 2);
  const auto place = [](ProgramKey) { return Placement{}; };
  TimePoint now;
  int passed = 0;
  std::vector<JobId> running;
  for (JobId id = 1; id <= 2000; ++id) {
    now = now + Duration{static_cast<Duration::rep>(random() % 3000)};
    const TenantId tenant{static_cast<std::uint32_t>(1 + random() % 3)};
    const QueuedJob job{.id = id,
                        .tenant = tenant,
                        .weight = static_cast<double>(tenant.value),
                        .priority_class = static_cast<PriorityClass>(random() % 3),
                        .program = 1 + random() % 4,
                        .estimate = Duration{static_cast<Duration::rep>(random() % 2000)}};
    queueing.push(job, now);
    if (passing.size() == 0 && random() % 2 == 0) {
      passing.pass(job, {}, now);
      ++passed;
      ASSERT_EQ(queueing.take(queueing.choose(now, place), now).id, id);
      running.push_back(id);
    } else {
      passing.push(job, now);
    }
    for (unsigned i = random() % 4; i > 0; --i) {
      const FairQueue::Choice choice = queueing.choose(now, place);
      ASSERT_EQ(passing.choose(now, place).job, choice.job);
      if (choice.job == 0) break;
      queueing.take(choice, now);
      passing.take(choice, now);
      running.push_back(choice.job);
    }
    if (!running.empty() && random() % 2 == 0) {
      const Duration took{static_cast<Duration::rep>(random() % 4000)};
      queueing.finished(running.back(), took, now);
      passing.finished(running.back(), took, now);
      running.pop_back();
    }
  }
  EXPECT_GT(passed, 100);
}

}  // namespace
}  // namespace npud::simulation
