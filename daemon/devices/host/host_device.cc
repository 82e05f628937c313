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

}  // namespace npud
