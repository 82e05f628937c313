// SPDX-License-Identifier: Apache-2.0
// Listening sockets: made here, or passed by systemd. Nobody else's business.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "service/config.h"
#include "service/unique_fd.h"

namespace npud {

enum class ListenerKind { unix_socket, tcp_tls };

// Owns a listening, non-blocking socket. A unix socket that was made here is unlinked when it goes; a passed one stays.
class Listener {
 public:
  Listener(UniqueFd fd, ListenerKind kind, std::string address, std::string unlink_path = {})
      : fd_(std::move(fd)), kind_(kind), address_(std::move(address)), unlink_path_(std::move(unlink_path)) {}
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  int fd() const { return fd_.get(); }
  ListenerKind kind() const { return kind_; }
  const std::string& address() const { return address_; }  // "unix:/run/npud/npud.sock", "tcp:127.0.0.1:8001"

 private:
  UniqueFd fd_;
  ListenerKind kind_;
  std::string address_;
  std::string unlink_path_;
};

// Binds config.socket with its mode and group. A socket file that nobody answers on is replaced, one that another
// process serves is an error, and anything that isn't a socket is left alone and is an error.
Result<Listener> listen_unix(const ServerConfig& config);

// "host:port": every address of this machine that the name has. Those of a family that the machine doesn't have are
// left out, as long as one remains.
Result<std::vector<Listener>> listen_tcp(const std::string& address);

// The sockets in $LISTEN_FDS, if they are meant for this process. Stream sockets of the unix family that listen;
// anything else is an error.
Result<std::vector<Listener>> passed_listeners();

}  // namespace npud
