// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

#include "core/events.h"
#include "core/tenants.h"

namespace npud {

// Writes core's events to the log, from a thread of its own. Bus and tenants must outlive it.
class EventLog {
 public:
  EventLog(EventBus& events, const TenantTable& tenants);

 private:
  void write(const Event& event) const;
  const TenantTable& tenants_;
  std::unique_ptr<EventBus::Subscription> subscription_;
  std::jthread thread_;  // last: ends before what it uses
};

}  // namespace npud
