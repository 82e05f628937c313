// SPDX-License-Identifier: Apache-2.0
// npuctl bench: a closed loop of requests to one model, and what it took.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <format>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>

#include "commands.h"
#include "inference/grpc_service.pb.h"
#include "load.h"
#include "npud/npy.h"
#include "npud/shared_memory.h"
#include "output.h"

namespace npud::ctl {
namespace {

struct Args {
  std::string model, version;
  unsigned concurrency = 1;
  std::uint64_t requests = 0, priority = 0;
  double duration_s = 5;
  std::vector<std::string> inputs, shapes;
  bool shared = false, random = false, quiet = false;
};

using client::Tensor;

client::Result<std::vector<std::int64_t>> parse_shape(const std::string& text) {
  std::vector<std::int64_t> shape;
  std::istringstream parts(text);
  std::string part;
  while (std::getline(parts, part, ',')) {
    char* end = nullptr;
    long long value = std::strtoll(part.c_str(), &end, 10);
    if (part.empty() || *end != '\0' || value < 0)
      return client::fail(client::Code::invalid_argument,
                          std::format("'{}' is no shape; write it as 1,3,48,320", text));
    shape.push_back(value);
  }
  return shape;
}

// NAME=VALUE options by name.
client::Result<std::map<std::string, std::string>> by_name(const std::vector<std::string>& options,
                                                           const char* option) {
  std::map<std::string, std::string> out;
  for (const std::string& text : options) {
    auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return client::fail(client::Code::invalid_argument, std::format("{} {}: write it as NAME=…", option, text));
    out[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return out;
}

void fill_random(Tensor& tensor, std::mt19937& generator) {
  std::uniform_real_distribution<float> uniform(0, 1);
  if (tensor.type == client::DataType::fp32) {
    for (std::size_t i = 0; i + 4 <= tensor.data.size(); i += 4) {
      float value = uniform(generator);
      std::memcpy(tensor.data.data() + i, &value, 4);
    }
  } else if (client::data_type_size(tensor.type) == 1 && tensor.type != client::DataType::boolean) {
    for (char& c : tensor.data) c = static_cast<char>(generator());
  }
}

// The inputs that every request carries: from files, or made for the model's signature.
client::Result<std::vector<Tensor>> make_inputs(const client::Client& client, const Args& args) {
  auto files = by_name(args.inputs, "--input");
  auto shapes = by_name(args.shapes, "--shape");
  if (!files) return std::unexpected(files.error());
  if (!shapes) return std::unexpected(shapes.error());
  auto metadata = client.model_metadata(args.model, args.version);
  if (!metadata) return std::unexpected(metadata.error());
  std::mt19937 generator(1);
  std::vector<Tensor> inputs;
  for (const auto& input : metadata->inputs()) {
    if (auto file = files->extract(input.name()); !file.empty()) {
      auto tensor = client::read_npy(file.mapped());
      if (!tensor) return std::unexpected(tensor.error());
      tensor->name = input.name();
      inputs.push_back(*std::move(tensor));
      continue;
    }
    Tensor tensor{input.name(),
                  client::data_type_from_name(input.datatype()).value_or(client::DataType::fp32),
                  {input.shape().begin(), input.shape().end()},
                  {},
                  {}};
    if (auto shape = shapes->extract(input.name()); !shape.empty()) {
      auto parsed = parse_shape(shape.mapped());
      if (!parsed) return std::unexpected(parsed.error());
      tensor.shape = *std::move(parsed);
    }
    auto count = client::element_count(tensor.shape);
    if (!count) {
      return client::fail(
          client::Code::invalid_argument,
          std::format("input '{}' is {} {}, of any size: say which with --shape {}=… or --input {}=FILE.npy",
                      input.name(), input.datatype(), client::shape_text(tensor.shape), input.name(), input.name()));
    }
    if (tensor.type == client::DataType::bytes) {
      tensor = Tensor::of_strings(tensor.name, tensor.shape, std::vector<std::string>(*count));
    } else {
      tensor.data.assign(*count * client::data_type_size(tensor.type), '\0');
      if (args.random) fill_random(tensor, generator);
    }
    inputs.push_back(std::move(tensor));
  }
  for (const auto* left : {&*files, &*shapes}) {
    if (!left->empty())
      return client::fail(client::Code::invalid_argument,
                          std::format("model '{}' has no input '{}'", args.model, left->begin()->first));
  }
  return inputs;
}

// Each worker's own piece of shared memory: the inputs, then room for the outputs.
struct SharedWorker {
  client::SharedMemory memory;
  client::InferRequest request;
};

client::Result<std::vector<SharedWorker>> share(const client::Client& client, const client::InferRequest& plain,
                                                unsigned workers) {
  auto once = client.infer(plain);  // tells the outputs' sizes
  if (!once) return std::unexpected(once.error());
  auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  std::size_t size_bytes = 0;
  for (const Tensor& input : plain.inputs) size_bytes += aligned(input.data.size());
  for (const Tensor& output : once->outputs) size_bytes += aligned(output.data.size());
  std::vector<SharedWorker> out;
  for (unsigned i = 0; i < workers; ++i) {
    auto memory = client::SharedMemory::create(client, std::max<std::size_t>(size_bytes, 64));
    if (!memory) return std::unexpected(memory.error());
    SharedWorker worker{*std::move(memory), plain};
    std::size_t at = 0;
    for (Tensor& input : worker.request.inputs) {
      std::memcpy(worker.memory.bytes().data() + at, input.data.data(), input.data.size());
      input.shared = worker.memory.span(at, input.data.size());
      at += aligned(input.data.size());
      input.data.clear();
    }
    worker.request.outputs.clear();
    for (const Tensor& output : once->outputs) {
      worker.request.outputs.push_back({output.name, worker.memory.span(at, output.data.size())});
      at += aligned(output.data.size());
    }
    out.push_back(std::move(worker));
  }
  return out;
}

void show(const Args& args, const client::LoadReport& report, bool json) {
  auto ms = [&](double p) { return static_cast<double>(report.percentile_us(p)) / 1000; };
  if (json) {
    std::cout << std::format(
        "{{\"model\": \"{}\", \"concurrency\": {}, \"shared_memory\": {}, \"succeeded\": {}, \"failed\": {}, "
        "\"elapsed_s\": {:.3f}, "
        "\"requests_per_s\": {:.2f}, \"p50_us\": {}, \"p90_us\": {}, \"p95_us\": {}, \"p99_us\": {}, \"max_us\": "
        "{}}}\n",
        json_escaped(args.model), args.concurrency, args.shared, report.succeeded, report.failed,
        static_cast<double>(report.elapsed.count()) / 1e6, report.per_second(), report.percentile_us(50),
        report.percentile_us(90), report.percentile_us(95), report.percentile_us(99), report.percentile_us(100));
    return;
  }
  std::cout << std::format("{} requests in {:.2f} s with {} in flight{}: {:.1f}/s\n", report.succeeded,
                           static_cast<double>(report.elapsed.count()) / 1e6, args.concurrency,
                           args.shared ? ", through shared memory" : "", report.per_second());
  if (report.succeeded > 0) {
    std::cout << std::format("latency in ms: p50 {:.2f}  p90 {:.2f}  p95 {:.2f}  p99 {:.2f}  max {:.2f}\n", ms(50),
                             ms(90), ms(95), ms(99), ms(100));
  }
  for (const auto& [path, count] : report.paths)
    std::cout << std::format("path {}: {}\n", printable(path.empty() ? "unknown" : path), count);
  if (report.failed > 0) {
    std::cout << std::format("{} requests failed:\n", report.failed);
    for (const auto& [error, count] : report.errors) std::cout << std::format("  {} x {}\n", count, printable(error));
  }
}

int bench(const Session& session, const Args& args) {
  catch_interrupts();  // before anything is under way: whenever it comes, the load ends in order and shows what it has
  auto client = session.open();
  if (!client) return report(client.error());
  auto inputs = make_inputs(*client, args);
  if (!inputs) {
    int status = report(inputs.error());
    return inputs.error().code == client::Code::invalid_argument ? exit_usage : status;
  }
  client::InferRequest plain;
  plain.model = args.model;
  plain.version = args.version;
  plain.priority = args.priority;
  plain.inputs = *std::move(inputs);

  std::vector<SharedWorker> shared;
  client::LoadOptions options;
  options.in_flight = args.concurrency;
  options.requests = args.requests;
  options.duration =
      std::chrono::milliseconds(args.requests > 0 ? 0 : static_cast<std::int64_t>(args.duration_s * 1000));
  options.warm_up_requests = 1;
  options.make = [&](unsigned) { return plain; };
  if (args.shared) {
    auto made = share(*client, plain, args.concurrency);
    if (!made) return report(made.error());
    shared = *std::move(made);
    options.make = [&](unsigned worker) { return shared[worker].request; };
  }
  const bool progress = !args.quiet && !session.json && isatty(STDERR_FILENO) != 0;
  if (progress) {
    options.progress = [&](std::uint64_t done, std::chrono::microseconds elapsed) {
      double seconds = static_cast<double>(elapsed.count()) / 1e6;
      double part = args.requests > 0 ? static_cast<double>(done) / static_cast<double>(args.requests)
                                      : seconds / args.duration_s;
      std::cerr << std::format("\r{:3.0f}%  {} requests  {:.1f}/s\x1b[K", std::min(1.0, part) * 100, done,
                               static_cast<double>(done) / seconds)
                << std::flush;
    };
  }
  client::LoadReport done = client::run_load(*client, options, [] { return interrupted != 0; });
  if (progress) std::cerr << "\r\x1b[K";
  show(args, done, session.json);
  return done.failed == 0 && done.succeeded > 0 ? exit_ok : exit_failed;
}

}  // namespace

void add_bench_command(CLI::App& app, Session& session) {
  auto args = std::make_shared<Args>();
  auto* command =
      app.add_subcommand("bench", "Send requests to a model in a closed loop and print throughput and latencies");
  command->add_option("model", args->model, "Its name")->required();
  command->add_option("-c,--concurrency", args->concurrency, "Requests in flight (1)")->check(CLI::Range(1u, 1024u));
  auto* duration = command->add_option("-t,--duration", args->duration_s, "Seconds to run (5)")
                       ->check(CLI::Range(0.05, 86400.0))
                       ->type_name("SECONDS");
  command->add_option("-n,--requests", args->requests, "Requests to send, instead of a duration")
      ->check(CLI::PositiveNumber)
      ->excludes(duration);
  command->add_option("-i,--input", args->inputs, "An input from a file")->type_name("NAME=FILE.npy");
  command->add_option("--shape", args->shapes, "The shape of an input of any size; it is filled with zeros")
      ->type_name("NAME=1,3,48,320");
  command->add_flag("--random", args->random, "Fill inputs with random values (always the same ones) instead of zeros");
  command->add_flag("--shm", args->shared, "Send and receive through shared memory");
  command->add_option("--model-version", args->version, "Its version (by the model's version policy)");
  command->add_option("--priority", args->priority, "1 is highest (the model's default)");
  command->add_flag("-q,--quiet", args->quiet, "No progress");
  command->callback([&session, args] { session.run = [&session, args] { return bench(session, *args); }; });
}

}  // namespace npud::ctl
