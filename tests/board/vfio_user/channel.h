// SPDX-License-Identifier: Apache-2.0
// Frames vfio-user messages, with their file descriptors, on a connected stream socket.
#pragma once

#include <cstddef>
#include <expected>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "message.h"
#include "unique_fd.h"

namespace npud::vfio_user {

// Owns the connection, borrows the descriptor that stops it. One thread.
class Channel {
 public:
  // Why no message came; what broke the protocol or the connection is an error string instead.
  enum class End { kClientLeft, kStopped };
  struct Message {
    Header header;
    std::span<const std::byte> payload;  // valid until the next receive()
    std::vector<UniqueFd> fds;
  };
  struct Failure {
    End end = End::kClientLeft;
    std::string reason;  // empty at an orderly end
  };

  Channel(UniqueFd connection, int stop_fd) : connection_(std::move(connection)), stop_fd_(stop_fd) {}

  // Waits for a whole message. Meanwhile `also_fd` (-1: none) is watched too, and `on_also` called when it is readable.
  std::expected<Message, Failure> receive(int also_fd, const std::function<void()>& on_also);

  std::expected<void, Failure> send(std::span<const std::byte> message);

 private:
  std::expected<void, Failure> fill(std::span<std::byte> to, std::vector<UniqueFd>& fds, bool at_start, int also_fd,
                                    const std::function<void()>& on_also);
  std::expected<void, Failure> wait(short events, int also_fd, const std::function<void()>& on_also);

  UniqueFd connection_;
  int stop_fd_;
  std::vector<std::byte> payload_;
};

}  // namespace npud::vfio_user
