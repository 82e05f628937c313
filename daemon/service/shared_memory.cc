// SPDX-License-Identifier: Apache-2.0
#include "service/shared_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <format>

#include "core/utf8.h"

namespace npud {
namespace {

constexpr std::size_t max_name_bytes = 255;

std::string shown(std::string_view name) {
  std::string out;
  for (unsigned char c : utf8_prefix(name, 64)) {
    out += c < 0x20 || c == 0x7f ? std::format("\\x{:02x}", c) : std::string(1, static_cast<char>(c));
  }
  return std::format("'{}'", out);
}

// "/name" or "name", as shm_open(3) takes it: one component.
Result<std::string> component_of(const std::string& key) {
  const std::string name = key.starts_with('/') ? key.substr(1) : key;
  if (name.empty() || name.size() > max_name_bytes || name == "." || name == ".." ||
      name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
    return fail(ErrorCode::invalid_argument,
                std::format("key {} is no name of a POSIX shared memory object: use \"/name\" without further slashes",
                            shown(key)));
  }
  return name;
}

}  // namespace

SharedMemory::SharedMemory(SharedMemoryConfig config, System& system, std::string directory)
    : config_(config), system_(system), directory_path_(std::move(directory)) {
  directory_.reset(::open(directory_path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

SharedMemory::~SharedMemory() = default;

Result<> SharedMemory::add(const api::RegionOwner& owner, std::uint32_t uid, const api::RegionInfo& info) {
  if (info.name.empty() || info.name.size() > max_name_bytes) {
    return fail(ErrorCode::invalid_argument, std::format("a region's name has 1 to {} bytes", max_name_bytes));
  }
  if (info.size_bytes == 0 || info.size_bytes > config_.max_region_bytes) {
    return fail(ErrorCode::invalid_argument,
                std::format("region {}: {} bytes: it may have 1 to {} (shared_memory.max_region_bytes)",
                            shown(info.name), info.size_bytes, config_.max_region_bytes));
  }
  if (info.offset_bytes > (1ull << 62)) {
    return fail(ErrorCode::invalid_argument,
                std::format("region {}: offset {} is too large", shown(info.name), info.offset_bytes));
  }
  auto component = component_of(info.key);
  if (!component) {
    return std::unexpected(component.error());
  }
  auto region = std::make_shared<Region>();
  region->info = info;
  const auto open = [&](int flags) {
    UniqueFd fd = system_.open_below(directory_.get(), *component, flags);
    const int error = fd ? 0 : errno;
    region->fd = std::move(fd);
    return error;
  };
  int error = open(O_RDWR);
  region->writable = error == 0;
  if (error == EACCES || error == EROFS) {
    error = open(O_RDONLY);  // good enough for inputs
  }
  if (error != 0) {
    if (error == EACCES) {
      return fail(
          ErrorCode::permission_denied,
          std::format(
              "key {}: npud may not open it: give its user or group access (fchmod to 0660 and the group of npud, or "
              "0666)",
              shown(info.key)));
    }
    return fail(error == ENOENT ? ErrorCode::not_found : ErrorCode::invalid_argument,
                std::format("key {}: can't open it in {}: {}", shown(info.key), directory_path_, errno_text(error)));
  }
  struct stat st{};
  if (system_.fstat(region->fd.get(), st) != 0) {
    return fail(ErrorCode::internal, std::format("key {}: {}", shown(info.key), errno_text(errno)));
  }
  // One answer for what belongs to another user and for what isn't shared memory: who asks may learn no more.
  if (!S_ISREG(st.st_mode) || st.st_uid != uid) {
    return fail(ErrorCode::permission_denied,
                std::format("key {}: it isn't a shared memory object of uid {}", shown(info.key), uid));
  }
  if (auto checked = check_size(*region, {info.name, 0, info.size_bytes}); !checked) {
    return checked;
  }
  const std::lock_guard lock(mutex_);
  auto& own = regions_[owner];
  if (own.contains(info.name)) {
    return fail(ErrorCode::already_exists,
                std::format("region {} is registered already: unregister it first", shown(info.name)));
  }
  if (own.size() >= config_.max_regions_per_tenant) {
    return fail(
        ErrorCode::resource_exhausted,
        std::format("{} regions are registered (shared_memory.max_regions_per_tenant): unregister one", own.size()));
  }
  own.emplace(info.name, std::move(region));
  return {};
}

void SharedMemory::remove(const api::RegionOwner& owner, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto own = regions_.find(owner);
  if (own == regions_.end()) {
    return;
  }
  if (!name.empty()) {
    own->second.erase(name);
  }
  if (name.empty() || own->second.empty()) {
    regions_.erase(own);
  }
}

Result<std::vector<api::RegionInfo>> SharedMemory::list(const api::RegionOwner& owner, const std::string& name) const {
  std::vector<api::RegionInfo> infos;
  const std::lock_guard lock(mutex_);
  const auto own = regions_.find(owner);
  if (own != regions_.end()) {
    for (const auto& [key, region] : own->second) {
      if (name.empty() || key == name) {
        infos.push_back(region->info);
      }
    }
  }
  if (infos.empty() && !name.empty()) {
    return fail(ErrorCode::not_found, std::format("region {} isn't registered by this user", shown(name)));
  }
  return infos;
}

Result<std::shared_ptr<const SharedMemory::Region>> SharedMemory::find(const api::RegionOwner& owner,
                                                                       const api::RegionPart& part) const {
  std::shared_ptr<const Region> region;
  {
    const std::lock_guard lock(mutex_);
    if (const auto own = regions_.find(owner); own != regions_.end()) {
      if (const auto found = own->second.find(part.region); found != own->second.end()) {
        region = found->second;
      }
    }
  }
  if (!region) {
    return fail(ErrorCode::not_found, std::format("region {} isn't registered by this user", shown(part.region)));
  }
  if (part.offset_bytes > region->info.size_bytes || part.size_bytes > region->info.size_bytes - part.offset_bytes) {
    return fail(ErrorCode::invalid_argument,
                std::format("offset {} and {} bytes lie outside of region {}, which has {} bytes", part.offset_bytes,
                            part.size_bytes, shown(part.region), region->info.size_bytes));
  }
  return region;
}

Result<> SharedMemory::check_size(const Region& region, const api::RegionPart& part) const {
  struct stat st{};
  if (system_.fstat(region.fd.get(), st) != 0) {
    return fail(ErrorCode::internal, std::format("region {}: {}", shown(part.region), errno_text(errno)));
  }
  const std::uint64_t end = region.info.offset_bytes + part.offset_bytes + part.size_bytes;
  if (static_cast<std::uint64_t>(st.st_size) < end) {
    return fail(ErrorCode::failed_precondition,
                std::format("region {}: its object has {} bytes and {} are needed: it is too short or was truncated",
                            shown(part.region), st.st_size, end));
  }
  return {};
}

Result<> SharedMemory::check(const api::RegionOwner& owner, const api::RegionPart& part) const {
  auto region = find(owner, part);
  if (!region) {
    return std::unexpected(region.error());
  }
  if (!(*region)->writable) {
    return fail(ErrorCode::permission_denied,
                std::format("region {}: npud may only read it; give it write access for outputs", shown(part.region)));
  }
  return check_size(**region, part);
}

Result<Buffer> SharedMemory::read(const api::RegionOwner& owner, const api::RegionPart& part) {
  auto region = find(owner, part);
  if (!region) {
    return std::unexpected(region.error());
  }
  if (auto checked = check_size(**region, part); !checked) {
    return std::unexpected(checked.error());
  }
  // Counted before it is allocated, given back with the last reference to the buffer.
  if (in_flight_bytes_->fetch_add(part.size_bytes) + part.size_bytes > config_.max_in_flight_bytes) {
    const std::uint64_t held = in_flight_bytes_->fetch_sub(part.size_bytes) - part.size_bytes;
    Error error{ErrorCode::resource_exhausted,
                std::format("inputs from shared memory in flight would exceed {} bytes "
                            "(shared_memory.max_in_flight_bytes); retry later",
                            config_.max_in_flight_bytes),
                std::chrono::milliseconds(20),
                part.size_bytes,
                {}};
    error.bytes_free = config_.max_in_flight_bytes - std::min(held, config_.max_in_flight_bytes);
    return std::unexpected(error);
  }
  const std::shared_ptr<void> counted(nullptr,
                                      [bytes = in_flight_bytes_, n = part.size_bytes](void*) { bytes->fetch_sub(n); });
  Buffer memory = Buffer::allocate(part.size_bytes);
  std::span<std::byte> left = memory.bytes();
  std::uint64_t offset_bytes = (*region)->info.offset_bytes + part.offset_bytes;
  while (!left.empty()) {
    const ssize_t n = system_.pread((*region)->fd.get(), left, offset_bytes);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return fail(ErrorCode::internal,
                  std::format("region {}: can't read it: {}", shown(part.region), errno_text(errno)));
    }
    if (n == 0) {
      return fail(ErrorCode::failed_precondition,
                  std::format("region {}: it was truncated while it was read", shown(part.region)));
    }
    left = left.subspan(static_cast<std::size_t>(n));
    offset_bytes += static_cast<std::uint64_t>(n);
  }
  struct Held {
    Buffer memory;
    std::shared_ptr<void> counted;
  };
  const std::span<std::byte> bytes = memory.bytes();
  return Buffer(std::make_shared<Held>(std::move(memory), counted), bytes);
}

Result<> SharedMemory::write(const api::RegionOwner& owner, const api::RegionPart& part,
                             std::span<const std::byte> data) {
  auto region = find(owner, part);
  if (!region) {
    return std::unexpected(region.error());
  }
  if (data.size() > part.size_bytes) {
    Error error{ErrorCode::invalid_argument,
                std::format("the output has {} bytes and its part of region {} has {}: make it larger", data.size(),
                            shown(part.region), part.size_bytes),
                {},
                data.size(),
                part.size_bytes};
    return std::unexpected(error);
  }
  // pwrite() would make a truncated file grow again: it is the client's own, but an error is the better answer.
  if (auto checked = check_size(**region, {part.region, part.offset_bytes, data.size()}); !checked) {
    return checked;
  }
  std::uint64_t offset_bytes = (*region)->info.offset_bytes + part.offset_bytes;
  while (!data.empty()) {
    const ssize_t n = system_.pwrite((*region)->fd.get(), data, offset_bytes);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return fail(ErrorCode::failed_precondition,
                  std::format("region {}: can't write it: {}", shown(part.region), errno_text(errno)));
    }
    data = data.subspan(static_cast<std::size_t>(n));
    offset_bytes += static_cast<std::uint64_t>(n);
  }
  return {};
}

std::uint64_t SharedMemory::region_count() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t count = 0;
  for (const auto& [owner, own] : regions_) {
    count += own.size();
  }
  return count;
}

}  // namespace npud
