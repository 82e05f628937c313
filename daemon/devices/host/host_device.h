// SPDX-License-Identifier: Apache-2.0
// The host's CPU as a device: always there, with as many slots, cores and bytes as the configuration gives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "devices/device.h"

namespace npud {

struct HostDeviceOptions {
  std::string name = "host";
  std::uint32_t slots = 16;                   // sessions resident at once
  std::uint64_t aperture_bytes = 2ull << 30;  // for weights and activations of all resident sessions
  std::uint32_t cores = 1;                    // jobs at once
  std::string driver;                         // what runs there: "ONNX Runtime 1.21.0"
};

// Thread-safe. Holds no memory itself: sessions tell it what they take, so that info() can say it.
class HostDevice final : public Device {
 public:
  explicit HostDevice(HostDeviceOptions options) : options_(std::move(options)) {}

  DeviceInfo info() const override;
  const std::string& name() const { return options_.name; }
  std::uint64_t aperture_bytes() const { return options_.aperture_bytes; }
  std::uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

  void take(std::uint64_t bytes) { used_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void give_back(std::uint64_t bytes) { used_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  const HostDeviceOptions options_;
  std::atomic<std::uint64_t> used_bytes_{0};
};

}  // namespace npud
