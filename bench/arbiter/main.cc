// SPDX-License-Identifier: Apache-2.0
// npud-bench-arbiter: npud's arbitration against what one would do without it, on simulated devices, so that the
// numbers are the same on every machine. One JSON line for each comparison:
// {"name","ours","reference","ratio","goal","holds","compared"}.
//   switch_aware_vs_fifo_lru  jobs per second on a mixed trace; the reference serves in order of arrival and evicts the
//   least recently used time_vs_offline_optimum   time for small traces, against the least that any order and any
//   eviction could reach knowing the future
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/core/simulation.h"

namespace npud::simulation {
namespace {

using namespace std::chrono_literals;

double seconds(Duration d) { return static_cast<double>(d.count()) / 1e6; }

void print(const std::string& name, double ours, double reference, double ratio, double goal, bool holds,
           const std::string& what) {
  std::printf(
      "{\"name\": \"%s\", \"ours\": %.4f, \"reference\": %.4f, \"ratio\": %.4f, \"goal\": %.4f, \"holds\": %s, "
      "\"compared\": \"%s\"}\n",
      name.c_str(), ours, reference, ratio, goal, holds ? "true" : "false", what.c_str());
}

// In order of arrival on one core; the least recently used leaves. Answers the end of the last job.
TimePoint fifo_lru(const Device& device, const std::vector<SimProgram>& programs, std::vector<SimJob> jobs) {
  std::ranges::stable_sort(jobs, {}, &SimJob::arrives);
  std::map<ProgramKey, SimProgram> by_key;
  for (const SimProgram& program : programs) by_key[program.key] = program;
  std::list<ProgramKey> resident;  // the least recently used first
  std::uint32_t slots = 0;
  std::uint64_t bytes = 0;
  TimePoint now;
  for (const SimJob& job : jobs) {
    now = std::max(now, job.arrives);
    const SimProgram& program = by_key.at(job.program);
    const auto at = std::ranges::find(resident, job.program);
    if (at != resident.end()) {
      resident.erase(at);
    } else {
      while (slots + program.footprint.slots > device.slots ||
             (device.bytes != 0 && bytes + program.footprint.bytes > device.bytes)) {
        const SimProgram& victim = by_key.at(resident.front());
        slots -= victim.footprint.slots;
        bytes -= victim.footprint.bytes;
        resident.pop_front();
      }
      slots += program.footprint.slots;
      bytes += program.footprint.bytes;
      now = now + program.bring_in;
    }
    resident.push_back(job.program);
    now = now + job.run;
  }
  return now;
}

// Answers the end of the last job.
TimePoint ours(const Device& device, const std::vector<SimProgram>& programs, const std::vector<SimJob>& jobs) {
  ArbiterSimulation simulation(device, {}, programs);
  TimePoint end;
  simulation.on_done = [&](const SimDone& done) {
    end = std::max(end, done.finished);
    return std::vector<SimJob>{};
  };
  for (const SimJob& job : jobs) simulation.add(job);
  simulation.run();
  return end;
}

// The mixed trace: a camera, a chat, speech and nightly work share a device that holds four of ten programs. Open
// arrivals, busier than the device can serve in order of arrival.
void mixed_trace() {
  std::vector<SimProgram> programs;
  for (ProgramKey key = 1; key <= 10; ++key) {
    const auto mib = static_cast<std::uint64_t>(8 + 12 * (key % 5));
    programs.push_back({key, {1, mib << 20}, Duration{static_cast<Duration::rep>(mib * 700)}});  // some 1.5 GB/s
  }
  const Device device{1, 4, 200ull << 20};
  double worst = 1e9, ours_sum = 0, reference_sum = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<SimJob> jobs;
    const auto stream = [&](std::uint32_t tenant, PriorityClass priority_class, double weight, double per_second,
                            Duration run, std::vector<ProgramKey> used) {
      std::exponential_distribution<double> gap(per_second);
      for (double at = gap(random); at < 20.0; at += gap(random)) {
        SimJob job;
        job.arrives = TimePoint{Duration{static_cast<Duration::rep>(at * 1e6)}};
        job.tenant = TenantId{tenant};
        job.weight = weight;
        job.priority_class = priority_class;
        job.program = used[random() % used.size()];
        job.run = run;
        jobs.push_back(job);
      }
    };
    stream(1, PriorityClass::realtime, 1, 30, 3ms, {1});
    stream(2, PriorityClass::interactive, 2, 60, 4ms, {2, 3, 4});
    stream(3, PriorityClass::interactive, 1, 60, 3ms, {5, 6});
    stream(4, PriorityClass::interactive, 1, 40, 5ms, {7, 8, 2});
    stream(5, PriorityClass::batch, 1, 30, 8ms, {9, 10});
    const double count = static_cast<double>(jobs.size());
    const double our_rate = count / seconds(ours(device, programs, jobs).since_origin);
    const double reference_rate = count / seconds(fifo_lru(device, programs, jobs).since_origin);
    ours_sum += our_rate;
    reference_sum += reference_rate;
    worst = std::min(worst, our_rate / reference_rate);
  }
  print("arbiter.switch_aware_vs_fifo_lru", ours_sum / 5, reference_sum / 5, worst, 1.5, worst >= 1.5,
        "jobs/s, npud against FIFO with LRU, worst of 5 traces");
}

// The earliest end that any order and any eviction could reach on one core, knowing the future: exact, by dynamic
// programming over (jobs done, programs resident). It may bring a program in ahead of its job's arrival, keeps no order
// and owes nobody fairness.
class OfflineOptimum {
 public:
  OfflineOptimum(std::uint32_t slots, const std::vector<SimProgram>& programs, const std::vector<SimJob>& jobs)
      : slots_(slots), programs_(programs), jobs_(jobs) {}

  TimePoint end() {
    // Being somewhere earlier is never worse, so the earliest time for each state is enough; states in the order of the
    // jobs done.
    const std::uint32_t all = (1u << jobs_.size()) - 1;
    std::vector<std::map<std::uint32_t, TimePoint>> earliest(all + 1);
    earliest[0][0] = TimePoint{};
    for (std::uint32_t done = 0; done < all; ++done) {
      for (const auto& [resident, now] : earliest[done]) {
        for (std::size_t i = 0; i < jobs_.size(); ++i) {
          const std::uint32_t job = 1u << i;
          if ((done & job) != 0) continue;
          const auto reach = [&](std::uint32_t with, Duration bring_in) {
            const TimePoint at = std::max(now + bring_in, jobs_[i].arrives) + jobs_[i].run;
            const auto [known, fresh] = earliest[done | job].emplace(with, at);
            if (!fresh) known->second = std::min(known->second, at);
          };
          const std::uint32_t program = 1u << (jobs_[i].program - 1);
          const Duration bring_in = programs_[jobs_[i].program - 1].bring_in;
          if ((resident & program) != 0) {
            reach(resident, Duration{0});
          } else if (static_cast<std::uint32_t>(std::popcount(resident)) < slots_) {
            reach(resident | program, bring_in);
          } else {
            for (std::uint32_t rest = resident; rest != 0; rest &= rest - 1)
              reach((resident & ~(rest & (~rest + 1))) | program, bring_in);
          }
        }
      }
    }
    TimePoint best = TimePoint::never();
    for (const auto& [resident, at] : earliest[all]) best = std::min(best, at);
    return best;
  }

 private:
  const std::uint32_t slots_;
  const std::vector<SimProgram>& programs_;
  const std::vector<SimJob>& jobs_;
};

void offline_optimum() {
  double ours_total = 0, optimum_total = 0;
  bool possible = true;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<SimProgram> programs;
    for (ProgramKey key = 1; key <= 5; ++key)
      programs.push_back({key, {1, 1}, Duration{2000 + static_cast<Duration::rep>(random() % 18000)}});
    std::vector<SimJob> jobs;
    for (std::uint32_t i = 0; i < 15; ++i) {
      const std::uint32_t tenant = i % 3;
      SimJob job;
      job.arrives = TimePoint{Duration{static_cast<Duration::rep>(random() % 40000)}};
      job.tenant = TenantId{tenant + 1};
      // Each tenant has a favourite, as tenants have.
      job.program = random() % 3 == 0 ? 1 + random() % 5 : 1 + tenant;
      job.run = Duration{2000 + static_cast<Duration::rep>(random() % 4000)};
      jobs.push_back(job);
    }
    std::ranges::stable_sort(jobs, {}, &SimJob::arrives);
    const Device device{1, 2, 0};
    const TimePoint mine = ours(device, programs, jobs);
    const TimePoint optimum = OfflineOptimum(device.slots, programs, jobs).end();
    possible &= optimum <= mine;  // else one of the two is wrong
    ours_total += seconds(mine.since_origin);
    optimum_total += seconds(optimum.since_origin);
  }
  const double ratio = ours_total / optimum_total;
  print("arbiter.time_vs_offline_optimum", ours_total, optimum_total, ratio, 1.25, possible && ratio <= 1.25,
        "seconds for 20 small traces, npud (which doesn't know the future) against the exact offline optimum; lower is "
        "better");
}

}  // namespace
}  // namespace npud::simulation

int main() {
  npud::simulation::mixed_trace();
  npud::simulation::offline_optimum();
}
