// SPDX-License-Identifier: Apache-2.0
#include "service/sockets.h"

#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include <cerrno>
#include <cstring>
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

Result<Listener> listen_tcp(const std::string& address) {
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
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    return failed("can't make a TCP socket");
  }
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd.get(), backlog) != 0) {
    return failed(std::format("can't listen on {}", address));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  char port[16] = "?";
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
    ::getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port, sizeof port, NI_NUMERICSERV);
  }
  return Listener(std::move(fd), ListenerKind::tcp_tls, std::format("tcp:{}:{}", address.substr(0, colon), port));
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
