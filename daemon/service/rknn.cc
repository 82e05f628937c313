// SPDX-License-Identifier: Apache-2.0
#include "service/rknn.h"

#include <unistd.h>

#include <format>

namespace npud {

std::vector<std::string> Rknn::notes() const {
  if (!device) return {std::format("compiled .rknn models can't be served: {}", why_not.message)};
  if (own_arbiter) return {};
  const DeviceInfo info = device->info();
  std::vector<std::string> notes{std::format("compiled .rknn models run on {} through {}", info.name, info.driver)};
  if (info.health != DeviceHealth::ok) notes.push_back(info.health_reason);
  notes.insert(notes.end(), info.notes.begin(), info.notes.end());
  return notes;
}

Result<Rknn> open_rknn(const RknnDeviceConfig& config, const Npu* npu, Clock& clock, const TenantTable& tenants,
                       EventBus& events) {
  Rknn rknn;
  if (config.enable == "off") {
    rknn.why_not = {ErrorCode::failed_precondition, "devices.rknn.enable is \"off\"", {}, {}, {}};
    return rknn;
  }
  auto library = rknn::Library::open(config.library);
  if (!library) {
    if (config.enable == "on")
      return fail(library.error().code, std::format("devices.rknn: {}", library.error().message));
    rknn.why_not = library.error();
    rknn.why_not.code = ErrorCode::failed_precondition;
    return rknn;
  }
  rknn::RknnDeviceOptions options{.cores = config.cores,
                                  .open_timeout = std::chrono::duration_cast<Duration>(config.load_timeout),
                                  .run_timeout = std::chrono::duration_cast<Duration>(config.timeout)};
  if (npu != nullptr) {
    const DeviceInfo info = npu->device->info();
    options.name = info.name;
    options.cores = info.cores;
    rknn.arbiter = npu->arbiter.get();
  } else {
    const std::uint64_t ram =
        static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    options.aperture_bytes = config.aperture_bytes > 0 ? config.aperture_bytes : ram / 2;
    rknn.own_arbiter = std::make_unique<DeviceArbiter>(DeviceArbiterSettings{.device = options.name,
                                                                             .cores = options.cores,
                                                                             .slots = options.slots,
                                                                             .aperture_bytes = options.aperture_bytes,
                                                                             .fairness = {}},
                                                       clock, tenants, events);
    rknn.arbiter = rknn.own_arbiter.get();
  }
  rknn.device = std::make_unique<rknn::RknnDevice>(std::move(*library), options);
  return rknn;
}

}  // namespace npud
