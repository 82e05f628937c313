// SPDX-License-Identifier: Apache-2.0
// The system calls whose failures npud must survive, behind one narrow interface, so that tests can make them fail.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "service/unique_fd.h"

namespace npud {

// Thread-safe. Each call returns what the system call returns, -1 with errno set on failure; none throws.
class System {
 public:
  virtual ~System() = default;

  // A connection of a listening socket, close-on-exec and non-blocking; empty with errno when there is none.
  virtual UniqueFd accept(int listener_fd);
  // Who the peer of a unix socket was when it connected.
  virtual int peer_credentials(int fd, ucred& out);
  // Looks at what has arrived without taking it.
  virtual ssize_t peek(int fd, std::span<std::byte> out);
  virtual UniqueFd duplicate(int fd);
  virtual int shutdown(int fd);

  // Opens `name` (a single path component) below the directory `directory_fd`, following no symbolic link and never
  // blocking.
  virtual UniqueFd open_below(int directory_fd, const std::string& name, int flags);
  virtual int fstat(int fd, struct stat& out);
  virtual ssize_t pread(int fd, std::span<std::byte> out, std::uint64_t offset_bytes);
  virtual ssize_t pwrite(int fd, std::span<const std::byte> in, std::uint64_t offset_bytes);

  static System& real();
};

// "Permission denied", for messages.
std::string errno_text(int error);

}  // namespace npud
