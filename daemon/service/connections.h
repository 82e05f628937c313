// SPDX-License-Identifier: Apache-2.0
// Accepts connections, learns from the kernel who they are, and hands those that speak to whoever serves them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "service/sockets.h"
#include "service/system.h"

namespace npud {

// Who is at the other end. TCP peers are told apart later, by their certificate.
struct Peer {
  ListenerKind via = ListenerKind::unix_socket;
  uid_t uid = 0;  // unix_socket only
};

struct ConnectionLimits {
  std::uint32_t max_total = 1024;
  std::uint32_t max_per_uid = 64;  // TCP as a whole counts as one uid, with max_total as its limit
  std::uint32_t max_silent = 512;
  std::chrono::milliseconds handshake_timeout{5000};
};

// Serves connections. Called from the Connections thread only.
class ConnectionSink {
 public:
  virtual ~ConnectionSink() = default;
  // Takes the descriptor over; false (and the descriptor is closed) when there is no room for that peer.
  virtual bool take(UniqueFd fd, const Peer& peer) = 0;
  // One of the connections that take() accepted is closed on both sides.
  virtual void closed(const Peer& peer) = 0;
};

struct ConnectionCounts {
  std::uint64_t accepted = 0;
  std::uint64_t refused = 0;    // over a limit
  std::uint64_t timed_out = 0;  // said nothing in time, or not HTTP/2
  std::uint32_t silent = 0;     // now
  std::uint32_t open = 0;       // now, handed over
};

// One thread with one epoll set. A new connection costs a descriptor and a list node until its first bytes are those of
// an HTTP/2 client (RFC 9113, 3.4) or of a TLS handshake record; only then does gRPC see it. A peer that says nothing,
// or something else, is closed after handshake_timeout, and when max_silent of them wait the oldest goes first, so that
// they can't keep others out. Of each connection handed over a duplicate descriptor is kept, only to learn from the
// kernel when both sides are shut down.
class Connections {
 public:
  Connections(std::vector<Listener> listeners, ConnectionLimits limits, ConnectionSink& sink,
              System& system = System::real());
  ~Connections();  // as stop()

  Result<> start();
  // Accepts no more; connections that were handed over stay.
  void stop_accepting();
  // Ends the thread.
  void stop();

  ConnectionCounts counts() const;
  // Goes up at least once a second while the thread is alive and not stuck.
  std::uint64_t heartbeat() const { return heartbeat_.load(std::memory_order_relaxed); }
  const std::vector<Listener>& listeners() const { return listeners_; }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Connection {
    std::uint64_t key = 0;  // in the epoll set; never used again, other than the descriptor
    UniqueFd fd;            // silent: the connection itself; else the duplicate
    Peer peer;
    bool silent = true;
    TimePoint deadline;
  };
  using List = std::list<Connection>;

  void loop(std::stop_token stop);
  void accept_all(const Listener& listener);
  void refuse(std::string_view why, const Peer& peer);
  void look(List::iterator connection);
  void hand_over(List::iterator connection);
  void drop(List::iterator connection);
  void expire(TimePoint now);
  int wait_ms(TimePoint now) const;
  std::uint32_t& count_of(const Peer& peer);
  std::uint32_t limit_of(const Peer& peer) const;

  std::vector<Listener> listeners_;
  const ConnectionLimits limits_;
  ConnectionSink& sink_;
  System& system_;
  UniqueFd epoll_, wake_;
  // Everything below: the loop's thread only.
  List silent_, open_;  // silent_ by age
  std::unordered_map<std::uint64_t, List::iterator> by_key_;
  std::uint64_t next_key_;
  std::map<std::int64_t, std::uint32_t> by_peer_;
  TimePoint listeners_paused_until_{};
  TimePoint last_refusal_line_{};
  std::atomic<bool> accepting_{true};
  bool listening_ = false;
  std::atomic<std::uint64_t> heartbeat_{0}, accepted_{0}, refused_{0}, timed_out_{0};
  std::atomic<std::uint32_t> silent_count_{0}, open_count_{0};
  std::jthread thread_;
};

}  // namespace npud
