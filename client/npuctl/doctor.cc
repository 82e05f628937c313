// SPDX-License-Identifier: Apache-2.0
// npuctl doctor: from the socket to the models, what is well, what isn't, and what to do about it.
#include <glob.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <format>
#include <iostream>
#include <memory>

#include "commands.h"
#include "inference/grpc_service.pb.h"
#include "names.h"
#include "output.h"

namespace npud::ctl {
namespace {

enum class Verdict { ok, note, warning, failure };

struct Finding {
  Verdict verdict;
  std::string about, text;
};

constexpr std::array<const char*, 4> kWords = {"ok", "note", "warning", "failure"};

class Examination {
 public:
  void add(Verdict verdict, std::string about, std::string text) {
    findings_.push_back({verdict, std::move(about), std::move(text)});
  }

  int finish(bool json, int status_on_failure) const {
    bool failed = false;
    for (const Finding& finding : findings_) failed = failed || finding.verdict == Verdict::failure;
    if (json) {
      std::string text;
      for (const Finding& f : findings_) {
        text += std::format("{}{{\"verdict\": \"{}\", \"about\": \"{}\", \"text\": \"{}\"}}", text.empty() ? "" : ", ",
                            kWords[static_cast<std::size_t>(f.verdict)], json_escaped(f.about), json_escaped(f.text));
      }
      std::cout << std::format("{{\"well\": {}, \"findings\": [{}]}}\n", !failed, text);
    } else {
      for (const Finding& f : findings_) {
        std::cout << std::format("{:<8} {}: {}\n", kWords[static_cast<std::size_t>(f.verdict)], printable(f.about),
                                 printable(f.text));
      }
      std::cout << (failed ? "Something needs attention.\n" : "All is well.\n");
    }
    return failed ? status_on_failure : exit_ok;
  }

 private:
  std::vector<Finding> findings_;
};

// NPU device nodes of this machine, which npud may or may not use.
void look_for_nodes(Examination& examination) {
  for (const char* pattern : {"/dev/accel/accel*", "/dev/rknpu"}) {
    glob_t found{};
    if (glob(pattern, 0, nullptr, &found) == 0) {
      for (std::size_t i = 0; i < found.gl_pathc; ++i) {
        examination.add(Verdict::note, found.gl_pathv[i],
                        access(found.gl_pathv[i], R_OK | W_OK) == 0
                            ? "an NPU's device node; you may open it yourself, beside npud"
                            : "an NPU's device node; it is npud's, you need no right to it");
      }
    }
    globfree(&found);
  }
}

void examine_devices(Examination& examination, const v1::ListDevicesResponse& devices) {
  if (devices.devices().empty())
    examination.add(Verdict::failure, "devices",
                    "npud has none; enable one in npud.toml ([devices.host] needs no hardware)");
  for (const auto& d : devices.devices()) {
    std::string about = "device " + d.name();
    std::string text = std::format("{}, {} of {} slots used, {} jobs done", health_name(d.health()), d.slots_used(),
                                   d.slots(), d.jobs_done());
    if (!d.health_reason().empty()) text += "; " + d.health_reason();
    Verdict verdict = d.health() == v1::HEALTH_OK         ? Verdict::ok
                      : d.health() == v1::HEALTH_DEGRADED ? Verdict::warning
                                                          : Verdict::failure;
    if (verdict == Verdict::failure)
      text += std::format(
          "; an administrator may try: npuctl drain --device {0}; npuctl reset {0}; npuctl resume --device {0}",
          d.name());
    examination.add(verdict, about, text);
    if (d.draining())
      examination.add(Verdict::warning, about,
                      std::format("it is drained and takes no work; npuctl resume --device {}", d.name()));
    if (d.brought_in() > 100 && d.switch_us() > d.busy_us()) {
      examination.add(Verdict::warning, about,
                      "it spends more time bringing programs in and out than running them: give it more slots or "
                      "memory, or serve fewer models");
    }
    for (const auto& note : d.notes()) examination.add(Verdict::note, about, note);
  }
}

void examine_models(Examination& examination, const inference::RepositoryIndexResponse& index) {
  int ready = 0, others = 0;
  for (const auto& m : index.models()) {
    if (m.state() == "READY") {
      ++ready;
      if (!m.reason().empty()) {  // it serves, but not what lies in the repository now
        examination.add(Verdict::warning, std::format("model {} version {}", m.name(), m.version()), m.reason());
      }
    } else if (m.state() == "LOADING" || m.state() == "UNLOADING") {
      examination.add(Verdict::note, "model " + m.name(),
                      m.state() == "LOADING" ? "it is being loaded" : "it is being unloaded");
    } else if (!m.reason().empty()) {
      examination.add(
          m.reason() == "unloaded" ? Verdict::note : Verdict::failure,
          m.version().empty() ? "model " + m.name() : std::format("model {} version {}", m.name(), m.version()),
          m.reason());
    } else {
      ++others;
    }
  }
  if (index.models().empty()) {
    examination.add(Verdict::warning, "models",
                    "the repository is empty: put REPOSITORY/NAME/1/model.onnx into repository.path of npud.toml, then "
                    "npuctl load NAME");
  } else {
    examination.add(
        Verdict::ok, "models",
        std::format("{} ready{}", ready, others > 0 ? std::format(", {} not loaded (npuctl load NAME)", others) : ""));
  }
}

int doctor(const Session& session) {
  Examination examination;
  std::string address = session.connect.address.empty() ? client::default_address() : session.connect.address;
  look_for_nodes(examination);
  auto client = session.open();
  if (!client) {
    examination.add(Verdict::failure, "connection to " + address, client.error().message);
    return examination.finish(session.json, exit_unreachable);
  }
  examination.add(Verdict::ok, "connection", address);

  client::Control control(*client);
  auto status = control.status();
  if (!status) {
    examination.add(Verdict::failure, "daemon", client::to_string(status.error()));
    return examination.finish(session.json,
                              status.error().code == client::Code::unavailable ? exit_unreachable : exit_failed);
  }
  examination.add(status->ready() ? Verdict::ok : Verdict::failure, "daemon",
                  std::format("npud {}, up for {}{}", status->version(), human_us(status->uptime_us()),
                              status->draining() ? "; it is draining and takes no requests: it is about to stop"
                              : status->ready()  ? ", ready"
                                                : "; it isn't ready yet: its models are being loaded (npuctl models)"));
  examination.add(Verdict::ok, "you", std::format("npud knows you as {}", status->caller().name()));
  if (status->worker_threads() > 0 && status->workers_busy() == status->worker_threads() &&
      status->requests_queued() > 0) {
    examination.add(Verdict::note, "workers",
                    std::format("all {} are busy and {} requests wait (engine.workers)", status->worker_threads(),
                                status->requests_queued()));
  }
  for (const auto& note : status->notes()) examination.add(Verdict::note, "daemon", note);

  if (auto devices = control.devices()) {
    examine_devices(examination, *devices);
  } else {
    examination.add(Verdict::failure, "devices", client::to_string(devices.error()));
  }
  if (auto index = client->repository_index()) {
    examine_models(examination, *index);
  } else {
    examination.add(Verdict::failure, "models", client::to_string(index.error()));
  }
  return examination.finish(session.json, exit_failed);
}

}  // namespace

void add_doctor_command(CLI::App& app, Session& session) {
  app.add_subcommand("doctor", "Check everything from the socket to the models and say what to do")
      ->callback([&session] { session.run = [&session] { return doctor(session); }; });
}

}  // namespace npud::ctl
