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

// Counts bytes before they are allocated; they are given back with the last reference to what this returns.
Result<std::shared_ptr<void>> SharedMemory::count(const api::RegionOwner& owner, std::uint64_t size_bytes) const {
  const std::uint64_t most = config_.max_in_flight_bytes;
  if (size_bytes > most / 2) {
    return fail(ErrorCode::invalid_argument,
                std::format("{} bytes from shared memory: one user may have {} in flight, half of "
                            "shared_memory.max_in_flight_bytes: send less at once, or have it raised",
                            size_bytes, most / 2));
  }
  if (size_bytes == 0) {
    return std::shared_ptr<void>();
  }
  std::unique_lock lock(copies_->mutex);
  const auto held = copies_->bytes.find(owner);
  const std::uint64_t own_bytes = held == copies_->bytes.end() ? 0 : held->second;
  // What it may still take, so that it holds no more than it leaves free.
  const std::uint64_t free_bytes = most - copies_->total_bytes;
  const std::uint64_t left_bytes = free_bytes > own_bytes ? (free_bytes - own_bytes) / 2 : 0;
  if (size_bytes > left_bytes) {
    Error error{ErrorCode::resource_exhausted,
                std::format("this user's inputs from shared memory in flight would exceed what they leave free of {} "
                            "bytes (shared_memory.max_in_flight_bytes); retry later",
                            most),
                std::chrono::milliseconds(20),
                size_bytes,
                {}};
    error.bytes_free = left_bytes;
    return std::unexpected(error);
  }
  copies_->bytes[owner] += size_bytes;
  copies_->total_bytes += size_bytes;
  lock.unlock();
  return std::shared_ptr<void>(nullptr, [copies = copies_, owner, size_bytes](void*) {
    const std::lock_guard lock(copies->mutex);
    copies->total_bytes -= size_bytes;
    const auto own = copies->bytes.find(owner);
    own->second -= size_bytes;
    if (own->second == 0) {
      copies->bytes.erase(own);
    }
  });
}

std::uint64_t SharedMemory::bytes_in_flight() const {
  const std::lock_guard lock(copies_->mutex);
  return copies_->total_bytes;
}

Result<Buffer> SharedMemory::read(const api::RegionOwner& owner, const api::RegionPart& part) {
  auto region = find(owner, part);
  if (!region) {
    return std::unexpected(region.error());
  }
  if (auto checked = check_size(**region, part); !checked) {
    return std::unexpected(checked.error());
  }
  auto counted = count(owner, part.size_bytes);
  if (!counted) {
    return std::unexpected(counted.error());
  }
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
  return Buffer(std::make_shared<Held>(std::move(memory), *std::move(counted)), bytes);
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
