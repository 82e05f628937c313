// SPDX-License-Identifier: Apache-2.0
#include "service/system.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include <cerrno>
#include <system_error>

namespace npud {

UniqueFd System::accept(int listener_fd) {
  return UniqueFd(::accept4(listener_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

int System::peer_credentials(int fd, ucred& out) {
  socklen_t size = sizeof out;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &out, &size);
}

ssize_t System::peek(int fd, std::span<std::byte> out) {
  return ::recv(fd, out.data(), out.size(), MSG_PEEK | MSG_DONTWAIT);
}

UniqueFd System::duplicate(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

int System::shutdown(int fd) { return ::shutdown(fd, SHUT_RDWR); }

UniqueFd System::open_below(int directory_fd, const std::string& name, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, directory_fd, name.c_str(), &how, sizeof how)));
}

int System::fstat(int fd, struct stat& out) { return ::fstat(fd, &out); }

ssize_t System::pread(int fd, std::span<std::byte> out, std::uint64_t offset_bytes) {
  return ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset_bytes));
}

ssize_t System::pwrite(int fd, std::span<const std::byte> in, std::uint64_t offset_bytes) {
  return ::pwrite(fd, in.data(), in.size(), static_cast<off_t>(offset_bytes));
}

System& System::real() {
  static System system;
  return system;
}

std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace npud
