// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "client.h"
#include "vfio_user/dma_table.h"

namespace npud::vfio_user::testing {
namespace {

class DmaTest : public ServedDevice {
 protected:
  void SetUp() override {
    ServedDevice::SetUp();
    negotiate();
    client_->set_command_register(6);
  }
  Bus& bus() { return server_->bus(); }
  bool readable(uint64_t iova, size_t bytes) {
    std::vector<std::byte> to(bytes);
    return bus().dma_read(iova, to);
  }
  bool writable(uint64_t iova, size_t bytes) { return bus().dma_write(iova, std::vector<std::byte>(bytes)); }
};

TEST_F(DmaTest, reaches_guest_memory_through_the_mapped_descriptor) {
  GuestMemory memory(0x4000);
  ASSERT_EQ(client_->dma_map(0x80000000, 0x2000, memory.fd(), 0x1000).header.error, 0u);
  const std::array<std::byte, 3> data{std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_TRUE(bus().dma_write(0x80000ffe, data));
  EXPECT_TRUE(std::ranges::equal(memory.bytes().subspan(0x1ffe, 3), data));
  std::array<std::byte, 3> back;
  EXPECT_TRUE(bus().dma_read(0x80000ffe, back));
  EXPECT_EQ(back, data);
}

TEST_F(DmaTest, stays_inside_of_what_is_mapped) {
  GuestMemory memory(0x2000);
  client_->dma_map(0x1000, 0x2000, memory.fd());
  EXPECT_TRUE(readable(0x1000, 0x2000));
  EXPECT_FALSE(readable(0xfff, 1));
  EXPECT_FALSE(readable(0xfff, 2));
  EXPECT_FALSE(readable(0x2fff, 2));
  EXPECT_FALSE(readable(0x3000, 1));
  EXPECT_FALSE(readable(0xffffffffffffffff, 2)) << "the range wraps around";
  std::ranges::fill(memory.bytes(), std::byte{0x55});
  EXPECT_FALSE(writable(0x2fff, 2));
  EXPECT_EQ(memory.bytes()[0x1fff], std::byte{0x55}) << "a refused write has written a part";
}

TEST_F(DmaTest, copies_across_adjacent_mappings_but_gives_windows_only_inside_one) {
  GuestMemory memory(0x3000);
  client_->dma_map(0x10000, 0x1000, memory.fd(), 0x2000);
  client_->dma_map(0x11000, 0x1000, memory.fd(), 0);
  memory.bytes()[0x2fff] = std::byte{1};
  memory.bytes()[0x0000] = std::byte{2};
  std::array<std::byte, 2> back;
  EXPECT_TRUE(bus().dma_read(0x10fff, back));
  EXPECT_EQ(back, (std::array{std::byte{1}, std::byte{2}}));
  EXPECT_FALSE(bus().dma_window(0x10fff, 2, DmaAccess::kRead));
  DmaWindow window = bus().dma_window(0x10ffe, 2, DmaAccess::kReadWrite);
  ASSERT_TRUE(window);
  window.bytes()[0] = std::byte{9};
  EXPECT_EQ(memory.bytes()[0x2ffe], std::byte{9});
}

TEST_F(DmaTest, honours_rights) {
  GuestMemory memory(0x1000);
  client_->dma_map(0, 0x1000, memory.fd(), 0, kDmaMapRead);
  EXPECT_TRUE(readable(0, 8));
  EXPECT_FALSE(writable(0, 8));
  EXPECT_TRUE(bus().dma_window(0, 8, DmaAccess::kRead));
  EXPECT_FALSE(bus().dma_window(0, 8, DmaAccess::kReadWrite));
}

TEST_F(DmaTest, knows_ranges_without_memory_but_does_not_access_them) {
  EXPECT_EQ(client_->dma_map(0x1000, 0x1000, -1).header.error, 0u);
  EXPECT_FALSE(readable(0x1000, 1));
  EXPECT_EQ(client_->dma_unmap(0x1000, 0x1000).as<WireDmaUnmap>().size, 0x1000u);
}

TEST_F(DmaTest, refuses_mappings_that_can_not_be) {
  GuestMemory memory(0x2000);
  EXPECT_EQ(client_->dma_map(0x1000, 0x1000, memory.fd()).header.error, 0u);
  EXPECT_EQ(client_->dma_map(0x1fff, 0x1000, memory.fd()).header.error, unsigned{EEXIST});
  EXPECT_EQ(client_->dma_map(0x0001, 0x1000, memory.fd()).header.error, unsigned{EEXIST});
  EXPECT_EQ(client_->dma_map(0x5000, 0, memory.fd()).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->dma_map(0xfffffffffffff000, 0x1001, memory.fd()).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->dma_map(0x5000, 0x1000, memory.fd(), 0, 4).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->dma_map(0x5000, 0x1000, memory.fd(), 0x123).header.error, unsigned{EINVAL})
      << "not a page's offset";
  EXPECT_EQ(client_->dma_map(0x5000, 0x2001, memory.fd()).header.error, unsigned{EINVAL}) << "longer than the file";
  EXPECT_EQ(client_->dma_map(0x5000, 0x1000, memory.fd(), 0xfffffffffffff000).header.error, unsigned{EINVAL});
  const UniqueFd event = event_fd();
  EXPECT_EQ(client_->dma_map(0x5000, 0x1000, event.get()).header.error, unsigned{EINVAL}) << "no memory file";
  EXPECT_TRUE(readable(0x1000, 0x1000)) << "the good mapping has suffered";
}

TEST_F(DmaTest, unmaps_whole_mappings_only) {
  GuestMemory memory(0x4000);
  for (uint64_t at = 0; at < 0x4000; at += 0x1000) client_->dma_map(at, 0x1000, memory.fd(), at);
  EXPECT_EQ(client_->dma_unmap(0x800, 0x1000).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->dma_unmap(0x1000, 0x800).header.error, unsigned{EINVAL});
  EXPECT_EQ(client_->dma_unmap(0x1000, 0x2000).as<WireDmaUnmap>().size, 0x2000u);
  EXPECT_TRUE(readable(0, 0x1000));
  EXPECT_FALSE(readable(0x1000, 1));
  EXPECT_FALSE(readable(0x2fff, 1));
  EXPECT_TRUE(readable(0x3000, 0x1000));
  EXPECT_EQ(client_->dma_unmap(0x1000, 0x2000).as<WireDmaUnmap>().size, 0u) << "nothing is left there";
  EXPECT_EQ(client_->dma_unmap(0, 0, kDmaUnmapAll).as<WireDmaUnmap>().size, 0x2000u);
  EXPECT_FALSE(readable(0, 1));
}

TEST_F(DmaTest, is_refused_without_bus_mastering) {
  GuestMemory memory(0x1000);
  client_->dma_map(0, 0x1000, memory.fd());
  client_->set_command_register(2);
  EXPECT_FALSE(readable(0, 1));
  EXPECT_FALSE(writable(0, 1));
  EXPECT_FALSE(bus().dma_window(0, 1, DmaAccess::kRead));
  EXPECT_TRUE(logged("pci_set_master"));
  client_->set_command_register(6);
  EXPECT_TRUE(readable(0, 1));
}

TEST_F(DmaTest, unmapping_waits_for_windows) {
  GuestMemory memory(0x1000);
  client_->dma_map(0, 0x1000, memory.fd());
  std::optional<DmaWindow> window = bus().dma_window(0, 0x1000, DmaAccess::kReadWrite);
  client_->send(Command::kDmaUnmap, bytes_of(WireDmaUnmap{24, 0, 0, 0x1000}));
  // The mapping leaves the table first; then the server waits.
  while (readable(0, 1)) std::this_thread::yield();
  pollfd answered{client_->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&answered, 1, 0), 0) << "answered while the window was in use";
  std::ranges::fill(window->bytes(), std::byte{1});
  window.reset();
  const auto reply = client_->receive();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->header.error, 0u);
}

TEST(DmaTable, says_that_a_window_outlived_its_mapping) {
  DmaTable table(std::chrono::milliseconds(1));
  GuestMemory memory(0x1000);
  ASSERT_TRUE(table.map(0, 0x1000, kDmaMapRead | kDmaMapWrite, 0, UniqueFd(::dup(memory.fd()))));
  const DmaWindow window = table.window(0, 16, DmaAccess::kReadWrite);
  const auto unmapped = table.unmap(0, 0x1000);
  ASSERT_FALSE(unmapped);
  EXPECT_EQ(unmapped.error().error, EBUSY);
  window.bytes()[0] = std::byte{1};  // still memory, not a fault
  EXPECT_EQ(table.mappings(), 0u);
}

TEST(DmaTable, windows_may_outlive_the_table) {
  GuestMemory memory(0x1000);
  DmaWindow window;
  {
    DmaTable table;
    ASSERT_TRUE(table.map(0, 0x1000, kDmaMapRead | kDmaMapWrite, 0, UniqueFd(::dup(memory.fd()))));
    window = table.window(0, 16, DmaAccess::kReadWrite);
  }
  window.bytes()[0] = std::byte{7};
  EXPECT_EQ(memory.bytes()[0], std::byte{7});
}

// Workers copy and hold windows, each in a part of its own, while the mapping comes and goes.
TEST(DmaTable, survives_unmapping_under_load) {
  DmaTable table;
  GuestMemory memory(0x4000);
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> hits = 0;
  std::vector<std::thread> workers;
  for (int w = 0; w < 3; w++) {
    workers.emplace_back([&, w] {
      std::vector<std::byte> buffer(0x1000, static_cast<std::byte>(w));
      while (!stop) {
        if (w == 0 && table.write(0x0800, buffer)) hits++;
        if (w == 1 && table.read(0x1800, buffer)) hits++;
        if (w == 2) {
          const DmaWindow window = table.window(0x2800, 0x1000, DmaAccess::kReadWrite);
          if (window) std::ranges::fill(window.bytes(), std::byte{3}), hits++;
        }
      }
    });
  }
  for (int round = 0; round < 100 || hits < 30; round++) {
    ASSERT_TRUE(table.map(0, 0x4000, kDmaMapRead | kDmaMapWrite, 0, UniqueFd(::dup(memory.fd()))));
    std::this_thread::yield();
    const auto unmapped = table.unmap(0, 0x4000);
    ASSERT_TRUE(unmapped) << unmapped.error().reason;
  }
  stop = true;
  for (std::thread& worker : workers) worker.join();
}

}  // namespace
}  // namespace npud::vfio_user::testing
