// SPDX-License-Identifier: Apache-2.0
// The NPU of this machine as the daemon has it: its device, its arbiter, and what models are told of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/device_arbiter.h"
#include "devices/rknpu/device.h"
#include "engine/npu_target.h"
#include "service/config.h"

namespace npud {

// In the order in which it is made; models must be gone before it.
struct Npu {
  std::unique_ptr<rknpu::RknpuDevice> device;
  std::unique_ptr<DeviceArbiter> arbiter;
  std::unique_ptr<NpuTarget> target;
};

// Null when the configuration says off, or "auto" and there is none that can be used; `notes` then says why. Fails when
// it must be there and isn't.
Result<std::unique_ptr<Npu>> open_npu(const RknpuDeviceConfig& config, Clock& clock, const TenantTable& tenants,
                                      EventBus& events, std::vector<std::string>& notes);

}  // namespace npud
