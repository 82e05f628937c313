// SPDX-License-Identifier: Apache-2.0
// The guest memory that the client has shared with this process, by bus address.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>

#include "device.h"
#include "unique_fd.h"

namespace npud::vfio_user {

// Why a request was refused: an errno for the client, a sentence for the log.
struct Refusal {
  int error = 0;
  std::string reason;
};

// map, unmap and clear come from the server's thread; the rest from any. After unmap or clear has succeeded no access
// made through this table touches the memory: copies are waited for, and so are windows, for at most `window_patience`.
class DmaTable {
 public:
  explicit DmaTable(std::chrono::milliseconds window_patience = std::chrono::seconds(10))
      : window_patience_(window_patience) {}
  ~DmaTable() = default;
  DmaTable(const DmaTable&) = delete;
  DmaTable& operator=(const DmaTable&) = delete;

  // Adds [iova, iova + size). Without a descriptor (ROM or another device's registers) the range is known but can't be
  // accessed.
  std::expected<void, Refusal> map(uint64_t iova, uint64_t size_bytes, uint32_t flags, uint64_t offset, UniqueFd fd);

  // Removes the mappings that lie wholly in the range and says how many bytes that were; a range that would split a
  // mapping is refused. EBUSY: they are gone from the table, but the device still held a window on one after the
  // patience was over.
  std::expected<uint64_t, Refusal> unmap(uint64_t iova, uint64_t size_bytes);
  std::expected<uint64_t, Refusal> clear();

  bool read(uint64_t iova, std::span<std::byte> to) const;
  bool write(uint64_t iova, std::span<const std::byte> from) const;
  DmaWindow window(uint64_t iova, size_t size_bytes, DmaAccess access) const;

  size_t mappings() const;

 private:
  struct Mapping;
  struct Hold;
  using Map = std::map<uint64_t, std::shared_ptr<Mapping>>;

  // The mapping that contains iova with all of `rights`, or null. Needs lock_.
  const Mapping* find(uint64_t iova, uint32_t rights) const;
  // Calls piece(host address, bytes) over the range after checking all of it. Needs lock_.
  template <typename Piece>
  bool for_each_piece(uint64_t iova, size_t size_bytes, uint32_t rights, Piece piece) const;
  std::expected<uint64_t, Refusal> remove(Map::iterator first, Map::iterator last);

  const std::chrono::milliseconds window_patience_;
  // Threads that copy in a row would keep a writer out of a shared_mutex for ever; so who wants lock_, passes through
  // gate_, and a writer waits in it.
  std::shared_lock<std::shared_mutex> share() const;
  std::unique_lock<std::shared_mutex> own() const;
  mutable std::mutex gate_;
  mutable std::shared_mutex lock_;  // by_iova_; shared while copying
  Map by_iova_;
  // Outlives the table if a window does.
  struct Windows {
    std::mutex lock;  // every Mapping's windows count
    std::condition_variable gone;
  };
  std::shared_ptr<Windows> windows_ = std::make_shared<Windows>();
};

}  // namespace npud::vfio_user
