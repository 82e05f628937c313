// SPDX-License-Identifier: Apache-2.0
// Serves one virtual PCI function over vfio-user (protocol version 0.0, as QEMU 10.1 and later speak it) on a Unix
// socket.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "device.h"
#include "unique_fd.h"

namespace npud::vfio_user {

// Where the server's log lines go: whole sentences without a newline. Called from any thread.
using LogSink = std::function<void(std::string_view line)>;

// Owns the connection, the DMA table, the config space and the interrupt state; borrows the Device, which must outlive
// it. One client at a time; others wait in the listen queue. When a client goes, the device is reset and the next one
// is served.
//
//   auto server = Server::create(device, log);              // calls device.attach()
//   if (!server) …server.error() is a sentence…
//   if (auto ok = (*server)->serve(path); !ok) …            // until stop()
class Server {
 public:
  static std::expected<std::unique_ptr<Server>, std::string> create(Device& device, LogSink log);
  ~Server();  // calls device.detach()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Listens on `path` (removing a stale socket there, but neither a live server's nor another kind of file), calls
  // `ready` (may be empty) when clients can connect, and serves clients until stop(). Removes the socket at the end.
  // Call it from one thread.
  std::expected<void, std::string> serve(const std::string& path, const std::function<void()>& ready = {});

  // Serves one connected client until it leaves, misbehaves, or stop() is called. An error says why a client was cut
  // off.
  std::expected<void, std::string> serve_connection(UniqueFd connection);

  // Makes serve() and serve_connection() return; sticky. Safe from any thread and from a signal handler.
  void stop();

  // What the device was given; for tests.
  Bus& bus();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace npud::vfio_user
