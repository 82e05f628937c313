// SPDX-License-Identifier: Apache-2.0
// Shared memory that clients registered. Implemented by the service layer, which talks to the system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace npud::api {

// Whose regions: the key of a Caller. Regions of others don't exist for it.
using RegionOwner = std::string;

struct RegionInfo {
  std::string name;
  std::string key;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

// Part of a region, as a tensor's parameters name it.
struct RegionPart {
  std::string region;
  std::uint64_t offset_bytes = 0;  // within the region
  std::uint64_t size_bytes = 0;
};

// Thread-safe. A region that was unregistered lives on until reads and writes in progress are done.
class Regions {
 public:
  virtual ~Regions() = default;

  // What a caller on TCP may not do: its machine isn't this one.
  virtual Result<> add(const RegionOwner& owner, std::uint32_t uid, const RegionInfo& info) = 0;
  // Empty name: all of the owner's. An unknown name is no error (as in Triton).
  virtual void remove(const RegionOwner& owner, const std::string& name) = 0;
  // Empty name: all of the owner's; an unknown name is not_found.
  virtual Result<std::vector<RegionInfo>> list(const RegionOwner& owner, const std::string& name) const = 0;

  // The bytes as they are now, as a copy that the client can't change or take away under a running model.
  virtual Result<Buffer> read(const RegionOwner& owner, const RegionPart& part) = 0;
  // Whether a write could work: the region exists and is large enough, here and in its file.
  virtual Result<> check(const RegionOwner& owner, const RegionPart& part) const = 0;
  // Writes at the part's start; needs data.size() ≤ part.size_bytes.
  virtual Result<> write(const RegionOwner& owner, const RegionPart& part, std::span<const std::byte> data) = 0;

  virtual std::uint64_t region_count() const = 0;
  virtual std::uint64_t bytes_in_flight() const = 0;  // copies alive
};

}  // namespace npud::api
