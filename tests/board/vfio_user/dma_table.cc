// SPDX-License-Identifier: Apache-2.0
#include "dma_table.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <format>
#include <mutex>

#include "protocol.h"

namespace npud::vfio_user {

struct DmaTable::Mapping {
  uint64_t iova = 0;
  uint64_t size_bytes = 0;
  uint32_t rights = 0;        // kDmaMapRead | kDmaMapWrite; 0 without memory behind it
  std::byte* host = nullptr;  // size_bytes of shared memory
  size_t windows = 0;         // under Windows::lock

  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (host) ::munmap(host, size_bytes);
  }
};

// Counts one window for as long as it lives, and keeps the memory mapped.
struct DmaTable::Hold {
  std::shared_ptr<Mapping> mapping;
  std::shared_ptr<Windows> windows;
  Hold(std::shared_ptr<Mapping> m, std::shared_ptr<Windows> w) : mapping(std::move(m)), windows(std::move(w)) {
    const std::lock_guard guard(windows->lock);
    mapping->windows++;
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    const std::lock_guard guard(windows->lock);
    if (--mapping->windows == 0) windows->gone.notify_all();
  }
};

std::shared_lock<std::shared_mutex> DmaTable::share() const {
  const std::lock_guard gate(gate_);
  return std::shared_lock(lock_);
}

std::unique_lock<std::shared_mutex> DmaTable::own() const {
  const std::lock_guard gate(gate_);
  return std::unique_lock(lock_);
}

std::expected<void, Refusal> DmaTable::map(uint64_t iova, uint64_t size_bytes, uint32_t flags, uint64_t offset,
                                           UniqueFd fd) {
  const auto refuse = [&](int error, std::string why) {
    return std::unexpected(Refusal{error, std::format("DMA_MAP of {:#x} bytes at {:#x}: {}", size_bytes, iova, why)});
  };
  if (size_bytes == 0 || iova + (size_bytes - 1) < iova || size_bytes > SIZE_MAX / 2)
    return refuse(EINVAL, "no valid range");
  if (flags & ~(kDmaMapRead | kDmaMapWrite)) return refuse(EINVAL, std::format("unknown flags {:#x}", flags));

  auto mapping = std::make_shared<Mapping>();
  mapping->iova = iova;
  mapping->size_bytes = size_bytes;
  if (fd) {
    // An access beyond the end of the file would kill this process, so the file must be there now.
    struct stat file{};
    if (::fstat(fd.get(), &file) != 0) return refuse(errno, "the descriptor can't be examined");
    if (!S_ISREG(file.st_mode)) return refuse(EINVAL, "the descriptor is no memory file");
    const auto file_bytes = static_cast<uint64_t>(file.st_size);
    if (offset > file_bytes || size_bytes > file_bytes - offset) {
      return refuse(EINVAL, std::format("offset {:#x} leads beyond the file's {:#x} bytes", offset, file_bytes));
    }
    const int protection =
        ((flags & kDmaMapRead) ? PROT_READ : 0) | ((flags & kDmaMapWrite) ? PROT_READ | PROT_WRITE : 0);
    void* host = ::mmap(nullptr, size_bytes, protection, MAP_SHARED, fd.get(), static_cast<off_t>(offset));
    if (host == MAP_FAILED) return refuse(errno, std::format("mmap: {}", std::strerror(errno)));
    ::madvise(host, size_bytes, MADV_DONTDUMP);
    mapping->host = static_cast<std::byte*>(host);
    mapping->rights = flags;
  }

  const auto guard = own();
  if (by_iova_.size() >= kMaxDmaMaps) return refuse(ENOSPC, "the limit of mappings is reached");
  auto next = by_iova_.lower_bound(iova);
  if (next != by_iova_.end() && next->first - iova < size_bytes) return refuse(EEXIST, "overlaps a mapping");
  if (next != by_iova_.begin()) {
    const auto& before = *std::prev(next)->second;
    if (iova - before.iova < before.size_bytes) return refuse(EEXIST, "overlaps a mapping");
  }
  by_iova_.emplace_hint(next, iova, std::move(mapping));
  return {};
}

std::expected<uint64_t, Refusal> DmaTable::unmap(uint64_t iova, uint64_t size_bytes) {
  const auto refuse = [&](int error, const char* why) {
    return std::unexpected(Refusal{error, std::format("DMA_UNMAP of {:#x} bytes at {:#x}: {}", size_bytes, iova, why)});
  };
  if (size_bytes == 0 || iova + (size_bytes - 1) < iova) return refuse(EINVAL, "no valid range");
  const uint64_t last_byte = iova + (size_bytes - 1);
  // Only this thread changes the map, so iterators stay good between the locks.
  auto first = by_iova_.lower_bound(iova);
  auto last = by_iova_.upper_bound(last_byte);
  if (first != by_iova_.begin()) {
    const auto& before = *std::prev(first)->second;
    if (iova - before.iova < before.size_bytes) return refuse(EINVAL, "begins inside a mapping");
  }
  if (last != first) {
    const auto& end = *std::prev(last)->second;
    if (end.iova + (end.size_bytes - 1) > last_byte) return refuse(EINVAL, "ends inside a mapping");
  }
  return remove(first, last);
}

std::expected<uint64_t, Refusal> DmaTable::clear() { return remove(by_iova_.begin(), by_iova_.end()); }

std::expected<uint64_t, Refusal> DmaTable::remove(Map::iterator first, Map::iterator last) {
  Map removed;
  uint64_t bytes = 0;
  {
    const auto guard = own();  // waits for copies; no window can begin on what is extracted
    while (first != last) {
      bytes += first->second->size_bytes;
      removed.insert(by_iova_.extract(first++));
    }
  }
  std::unique_lock guard(windows_->lock);
  const auto idle = [&] {
    return std::ranges::all_of(removed, [](const auto& entry) { return entry.second->windows == 0; });
  };
  if (!windows_->gone.wait_for(guard, window_patience_, idle)) {
    return std::unexpected(Refusal{
        EBUSY,
        std::format("the device still used memory {} ms after the guest had unmapped it", window_patience_.count())});
  }
  guard.unlock();
  return bytes;
}

const DmaTable::Mapping* DmaTable::find(uint64_t iova, uint32_t rights) const {
  auto after = by_iova_.upper_bound(iova);
  if (after == by_iova_.begin()) return nullptr;
  const Mapping* mapping = std::prev(after)->second.get();
  if (iova - mapping->iova >= mapping->size_bytes || (mapping->rights & rights) != rights) return nullptr;
  return mapping;
}

template <typename Piece>
bool DmaTable::for_each_piece(uint64_t iova, size_t size_bytes, uint32_t rights, Piece piece) const {
  if (size_bytes == 0) return true;
  if (iova + (size_bytes - 1) < iova) return false;
  for (const bool checking : {true, false}) {
    for (size_t done = 0; done < size_bytes;) {
      const Mapping* mapping = find(iova + done, rights);
      if (!mapping) return false;
      const uint64_t into = iova + done - mapping->iova;
      const size_t bytes = std::min<uint64_t>(size_bytes - done, mapping->size_bytes - into);
      if (!checking) piece(mapping->host + into, done, bytes);
      done += bytes;
    }
  }
  return true;
}

bool DmaTable::read(uint64_t iova, std::span<std::byte> to) const {
  const auto guard = share();
  return for_each_piece(iova, to.size(), kDmaMapRead, [&](const std::byte* host, size_t at, size_t bytes) {
    std::memcpy(to.data() + at, host, bytes);
  });
}

bool DmaTable::write(uint64_t iova, std::span<const std::byte> from) const {
  const auto guard = share();
  return for_each_piece(iova, from.size(), kDmaMapWrite,
                        [&](std::byte* host, size_t at, size_t bytes) { std::memcpy(host, from.data() + at, bytes); });
}

DmaWindow DmaTable::window(uint64_t iova, size_t size_bytes, DmaAccess access) const {
  const uint32_t rights = access == DmaAccess::kRead ? kDmaMapRead : kDmaMapRead | kDmaMapWrite;
  const auto guard = share();
  auto after = by_iova_.upper_bound(iova);
  if (size_bytes == 0 || !find(iova, rights)) return {};
  const std::shared_ptr<Mapping>& mapping = std::prev(after)->second;
  const uint64_t into = iova - mapping->iova;
  if (size_bytes > mapping->size_bytes - into) return {};
  return {mapping->host + into, size_bytes, std::make_shared<Hold>(mapping, windows_)};
}

size_t DmaTable::mappings() const {
  const auto guard = share();
  return by_iova_.size();
}

}  // namespace npud::vfio_user
