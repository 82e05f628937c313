// SPDX-License-Identifier: Apache-2.0
// POSIX shared memory that clients registered, held for them by descriptor.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "api/regions.h"
#include "service/config.h"
#include "service/system.h"

namespace npud {

// A daemon that opens what a client names is a confused deputy unless it checks: the key is one path component, opened
// below /dev/shm without following links, and must be a regular file that belongs to the caller's uid. From then on
// only the descriptor counts.
//
// Regions are never mapped. The file stays the client's, who may cut it short at any moment, and a mapped page beyond
// the end is a SIGBUS that would take every tenant down; a mapped input could also change under a running model. So
// inputs are read with pread() into memory of the daemon's own, outputs are written with pwrite(): a region that shrank
// is an error of that request. The copy costs what one memcpy costs and spares the two copies, the framing and the
// syscalls of the bytes on the socket.
//
// Each use checks the size by fstat(); copies in flight are bounded by max_in_flight_bytes for all callers together.
// What one owner holds may not exceed what it leaves free, so that nobody can lock the others out: alone it gets half.
class SharedMemory final : public api::Regions {
 public:
  explicit SharedMemory(SharedMemoryConfig config, System& system = System::real(), std::string directory = "/dev/shm");
  ~SharedMemory() override;

  Result<> add(const api::RegionOwner& owner, std::uint32_t uid, const api::RegionInfo& info) override;
  void remove(const api::RegionOwner& owner, const std::string& name) override;
  Result<std::vector<api::RegionInfo>> list(const api::RegionOwner& owner, const std::string& name) const override;
  Result<Buffer> read(const api::RegionOwner& owner, const api::RegionPart& part) override;
  Result<> check(const api::RegionOwner& owner, const api::RegionPart& part) const override;
  Result<> write(const api::RegionOwner& owner, const api::RegionPart& part, std::span<const std::byte> data) override;
  std::uint64_t region_count() const override;
  std::uint64_t bytes_in_flight() const override;

 private:
  struct Region {
    api::RegionInfo info;
    UniqueFd fd;
    bool writable = false;
  };
  struct Copies {
    std::mutex mutex;
    std::uint64_t total_bytes = 0;                    // under mutex
    std::map<api::RegionOwner, std::uint64_t> bytes;  // under mutex; of those who hold some
  };
  Result<std::shared_ptr<const Region>> find(const api::RegionOwner& owner, const api::RegionPart& part) const;
  Result<> check_size(const Region& region, const api::RegionPart& part) const;
  Result<std::shared_ptr<void>> count(const api::RegionOwner& owner, std::uint64_t size_bytes) const;

  const SharedMemoryConfig config_;
  System& system_;
  const std::string directory_path_;
  UniqueFd directory_;
  // Outlives this object in the buffers that were read.
  const std::shared_ptr<Copies> copies_ = std::make_shared<Copies>();
  mutable std::mutex mutex_;
  std::map<api::RegionOwner, std::map<std::string, std::shared_ptr<const Region>>> regions_;  // under mutex_
};

}  // namespace npud
