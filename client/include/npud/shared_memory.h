// SPDX-License-Identifier: Apache-2.0
// Memory that the client and npud both see, so that large tensors aren't sent.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "npud/client.h"

namespace npud::client {

// A POSIX shared memory object of a random name, mode 0600, registered with npud for the caller's uid. Only over a unix
// socket (npud must see the same /dev/shm). Unregistered, unmapped and unlinked when destroyed. Not thread-safe; the
// bytes are the caller's to guard: nothing may be changed while a request that names them is under way.
class SharedMemory {
 public:
  static Result<SharedMemory> create(const Client& client, std::size_t size_bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  const std::string& region() const { return name_; }
  std::span<std::byte> bytes() const { return bytes_; }
  // A piece of it, for Tensor::shared and OutputWanted::shared. Precondition: inside.
  RegionSpan span(std::uint64_t offset_bytes, std::uint64_t size_bytes) const {
    return {name_, offset_bytes, size_bytes};
  }

 private:
  SharedMemory(Client client, std::string name, std::span<std::byte> bytes);
  void release();
  std::optional<Client> client_;
  std::string name_;  // of the region; the object's is "/" + name_
  std::span<std::byte> bytes_;
  bool registered_ = false;
};

}  // namespace npud::client
