// SPDX-License-Identifier: Apache-2.0
#include "service/npu.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <format>

#include "devices/rknpu/driver/drm_port.h"
#include "engine/offload_cache.h"
#include "service/log.h"

namespace npud {
namespace {

constexpr std::uint32_t most_programs = 1024;  // the hardware has no slots; bytes are what is scarce

// Weights live in this machine's memory: the address spaces are larger than many boards' RAM.
std::uint64_t aperture_bytes(const RknpuDeviceConfig& config, const rknpu::PortInfo& port) {
  if (config.aperture_bytes > 0) {
    return config.aperture_bytes;
  }
  const std::uint64_t ram =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::min(port.spaces * (port.space_bytes / 4 * 3), ram / 2);
}

// Null where none is wanted, or none can be had: that costs time at load and nothing else.
std::shared_ptr<OffloadCache> open_cache(const RknpuDeviceConfig& config, std::vector<std::string>& notes) {
  std::filesystem::path directory = config.cache;
  if (const char* cache = std::getenv("CACHE_DIRECTORY"); cache != nullptr && directory.empty()) {
    directory = std::filesystem::path(cache) / "packed";
  }
  if (directory.empty() || config.cache_bytes == 0) {
    return nullptr;
  }
  auto opened = OffloadCache::open(directory, config.cache_bytes);
  if (!opened) {
    notes.push_back(std::format("packed models aren't kept: {}", opened.error().message));
    return nullptr;
  }
  return std::move(*opened);
}

rknpu::Verify verify_from_name(const std::string& name) {
  return name == "always" ? rknpu::Verify::always : name == "off" ? rknpu::Verify::off : rknpu::Verify::sampled;
}

}  // namespace

Result<std::unique_ptr<Npu>> open_npu(const RknpuDeviceConfig& config, Clock& clock, const TenantTable& tenants,
                                      EventBus& events, std::vector<std::string>& notes) {
  if (config.enable == "off") {
    return nullptr;
  }
  std::string node = config.node;
  if (node.empty()) {
    const auto nodes = rknpu::find_nodes();
    if (nodes.empty()) {
      const std::string why =
          "no render node in /dev/dri belongs to a driver named rknpu; load npud_rknpu, and let npud open the node";
      if (config.enable == "on") {
        return fail(ErrorCode::not_found, std::format("devices.rknpu.enable is \"on\", but {}", why));
      }
      notes.push_back(std::format("there is no NPU: {}", why));
      return nullptr;
    }
    node = nodes.front();
  }
  auto port = rknpu::open_drm_port(node);
  if (!port) {
    if (config.enable == "on") {
      return fail(port.error().code, std::format("devices.rknpu: {}", port.error().message));
    }
    notes.push_back(std::format("the NPU isn't used: {}", port.error().message));
    return nullptr;
  }
  const rknpu::PortInfo info = (*port)->info();
  auto device = rknpu::RknpuDevice::open(std::move(*port),
                                         {.timeout = config.timeout, .verify = verify_from_name(config.verify)}, clock);
  if (!device) {
    if (config.enable == "on") {
      return fail(device.error().code, std::format("devices.rknpu: {}", device.error().message));
    }
    notes.push_back(std::format("the NPU isn't used: {}", device.error().message));
    return nullptr;
  }
  auto npu = std::make_unique<Npu>();
  npu->device = std::move(*device);
  npu->arbiter = std::make_unique<DeviceArbiter>(DeviceArbiterSettings{.device = npu->device->info().name,
                                                                       .cores = std::max(1u, info.cores),
                                                                       .slots = most_programs,
                                                                       .aperture_bytes = aperture_bytes(config, info),
                                                                       .fairness = {}},
                                                 clock, tenants, events);
  npu->target = std::make_unique<NpuTarget>(*npu->device, *npu->arbiter, clock, events,
                                            NpuTargetSettings{.host_fallback = config.host_fallback,
                                                              .first_backoff = config.rearm,
                                                              .most_backoff = std::max(config.rearm, config.rearm_most),
                                                              .cache = open_cache(config, notes),
                                                              .notice = [](const std::string& text) {
                                                                log_line(LogLevel::warning, message_id::library, text);
                                                              }});
  return npu;
}

}  // namespace npud
