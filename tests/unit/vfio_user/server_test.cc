// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>

#include "client.h"

namespace npud::vfio_user::testing {
namespace {

using ServerTest = ServedDevice;

TEST_F(ServerTest, answers_version_0_0_with_its_capabilities) {
  const Reply reply = client_->version();
  EXPECT_EQ(reply.as<uint32_t>(), 0u);
  const std::string json(reinterpret_cast<const char*>(reply.payload.data()) + 4, reply.payload.size() - 4);
  EXPECT_EQ(json.back(), '\0');
  EXPECT_NE(json.find("\"max_msg_fds\":8"), std::string::npos) << json;
  EXPECT_TRUE(leave()) << result_.error();
}

TEST_F(ServerTest, describes_device_regions_and_interrupts) {
  negotiate();
  const auto info = client_->call(Command::kDeviceGetInfo, bytes_of(WireDeviceInfo{16, 0, 0, 0})).as<WireDeviceInfo>();
  EXPECT_EQ(info.flags, kDeviceReset | kDevicePci);
  EXPECT_EQ(info.regions, kRegions);
  EXPECT_EQ(info.irqs, kIrqs);
  const std::vector<uint64_t> sizes{0x1000, 0, 0x2000, 0, 0x1000, 0, 0, 256, 0};
  for (uint32_t i = 0; i < sizes.size(); i++) {
    const auto region =
        client_->call(Command::kDeviceGetRegionInfo, bytes_of(WireRegionInfo{32, 0, i, 0, 0, 0})).as<WireRegionInfo>();
    EXPECT_EQ(region.index, i);
    EXPECT_EQ(region.size, sizes[i]);
    EXPECT_EQ(region.flags, sizes[i] ? kRegionReadable | kRegionWritable : 0);
  }
  const std::vector<uint32_t> counts{1, 0, 3, 0, 0};
  for (uint32_t i = 0; i < counts.size(); i++) {
    const auto irq = client_->call(Command::kDeviceGetIrqInfo, bytes_of(WireIrqInfo{16, 0, i, 0})).as<WireIrqInfo>();
    EXPECT_EQ(irq.count, counts[i]);
  }
  EXPECT_EQ(client_->call(Command::kDeviceGetRegionInfo, bytes_of(WireRegionInfo{32, 0, 9, 0, 0, 0})).header.error,
            unsigned{EINVAL});
  EXPECT_EQ(client_->call(Command::kDeviceGetIrqInfo, bytes_of(WireIrqInfo{16, 0, 5, 0})).header.error,
            unsigned{EINVAL});
}

TEST_F(ServerTest, reads_and_writes_bars) {
  negotiate();
  client_->write<uint32_t>(0, 0x10, 0xcafef00d);
  client_->write<uint64_t>(2, 0x1ff8, 0x1122334455667788);
  EXPECT_EQ(client_->read_value<uint32_t>(0, 0x10), 0xcafef00d);
  EXPECT_EQ(client_->read_value<uint8_t>(0, 0x11), 0xf0);
  EXPECT_EQ(client_->read_value<uint64_t>(2, 0x1ff8), 0x1122334455667788u);
  EXPECT_EQ(client_->read_value<uint32_t>(0, 0xffc), 0xffffffffu) << "a refused read is all ones";
}

TEST_F(ServerTest, refuses_accesses_outside_of_regions_and_goes_on) {
  negotiate();
  EXPECT_EQ(client_->read(0, 0xffd, 4).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->read(0, 0xffffffffffffffff, 4).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->read(0, 0, 0).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->read(1, 0, 4).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->read(99, 0, 4).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->write<uint64_t>(0, 0xffc, 1).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->read(kRegionConfig, 254, 4).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->call(Command::kDirtyPages, bytes_of(uint64_t{0})).header.error, unsigned{ENOTSUP});
  EXPECT_EQ(client_->read_value<uint32_t>(0, 0), 0u);
  EXPECT_TRUE(logged("REGION_READ of 4 bytes at 0xffd of region 0"));
}

TEST_F(ServerTest, carries_out_posted_and_batched_writes) {
  negotiate();
  client_->send(Command::kRegionWrite, bytes_of(WireRegionAccess{0x20, 0, 4}) + bytes_of(uint32_t{7}), {},
                kFlagNoReply);
  EXPECT_EQ(client_->read_value<uint32_t>(0, 0x20), 7u) << "the posted write had no reply of its own";
  const auto one = [](uint64_t offset, uint32_t value) {
    WireMultiWrite wire{offset, 0, 4, {}};
    std::memcpy(wire.data, &value, 4);
    return bytes_of(wire);
  };
  const Reply reply =
      client_->call(Command::kRegionWriteMulti, bytes_of(uint64_t{3}) + one(0x30, 1) + one(0x34, 2) + one(0x30, 3));
  EXPECT_EQ(reply.as<uint64_t>(), 3u);
  EXPECT_EQ(client_->read_value<uint64_t>(0, 0x30), 0x0000000200000003u);
}

TEST_F(ServerTest, resets_the_device_on_request_and_when_the_client_leaves) {
  negotiate();
  client_->set_command_register(6);
  client_->call(Command::kDeviceReset);
  EXPECT_EQ(device_.resets, 1);
  EXPECT_EQ(client_->read_value<uint16_t>(kRegionConfig, 4), 0);
  client_->set_command_register(6);
  client_->write<uint8_t>(kRegionConfig, 0x54, 1);
  EXPECT_EQ(device_.resets, 2) << "by the guest, through the capability";
  EXPECT_EQ(client_->read_value<uint16_t>(kRegionConfig, 4), 0);
  EXPECT_TRUE(leave());
  EXPECT_EQ(device_.resets, 3);
}

TEST_F(ServerTest, serves_the_next_client_from_a_clean_state) {
  GuestMemory memory(0x1000);
  const UniqueFd event = event_fd();
  negotiate();
  client_->set_command_register(6);
  client_->dma_map(0, 0x1000, memory.fd());
  client_->set_irqs(kSetIrqsDataEventfd | kSetIrqsTrigger, kIrqIntx, 0, 1, {event.get()});
  connect();
  std::byte byte;
  EXPECT_FALSE(server_->bus().dma_read(0, std::span(&byte, 1)));
  server_->bus().set_intx(true);
  EXPECT_EQ(signals(event), 0u);
  negotiate();
  client_->set_command_register(6);
  EXPECT_FALSE(server_->bus().dma_read(0, std::span(&byte, 1)));
  EXPECT_EQ(client_->dma_map(0, 0x1000, memory.fd()).header.error, 0u);
  EXPECT_TRUE(server_->bus().dma_read(0, std::span(&byte, 1)));
}

// --- malformed input ends the connection, with a reason, and nothing else ---

TEST_F(ServerTest, ends_the_connection_on_a_size_smaller_than_a_header) {
  client_->send_raw(bytes_of(Header{1, 1, 15, 0, 0}));
  EXPECT_NE(cut_off().find("15 bytes"), std::string::npos) << result_.error();
}

TEST_F(ServerTest, ends_the_connection_on_a_huge_size_without_allocating_it) {
  client_->send_raw(bytes_of(Header{1, 10, 0xffffffff, 0, 0}));
  EXPECT_NE(cut_off().find("4294967295"), std::string::npos);
}

TEST_F(ServerTest, ends_the_connection_on_an_unexpected_reply) {
  client_->send_raw(bytes_of(Header{1, 1, 16, kTypeReply, 0}));
  EXPECT_NE(cut_off().find("no command"), std::string::npos);
}

TEST_F(ServerTest, ends_the_connection_on_a_command_before_version) {
  client_->send(Command::kDeviceGetInfo, bytes_of(WireDeviceInfo{}));
  EXPECT_NE(cut_off().find("before VERSION"), std::string::npos);
}

TEST_F(ServerTest, ends_the_connection_on_a_second_version) {
  negotiate();
  client_->send(Command::kVersion, bytes_of(uint32_t{0}));
  EXPECT_NE(cut_off().find("second VERSION"), std::string::npos);
}

TEST_F(ServerTest, ends_the_connection_on_a_version_it_does_not_speak) {
  client_->send(Command::kVersion, bytes_of(uint32_t{1}));
  EXPECT_NE(cut_off().find("speaks version 1.0"), std::string::npos);
}

TEST_F(ServerTest, ends_the_connection_on_truncated_payloads) {
  const std::vector<Command> commands{
      Command::kDmaMap,        Command::kDmaUnmap,   Command::kDeviceGetRegionInfo, Command::kDeviceGetIrqInfo,
      Command::kDeviceSetIrqs, Command::kRegionRead, Command::kRegionWrite,         Command::kRegionWriteMulti};
  for (const Command command : commands) {
    connect();
    negotiate();
    client_->send(command, bytes_of(uint32_t{0}));
    EXPECT_NE(cut_off().find("shorter than"), std::string::npos) << static_cast<int>(command);
  }
}

TEST_F(ServerTest, ends_the_connection_on_sizes_that_do_not_add_up) {
  negotiate();
  client_->send(Command::kRegionWrite, bytes_of(WireRegionAccess{0, 0, 8}) + bytes_of(uint32_t{1}));
  EXPECT_NE(cut_off().find("8 bytes with 4 bytes"), std::string::npos);
  connect();
  negotiate();
  client_->send(Command::kRegionRead, bytes_of(WireRegionAccess{0, 0, kMaxTransferBytes + 1}));
  EXPECT_NE(cut_off().find("limit"), std::string::npos);
  connect();
  negotiate();
  client_->send(Command::kRegionWriteMulti, bytes_of(uint64_t{1} << 61) + bytes_of(WireMultiWrite{}));
  EXPECT_NE(cut_off().find("writes in 24 bytes"), std::string::npos);
  connect();
  negotiate();
  client_->send(Command::kRegionWriteMulti, bytes_of(uint64_t{1}) + bytes_of(WireMultiWrite{0, 0, 9, {}}));
  EXPECT_NE(cut_off().find("write of 9 bytes"), std::string::npos);
}

TEST_F(ServerTest, ends_the_connection_on_descriptors_where_none_belong) {
  const UniqueFd event = event_fd();
  const std::vector<int> fds(9, event.get());
  negotiate();
  client_->send(Command::kDeviceReset, {}, std::span(fds).first(1));
  EXPECT_NE(cut_off().find("does not take"), std::string::npos);
  connect();
  negotiate();
  client_->send(Command::kDmaMap, bytes_of(WireDmaMap{32, 3, 0, 0, 4096}), std::span(fds).first(2));
  EXPECT_NE(cut_off().find("2 file descriptors"), std::string::npos);
  connect();
  negotiate();
  client_->send(Command::kDeviceReset, {}, fds);
  EXPECT_NE(cut_off().find("more than 8"), std::string::npos);
}

TEST_F(ServerTest, notes_a_client_that_leaves_in_the_middle_of_a_message) {
  client_->send_raw(bytes_of(Header{1, 1, 100, 0, 0}));
  EXPECT_FALSE(leave());
  EXPECT_NE(result_.error().find("middle of a message"), std::string::npos);
}

TEST_F(ServerTest, stop_ends_a_connection_that_is_idle) {
  negotiate();
  server_->stop();
  thread_.join();
  EXPECT_TRUE(result_);
}

// --- the listening socket ---

class Listening : public ::testing::Test {
 protected:
  Listening() : directory_(std::filesystem::temp_directory_path() / ("npud-vfio-" + std::to_string(::getpid()))) {
    std::filesystem::create_directory(directory_);
    path_ = directory_ / "socket";
    server_ = std::move(*Server::create(device_, {}));
  }
  ~Listening() override { std::filesystem::remove_all(directory_); }
  UniqueFd dial() {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    path_.copy(at.sun_path, sizeof(at.sun_path) - 1);
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    return fd;
  }
  std::filesystem::path directory_;
  std::string path_;
  MemoryDevice device_;
  std::unique_ptr<Server> server_;
};

TEST_F(Listening, serves_clients_one_after_the_other_and_removes_its_socket) {
  std::atomic<bool> ready = false;
  std::expected<void, std::string> result;
  std::thread thread([&] {
    result = server_->serve(path_, [&] {
      ready = true;
      ready.notify_all();
    });
  });
  ready.wait(false);
  for (int i = 0; i < 3; i++) {
    Client client(dial());
    EXPECT_EQ(client.version().header.error, 0u);
    client.write<uint32_t>(0, 0, 1);
  }
  Client second(dial());
  EXPECT_EQ(second.version().header.error, 0u);
  server_->stop();
  thread.join();
  EXPECT_TRUE(result) << result.error();
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(device_.resets, 4);
}

TEST_F(Listening, takes_over_a_stale_socket_but_not_a_live_one_nor_a_file) {
  std::ofstream(path_) << "precious";
  auto result = server_->serve(path_);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().find("is no socket"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path_));
  std::filesystem::remove(path_);

  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path_.copy(at.sun_path, sizeof(at.sun_path) - 1);
  UniqueFd other(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(other.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  ASSERT_EQ(::listen(other.get(), 1), 0);
  result = server_->serve(path_);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().find("already serves"), std::string::npos);

  other.reset();
  EXPECT_TRUE(server_->serve(path_, [&] { server_->stop(); })) << "the socket is stale now";
}

TEST_F(Listening, says_what_is_wrong_with_a_path) {
  auto result = server_->serve(std::string(200, 'x'));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().find("1 to 107 bytes"), std::string::npos);
  result = server_->serve(directory_ / "missing" / "socket");
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace npud::vfio_user::testing
