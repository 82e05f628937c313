// SPDX-License-Identifier: Apache-2.0
// The host's side door to a running board: one JSON object a line in, one a line out, over a Unix socket. README.md
// lists the commands.
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "tests/board/rk3588/board.h"
#include "tests/board/vfio_user/unique_fd.h"

namespace npud::rk3588 {

// Carries out one request; always returns one line of JSON without its newline. No board: says so.
std::string answer(Board* board, std::string_view request);

// Serves a socket on a thread of its own, one connection at a time, until destroyed; removes the socket's file then.
class ControlSocket {
 public:
  static std::expected<std::unique_ptr<ControlSocket>, std::string> listen(
      const std::string& path, std::function<std::shared_ptr<Board>()> board);
  ~ControlSocket();

 private:
  ControlSocket(std::string path, vfio_user::UniqueFd listener, vfio_user::UniqueFd stop,
                std::function<std::shared_ptr<Board>()> board);
  void serve(const std::stop_token& stop);
  void talk(int connection, const std::stop_token& stop);
  bool wait_readable(int fd) const;  // false: it is time to stop

  const std::string path_;
  const vfio_user::UniqueFd listener_;
  const vfio_user::UniqueFd stop_event_;
  const std::function<std::shared_ptr<Board>()> board_;
  std::jthread thread_;
};

}  // namespace npud::rk3588
