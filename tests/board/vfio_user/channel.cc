// SPDX-License-Identifier: Apache-2.0
#include "channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <format>

#include "protocol.h"

namespace npud::vfio_user {
namespace {

std::unexpected<Channel::Failure> broken(std::string reason) {
  return std::unexpected(Channel::Failure{Channel::End::kClientLeft, std::move(reason)});
}

// Takes the descriptors out of a received control message.
void collect(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

std::expected<Channel::Message, Channel::Failure> Channel::receive(int also_fd, const std::function<void()>& on_also) {
  Message message;
  std::array<std::byte, sizeof(Header)> bytes;
  if (auto ok = fill(bytes, message.fds, true, also_fd, on_also); !ok) return std::unexpected(ok.error());
  auto header = parse_header(bytes);
  if (!header) return broken(header.error());
  message.header = *header;
  payload_.resize(header->size_bytes - sizeof(Header));
  if (auto ok = fill(payload_, message.fds, false, also_fd, on_also); !ok) return std::unexpected(ok.error());
  message.payload = payload_;
  return message;
}

std::expected<void, Channel::Failure> Channel::fill(std::span<std::byte> to, std::vector<UniqueFd>& fds, bool at_start,
                                                    int also_fd, const std::function<void()>& on_also) {
  size_t done = 0;
  while (done < to.size()) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFds)> control;
    iovec part{to.data() + done, to.size() - done};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(connection_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (auto ok = wait(POLLIN, also_fd, on_also); !ok) return ok;
      continue;
    }
    if (n < 0 && errno != ECONNRESET) return broken(std::format("receiving failed: {}", std::strerror(errno)));
    if (n <= 0) {
      if (at_start && done == 0) return broken("");
      return broken(std::format("the client left in the middle of a message, {} bytes short", to.size() - done));
    }
    collect(message, fds);
    if (message.msg_flags & MSG_CTRUNC || fds.size() > kMaxFds) {
      return broken(std::format("a message with more than {} file descriptors", kMaxFds));
    }
    done += static_cast<size_t>(n);
  }
  return {};
}

std::expected<void, Channel::Failure> Channel::send(std::span<const std::byte> message) {
  while (!message.empty()) {
    const ssize_t n = ::send(connection_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (auto ok = wait(POLLOUT, -1, {}); !ok) return ok;
      continue;
    }
    if (n < 0) return broken(std::format("the client left before its answer: {}", std::strerror(errno)));
    message = message.subspan(static_cast<size_t>(n));
  }
  return {};
}

std::expected<void, Channel::Failure> Channel::wait(short events, int also_fd, const std::function<void()>& on_also) {
  std::array<pollfd, 3> watched{{{connection_.get(), events, 0}, {stop_fd_, POLLIN, 0}, {also_fd, POLLIN, 0}}};
  if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) {
    return broken(std::format("poll failed: {}", std::strerror(errno)));
  }
  if (watched[1].revents) return std::unexpected(Failure{End::kStopped, ""});
  if (watched[2].revents && on_also) on_also();
  return {};
}

}  // namespace npud::vfio_user
