// SPDX-License-Identifier: Apache-2.0
// npuctl top: devices, tenants and models, live.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <format>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

#include "commands.h"
#include "inference/grpc_service.pb.h"
#include "names.h"
#include "output.h"

namespace npud::ctl {
namespace {

using Clock = std::chrono::steady_clock;

// One look at everything; counters become rates by comparing two.
struct Picture {
  Clock::time_point when;
  v1::StatusResponse status;
  v1::ListDevicesResponse devices;
  v1::ListTenantsResponse tenants;
  v1::ListRunningResponse running;
  inference::ModelStatisticsResponse models;
};

client::Result<Picture> look(const client::Client& client) {
  client::Control control(client);
  Picture picture{Clock::now(), {}, {}, {}, {}, {}};
  auto take = [](auto answer, auto& to) -> client::Result<> {
    if (!answer) return std::unexpected(answer.error());
    to = *std::move(answer);
    return {};
  };
  if (auto got = take(control.status(), picture.status); !got) return std::unexpected(got.error());
  if (auto got = take(control.devices(), picture.devices); !got) return std::unexpected(got.error());
  if (auto got = take(control.tenants(), picture.tenants); !got) return std::unexpected(got.error());
  if (auto got = take(control.running(), picture.running); !got) return std::unexpected(got.error());
  if (auto got = take(client.model_statistics(), picture.models); !got) return std::unexpected(got.error());
  return picture;
}

std::string bar(double share, std::size_t width) {
  const auto full = static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(width)));
  std::string text = "[";
  for (std::size_t i = 0; i < width; ++i) text += i < full ? "|" : " ";
  return text + "]";
}

std::string rate(std::uint64_t now, std::uint64_t before, double seconds) {
  if (seconds <= 0 || now < before) return "";
  return std::format("{:.1f}", static_cast<double>(now - before) / seconds);
}

// `before` is an older look at the same daemon.
std::string draw(const Picture& now, const Picture& before) {
  double seconds = std::chrono::duration<double>(now.when - before.when).count();
  const auto& s = now.status;
  std::string out = std::format("npud {}  up {}  {} in flight, {} queued  {} connections  memory {}{}\n\n",
                                printable(s.version()), human_us(s.uptime_us()), s.requests_in_flight(),
                                s.requests_queued(), s.connections(), human_bytes(s.resident_bytes()),
                                s.draining() ? "  DRAINING"
                                : s.ready()  ? ""
                                             : "  NOT READY");
  Table devices({"DEVICE", "HEALTH", "BUSY", "", ">SLOTS", "MEMORY", ">WAITING", ">JOBS/S", ">IN/S", ">OUT/S"});
  for (const auto& d : now.devices.devices()) {
    const v1::Device* old = nullptr;
    for (const auto& candidate : before.devices.devices()) {
      if (candidate.name() == d.name()) old = &candidate;
    }
    double busy = 0;
    if (old != nullptr && seconds > 0 && d.cores() > 0) {
      busy = static_cast<double>(d.busy_us() + d.switch_us() - old->busy_us() - old->switch_us()) / 1e6 / seconds /
             d.cores();
    }
    std::string memory;
    for (const auto& a : d.apertures())
      memory +=
          std::format("{}{}/{}", memory.empty() ? "" : " ", human_bytes(a.used_bytes()), human_bytes(a.limit_bytes()));
    devices.add({d.name(), health_name(d.health()) + (d.draining() ? ", drained" : ""), bar(busy, 20),
                 human_share(std::clamp(busy, 0.0, 1.0)), std::format("{}/{}", d.slots_used(), d.slots()), memory,
                 std::to_string(d.jobs_waiting()), old == nullptr ? "" : rate(d.jobs_done(), old->jobs_done(), seconds),
                 old == nullptr ? "" : rate(d.brought_in(), old->brought_in(), seconds),
                 old == nullptr ? "" : rate(d.evicted(), old->evicted(), seconds)});
  }
  out += devices.text() + '\n';

  Table tenants({"TENANT", ">WEIGHT", ">REQ/S", ">IN FLIGHT", ">DEVICE", ">P50", ">P99", ">FAILED", ">REFUSED"});
  for (const auto& t : now.tenants.tenants()) {
    const v1::Tenant* old = nullptr;
    for (const auto& candidate : before.tenants.tenants()) {
      if (candidate.tenant().id() == t.tenant().id()) old = &candidate;
    }
    std::uint64_t charged = old == nullptr || t.device_us() < old->device_us() ? 0 : t.device_us() - old->device_us();
    tenants.add({t.tenant().name(), std::format("{:g}", t.weight()),
                 old == nullptr ? "" : rate(t.succeeded(), old->succeeded(), seconds), std::to_string(t.in_flight()),
                 seconds > 0 ? human_share(static_cast<double>(charged) / 1e6 / seconds) : "",
                 human_us(t.latency_p50_us()), human_us(t.latency_p99_us()), std::to_string(t.failed()),
                 std::to_string(t.rejected())});
  }
  out += tenants.text() + '\n';

  std::map<std::pair<std::string, std::string>, const v1::ModelQueue*> queues;
  for (const auto& q : now.running.queues()) queues[{q.model(), std::to_string(q.version())}] = &q;
  Table models({"MODEL", ">VERSION", ">REQ/S", ">MEAN", ">QUEUED", ">RUNNING", ">FAILED"});
  for (const auto& m : now.models.model_stats()) {
    const inference::ModelStatistics* old = nullptr;
    for (const auto& candidate : before.models.model_stats()) {
      if (candidate.name() == m.name() && candidate.version() == m.version()) old = &candidate;
    }
    const auto& success = m.inference_stats().success();
    std::uint64_t count = success.count(), ns = success.ns();
    if (old != nullptr && count > old->inference_stats().success().count()) {  // of the interval, where there was any
      count -= old->inference_stats().success().count();
      ns -= old->inference_stats().success().ns();
    }
    auto queue = queues.find({m.name(), m.version()});
    models.add({m.name(), m.version(),
                old == nullptr ? "" : rate(success.count(), old->inference_stats().success().count(), seconds),
                count > 0 ? human_us(ns / count / 1000) : "",
                queue == queues.end() ? "" : std::to_string(queue->second->queued()),
                queue == queues.end() ? "" : std::to_string(queue->second->running()),
                std::to_string(m.inference_stats().fail().count())});
  }
  return out + models.text();
}

// At most the terminal's lines and columns, so that redrawing never scrolls.
std::string fit(const std::string& text) {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2 || size.ws_col < 10) return text;
  std::string out;
  std::size_t rows = 0, begin = 0;
  while (begin < text.size() && rows + 1 < size.ws_row) {
    std::size_t end = std::min(text.find('\n', begin), text.size());
    out += text.substr(begin, std::min<std::size_t>(end - begin, size.ws_col)) + "\x1b[K\n";
    begin = end + 1;
    ++rows;
  }
  return out;
}

struct Args {
  bool once = false;
  double interval_s = 1;
};

int top(const Session& session, const Args& args) {
  auto client = session.open();
  if (!client) return report(client.error());
  auto before = look(*client);
  if (!before) return report(before.error());
  if (session.json) {
    std::cout << std::format("{{\"status\": {}, \"devices\": {}, \"tenants\": {}, \"running\": {}, \"models\": {}}}\n",
                             json_line_of(before->status), json_line_of(before->devices), json_line_of(before->tenants),
                             json_line_of(before->running), json_line_of(before->models));
    return exit_ok;
  }
  const bool live = !args.once && isatty(STDOUT_FILENO) != 0;
  catch_interrupts();
  if (live) std::cout << "\x1b[?1049h\x1b[?25l";  // alternate screen, no cursor
  int status = exit_ok;
  std::string trouble;
  while (interrupted == 0) {
    auto until = Clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(args.interval_s * 1e6));
    while (interrupted == 0 && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (interrupted != 0) break;
    auto now = look(*client);
    if (!now) {
      status = now.error().code == client::Code::unavailable ? exit_unreachable : exit_failed;
      trouble = client::to_string(now.error());
      break;
    }
    std::string text = draw(*now, *before);
    if (live) {
      std::cout << "\x1b[H" << fit(text) << "\x1b[J" << std::flush;
    } else {
      std::cout << text << std::flush;
      break;
    }
    before = std::move(now);
  }
  if (live) std::cout << "\x1b[?25h\x1b[?1049l" << std::flush;
  if (!trouble.empty()) std::cerr << "npuctl: " << printable(trouble) << '\n';
  return status;
}

}  // namespace

void add_top_command(CLI::App& app, Session& session) {
  auto args = std::make_shared<Args>();
  auto* command =
      app.add_subcommand("top", "Show devices, tenants and models live (once, where the output is no terminal)");
  command->add_flag("--once", args->once, "Print once, over one interval, and end");
  command->add_option("-d,--interval", args->interval_s, "Seconds between two looks (1)")
      ->check(CLI::Range(0.05, 3600.0))
      ->type_name("SECONDS");
  command->callback([&session, args] { session.run = [&session, args] { return top(session, *args); }; });
}

}  // namespace npud::ctl
