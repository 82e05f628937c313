// SPDX-License-Identifier: Apache-2.0
// Rockchip's runtime as a device: what `npuctl doctor` says of it. The hardware below is the rknpu device's where npud
// has that open, too; then both share one arbiter (service/rknn.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "devices/device.h"
#include "devices/rknn/context.h"
#include "devices/rknn/library.h"

namespace npud::rknn {

struct RknnDeviceOptions {
  std::string name = "rknn0";
  std::uint32_t cores = 3;
  std::uint32_t slots = 1024;
  std::uint64_t aperture_bytes = 0;
  Duration open_timeout{std::chrono::seconds(60)}, run_timeout{std::chrono::seconds(10)};  // of one call of the runtime
};

// Thread-safe.
class RknnDevice final : public Device {
 public:
  RknnDevice(std::shared_ptr<Library> library, RknnDeviceOptions options);
  DeviceInfo info() const override;

  const std::string& name() const { return options_.name; }
  std::uint32_t cores() const { return options_.cores; }
  const std::shared_ptr<Library>& library() const { return library_; }
  ContextOptions context_options(const std::string& program) const;

 private:
  const std::shared_ptr<Library> library_;
  const RknnDeviceOptions options_;
  const std::shared_ptr<CondemnedContexts> condemned_;
};

}  // namespace npud::rknn
