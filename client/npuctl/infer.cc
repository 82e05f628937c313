// SPDX-License-Identifier: Apache-2.0
// npuctl infer: tensors from and to .npy files.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <format>
#include <iostream>
#include <map>
#include <memory>

#include "commands.h"
#include "inference/grpc_service.pb.h"
#include "npud/npy.h"
#include "output.h"

namespace npud::ctl {
namespace {

struct Args {
  std::string model, version, output_directory;
  std::vector<std::string> inputs, outputs;
  std::uint64_t priority = 0;
  double within_s = 0;
};

template <class T>
std::string first_values(const client::Tensor& tensor, std::size_t most) {
  std::string text;
  std::size_t count = std::min(most, tensor.data.size() / sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, tensor.data.data() + i * sizeof(T), sizeof(T));
    text += std::format("{}{}", i == 0 ? "" : " ", +value);
  }
  return tensor.data.size() / sizeof(T) > most ? text + " …" : text;
}

std::string preview(const client::Tensor& tensor) {
  using client::DataType;
  switch (tensor.type) {
    case DataType::boolean:
    case DataType::uint8:
      return first_values<std::uint8_t>(tensor, 6);
    case DataType::uint16:
      return first_values<std::uint16_t>(tensor, 6);
    case DataType::uint32:
      return first_values<std::uint32_t>(tensor, 6);
    case DataType::uint64:
      return first_values<std::uint64_t>(tensor, 6);
    case DataType::int8:
      return first_values<std::int8_t>(tensor, 6);
    case DataType::int16:
      return first_values<std::int16_t>(tensor, 6);
    case DataType::int32:
      return first_values<std::int32_t>(tensor, 6);
    case DataType::int64:
      return first_values<std::int64_t>(tensor, 6);
    case DataType::fp32:
      return first_values<float>(tensor, 6);
    case DataType::fp64:
      return first_values<double>(tensor, 6);
    case DataType::fp16:
    case DataType::bf16:
      return std::format("{} bytes", tensor.data.size());
    case DataType::bytes:
      break;
  }
  auto values = tensor.strings();
  if (!values) return "";
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, values->size()); ++i)
    text += std::format("{}\"{}\"", i == 0 ? "" : " ", printable((*values)[i]));
  return values->size() > 3 ? text + " …" : text;
}

// An output's name comes from the model: as a file's name it may not leave the directory.
std::string file_name_of(const std::string& output) {
  std::string name = printable(output);
  std::ranges::replace(name, '/', '_');
  if (name.empty() || name.starts_with('.')) name = "_" + name;
  return name + ".npy";
}

int infer(const Session& session, const Args& args) {
  client::InferRequest request;
  request.model = args.model;
  request.version = args.version;
  request.priority = args.priority;
  request.timeout = session.timeout();
  if (args.within_s > 0) request.timeout = std::chrono::microseconds(static_cast<std::int64_t>(args.within_s * 1e6));
  for (const std::string& input : args.inputs) {
    auto equals = input.find('=');
    if (equals == std::string::npos || equals == 0) {
      std::cerr << std::format("npuctl: --input {}: write it as NAME=FILE.npy\n", input);
      return exit_usage;
    }
    auto tensor = client::read_npy(input.substr(equals + 1));
    if (!tensor) {
      std::cerr << std::format("npuctl: {}\n", printable(tensor.error().message));
      return exit_usage;
    }
    tensor->name = input.substr(0, equals);
    request.inputs.push_back(*std::move(tensor));
  }
  for (const std::string& output : args.outputs) request.outputs.push_back({output, {}});
  if (!args.output_directory.empty()) {
    std::error_code error;
    std::filesystem::create_directories(args.output_directory, error);
    if (error) {
      std::cerr << std::format("npuctl: can't make the directory {}: {}\n", args.output_directory, error.message());
      return exit_usage;
    }
  }
  auto client = session.open();
  if (!client) return report(client.error());
  auto result = client->infer(std::move(request));
  if (!result) return report(result.error());
  if (!args.output_directory.empty()) {
    std::map<std::string, std::string> files;  // and whose they are
    for (const client::Tensor& tensor : result->outputs) {
      auto [other, fresh] = files.emplace(file_name_of(tensor.name), tensor.name);
      if (fresh) continue;
      std::cerr << std::format("npuctl: outputs {} and {} would both be {}: ask for one at a time with --only\n",
                               printable(other->second), printable(tensor.name), other->first);
      return exit_failed;
    }
  }

  Table table({"OUTPUT", "TYPE", "SHAPE", args.output_directory.empty() ? "VALUES" : "FILE"});
  std::string json;
  for (const client::Tensor& tensor : result->outputs) {
    std::string last = preview(tensor);
    if (!args.output_directory.empty()) {
      std::string path = (std::filesystem::path(args.output_directory) / file_name_of(tensor.name)).string();
      if (auto written = client::write_npy(path, tensor); !written) {
        std::cerr << std::format("npuctl: {}\n", written.error().message);
        return exit_failed;
      }
      last = path;
    }
    json += std::format("{}{{\"name\": \"{}\", \"datatype\": \"{}\", \"shape\": {}, \"bytes\": {}{}}}",
                        json.empty() ? "" : ", ", json_escaped(tensor.name), client::data_type_name(tensor.type),
                        client::shape_text(tensor.shape), tensor.data.size(),
                        args.output_directory.empty() ? "" : std::format(", \"file\": \"{}\"", json_escaped(last)));
    table.add({tensor.name, std::string(client::data_type_name(tensor.type)), client::shape_text(tensor.shape), last});
  }
  if (session.json) {
    std::cout << std::format("{{\"model\": \"{}\", \"version\": \"{}\", \"path\": \"{}\", \"outputs\": [{}]}}\n",
                             json_escaped(result->model), json_escaped(result->version), json_escaped(result->path),
                             json);
  } else {
    std::cout << table.text()
              << std::format("{} version {}, path: {}\n", printable(result->model), printable(result->version),
                             printable(result->path));
  }
  return exit_ok;
}

}  // namespace

void add_infer_command(CLI::App& app, Session& session) {
  auto args = std::make_shared<Args>();
  auto* command = app.add_subcommand("infer", "Run a model once on tensors in .npy files");
  command->add_option("model", args->model, "Its name")->required();
  command->add_option("-i,--input", args->inputs, "An input and its file; once for each input")
      ->type_name("NAME=FILE.npy");
  command->add_option("-o,--output", args->output_directory, "Write each output to DIRECTORY/NAME.npy")
      ->type_name("DIRECTORY");
  command->add_option("--only", args->outputs, "Ask for these outputs alone")->type_name("NAME");
  command->add_option("--model-version", args->version, "Its version (by the model's version policy)");
  command->add_option("--priority", args->priority, "1 is highest (the model's default)");
  command->add_option("--within", args->within_s, "Give up when it isn't done in as many seconds")
      ->check(CLI::Range(0.001, 86400.0))
      ->type_name("SECONDS");
  command->callback([&session, args] { session.run = [&session, args] { return infer(session, *args); }; });
}

}  // namespace npud::ctl
