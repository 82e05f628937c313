// SPDX-License-Identifier: Apache-2.0
#include "server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <format>

#include "channel.h"
#include "session.h"

namespace npud::vfio_user {
namespace {

std::unexpected<std::string> failed(std::string_view what) {
  return std::unexpected(std::format("{}: {}", what, std::strerror(errno)));
}

std::expected<sockaddr_un, std::string> address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return std::unexpected(
        std::format("the socket path '{}' must have 1 to {} bytes", path, sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Makes way for a socket at `path`: a socket that nobody listens on is removed, anything else is left alone and an
// error.
std::expected<void, std::string> clear_stale(const std::string& path, const sockaddr_un& at) {
  struct stat there{};
  if (::lstat(path.c_str(), &there) != 0) return {};
  if (!S_ISSOCK(there.st_mode))
    return std::unexpected(std::format("'{}' exists and is no socket; choose another path", path));
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return failed("socket");
  const int result = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at));
  if (result == 0 || errno == EAGAIN) return std::unexpected(std::format("another program already serves '{}'", path));
  if (errno == ECONNREFUSED) ::unlink(path.c_str());
  return {};
}

}  // namespace

struct Server::Impl {
  Device& device;
  LogSink log;
  std::unique_ptr<Session> session;
  UniqueFd stop_event;
};

std::expected<std::unique_ptr<Server>, std::string> Server::create(Device& device, LogSink log) {
  if (!log) log = [](std::string_view) {};
  auto session = Session::create(device, log);
  if (!session) return std::unexpected(session.error());
  UniqueFd stop_event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_event) return failed("eventfd");
  auto impl = std::make_unique<Impl>(Impl{device, std::move(log), std::move(*session), std::move(stop_event)});
  device.attach(*impl->session);
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { impl_->device.detach(); }

void Server::stop() {
  const int saved = errno;  // may run in a signal handler
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(impl_->stop_event.get(), &one, sizeof(one));
  errno = saved;
}

Bus& Server::bus() { return *impl_->session; }

std::expected<void, std::string> Server::serve(const std::string& path, const std::function<void()>& ready) {
  auto at = address(path);
  if (!at) return std::unexpected(at.error());
  if (auto ok = clear_stale(path, *at); !ok) return ok;
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return failed("socket");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&*at), sizeof(*at)) != 0)
    return failed(std::format("binding '{}'", path));
  struct Unlink {
    const std::string& path;
    ~Unlink() { ::unlink(path.c_str()); }
  } const unlink_at_end{path};
  if (::listen(listener.get(), 4) != 0) return failed(std::format("listening on '{}'", path));
  if (ready) ready();

  for (;;) {
    std::array<pollfd, 2> watched{{{listener.get(), POLLIN, 0}, {impl_->stop_event.get(), POLLIN, 0}}};
    if (::poll(watched.data(), watched.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return failed("poll");
    }
    if (watched[1].revents) return {};
    UniqueFd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) {
      if (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED) continue;
      return failed(std::format("accepting on '{}'", path));
    }
    impl_->log("a client has connected.");
    if (auto ok = serve_connection(std::move(connection)); !ok) {
      impl_->log(std::format("the connection was ended: {}.", ok.error()));
    } else {
      impl_->log("the client has left.");
    }
  }
}

std::expected<void, std::string> Server::serve_connection(UniqueFd connection) {
  Session& session = *impl_->session;
  Channel channel(std::move(connection), impl_->stop_event.get());
  std::string reason;
  for (;;) {
    auto message = channel.receive(session.resume_fd(), [&session] { session.resume_intx(); });
    if (!message) {
      reason = message.error().reason;
      break;
    }
    auto reply = session.handle(message->header, message->payload, std::move(message->fds));
    if (!reply) {
      reason = reply.error();
      break;
    }
    if (reply->empty()) continue;
    if (auto ok = channel.send(*reply); !ok) {
      reason = ok.error().reason;
      break;
    }
  }
  session.disconnect();
  if (!reason.empty()) return std::unexpected(reason);
  return {};
}

}  // namespace npud::vfio_user
