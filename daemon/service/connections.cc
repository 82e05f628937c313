// SPDX-License-Identifier: Apache-2.0
#include "service/connections.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <format>

#include "service/log.h"

namespace npud {
namespace {

// What every HTTP/2 client sends first: RFC 9113, 3.4.
constexpr std::string_view http2_preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// A TLS record of type handshake, version 3.x: RFC 8446, 5.1.
constexpr std::array tls_start = {std::byte{0x16}, std::byte{0x03}};

enum class Opening { unknown, right, wrong };

Opening judge(ListenerKind kind, std::span<const std::byte> seen) {
  if (kind == ListenerKind::tcp_tls) {
    const std::size_t n = std::min(seen.size(), tls_start.size());
    if (!std::equal(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(n), tls_start.begin()))
      return Opening::wrong;
    return n == tls_start.size() ? Opening::right : Opening::unknown;
  }
  const std::size_t n = std::min(seen.size(), http2_preface.size());
  if (std::memcmp(seen.data(), http2_preface.data(), n) != 0) return Opening::wrong;
  return n == http2_preface.size() ? Opening::right : Opening::unknown;
}

// Keys of the epoll set: the wake-up, then the listeners, then connections as they come.
constexpr std::uint64_t wake_key = 0;
constexpr std::uint64_t first_listener_key = 1;

}  // namespace

Connections::Connections(std::vector<Listener> listeners, ConnectionLimits limits, ConnectionSink& sink, System& system)
    : listeners_(std::move(listeners)),
      limits_(limits),
      sink_(sink),
      system_(system),
      next_key_(first_listener_key + listeners_.size()) {}

Connections::~Connections() { stop(); }

Result<> Connections::start() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_) {
    return fail(ErrorCode::unavailable, std::format("can't make an epoll set: {}", errno_text(errno)));
  }
  epoll_event event{.events = EPOLLIN, .data = {.u64 = wake_key}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    event = {.events = EPOLLIN, .data = {.u64 = first_listener_key + i}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listeners_[i].fd(), &event) != 0) {
      return fail(ErrorCode::unavailable,
                  std::format("can't watch {}: {}", listeners_[i].address(), errno_text(errno)));
    }
  }
  listening_ = true;
  thread_ = std::jthread([this](std::stop_token stop) { loop(stop); });
  return {};
}

void Connections::stop_accepting() {
  accepting_ = false;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void Connections::stop() {
  if (thread_.joinable()) {
    thread_.request_stop();
    stop_accepting();
    thread_.join();
  }
}

ConnectionCounts Connections::counts() const { return {accepted_, refused_, timed_out_, silent_count_, open_count_}; }

std::uint32_t& Connections::count_of(const Peer& peer) {
  return by_peer_[peer.via == ListenerKind::unix_socket ? static_cast<std::int64_t>(peer.uid) : -1];
}

std::uint32_t Connections::limit_of(const Peer& peer) const {
  return peer.via == ListenerKind::unix_socket ? limits_.max_per_uid : limits_.max_total;
}

void Connections::loop(std::stop_token stop) {
  std::array<epoll_event, 64> events;
  while (!stop.stop_requested()) {
    auto now = std::chrono::steady_clock::now();
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms(now));
    heartbeat_.fetch_add(1, std::memory_order_relaxed);
    const bool want_listening =
        accepting_.load(std::memory_order_relaxed) && std::chrono::steady_clock::now() >= listeners_paused_until_;
    if (want_listening != listening_) {
      for (std::size_t i = 0; i < listeners_.size(); ++i) {
        epoll_event event{.events = want_listening ? EPOLLIN : 0u, .data = {.u64 = first_listener_key + i}};
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listeners_[i].fd(), &event);
      }
      listening_ = want_listening;
    }
    for (int i = 0; i < n; ++i) {
      const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
      if (key == wake_key) {
        std::uint64_t drained = 0;
        [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &drained, sizeof drained);
      } else if (key < first_listener_key + listeners_.size()) {
        if (listening_) accept_all(listeners_[key - first_listener_key]);
      } else if (const auto found = by_key_.find(key); found != by_key_.end()) {
        // By key: within this batch of events a descriptor may have been closed and become another connection's.
        const List::iterator connection = found->second;
        const std::uint32_t what = events[static_cast<std::size_t>(i)].events;
        if (connection->silent) {
          look(connection);
        } else if ((what & (EPOLLHUP | EPOLLERR)) != 0) {
          drop(connection);
        }
      }
    }
    expire(std::chrono::steady_clock::now());
  }
}

int Connections::wait_ms(TimePoint now) const {
  auto until = now + std::chrono::milliseconds(500);  // the heartbeat
  if (!silent_.empty()) {
    until = std::min(until, silent_.front().deadline);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now);
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

void Connections::accept_all(const Listener& listener) {
  // Bounded, so that one who connects in a loop doesn't keep the others' events waiting.
  for (int i = 0; i < 64; ++i) {
    UniqueFd fd = system_.accept(listener.fd());
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        // The connection stays in the backlog and the listener readable: look again a little later instead of spinning.
        listeners_paused_until_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
        refuse(std::format("no descriptor for a connection: {} (raise LimitNOFILE)", errno_text(errno)),
               {listener.kind(), 0});
      }
      return;
    }
    Peer peer{listener.kind(), 0};
    if (listener.kind() == ListenerKind::unix_socket) {
      ucred credentials{};
      if (system_.peer_credentials(fd.get(), credentials) != 0) {
        refuse(std::format("the kernel doesn't say who connects: {}", errno_text(errno)), peer);
        continue;
      }
      peer.uid = credentials.uid;
    }
    if (open_.size() + silent_.size() >= limits_.max_total && silent_.empty()) {
      refuse("server.max_connections are open", peer);
      continue;
    }
    if (count_of(peer) >= limit_of(peer)) {
      // Of the same peer's own silent ones the oldest makes room.
      const auto own = std::ranges::find_if(
          silent_, [&](const Connection& c) { return c.peer.via == peer.via && c.peer.uid == peer.uid; });
      if (own == silent_.end()) {
        refuse("this user has server.max_connections_per_tenant open", peer);
        continue;
      }
      ++timed_out_;
      drop(own);
    }
    if (silent_.size() >= limits_.max_silent || open_.size() + silent_.size() >= limits_.max_total) {
      ++timed_out_;
      drop(silent_.begin());
    }
    const std::uint64_t key = next_key_++;
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.u64 = key}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) {
      refuse(std::format("can't watch a connection: {}", errno_text(errno)), peer);
      continue;
    }
    ++accepted_;
    ++count_of(peer);
    silent_.push_back({key, std::move(fd), peer, true, std::chrono::steady_clock::now() + limits_.handshake_timeout});
    by_key_[key] = std::prev(silent_.end());
    silent_count_ = static_cast<std::uint32_t>(silent_.size());
  }
}

void Connections::refuse(std::string_view why, const Peer& peer) {
  ++refused_;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_refusal_line_ < std::chrono::seconds(1)) {
    return;  // counted in the metrics; the log isn't for a flood
  }
  last_refusal_line_ = now;
  log_line(LogLevel::warning, message_id::connection_refused, std::format("A connection was refused: {}.", why),
           {{"PEER_UID", peer.via == ListenerKind::unix_socket ? std::to_string(peer.uid) : "tcp"}});
}

void Connections::look(List::iterator connection) {
  std::array<std::byte, http2_preface.size()> seen;
  const ssize_t n = system_.peek(connection->fd.get(), seen);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return;
  }
  if (n <= 0) {
    return drop(connection);
  }
  switch (judge(connection->peer.via, std::span(seen).first(static_cast<std::size_t>(n)))) {
    case Opening::unknown:
      return;
    case Opening::wrong:
      ++timed_out_;
      return drop(connection);
    case Opening::right:
      return hand_over(connection);
  }
}

void Connections::hand_over(List::iterator connection) {
  UniqueFd watched = system_.duplicate(connection->fd.get());
  if (!watched) {
    refuse(std::format("no descriptor for a connection: {} (raise LimitNOFILE)", errno_text(errno)), connection->peer);
    return drop(connection);
  }
  // Off the epoll set before gRPC has it: the set follows the open file, which the duplicate keeps open.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->fd.get(), nullptr);
  by_key_.erase(connection->key);
  connection->key = next_key_++;
  UniqueFd taken = std::move(connection->fd);
  connection->fd = std::move(watched);
  connection->silent = false;
  open_.splice(open_.end(), silent_, connection);
  by_key_[connection->key] = connection;
  if (!sink_.take(std::move(taken), connection->peer)) {
    refuse("server.max_tenant_servers users are served already, or npud is about to stop", connection->peer);
    connection->silent = true;  // never belonged to the sink
    silent_.splice(silent_.end(), open_, connection);
    return drop(connection);
  }
  silent_count_ = static_cast<std::uint32_t>(silent_.size());
  open_count_ = static_cast<std::uint32_t>(open_.size());
  // Reports a hang-up only. EPOLLET, since the state lasts until the duplicate is closed.
  epoll_event event{.events = EPOLLET, .data = {.u64 = connection->key}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection->fd.get(), &event) != 0) {
    system_.shutdown(connection->fd.get());
    drop(connection);
  }
}

void Connections::drop(List::iterator connection) {
  const Peer peer = connection->peer;
  const bool was_open = !connection->silent;
  // Explicitly: the set follows the open file, and gRPC may hold that a moment longer.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->fd.get(), nullptr);
  by_key_.erase(connection->key);
  const UniqueFd closing = std::move(connection->fd);  // last, so that whoever sees it closed sees the counts
  (was_open ? open_ : silent_).erase(connection);
  silent_count_ = static_cast<std::uint32_t>(silent_.size());
  open_count_ = static_cast<std::uint32_t>(open_.size());
  if (--count_of(peer) == 0) {
    by_peer_.erase(peer.via == ListenerKind::unix_socket ? static_cast<std::int64_t>(peer.uid) : -1);
  }
  if (was_open) {
    sink_.closed(peer);
  }
}

void Connections::expire(TimePoint now) {
  while (!silent_.empty() && silent_.front().deadline <= now) {
    ++timed_out_;
    drop(silent_.begin());
  }
}

}  // namespace npud
