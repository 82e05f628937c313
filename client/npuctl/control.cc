// SPDX-License-Identifier: Apache-2.0
// The device, who is on it, and what an administrator may tell it.
#include <format>
#include <iostream>
#include <memory>

#include "commands.h"
#include "names.h"
#include "output.h"

namespace npud::ctl {
namespace {

using client::Control;

// Connects, asks, prints: JSON as it came, or what `show` makes of it.
template <class Ask, class Show>
int ask_and_show(const Session& session, Ask ask, Show show) {
  auto client = session.open();
  if (!client) return report(client.error());
  auto answer = ask(Control(*client));
  if (!answer) return report(answer.error());
  if (session.json) {
    std::cout << json_of(*answer);
  } else {
    show(*answer);
  }
  return exit_ok;
}

void show_status(const v1::StatusResponse& s) {
  std::cout << std::format("npud {}, up for {}{}{}\n", printable(s.version()), human_us(s.uptime_us()),
                           s.ready() ? ", ready" : ", not ready", s.draining() ? ", draining" : "");
  std::cout << std::format("requests: {} in flight, {} queued, {} of payload\n", s.requests_in_flight(),
                           s.requests_queued(), human_bytes(s.payload_bytes()));
  std::cout << std::format("daemon: {} of memory, {} of {} workers busy, {} connections, {} shared memory regions\n",
                           human_bytes(s.resident_bytes()), s.workers_busy(), s.worker_threads(), s.connections(),
                           s.shared_memory_regions());
  std::cout << std::format("you are: {}\n", printable(s.caller().name()));
  for (const auto& note : s.notes()) std::cout << "note: " << printable(note) << '\n';
}

void show_devices(const v1::ListDevicesResponse& answer) {
  Table table({"DEVICE", "KIND", "DRIVER", "HEALTH", ">CORES", ">SLOTS", "MEMORY", ">WAITING", ">DONE", ">FAILED",
               ">IN", ">OUT", ">SWITCH"});
  for (const auto& d : answer.devices()) {
    std::string memory;
    for (const auto& a : d.apertures()) {
      memory += std::format("{}{} of {}", memory.empty() ? "" : ", ", human_bytes(a.used_bytes()),
                            human_bytes(a.limit_bytes()));
    }
    table.add({d.name(), d.kind(), d.driver(), health_name(d.health()) + (d.draining() ? ", drained" : ""),
               std::format("{}/{}", d.cores_busy(), d.cores()), std::format("{}/{}", d.slots_used(), d.slots()), memory,
               std::to_string(d.jobs_waiting()), std::to_string(d.jobs_done()), std::to_string(d.jobs_failed()),
               std::to_string(d.brought_in()), std::to_string(d.evicted()), human_us(d.switch_cost_us())});
  }
  std::cout << table.text();
  for (const auto& d : answer.devices()) {
    if (!d.health_reason().empty())
      std::cout << std::format("{}: {}\n", printable(d.name()), printable(d.health_reason()));
    for (const auto& note : d.notes()) std::cout << std::format("{}: {}\n", printable(d.name()), printable(note));
  }
}

void show_programs(const v1::ListProgramsResponse& answer) {
  Table table(
      {"PROGRAM", "DEVICE", "STATE", ">SLOTS", ">MEMORY", ">RUNNING", ">RUNS", ">IN", ">OUT", ">BRING BACK", ">IDLE"});
  for (const auto& p : answer.programs()) {
    table.add({p.name(), p.device(), residency_name(p.residency()) + (p.pinned() ? ", pinned" : ""),
               std::to_string(p.slots()), human_bytes(p.bytes()), std::to_string(p.running()), std::to_string(p.runs()),
               std::to_string(p.brought_in()), std::to_string(p.evicted()), human_us(p.bring_back_us()),
               human_us(p.idle_us())});
  }
  std::cout << (table.empty() ? "No programs: no model is loaded.\n" : table.text());
}

void show_tenants(const v1::ListTenantsResponse& answer) {
  Table table({"TENANT", ">WEIGHT", "UP TO CLASS", ">IN FLIGHT", ">BYTES", ">DONE", ">FAILED", ">REFUSED", ">SHARE",
               ">P50", ">P99"});
  for (const auto& t : answer.tenants()) {
    auto of = [](std::uint64_t used, std::uint64_t cap, auto text) {
      return cap == 0 ? text(used) : text(used) + " of " + text(cap);
    };
    table.add({t.tenant().name(), std::format("{:g}", t.weight()), t.class_ceiling(),
               of(t.in_flight(), t.max_in_flight(), [](std::uint64_t v) { return std::to_string(v); }),
               of(t.bytes(), t.max_bytes(), human_bytes), std::to_string(t.succeeded()), std::to_string(t.failed()),
               std::to_string(t.rejected()), human_share(t.share()), human_us(t.latency_p50_us()),
               human_us(t.latency_p99_us())});
  }
  std::cout << table.text();
}

void show_running(const v1::ListRunningResponse& answer) {
  Table running({"DEVICE", ">CORE", "PROGRAM", "TENANT", "CLASS", ">FOR"});
  for (const auto& r : answer.running()) {
    running.add({r.device(), std::to_string(r.core()), r.program(), r.tenant().name(), r.priority_class(),
                 human_us(r.for_us())});
  }
  std::cout << (running.empty() ? "Nothing runs.\n" : running.text());
  Table waiting({"WAITING FOR", "PROGRAM", "TENANT", "CLASS", ">FOR"});
  for (const auto& w : answer.waiting())
    waiting.add({w.device(), w.program(), w.tenant().name(), w.priority_class(), human_us(w.for_us())});
  if (!waiting.empty()) std::cout << '\n' << waiting.text();
  Table queues({"MODEL", ">VERSION", ">QUEUED", ">RUNNING", ">PEAK", ">OLDEST", "STATE"});
  for (const auto& q : answer.queues()) {
    queues.add({q.model(), std::to_string(q.version()), std::format("{} of {}", q.queued(), q.max_queued()),
                std::to_string(q.running()), std::to_string(q.queued_peak()),
                q.queued() > 0 ? human_us(q.oldest_us()) : "", q.draining() ? "drained" : "open"});
  }
  if (!queues.empty()) std::cout << '\n' << queues.text();
}

void show_explanation(const v1::ExplainResponse& answer) {
  Table table({"NODE", "OP", "DEVICE", "PRECISION", ">WEIGHTS", ">RUNS", ">TIME", "WHY"});
  for (const auto& n : answer.nodes()) {
    table.add({n.name(), n.op(), n.device(), n.precision(), human_bytes(n.weight_bytes()), std::to_string(n.runs()),
               human_us(n.total_us()), n.reason()});
  }
  std::cout << std::format("{} version {}\n", printable(answer.model()), answer.version());
  if (!table.empty()) std::cout << table.text();
  if (!answer.summary().empty()) std::cout << printable(answer.summary()) << '\n';
}

int finished(const Session& session, const client::Result<>& done, const std::string& sentence) {
  if (!done) return report(done.error());
  if (!session.json) std::cout << sentence << '\n';
  return exit_ok;
}

struct Target {
  std::string device, model;
  double wait_s = 60;
};

int drain_or_resume(const Session& session, const Target& target, bool draining) {
  auto client = session.open();
  if (!client) return report(client.error());
  Control control(*client);
  std::chrono::milliseconds wait(static_cast<std::int64_t>(target.wait_s * 1000));
  const bool device = !target.device.empty();
  const std::string name = printable(device ? target.device : target.model);
  client::Result<> done =
      draining ? (device ? control.drain_device(target.device, wait) : control.drain_model(target.model, wait))
               : (device ? control.resume_device(target.device) : control.resume_model(target.model));
  if (!done && done.error().code == client::Code::deadline_exceeded) {
    std::cerr << std::format(
        "npuctl: something still runs on {} after {:g} s; the drain stays in force (npuctl running tells who)\n", name,
        target.wait_s);
    return exit_failed;
  }
  return finished(session, done,
                  draining ? std::format("{} is drained; 'npuctl resume' opens it again", name)
                           : std::format("{} is open again", name));
}

}  // namespace

std::string health_name(v1::Health health) {
  switch (health) {
    case v1::HEALTH_OK:
      return "ok";
    case v1::HEALTH_DEGRADED:
      return "degraded";
    case v1::HEALTH_DEAD:
      return "dead";
    default:
      return "unknown";
  }
}

std::string residency_name(v1::Residency residency) {
  switch (residency) {
    case v1::RESIDENCY_COLD:
      return "cold";
    case v1::RESIDENCY_COMING:
      return "coming";
    case v1::RESIDENCY_RESIDENT:
      return "resident";
    case v1::RESIDENCY_LEAVING:
      return "leaving";
    default:
      return "unknown";
  }
}

void add_control_commands(CLI::App& app, Session& session) {
  auto simple = [&](const char* name, const char* what, auto ask, auto show) {
    app.add_subcommand(name, what)->callback([&session, ask, show] {
      session.run = [&session, ask, show] { return ask_and_show(session, ask, show); };
    });
  };
  simple(
      "status", "Show the daemon's own state, and who it thinks you are", [](const Control& c) { return c.status(); },
      show_status);
  simple(
      "devices", "List the devices: slots, memory, health, switches", [](const Control& c) { return c.devices(); },
      show_devices);
  simple(
      "programs", "List what is resident on the devices, and what is cold",
      [](const Control& c) { return c.programs(); }, show_programs);
  simple(
      "tenants", "List the tenants: weights, caps, shares, latencies", [](const Control& c) { return c.tenants(); },
      show_tenants);
  simple(
      "running", "Show who runs what, who waits, and the models' queues", [](const Control& c) { return c.running(); },
      show_running);

  struct Args {
    std::string model, version;
    Target target;
  };
  auto args = std::make_shared<Args>();
  auto* explain = app.add_subcommand("explain", "Show where each node of a model runs, and why");
  explain->add_option("model", args->model, "Its name")->required();
  explain->add_option("--model-version", args->version, "Its version (by the model's version policy)");
  explain->callback([&session, args] {
    session.run = [&session, args] {
      return ask_and_show(
          session, [&](const Control& c) { return c.explain(args->model, args->version); }, show_explanation);
    };
  });

  for (bool draining : {true, false}) {
    auto* command = app.add_subcommand(
        draining ? "drain" : "resume",
        draining ? "Let a device or a model finish and take nothing new" : "Open a drained device or model");
    auto* group = command->add_option_group("target");
    group->add_option("--device", args->target.device, "Its name");
    group->add_option("--model", args->target.model, "Its name");
    group->require_option(1);
    if (draining) {
      command->add_option("--wait", args->target.wait_s, "Seconds to wait for what runs (60)")
          ->check(CLI::Range(0.01, 86400.0))
          ->type_name("SECONDS");
    }
    command->callback([&session, args, draining] {
      session.run = [&session, args, draining] { return drain_or_resume(session, args->target, draining); };
    });
  }
  auto* reset = app.add_subcommand("reset", "Evict everything from a drained device and reset it");
  reset->add_option("device", args->target.device, "Its name")->required();
  reset->callback([&session, args] {
    session.run = [&session, args] {
      auto ask = [&](const Control& c) { return c.reset_device(args->target.device, std::chrono::seconds(60)); };
      return ask_and_show(session, ask, [&](const v1::ResetDeviceResponse& answer) {
        std::cout << std::format("{} was reset, {} programs evicted; 'npuctl resume --device {}' opens it again\n",
                                 printable(args->target.device), answer.evicted(), printable(args->target.device));
      });
    };
  });
}

}  // namespace npud::ctl
