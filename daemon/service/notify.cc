// SPDX-License-Identifier: Apache-2.0
#include "service/notify.h"

#include <systemd/sd-daemon.h>

#include <cstdint>
#include <format>

namespace npud {

void notify_ready(const std::string& status) { ::sd_notify(0, std::format("READY=1\nSTATUS={}", status).c_str()); }

void notify_reloading() {
  const auto now =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch());
  ::sd_notify(0, std::format("RELOADING=1\nMONOTONIC_USEC={}", now.count()).c_str());
}

void notify_stopping(const std::string& status) {
  ::sd_notify(0, std::format("STOPPING=1\nSTATUS={}", status).c_str());
}

void notify_status(const std::string& status) { ::sd_notify(0, std::format("STATUS={}", status).c_str()); }

void notify_watchdog() { ::sd_notify(0, "WATCHDOG=1"); }

void notify_extend_timeout(std::chrono::microseconds by) {
  ::sd_notify(0, std::format("EXTEND_TIMEOUT_USEC={}", by.count()).c_str());
}

std::chrono::microseconds watchdog_interval() {
  std::uint64_t usec = 0;
  if (::sd_watchdog_enabled(0, &usec) <= 0) {
    return std::chrono::microseconds(0);
  }
  return std::chrono::microseconds(usec / 2);
}

}  // namespace npud
