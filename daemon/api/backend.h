// SPDX-License-Identifier: Apache-2.0
// What the services answer from. Made by the daemon, outlives every server.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/blocking_pool.h"
#include "api/regions.h"
#include "core/clock.h"
#include "core/device_arbiter.h"
#include "core/events.h"
#include "core/server.h"
#include "core/tenants.h"
#include "devices/device.h"
#include "models/repository.h"

namespace npud::api {

struct DeviceHandle {
  Device* device = nullptr;
  DeviceArbiter* arbiter = nullptr;
  // For Control's ResetDevice, once it is drained; empty: this kind has nothing to reset but its programs.
  std::function<Result<>()> reset;
};

// What only the service layer knows.
struct DaemonFacts {
  std::uint32_t connections = 0;
  std::uint64_t resident_bytes = 0;  // the process's
  std::string configuration_path;
  std::vector<std::string> notes;
};

struct Backend {
  Clock& clock;
  Server& server;
  Repository& repository;
  TenantTable& tenants;
  EventBus& events;
  std::vector<DeviceHandle> devices;
  Regions* regions = nullptr;  // null: shared memory is off
  BlockingPool& blocking;      // for calls that wait
  std::function<DaemonFacts()> facts;
  std::function<bool()> ready;  // started, and not draining
  TimePoint started;
  std::uint32_t max_requests_per_stream = 16;
};

}  // namespace npud::api
