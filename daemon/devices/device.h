// SPDX-License-Identifier: Apache-2.0
// One NPU, or the host CPU: what the engine asks of it. Values and descriptors (fd, offset, length) only, never
// callbacks or borrowed pointers, so that a device's code can later live in a process of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/program.h"

namespace npud {

struct ApertureInfo {
  std::string name;  // "host memory", "space 0"
  std::uint64_t limit_bytes = 0;
  std::uint64_t used_bytes = 0;
};

enum class DeviceHealth : std::uint8_t { ok, degraded, dead };

struct DeviceInfo {
  std::string name;         // "host", "rknpu0"
  std::string kind;         // "host", "rknpu", "rknn", "xrt"
  std::string driver;       // name and version, as found
  std::uint32_t cores = 1;  // jobs that can run at once
  std::uint32_t slots = 0;  // resident programs at once
  std::vector<ApertureInfo> apertures;
  bool counts_apertures = false;  // its used_bytes are what is there; else residency's account of the first holds
  DeviceHealth health = DeviceHealth::ok;
  std::string health_reason;       // why not ok, and what to do
  std::vector<std::string> notes;  // what `npuctl doctor` shows: missing isolation, old driver, …
};

// Thread-safe. What a device can run beyond this is its own header's matter (devices/host/, devices/rknpu/, …); the
// engine that makes programs for a device knows its kind.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;
};

}  // namespace npud
