// SPDX-License-Identifier: Apache-2.0
// Rockchip's runtime as the daemon has it, for compiled .rknn models.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/device_arbiter.h"
#include "devices/rknn/rknn_device.h"
#include "service/config.h"
#include "service/npu.h"

namespace npud {

// In the order in which it is made; models must be gone before it.
struct Rknn {
  std::unique_ptr<rknn::RknnDevice> device;    // null: not here, for `why_not`
  std::unique_ptr<DeviceArbiter> own_arbiter;  // null where the rknpu device's is shared: the hardware is the same
  DeviceArbiter* arbiter = nullptr;
  Error why_not;

  // What is worth telling where the device isn't listed by itself.
  std::vector<std::string> notes() const;
};

// `npu` may be null. Fails when the configuration says "on" and the runtime can't be had.
Result<Rknn> open_rknn(const RknnDeviceConfig& config, const Npu* npu, Clock& clock, const TenantTable& tenants,
                       EventBus& events);

}  // namespace npud
