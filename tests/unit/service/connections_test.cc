// SPDX-License-Identifier: Apache-2.0
#include "service/connections.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/un.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

namespace npud {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::string_view preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

class Taker : public ConnectionSink {
 public:
  bool take(UniqueFd fd, const Peer& peer) override {
    const std::lock_guard lock(mutex);
    if (full) return false;
    taken.push_back(std::move(fd));
    peers.push_back(peer);
    changed.notify_all();
    return true;
  }
  void closed(const Peer&) override {
    const std::lock_guard lock(mutex);
    ++closed_count;
    changed.notify_all();
  }
  template <class Predicate>
  bool wait_for(Predicate predicate) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, predicate);
  }
  int closed_so_far() {
    const std::lock_guard lock(mutex);
    return closed_count;
  }
  bool took_none() {
    const std::lock_guard lock(mutex);
    return taken.empty();
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<UniqueFd> taken;
  std::vector<Peer> peers;
  int closed_count = 0;
  bool full = false;
};

// Claims that each connection comes from the next uid, or fails.
class Identities : public System {
 public:
  int peer_credentials(int fd, ucred& out) override {
    if (broken) {
      errno = EINVAL;
      return -1;
    }
    const int result = System::peer_credentials(fd, out);
    out.uid = next_uid.load();
    return result;
  }
  ssize_t peek(int fd, std::span<std::byte> out) override {
    std::unique_lock lock(mutex);
    if (hold) {
      held = true;
      changed.notify_all();
      changed.wait(lock, [this] { return !hold; });
    }
    lock.unlock();
    return System::peek(fd, out);
  }
  // The duplicate gets the number that the closed descriptor had, as it does when that is the lowest one that is free.
  UniqueFd duplicate(int fd) override {
    const int number = reuse.exchange(-1);
    if (number < 0) return System::duplicate(fd);
    EXPECT_EQ(::fcntl(number, F_GETFD), -1) << "the descriptor is still open";
    return UniqueFd(::dup3(fd, number, O_CLOEXEC));
  }
  UniqueFd accept(int fd) override {
    if (failures.load() > 0) {
      --failures;
      errno = EMFILE;
      return {};
    }
    UniqueFd accepted = System::accept(fd);
    if (accepted) last_accepted = accepted.get();
    return accepted;
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool hold = false, held = false;  // under mutex: the loop stops in its next look at a connection
  std::atomic<int> reuse{-1}, last_accepted{-1};
  std::atomic<uid_t> next_uid{1000};
  std::atomic<bool> broken{false};
  std::atomic<int> failures{0};
};

class ConnectionsTest : public ::testing::Test {
 protected:
  ConnectionsTest() {
    std::string name = (fs::temp_directory_path() / "npud-conn-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    config_.socket = directory_ / "s";
  }
  ~ConnectionsTest() override {
    connections_.reset();
    fs::remove_all(directory_);
  }
  void start(ConnectionLimits limits) {
    auto listener = listen_unix(config_);
    ASSERT_TRUE(listener) << listener.error().message;
    std::vector<Listener> listeners;
    listeners.push_back(std::move(*listener));
    connections_ = std::make_unique<Connections>(std::move(listeners), limits, taker_, system_);
    ASSERT_TRUE(connections_->start());
  }
  UniqueFd connect() {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, config_.socket.c_str());
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static void say(const UniqueFd& fd, std::string_view text) {
    ASSERT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  static bool closed_by_peer(const UniqueFd& fd) {
    pollfd p{fd.get(), POLLIN, 0};
    char c;
    return ::poll(&p, 1, 20000) == 1 && ::recv(fd.get(), &c, 1, 0) <= 0;
  }

  fs::path directory_;
  ServerConfig config_;
  Taker taker_;
  Identities system_;
  std::unique_ptr<Connections> connections_;
};

TEST_F(ConnectionsTest, HandsOverWhoSpeaksHttp2WithItsUidAndAllItsBytes) {
  start({});
  UniqueFd client = connect();
  say(client, preface.substr(0, 5));
  std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(taker_.took_none());
  say(client, preface.substr(5));
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.taken.size() == 1; }));
  EXPECT_EQ(taker_.peers[0].uid, 1000u);
  char got[64];
  EXPECT_EQ(::recv(taker_.taken[0].get(), got, sizeof got, 0), static_cast<ssize_t>(preface.size()));
}

TEST_F(ConnectionsTest, NoticesWhenEitherSideCloses) {
  start({});
  UniqueFd one = connect(), two = connect();
  say(one, preface);
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.taken.size() == 1; }));
  say(two, preface);
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.taken.size() == 2; }));
  one.reset();
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.closed_count == 1; }));
  ::shutdown(taker_.taken[1].get(), SHUT_RDWR);  // as gRPC does before it closes
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.closed_count == 2; }));
  EXPECT_EQ(connections_->counts().open, 0u);
}

TEST_F(ConnectionsTest, ClosesWhoSaysNothingOrSomethingElse) {
  start({.handshake_timeout = 50ms});
  UniqueFd silent = connect(), half = connect(), other = connect();
  say(half, preface.substr(0, 10));
  say(other, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(closed_by_peer(other));
  EXPECT_TRUE(closed_by_peer(silent));
  EXPECT_TRUE(closed_by_peer(half));
  EXPECT_EQ(connections_->counts().timed_out, 3u);
  EXPECT_EQ(connections_->counts().silent, 0u);
  EXPECT_TRUE(taker_.took_none());
}

TEST_F(ConnectionsTest, AThousandSilentOnesDontKeepAnotherUserOut) {
  start({.max_total = 128, .max_per_uid = 1000, .max_silent = 100, .handshake_timeout = 60s});
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 1000; ++i) {
    silent.push_back(connect());
  }
  system_.next_uid = 2000;
  UniqueFd client = connect();
  say(client, preface);
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.taken.size() == 1; }));
  EXPECT_EQ(taker_.peers[0].uid, 2000u);
  EXPECT_LE(connections_->counts().silent, 100u);
}

TEST_F(ConnectionsTest, OneUserHasAtMostItsShare) {
  start({.max_total = 100, .max_per_uid = 2});
  UniqueFd a = connect(), b = connect();
  say(a, preface);
  say(b, preface);
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.taken.size() == 2; }));
  UniqueFd c = connect();
  EXPECT_TRUE(closed_by_peer(c));
  EXPECT_EQ(connections_->counts().refused, 1u);
  system_.next_uid = 1001;
  UniqueFd d = connect();
  say(d, preface);
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.taken.size() == 3; }));
  system_.next_uid = 1000;
  a.reset();
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.closed_count == 1; }));
  UniqueFd e = connect();
  say(e, preface);
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.taken.size() == 4; }));
}

// While the loop is busy: a new connection, for which the oldest silent one must go; the first words of another, whose
// duplicate gets that one's descriptor; and the end of the oldest, which by then is nobody's news any more.
TEST_F(ConnectionsTest, TheEndOfADroppedConnectionIsNotTakenForAnothers) {
  start({.max_silent = 3, .handshake_timeout = 60s});
  auto silent = [&](std::uint32_t n) {
    for (int i = 0; i < 4000 && connections_->counts().silent != n; ++i) std::this_thread::sleep_for(5ms);
    ASSERT_EQ(connections_->counts().silent, n);
  };
  UniqueFd oldest = connect();
  silent(1);
  const int its_number = system_.last_accepted;
  UniqueFd speaker = connect(), other = connect();
  silent(3);
  {
    std::unique_lock lock(system_.mutex);
    system_.hold = true;
    say(other, preface.substr(0, 3));
    ASSERT_TRUE(system_.changed.wait_for(lock, 20s, [&] { return system_.held; }));
  }
  UniqueFd fresh = connect();
  say(speaker, preface);
  oldest.reset();
  system_.reuse = its_number;
  {
    const std::lock_guard lock(system_.mutex);
    system_.hold = false;
    system_.changed.notify_all();
  }
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.taken.size() == 1; }));
  EXPECT_EQ(system_.reuse, -1);
  say(fresh, preface);  // after the batch of the oldest's end
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.taken.size() == 2; }));
  for (int i = 0; i < 4000 && connections_->counts().open != 2; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(connections_->counts().open, 2u);
  EXPECT_EQ(taker_.closed_so_far(), 0);
}

TEST_F(ConnectionsTest, WhoCannotBeNamedIsRefused) {
  start({});
  system_.broken = true;
  UniqueFd client = connect();
  EXPECT_TRUE(closed_by_peer(client));
  EXPECT_TRUE(taker_.took_none());
}

TEST_F(ConnectionsTest, WaitsWhenDescriptorsRunOutAndGoesOn) {
  start({});
  system_.failures = 3;
  UniqueFd client = connect();
  say(client, preface);
  ASSERT_TRUE(taker_.wait_for([&] { return taker_.taken.size() == 1; }));
  EXPECT_EQ(connections_->counts().refused, 3u);
}

TEST_F(ConnectionsTest, ARefusalBySinkClosesTheConnectionAndCountsNothingTwice) {
  start({});
  taker_.full = true;
  UniqueFd client = connect();
  say(client, preface);
  EXPECT_TRUE(closed_by_peer(client));
  EXPECT_EQ(connections_->counts().open, 0u);
  EXPECT_EQ(taker_.closed_so_far(), 0);
}

TEST_F(ConnectionsTest, AStaleSocketIsReplacedALiveOneAndAFileAreNot) {
  {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, config_.socket.c_str());
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  start({});
  auto second = listen_unix(config_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::already_exists);
  connections_.reset();
  EXPECT_FALSE(fs::exists(config_.socket)) << "the socket is left behind";
  std::fclose(std::fopen(config_.socket.c_str(), "w"));
  EXPECT_FALSE(listen_unix(config_));
  EXPECT_TRUE(fs::exists(config_.socket));
}

}  // namespace
}  // namespace npud
