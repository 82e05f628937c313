// SPDX-License-Identifier: Apache-2.0
#include "devices/rknn/rknn_device.h"

#include <format>

namespace npud::rknn {

RknnDevice::RknnDevice(std::shared_ptr<Library> library, RknnDeviceOptions options)
    : library_(std::move(library)), options_(std::move(options)), condemned_(std::make_shared<CondemnedContexts>()) {}

DeviceInfo RknnDevice::info() const {
  DeviceInfo info;
  info.name = options_.name;
  info.kind = "rknn";
  info.driver = std::format("{} ({})", library_->versions(), library_->path());
  info.cores = options_.cores;
  info.slots = options_.slots;
  info.apertures.push_back({"the runtime's memory", options_.aperture_bytes, 0});
  std::uint64_t bytes = 0;
  const auto condemned = condemned_->all();
  for (const auto& entry : condemned) {
    bytes += entry.bytes;
    info.notes.push_back(entry.what);
  }
  if (!condemned.empty()) {
    info.health = DeviceHealth::degraded;
    info.health_reason = std::format(
        "{} contexts with {} bytes wait for a call of the runtime that doesn't return; unload their models, or restart "
        "npud",
        condemned.size(), bytes);
  }
  if (library_->set_core_mask == nullptr && options_.cores > 1)
    info.notes.push_back("the runtime has no rknn_set_core_mask: it chooses the core of each run itself");
  return info;
}

ContextOptions RknnDevice::context_options(const std::string& program) const {
  return {.name = program,
          .open_timeout = options_.open_timeout,
          .run_timeout = options_.run_timeout,
          .condemned = condemned_};
}

}  // namespace npud::rknn
