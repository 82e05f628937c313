// SPDX-License-Identifier: Apache-2.0
#include "devices/host/host_device.h"

namespace npud {

DeviceInfo HostDevice::info() const {
  DeviceInfo info;
  info.name = options_.name;
  info.kind = "host";
  info.driver = options_.driver;
  info.cores = options_.cores;
  info.slots = options_.slots;
  info.apertures.push_back({"host memory", options_.aperture_bytes, used_bytes()});
  return info;
}

void HostDevice::attach(Reserve& reserve) {
  const std::scoped_lock lock(mutex_);
  reserves_.push_back(&reserve);
}

void HostDevice::detach(Reserve& reserve) {
  const std::scoped_lock lock(mutex_);
  std::erase(reserves_, &reserve);
}

void HostDevice::let_reserves_go() {
  const std::scoped_lock lock(mutex_);
  for (Reserve* reserve : reserves_) reserve->let_go();
}

}  // namespace npud
