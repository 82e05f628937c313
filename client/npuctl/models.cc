// SPDX-License-Identifier: Apache-2.0
// What is served, and loading it.
#include <format>
#include <iostream>
#include <memory>

#include "commands.h"
#include "inference/grpc_service.pb.h"
#include "output.h"

namespace npud::ctl {
namespace {

std::string shape_of(const auto& shape) {
  std::vector<std::int64_t> dimensions(shape.begin(), shape.end());
  return client::shape_text(dimensions);
}

int models(const Session& session) {
  auto client = session.open();
  if (!client) return report(client.error());
  auto index = client->repository_index();
  if (!index) return report(index.error());
  if (session.json) {
    std::cout << json_of(*index);
    return exit_ok;
  }
  Table table({"MODEL", ">VERSION", "STATE", "REASON"});
  for (const auto& model : index->models()) table.add({model.name(), model.version(), model.state(), model.reason()});
  if (table.empty()) {
    std::cout
        << "No models. They are directories in npud's repository (repository.path in npud.toml): see npuctl doctor.\n";
  } else {
    std::cout << table.text();
  }
  return exit_ok;
}

int metadata(const Session& session, const std::string& model, const std::string& version) {
  auto client = session.open();
  if (!client) return report(client.error());
  auto answer = client->model_metadata(model, version);
  if (!answer) return report(answer.error());
  if (session.json) {
    std::cout << json_of(*answer);
    return exit_ok;
  }
  std::string versions;
  for (const auto& v : answer->versions()) versions += (versions.empty() ? "" : ", ") + v;
  std::cout << std::format("{}  platform {}  version {}\n", printable(answer->name()), printable(answer->platform()),
                           printable(versions));
  Table table({"", "NAME", "TYPE", "SHAPE"});
  for (const auto& input : answer->inputs())
    table.add({"input", input.name(), input.datatype(), shape_of(input.shape())});
  for (const auto& output : answer->outputs())
    table.add({"output", output.name(), output.datatype(), shape_of(output.shape())});
  std::cout << table.text();
  for (const auto& [name, value] : answer->properties())
    std::cout << std::format("{}: {}\n", printable(name), printable(value));
  return exit_ok;
}

int config(const Session& session, const std::string& model, const std::string& version) {
  auto client = session.open();
  if (!client) return report(client.error());
  auto answer = client->model_config(model, version);
  if (!answer) return report(answer.error());
  std::cout << (session.json ? json_of(answer->config()) : answer->config().DebugString());
  return exit_ok;
}

int stats(const Session& session, const std::string& model, const std::string& version) {
  auto client = session.open();
  if (!client) return report(client.error());
  auto answer = client->model_statistics(model, version);
  if (!answer) return report(answer.error());
  if (session.json) {
    std::cout << json_of(*answer);
    return exit_ok;
  }
  auto mean = [](const inference::StatisticDuration& d) {
    return d.count() == 0 ? std::string() : human_us(d.ns() / d.count() / 1000);
  };
  Table table({"MODEL", ">VERSION", ">DONE", ">FAILED", ">RUNS", ">MEAN", ">QUEUE", ">INPUT", ">COMPUTE", ">OUTPUT"});
  for (const auto& m : answer->model_stats()) {
    const auto& s = m.inference_stats();
    table.add({m.name(), m.version(), std::to_string(s.success().count()), std::to_string(s.fail().count()),
               std::to_string(m.execution_count()), mean(s.success()), mean(s.queue()), mean(s.compute_input()),
               mean(s.compute_infer()), mean(s.compute_output())});
  }
  std::cout << table.text();
  return exit_ok;
}

int load(const Session& session, const std::vector<std::string>& models, bool loading) {
  auto client = session.open();
  if (!client) return report(client.error());
  int status = exit_ok;
  for (const std::string& model : models) {
    const auto timeout = session.timeout().value_or(client::Client::load_timeout);
    auto done = loading ? client->load(model, timeout) : client->unload(model, timeout);
    if (!done) {
      status = report(done.error());
    } else if (!session.json) {
      std::cout << std::format("{} is {}\n", printable(model), loading ? "loaded" : "unloaded");
    }
  }
  return status;
}

}  // namespace

void add_model_commands(CLI::App& app, Session& session) {
  struct Args {
    std::string model, version;
    std::vector<std::string> models;
  };
  auto args = std::make_shared<Args>();
  app.add_subcommand("models", "List the models, their state and why one can't be served")->callback([&session] {
    session.run = [&session] { return models(session); };
  });
  auto about_one = [&](const char* name, const char* what,
                       int (*function)(const Session&, const std::string&, const std::string&)) {
    auto* command = app.add_subcommand(name, what);
    command->add_option("model", args->model, "Its name")->required();
    command->add_option("--model-version", args->version, "Its version (by the model's version policy)");
    command->callback([&session, args, function] {
      session.run = [&session, args, function] { return function(session, args->model, args->version); };
    });
    return command;
  };
  about_one("metadata", "Show a model's inputs and outputs", metadata);
  about_one("config", "Show a model's configuration, as completed by npud", config);
  auto* statistics = about_one("stats", "Show what a model (or each) has done and how long it took", stats);
  statistics->get_option("model")->required(false);
  for (bool loading : {true, false}) {
    auto* command =
        app.add_subcommand(loading ? "load" : "unload", loading ? "Load models, or load them anew" : "Unload models");
    command->add_option("models", args->models, "Their names")->required();
    command->callback([&session, args, loading] {
      session.run = [&session, args, loading] { return load(session, args->models, loading); };
    });
  }
}

}  // namespace npud::ctl
