// SPDX-License-Identifier: Apache-2.0
// npud-bench-serving: compares a running npud with references, and prints a JSON line for each comparison.
// bench/serving/run starts both.
//
// npud-bench-serving echo NPUD-ADDRESS ECHO-ADDRESS [ROUNDS]
//   requests/s and latencies against a bare gRPC echo
// npud-bench-serving session NPUD-ADDRESS MODEL.onnx THREADS [ROUNDS]
//   OCR detection against the same session in this process
// npud-bench-serving shm NPUD-ADDRESS [ROUNDS]
//   4 MiB tensors through shared memory against inline
//
// What is compared runs in turns of a second or so; a ratio is the median of the turns' ratios, so that what else the
// machine does meets both sides alike.
#include <algorithm>
#include <cstring>
#include <format>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "in_process.h"
#include "load.h"
#include "npud/client.h"
#include "npud/shared_memory.h"

namespace nc = npud::client;

namespace {

constexpr const char* kIdentity = "bench_identity";
constexpr std::chrono::milliseconds kTurn{1000};

[[noreturn]] void give_up(const std::string& text) {
  std::cerr << "npud-bench-serving: " << text << '\n';
  std::exit(1);
}

nc::Client connect(const std::string& address) {
  auto client = nc::Client::connect({.address = address});
  if (!client) give_up(nc::to_string(client.error()));
  return *std::move(client);
}

nc::InferRequest identity_request(std::size_t elements) {
  nc::InferRequest request;
  request.model = kIdentity;
  request.inputs.push_back(
      nc::Tensor::of<float>("x", {static_cast<std::int64_t>(elements)}, std::vector<float>(elements, 0.5f)));
  return request;
}

nc::LoadReport load(const nc::Client& client, unsigned in_flight, std::chrono::milliseconds duration,
                    const std::function<nc::InferRequest(unsigned)>& make) {
  nc::LoadOptions options;
  options.in_flight = in_flight;
  options.duration = duration;
  options.make = make;
  nc::LoadReport report = nc::run_load(client, options);
  if (report.failed > 0) give_up(std::format("{} requests failed: {}", report.failed, report.errors.begin()->first));
  if (report.succeeded == 0) give_up("no request was answered");
  return report;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.size() % 2 == 1 ? values[values.size() / 2]
                                : (values[values.size() / 2 - 1] + values[values.size() / 2]) / 2;
}

// `at_least`: the goal is a lower bound of ours/reference; else an upper one.
void print(const std::string& name, const std::vector<double>& ours, const std::vector<double>& reference,
           const std::string& unit, double goal, bool at_least) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / reference[i]);
  double ratio = median(ratios);
  bool holds = at_least ? ratio >= goal : ratio <= goal;
  std::cout
      << std::format(
             R"({{"name": "{}", "ours": {:.2f}, "reference": {:.2f}, "unit": "{}", "ratio": {:.3f}, "goal": "{} {}", "holds": {}}})",
             name, median(ours), median(reference), unit, ratio, at_least ? ">=" : "<=", goal, holds)
      << std::endl;
}

void compare_echo(const nc::Client& ours, const nc::Client& echo, int rounds) {
  auto make = [](unsigned) { return identity_request(16); };
  for (const nc::Client* client : {&ours, &echo}) load(*client, 4, std::chrono::milliseconds(300), make);
  for (unsigned in_flight : {1u, 8u, 32u}) {
    std::vector<double> rate[2], p50[2], p99[2];
    for (int round = 0; round < rounds; ++round) {
      for (int i : {round % 2, 1 - round % 2}) {  // who goes first alternates
        nc::LoadReport report = load(i == 0 ? ours : echo, in_flight, kTurn, make);
        rate[i].push_back(report.per_second());
        p50[i].push_back(report.percentile_us(50));
        p99[i].push_back(report.percentile_us(99));
      }
    }
    std::string with = std::format("npud / bare gRPC echo, {} in flight", in_flight);
    print("throughput: " + with, rate[0], rate[1], "requests/s", 0.85, true);
    print("p50: " + with, p50[0], p50[1], "us", 1.25, false);
    print("p99: " + with, p99[0], p99[1], "us", 1.5, false);
  }
}

void compare_session(const nc::Client& client, const std::string& model_file, int threads, int rounds) {
  const std::vector<std::int64_t> shape = {1, 3, 320, 480};
  std::vector<float> values(3 * 320 * 480);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97) / 97.0f - 0.5f;
  npud::bench::InProcess session(model_file, threads);
  auto make = [&](unsigned) {
    nc::InferRequest request;
    request.model = "ocr_det";
    request.inputs.push_back(nc::Tensor::of<float>("x", shape, values));
    return request;
  };
  if (session.run(shape, values) != 320u * 480u) give_up("the session's output has another size than expected");
  load(client, 1, std::chrono::milliseconds(200), make);
  std::vector<double> served, in_process;
  for (int round = 0; round < rounds; ++round) {
    for (bool ours : {round % 2 == 0, round % 2 != 0}) {
      if (ours) {
        served.push_back(load(client, 4, 3 * kTurn, make).per_second());
      } else {
        auto start = std::chrono::steady_clock::now();
        std::uint64_t runs = 0;
        while (std::chrono::steady_clock::now() - start < 3 * kTurn) {
          session.run(shape, values);
          ++runs;
        }
        in_process.push_back(static_cast<double>(runs) /
                             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
    }
  }
  print("OCR detection: npud, 4 in flight / the same session in process", served, in_process, "runs/s", 0.97, true);
}

void compare_shared_memory(const nc::Client& client, int rounds) {
  constexpr std::size_t kElements = 1 << 20;
  const std::size_t size_bytes = kElements * sizeof(float);
  nc::InferRequest in_line = identity_request(kElements);
  auto memory = nc::SharedMemory::create(client, 2 * size_bytes);
  if (!memory) give_up(nc::to_string(memory.error()));
  std::memcpy(memory->bytes().data(), in_line.inputs[0].data.data(), size_bytes);
  nc::InferRequest shared = in_line;
  shared.inputs[0].data.clear();
  shared.inputs[0].shared = memory->span(0, size_bytes);
  shared.outputs.push_back({"y", memory->span(size_bytes, size_bytes)});
  using Make = std::function<nc::InferRequest(unsigned)>;
  const Make make_inline = [&](unsigned) { return in_line; };
  const Make make_shared = [&](unsigned) { return shared; };
  load(client, 1, std::chrono::milliseconds(300), make_shared);
  if (std::memcmp(memory->bytes().data(), memory->bytes().data() + size_bytes, size_bytes) != 0)
    give_up("what came back isn't what was sent");
  load(client, 1, std::chrono::milliseconds(300), make_inline);
  std::vector<double> through_shm, sent;
  for (int round = 0; round < rounds; ++round) {
    for (bool shm : {round % 2 == 0, round % 2 != 0}) {
      nc::LoadReport report = load(client, 1, kTurn, shm ? make_shared : make_inline);
      (shm ? through_shm : sent).push_back(report.per_second());
    }
  }
  print("4 MiB tensors in and out: shared memory / inline", through_shm, sent, "requests/s", 1, true);
}

int number(const char* text, const char* what) {
  char* end = nullptr;
  long value = std::strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < 1 || value > 1000)
    give_up(std::format("{} is no number of {}", text, what));
  return static_cast<int>(value);
}

}  // namespace

int main(int argc, char** argv) {
  std::string what = argc > 1 ? argv[1] : "";
  auto rounds = [&](int index) { return argc > index ? number(argv[index], "rounds") : 5; };
  if (what == "echo" && argc >= 4) {
    compare_echo(connect(argv[2]), connect(argv[3]), rounds(4));
  } else if (what == "session" && argc >= 5) {
    compare_session(connect(argv[2]), argv[3], number(argv[4], "threads"), rounds(5));
  } else if (what == "shm" && argc >= 3) {
    compare_shared_memory(connect(argv[2]), rounds(3));
  } else {
    std::cerr << "usage: npud-bench-serving echo NPUD ECHO [ROUNDS] | session NPUD MODEL.onnx THREADS [ROUNDS] | shm "
                 "NPUD [ROUNDS]\n";
    return 2;
  }
  return 0;
}
