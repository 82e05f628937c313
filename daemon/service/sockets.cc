// SPDX-License-Identifier: Apache-2.0
#include "service/sockets.h"

#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include <cerrno>
#include <cstring>
#include <expected>
#include <format>
#include <memory>

#include "service/system.h"

namespace npud {
namespace {

constexpr int backlog = 1024;

std::unexpected<Error> failed(const std::string& what) {
  return fail(errno == EACCES || errno == EPERM ? ErrorCode::permission_denied : ErrorCode::unavailable,
              std::format("{}: {}", what, errno_text(errno)));
}

// Whether somebody accepts on that path.
bool answers(const sockaddr_un& address) {
  UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) {
    return true;  // can't tell: be careful
  }
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    return true;
  }
  return errno != ECONNREFUSED && errno != ENOENT;
}

Result<> clear_the_way(const std::string& path, const sockaddr_un& address) {
  struct stat st{};
  if (::lstat(path.c_str(), &st) != 0) {
    return errno == ENOENT ? Result<>{} : Result<>(failed(path));
  }
  if (!S_ISSOCK(st.st_mode)) {
    return fail(ErrorCode::already_exists,
                std::format("{} exists and is no socket: remove it or set server.socket", path));
  }
  if (answers(address)) {
    return fail(ErrorCode::already_exists,
                std::format("{} is served by another process: stop it or set server.socket to another path", path));
  }
  if (::unlink(path.c_str()) != 0) {
    return failed(std::format("can't replace the stale socket {}", path));
  }
  return {};
}

in_port_t& port_of(sockaddr& address) {
  return address.sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

// Listens on one of a name's addresses, `only_one` of them or not. `port` is used if it isn't 0, and then says which it
// is. The error is an errno.
std::expected<UniqueFd, int> listen_at(const addrinfo& info, bool only_one, in_port_t& port) {
  UniqueFd fd(::socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    return std::unexpected(errno);
  }
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (info.ai_family == AF_INET6 && !only_one) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);  // its IPv4 twin has a socket of its own
  }
  sockaddr_storage at{};
  std::memcpy(&at, info.ai_addr, info.ai_addrlen);
  auto& address = reinterpret_cast<sockaddr&>(at);
  if (port != 0) {
    port_of(address) = port;
  }
  socklen_t size = info.ai_addrlen;
  if (::bind(fd.get(), &address, size) != 0 || ::listen(fd.get(), backlog) != 0 ||
      ::getsockname(fd.get(), &address, &size) != 0) {
    return std::unexpected(errno);
  }
  port = port_of(address);
  return fd;
}

// Names that stand twice in /etc/hosts have the same address twice.
bool stands_before(const addrinfo& info, const addrinfo* first) {
  for (; first != &info; first = first->ai_next) {
    if (first->ai_addrlen == info.ai_addrlen && std::memcmp(first->ai_addr, info.ai_addr, info.ai_addrlen) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

Listener::Listener(Listener&& other) noexcept
    : fd_(std::move(other.fd_)),
      kind_(other.kind_),
      address_(std::move(other.address_)),
      unlink_path_(std::exchange(other.unlink_path_, {})) {}

Listener::~Listener() {
  if (!unlink_path_.empty()) {
    ::unlink(unlink_path_.c_str());
  }
}

Result<Listener> listen_unix(const ServerConfig& config) {
  const std::string& path = config.socket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return fail(ErrorCode::invalid_argument, std::format("{} is too long for a unix socket's path", path));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);

  gid_t group = static_cast<gid_t>(-1);
  if (!config.socket_group.empty()) {
    const ::group* entry = ::getgrnam(config.socket_group.c_str());
    if (entry == nullptr) {
      return fail(ErrorCode::not_found,
                  std::format("server.socket_group: there is no group '{}'", config.socket_group));
    }
    group = entry->gr_gid;
  }
  if (auto cleared = clear_the_way(path, address); !cleared) {
    return std::unexpected(cleared.error());
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    return failed("can't make a unix socket");
  }
  // Nobody may connect before mode and group are right.
  const mode_t old_mask = ::umask(0777);
  const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int bind_error = errno;
  ::umask(old_mask);
  if (bound != 0) {
    errno = bind_error;
    return failed(std::format("can't bind {} (does its directory exist, and may this user write there?)", path));
  }
  Listener listener(std::move(fd), ListenerKind::unix_socket, "unix:" + path, path);
  if (group != static_cast<gid_t>(-1) && ::chown(path.c_str(), static_cast<uid_t>(-1), group) != 0) {
    return failed(std::format("can't give {} to group {}", path, config.socket_group));
  }
  if (::chmod(path.c_str(), static_cast<mode_t>(std::stoul(config.socket_mode, nullptr, 8))) != 0) {
    return failed(std::format("can't set the mode of {}", path));
  }
  if (::listen(listener.fd(), backlog) != 0) {
    return failed(std::format("can't listen on {}", path));
  }
  return listener;
}

Result<std::vector<Listener>> listen_tcp(const std::string& address) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return fail(ErrorCode::invalid_argument, std::format("'{}' is no host:port", address));
  }
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error =
          ::getaddrinfo(host.empty() ? nullptr : host.c_str(), address.c_str() + colon + 1, &hints, &found);
      error != 0) {
    return fail(ErrorCode::invalid_argument, std::format("'{}': {}", address, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<Listener> listeners;
  int absent = 0;
  in_port_t port = 0;  // network order; port 0 is chosen with the first address, the others follow
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    if (stands_before(*info, found)) {
      continue;
    }
    auto fd = listen_at(*info, found->ai_next == nullptr, port);
    if (fd) {
      listeners.emplace_back(std::move(*fd), ListenerKind::tcp_tls,
                             std::format("tcp:{}:{}", address.substr(0, colon), ntohs(port)));
    } else if (fd.error() == EAFNOSUPPORT || fd.error() == EADDRNOTAVAIL) {
      absent = fd.error();
    } else {
      errno = fd.error();
      return failed(std::format("can't listen on {}", address));
    }
  }
  if (listeners.empty()) {
    errno = absent;
    return failed(std::format("can't listen on {}", address));
  }
  return listeners;
}

Result<std::vector<Listener>> passed_listeners() {
  std::vector<Listener> listeners;
  const int count = ::sd_listen_fds(1);
  if (count < 0) {
    return fail(ErrorCode::invalid_argument, std::format("$LISTEN_FDS can't be used: {}", errno_text(-count)));
  }
  for (int i = 0; i < count; ++i) {
    UniqueFd fd(SD_LISTEN_FDS_START + i);
    if (::sd_is_socket(fd.get(), AF_UNIX, SOCK_STREAM, 1) <= 0) {
      return fail(ErrorCode::invalid_argument,
                  std::format("descriptor {} passed by systemd is no listening unix stream socket", fd.get()));
    }
    if (::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK) != 0) {
      return failed("can't make a passed socket non-blocking");
    }
    sockaddr_un address{};
    socklen_t size = sizeof address;
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
    listeners.emplace_back(std::move(fd), ListenerKind::unix_socket, std::format("unix:{}", address.sun_path));
  }
  return listeners;
}

}  // namespace npud
