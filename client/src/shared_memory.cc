// SPDX-License-Identifier: Apache-2.0
#include "npud/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <format>
#include <tuple>
#include <utility>

namespace npud::client {

SharedMemory::SharedMemory(Client client, std::string name, std::span<std::byte> bytes)
    : client_(std::move(client)), name_(std::move(name)), bytes_(bytes) {}

Result<SharedMemory> SharedMemory::create(const Client& client, std::size_t size_bytes) {
  if (size_bytes == 0) return fail(Code::invalid_argument, "a shared memory region of 0 bytes is of no use");
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof(random), 0) != sizeof(random))
    return fail(Code::internal, std::format("no random bytes: {}", std::strerror(errno)));
  std::string name = std::format("npud-{}-{:016x}", getpid(), random);
  int fd = shm_open(("/" + name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    return fail(Code::resource_exhausted,
                std::format("can't make the shared memory /{}: {}", name, std::strerror(errno)));
  // posix_fallocate, not ftruncate: a full /dev/shm is an error here instead of a SIGBUS later.
  int failed = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
  void* address = failed == 0 ? mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (failed == 0 && address == MAP_FAILED) failed = errno;
  close(fd);
  if (failed != 0) {
    shm_unlink(("/" + name).c_str());
    return fail(Code::resource_exhausted,
                std::format("no {} bytes of shared memory: {}", size_bytes, std::strerror(failed)));
  }
  SharedMemory memory(client, name, {static_cast<std::byte*>(address), size_bytes});
  if (auto registered = client.register_region(name, "/" + name, 0, size_bytes); !registered)
    return std::unexpected(registered.error());
  memory.registered_ = true;
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : client_(std::exchange(other.client_, std::nullopt)),
      name_(std::move(other.name_)),
      bytes_(std::exchange(other.bytes_, {})),
      registered_(std::exchange(other.registered_, false)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  release();
  client_ = std::exchange(other.client_, std::nullopt);
  name_ = std::move(other.name_);
  bytes_ = std::exchange(other.bytes_, {});
  registered_ = std::exchange(other.registered_, false);
  return *this;
}

SharedMemory::~SharedMemory() { release(); }

void SharedMemory::release() {
  if (registered_) std::ignore = client_->unregister_region(name_);  // a daemon that is gone has forgotten it anyway
  registered_ = false;
  if (bytes_.data() != nullptr) {
    munmap(bytes_.data(), bytes_.size());
    shm_unlink(("/" + name_).c_str());
  }
  bytes_ = {};
}

}  // namespace npud::client
