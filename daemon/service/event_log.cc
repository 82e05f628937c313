// SPDX-License-Identifier: Apache-2.0
#include "service/event_log.h"

#include <format>

#include "service/log.h"

namespace npud {

EventLog::EventLog(EventBus& events, const TenantTable& tenants)
    : tenants_(tenants), subscription_(events.subscribe()) {
  thread_ = std::jthread([this](std::stop_token stop) {
    while (auto event = subscription_->next(stop)) {
      write(*event);
    }
  });
}

void EventLog::write(const Event& e) const {
  const std::string because = e.message.empty() ? "." : std::format(": {}", e.message);
  switch (e.kind) {
    case EventKind::loaded:
      log_line(LogLevel::info, message_id::model_event, std::format("Model {} version {} serves.", e.model, e.version),
               {{"MODEL", e.model}, {"VERSION", std::to_string(e.version)}});
      return;
    case EventKind::unloaded:
      log_line(LogLevel::info, message_id::model_event,
               std::format("Model {} version {} no longer serves.", e.model, e.version),
               {{"MODEL", e.model}, {"VERSION", std::to_string(e.version)}});
      return;
    case EventKind::load_failed:
      log_line(LogLevel::error, message_id::model_failed,
               std::format("Model {} version {} can't be loaded{}", e.model, e.version, because),
               {{"MODEL", e.model}, {"VERSION", std::to_string(e.version)}});
      return;
    case EventKind::evicted:
      log_line(LogLevel::debug, message_id::device_event,
               std::format("Program {} left device {}.", e.program, e.device),
               {{"DEVICE", e.device}, {"PROGRAM", e.program}, {"BYTES", std::to_string(e.bytes)}});
      return;
    case EventKind::brought_in:
      log_line(LogLevel::debug, message_id::device_event,
               std::format("Program {} was brought to device {}.", e.program, e.device),
               {{"DEVICE", e.device},
                {"PROGRAM", e.program},
                {"BYTES", std::to_string(e.bytes)},
                {"TOOK_US", std::to_string(e.took.count())}});
      return;
    case EventKind::device_health:
      log_line(e.message == "ok" ? LogLevel::notice : LogLevel::error, message_id::device_event,
               std::format("Device {} changed its health{}", e.device, because), {{"DEVICE", e.device}});
      return;
    case EventKind::tenant_throttled:
      log_line(LogLevel::notice, message_id::tenant_event,
               std::format("{} requests of tenant {} were refused for its caps{}", e.count,
                           e.tenant ? tenants_.name(*e.tenant) : "?", because),
               {{"TENANT", e.tenant ? tenants_.name(*e.tenant) : ""}, {"COUNT", std::to_string(e.count)}});
      return;
    case EventKind::fault:
      log_line(LogLevel::error, message_id::device_event, std::format("A job failed on device {}{}", e.device, because),
               {{"DEVICE", e.device}, {"PROGRAM", e.program}});
      return;
    case EventKind::drained:
    case EventKind::resumed:
      log_line(LogLevel::notice, message_id::device_event,
               std::format("{} {} was {}.", e.device.empty() ? "Model" : "Device",
                           e.device.empty() ? e.model : e.device, e.kind == EventKind::drained ? "drained" : "resumed"),
               {{"DEVICE", e.device}, {"MODEL", e.model}});
      return;
    case EventKind::missed:
      log_line(LogLevel::warning, message_id::none,
               std::format("The log missed {} events: they came faster than it writes.", e.count));
      return;
  }
}

}  // namespace npud
