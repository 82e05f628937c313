// SPDX-License-Identifier: Apache-2.0
// npud on the virtual board as a library: how much of a model the NPU does, what npud's own work for it costs, what
// chaining, several cores and the cache of packed models are worth. npud-bench-npu MODELS-DIRECTORY (tools/models lay).
// A JSON line a comparison.
//
// The board's time is its own modelled clock; the host's is this machine's, with nothing of the board in it.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <random>

#include "board_port.h"
#include "devices/rknpu/device.h"
#include "engine/npu_target.h"
#include "engine/offload_cache.h"
#include "model_macs.h"

namespace npud {
namespace {

using test::Dims;

void line(const std::string& name, const char* unit, double ours, double reference, double goal, bool at_least) {
  const double ratio = reference == 0 ? 0 : ours / reference;
  std::printf(
      "{\"name\": \"%s\", \"unit\": \"%s\", \"ours\": %.6g, \"reference\": %.6g, \"ratio\": %.6g, \"goal\": \"%s %g\", "
      "\"holds\": %s}\n",
      name.c_str(), unit, ours, reference, ratio, at_least ? ">=" : "<=", goal,
      (at_least ? ratio >= goal : ratio <= goal) ? "true" : "false");
  std::fflush(stdout);
}

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "npud-bench-npu: %s\n", why.c_str());
  std::exit(1);
}

template <class T>
T need(Result<T> result) {
  if (!result) give_up(result.error().message);
  return std::move(*result);
}

std::vector<float> noise(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& v : out) v = normal(random);
  return out;
}

// Of all threads of this process: what one core would take.
double cpu_us() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

using Cycles = std::array<std::uint64_t, VBOARD_CORES>;

Cycles board_cycles(rk3588::Board& board) {
  Cycles cycles;
  for (std::uint32_t core = 0; core < VBOARD_CORES; ++core) {
    const std::uint32_t at = VBOARD_COUNTER(core, VBOARD_COUNT_CYCLES);
    cycles[core] = board.read32(VBOARD_BAR_CONTROL, at) | std::uint64_t{board.read32(VBOARD_BAR_CONTROL, at + 4)} << 32;
  }
  return cycles;
}

// Of the core that was at it longest.
std::uint64_t longest(const Cycles& before, const Cycles& after) {
  std::uint64_t most = 0;
  for (std::size_t core = 0; core < before.size(); ++core) most = std::max(most, after[core] - before[core]);
  return most;
}

struct Npu {
  rknpu::BoardPort::State state;
  test::EngineParts engine{8, 512u << 20, false};
  std::unique_ptr<rknpu::RknpuDevice> device;
  std::unique_ptr<DeviceArbiter> arbiter;
  std::unique_ptr<NpuTarget> target;

  explicit Npu(std::uint64_t split_macs = 0, std::shared_ptr<OffloadCache> cache = nullptr) {
    device = need(rknpu::RknpuDevice::open(std::make_unique<rknpu::BoardPort>(state, std::uint64_t{256} << 20),
                                           {.verify = rknpu::Verify::off, .split_macs = split_macs}, engine.clock));
    arbiter = std::make_unique<DeviceArbiter>(
        DeviceArbiterSettings{
            .device = "rknpu0", .cores = 3, .slots = 64, .aperture_bytes = 192u << 20, .fairness = {}},
        engine.clock, engine.tenants, engine.events);
    target = std::make_unique<NpuTarget>(*device, *arbiter, engine.clock, engine.events,
                                         NpuTargetSettings{.cache = std::move(cache)});
    engine.loader =
        need(OnnxLoader::create({}, test::shared_runtime(), engine.host, engine.arbiter, engine.clock, target.get()));
  }
  ~Npu() {
    engine.loader.reset();
    target.reset();
    arbiter.reset();
  }
  std::shared_ptr<Servable> load(const std::string& name, const onnx::ModelProto& model, bool on_npu) {
    inference::ModelConfig config;
    if (on_npu) (*config.mutable_parameters())["npud.device"].set_string_value("rknpu0");
    return need(engine.load(name, model, config)).servable;
  }
};

void model(const std::string& name, const onnx::ModelProto& graph, const Tensor& input) {
  Npu npu;
  const std::uint64_t whole = need(test::all_macs(npu.engine, graph, {input}));
  const auto servable = npu.load("model", graph, true);
  need(npu.engine.run_one(*servable, {input}));  // prepares
  const auto& counters = npu.device->counters();
  const std::uint64_t macs = counters.macs, jobs = counters.jobs, tasks = counters.tasks,
                      bytes = counters.bytes_in + counters.bytes_out;
  need(npu.engine.run_one(*servable, {input}));
  line(name + ": multiply-adds on the NPU, of all", "M", double(counters.macs - macs) / 1e6, double(whole) / 1e6, 0.95,
       true);
  line(name + ": submits a request, with one a task", "", double(counters.jobs - jobs), double(counters.tasks - tasks),
       1, false);
  line(name + ": kB to and from the NPU a request, of what its weights take", "kB",
       double(counters.bytes_in + counters.bytes_out - bytes) / 1e3, double(npu.arbiter->snapshot().used_bytes) / 1e3,
       10, false);
}

void products() {
  auto graph = [](std::int64_t k, std::int64_t n) {
    auto model = test::empty_model();
    test::add_input(model, "x", onnx::TensorProto::FLOAT, {-1, k});
    test::add_output(model, "y", onnx::TensorProto::FLOAT, {-1, n});
    test::add_weight(model, "w", {k, n}, noise(static_cast<std::size_t>(k * n), 1));
    test::add_node(model, "MatMul", {"x", "w"}, {"y"});
    return model;
  };
  constexpr std::int64_t rows = 64, k = 1024, n = 1024;
  const auto input = test::float_tensor("x", {rows, k}, noise(rows * k, 2));
  {
    Npu npu;
    const auto here = npu.load("host", graph(k, n), false), there = npu.load("npu", graph(k, n), true);
    need(npu.engine.run_one(*here, {input}));
    need(npu.engine.run_one(*there, {input}));
    double host_us = 1e12, own_us = 1e12;
    for (int i = 0; i < 15; ++i) {
      const double begin = cpu_us();
      need(npu.engine.run_one(*here, {input}));
      host_us = std::min(host_us, cpu_us() - begin);
      const std::uint64_t before = npu.device->counters().host_ns;
      need(npu.engine.run_one(*there, {input}));
      own_us = std::min<double>(own_us, double(npu.device->counters().host_ns - before) / 1e3);
    }
    line("npud's own work for a product 64x1024x1024, of the same on one host core", "us", own_us, host_us, 0.05,
         false);
  }
  std::uint64_t cycles[2];
  for (const bool split : {false, true}) {
    Npu npu(split ? 1 : ~std::uint64_t{0});
    const auto servable = npu.load("npu", graph(k, n), true);
    need(npu.engine.run_one(*servable, {input}));
    const Cycles before = board_cycles(*npu.state.board);
    need(npu.engine.run_one(*servable, {input}));
    cycles[split] = longest(before, board_cycles(*npu.state.board));
  }
  line("a product 64x1024x1024 on three cores, of one: the board's cycles", "", double(cycles[1]), double(cycles[0]),
       0.4, false);
}

void cold(const onnx::ModelProto& graph, const Tensor& input) {
  test::TempDirectory directory;
  double us[2] = {1e12, 1e12};
  for (int round = 0; round < 3; ++round) {
    for (const bool cached : {false, true}) {
      if (!cached) std::filesystem::remove_all(directory.path() / "packed");
      Npu npu(0, std::shared_ptr<OffloadCache>(need(OffloadCache::open(directory.path() / "packed", 1u << 30))));
      const std::uint64_t waited = npu.device->counters().wait_ns;
      const TimePoint begin = npu.engine.clock.now();
      const auto servable = npu.load("model", graph, true);
      need(npu.engine.run_one(*servable, {input}));
      const double board_us = double(npu.device->counters().wait_ns - waited) / 1e3;
      us[cached] = std::min<double>(us[cached], double((npu.engine.clock.now() - begin).count()) - board_us);
    }
  }
  line("PP-OCRv4 recognition: cold to first answer with the cache, of without; the board's own time left out", "us",
       us[1], us[0], 0.8, false);
}

onnx::ModelProto read_model(const std::filesystem::path& file) {
  onnx::ModelProto model;
  std::ifstream in(file, std::ios::binary);
  if (!in || !model.ParseFromIstream(&in)) give_up(file.string() + " can't be read: tools/models lay makes it");
  return model;
}

}  // namespace
}  // namespace npud

int main(int argc, char** argv) {
  using namespace npud;
  if (argc != 2) give_up("which directory of models?");
  const std::filesystem::path models = argv[1];
  const auto det = read_model(models / "ocr_det/1/model.onnx"), rec = read_model(models / "ocr_rec/1/model.onnx");
  const auto page = test::float_tensor("x", {1, 3, 96, 160}, noise(3 * 96 * 160, 3)),
             strip = test::float_tensor("x", {1, 3, 48, 160}, noise(3 * 48 * 160, 4));
  model("PP-OCRv4 detection", det, page);
  model("PP-OCRv4 recognition", rec, strip);
  products();
  cold(rec, strip);
  return 0;
}
