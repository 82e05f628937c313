// SPDX-License-Identifier: Apache-2.0
// What systemd is told: sd_notify(3). Does nothing where nobody listens.
#pragma once

#include <chrono>
#include <string>

namespace npud {

void notify_ready(const std::string& status);
void notify_reloading();  // with the monotonic time that Type=notify-reload wants; READY follows
void notify_stopping(const std::string& status);
void notify_status(const std::string& status);
void notify_watchdog();
void notify_extend_timeout(std::chrono::microseconds by);  // while starting or stopping

// Half of WatchdogSec; zero: nobody watches.
std::chrono::microseconds watchdog_interval();

}  // namespace npud
