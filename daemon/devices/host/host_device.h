// SPDX-License-Identifier: Apache-2.0
// The host's CPU as a device: always there, with as many slots, cores and bytes as the configuration gives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "devices/device.h"

namespace npud {

struct HostDeviceOptions {
  std::string name = "host";
  std::uint32_t slots = 16;                   // sessions resident at once
  std::uint64_t aperture_bytes = 2ull << 30;  // for weights and activations of all resident sessions
  std::uint32_t cores = 1;                    // jobs at once
  std::string driver;                         // what runs there: "ONNX Runtime 1.21.0"
};

// Memory that is kept for the next run of somebody and that nobody uses now.
class Reserve {
 public:
  virtual void let_go() = 0;  // any thread

 protected:
  ~Reserve() = default;
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

  // A reserve is attached while it exists.
  void attach(Reserve& reserve);
  void detach(Reserve& reserve);
  void let_reserves_go();  // when nothing is in hand

 private:
  const HostDeviceOptions options_;
  std::atomic<std::uint64_t> used_bytes_{0};
  std::mutex mutex_;
  std::vector<Reserve*> reserves_;
};

}  // namespace npud
