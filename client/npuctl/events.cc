// SPDX-License-Identifier: Apache-2.0
// npuctl events: what happens, as it happens.
#include <algorithm>
#include <format>
#include <iostream>
#include <memory>

#include "commands.h"
#include "names.h"
#include "output.h"

namespace npud::ctl {
namespace {

std::string sentence(const v1::Event& event) {
  std::string what = event.message();
  if (what.empty()) {
    what = !event.program().empty() ? event.program()
           : !event.model().empty() ? std::format("{} version {}", event.model(), event.version())
                                    : event.device();
  }
  if (event.kind() == v1::EVENT_MISSED)
    what = std::format("{} events were missed: this reader is too slow", event.count());
  std::string text = std::format("{:<16} {}", event_name(event.kind()), printable(what));
  if (event.took_us() > 0) text += std::format(" (took {})", human_us(event.took_us()));
  return text;
}

int events(const Session& session, std::uint64_t most) {
  auto client = session.open();
  if (!client) return report(client.error());
  std::uint64_t seen = 0;
  auto done = client::Control(*client).watch_events([&](const v1::Event& event) {
    std::cout << (session.json ? json_line_of(event) : sentence(event)) << std::endl;
    return static_cast<bool>(std::cout) && (most == 0 || event.kind() == v1::EVENT_CAUGHT_UP || ++seen < most);
  });
  return done ? exit_ok : report(done.error());
}

}  // namespace

std::string event_name(v1::EventKind kind) {
  std::string name = v1::EventKind_Name(kind);
  if (name.starts_with("EVENT_")) name.erase(0, 6);
  std::ranges::transform(name, name.begin(), [](char c) { return c == '_' ? '-' : static_cast<char>(c | 0x20); });
  return name;
}

void add_events_command(CLI::App& app, Session& session) {
  auto most = std::make_shared<std::uint64_t>(0);
  auto* command = app.add_subcommand("events", "Print what happens (loads, evictions, faults) until interrupted");
  command->add_option("-n,--count", *most, "Stop after as many");
  command->callback([&session, most] { session.run = [&session, most] { return events(session, *most); }; });
}

}  // namespace npud::ctl
