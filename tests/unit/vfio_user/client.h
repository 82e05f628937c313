// SPDX-License-Identifier: Apache-2.0
// The test's side of the connection: a vfio-user client on one end of a socket pair, a server on its own thread at the
// other, and a device that is plain memory and remembers what was done to it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "vfio_user/device.h"
#include "vfio_user/protocol.h"
#include "vfio_user/server.h"

namespace npud::vfio_user::testing {

template <typename T>
std::vector<std::byte> bytes_of(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

inline std::vector<std::byte> operator+(std::vector<std::byte> a, const std::vector<std::byte>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// BAR 0: 4 KiB of memory whose last word refuses access. BAR 4: MSI-X table at 0, device bytes, PBA at 0x800.
class MemoryDevice : public Device {
 public:
  MemoryDevice() {
    spec.vendor = 0x1d87;
    spec.device = 0x3588;
    spec.subsystem_vendor = 0x1111;
    spec.subsystem_device = 0x2222;
    spec.class_code = 0x120000;
    spec.bar_bytes = {0x1000, 0, 0x2000, 0, 0x1000, 0};
    spec.msix_vectors = 3;
  }
  const FunctionSpec& function() const override { return spec; }
  void attach(Bus& b) override { bus = &b; }
  void detach() override { bus = nullptr; }
  bool region_read(unsigned bar, uint64_t offset, std::span<std::byte> data) override {
    EXPECT_LE(offset + data.size(), spec.bar_bytes[bar]);
    if (bar == 0 && offset == 0xffc) return false;
    std::memcpy(data.data(), memory[bar].data() + offset, data.size());
    return true;
  }
  bool region_write(unsigned bar, uint64_t offset, std::span<const std::byte> data) override {
    EXPECT_LE(offset + data.size(), spec.bar_bytes[bar]);
    std::memcpy(memory[bar].data() + offset, data.data(), data.size());
    if (on_write) on_write(bar, offset);
    return true;
  }
  void reset() override { resets++; }

  FunctionSpec spec;
  Bus* bus = nullptr;
  std::array<std::array<std::byte, 0x2000>, kBars> memory{};
  std::function<void(unsigned bar, uint64_t offset)> on_write;
  std::atomic<int> resets = 0;
};

struct Reply {
  Header header;
  std::vector<std::byte> payload;
  template <typename T>
  T as(size_t at = 0) const {
    T value{};
    EXPECT_GE(payload.size(), at + sizeof(T));
    if (payload.size() >= at + sizeof(T)) std::memcpy(&value, payload.data() + at, sizeof(T));
    return value;
  }
};

class Client {
 public:
  explicit Client(UniqueFd fd) : fd_(std::move(fd)) {}

  void send_raw(std::span<const std::byte> bytes, std::span<const int> fds = {}) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    std::vector<char> control(CMSG_SPACE(fds.size_bytes()));
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
    }
    ASSERT_EQ(::sendmsg(fd_.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }

  void send(Command command, const std::vector<std::byte>& payload, std::span<const int> fds = {}, uint32_t flags = 0) {
    const Header header{++id_, static_cast<uint16_t>(command), static_cast<uint32_t>(sizeof(Header) + payload.size()),
                        flags, 0};
    send_raw(bytes_of(header) + payload, fds);
  }

  // The next message, or none if the server has closed the connection.
  std::optional<Reply> receive() {
    Reply reply;
    if (!fill(std::as_writable_bytes(std::span(&reply.header, 1)))) return {};
    reply.payload.resize(reply.header.size_bytes - sizeof(Header));
    if (!fill(reply.payload)) return {};
    return reply;
  }

  Reply call(Command command, const std::vector<std::byte>& payload = {}, std::span<const int> fds = {}) {
    send(command, payload, fds);
    auto reply = receive();
    EXPECT_TRUE(reply) << "the server closed the connection";
    if (!reply) return {};
    EXPECT_EQ(reply->header.id, id_);
    EXPECT_EQ(reply->header.command, static_cast<uint16_t>(command));
    EXPECT_EQ(reply->header.flags & kTypeMask, kTypeReply);
    EXPECT_EQ(reply->header.flags & kFlagError ? reply->header.error != 0 : reply->header.error == 0, true);
    return *reply;
  }

  Reply version() {
    const std::string json = R"({"capabilities":{"max_msg_fds":8}})";
    const auto text = std::as_bytes(std::span(json.c_str(), json.size() + 1));
    return call(Command::kVersion, bytes_of(uint32_t{0}) + std::vector<std::byte>(text.begin(), text.end()));
  }

  Reply read(uint32_t region, uint64_t offset, uint32_t count) {
    return call(Command::kRegionRead, bytes_of(WireRegionAccess{offset, region, count}));
  }
  template <typename T>
  T read_value(uint32_t region, uint64_t offset) {
    return read(region, offset, sizeof(T)).template as<T>(sizeof(WireRegionAccess));
  }
  template <typename T>
  Reply write(uint32_t region, uint64_t offset, T value) {
    return call(Command::kRegionWrite, bytes_of(WireRegionAccess{offset, region, sizeof(T)}) + bytes_of(value));
  }
  Reply dma_map(uint64_t iova, uint64_t size, int fd, uint64_t offset = 0,
                uint32_t flags = kDmaMapRead | kDmaMapWrite) {
    const auto wire = bytes_of(WireDmaMap{sizeof(WireDmaMap), flags, offset, iova, size});
    return fd < 0 ? call(Command::kDmaMap, wire) : call(Command::kDmaMap, wire, std::span(&fd, 1));
  }
  Reply dma_unmap(uint64_t iova, uint64_t size, uint32_t flags = 0) {
    return call(Command::kDmaUnmap, bytes_of(WireDmaUnmap{sizeof(WireDmaUnmap), flags, iova, size}));
  }
  Reply set_irqs(uint32_t flags, uint32_t index, uint32_t start, uint32_t count, std::vector<int> fds = {},
                 const std::vector<std::byte>& data = {}) {
    return call(Command::kDeviceSetIrqs, bytes_of(WireSetIrqs{sizeof(WireSetIrqs), flags, index, start, count}) + data,
                fds);
  }
  void set_command_register(uint16_t value) { write<uint16_t>(kRegionConfig, 4, value); }
  void hang_up() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  bool fill(std::span<std::byte> to) {
    for (size_t done = 0; done < to.size();) {
      const ssize_t n = ::recv(fd_.get(), to.data() + done, to.size() - done, 0);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }

  UniqueFd fd_;
  uint16_t id_ = 0;
};

inline UniqueFd event_fd() { return UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

// How often an eventfd was signalled since the last call.
inline uint64_t signals(const UniqueFd& fd) {
  uint64_t count = 0;
  return ::read(fd.get(), &count, sizeof(count)) == sizeof(count) ? count : 0;
}

// Guest memory of the test: a memfd and its mapping.
class GuestMemory {
 public:
  explicit GuestMemory(size_t size) : fd_(::memfd_create("guest", MFD_CLOEXEC)), size_(size) {
    EXPECT_EQ(::ftruncate(fd_.get(), static_cast<off_t>(size)), 0);
    data_ = static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
  }
  ~GuestMemory() { ::munmap(data_, size_); }
  int fd() const { return fd_.get(); }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  UniqueFd fd_;
  size_t size_;
  std::byte* data_;
};

// A server with one connected client.
class ServedDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    auto created = Server::create(device_, [this](std::string_view line) {
      const std::lock_guard guard(log_lock_);
      log_.emplace_back(line);
    });
    ASSERT_TRUE(created) << created.error();
    server_ = std::move(*created);
    connect();
  }
  void TearDown() override {
    client_.reset();
    if (thread_.joinable()) thread_.join();
    server_.reset();
    EXPECT_EQ(device_.bus, nullptr) << "the device was not detached";
  }

  void connect() {
    if (thread_.joinable()) {
      client_.reset();
      thread_.join();
    }
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    client_.emplace(UniqueFd(pair[0]));
    thread_ = std::thread(
        [this, theirs = UniqueFd(pair[1])]() mutable { result_ = server_->serve_connection(std::move(theirs)); });
  }
  void negotiate() { ASSERT_EQ(client_->version().header.error, 0u); }

  // Ends the connection from the client's side and says how the server saw it.
  std::expected<void, std::string> leave() {
    client_->hang_up();
    thread_.join();
    return result_;
  }
  // Expects that the server has ended the connection, and says why.
  std::string cut_off() {
    EXPECT_FALSE(client_->receive());
    thread_.join();
    EXPECT_FALSE(result_) << "the server saw nothing wrong";
    return result_ ? "" : result_.error();
  }
  bool logged(std::string_view part) {
    const std::lock_guard guard(log_lock_);
    for (const std::string& line : log_) {
      if (line.find(part) != std::string::npos) return true;
    }
    return false;
  }

  MemoryDevice device_;
  std::unique_ptr<Server> server_;
  std::optional<Client> client_;
  std::thread thread_;
  std::expected<void, std::string> result_;
  std::mutex log_lock_;
  std::vector<std::string> log_;
};

}  // namespace npud::vfio_user::testing
