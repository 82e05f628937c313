// SPDX-License-Identifier: Apache-2.0
#include "client.h"

namespace npud::vfio_user::testing {
namespace {

constexpr uint32_t kUseEventfd = kSetIrqsDataEventfd | kSetIrqsTrigger;
constexpr uint32_t kUnmask = kSetIrqsDataNone | kSetIrqsUnmask;
constexpr uint32_t kMask = kSetIrqsDataNone | kSetIrqsMask;
constexpr uint32_t kDisable = kSetIrqsDataNone | kSetIrqsTrigger;

class IntxTest : public ServedDevice {
 protected:
  void SetUp() override {
    ServedDevice::SetUp();
    negotiate();
    client_->set_command_register(6);
    ASSERT_EQ(client_->set_irqs(kUseEventfd, kIrqIntx, 0, 1, {event_.get()}).header.error, 0u);
  }
  Bus& bus() { return server_->bus(); }
  UniqueFd event_ = event_fd();
};

TEST_F(IntxTest, signals_once_until_unmasked_and_again_while_the_level_stands) {
  bus().set_intx(true);
  bus().set_intx(true);
  EXPECT_EQ(signals(event_), 1u);
  client_->set_irqs(kUnmask, kIrqIntx, 0, 1);
  EXPECT_EQ(signals(event_), 1u) << "the cause stands";
  bus().set_intx(false);
  client_->set_irqs(kUnmask, kIrqIntx, 0, 1);
  EXPECT_EQ(signals(event_), 0u);
  bus().set_intx(true);
  EXPECT_EQ(signals(event_), 1u);
}

// As QEMU does it: the guest's write that clears the cause, then the unmask.
TEST_F(IntxTest, a_register_write_that_clears_the_cause_ends_the_interrupt) {
  device_.on_write = [this](unsigned, uint64_t offset) { device_.bus->set_intx(offset == 0); };
  client_->write<uint32_t>(0, 0, 1);
  EXPECT_EQ(signals(event_), 1u);
  client_->write<uint32_t>(0, 4, 1);
  client_->set_irqs(kUnmask, kIrqIntx, 0, 1);
  EXPECT_EQ(signals(event_), 0u);
}

TEST_F(IntxTest, a_level_that_rises_while_masked_is_signalled_at_the_unmask) {
  client_->set_irqs(kMask, kIrqIntx, 0, 1);
  bus().set_intx(true);
  EXPECT_EQ(signals(event_), 0u);
  client_->set_irqs(kSetIrqsDataBool | kSetIrqsUnmask, kIrqIntx, 0, 1, {}, {std::byte{0}});
  EXPECT_EQ(signals(event_), 0u) << "a false bool leaves the interrupt alone";
  client_->set_irqs(kSetIrqsDataBool | kSetIrqsUnmask, kIrqIntx, 0, 1, {}, {std::byte{1}});
  EXPECT_EQ(signals(event_), 1u);
}

TEST_F(IntxTest, shows_in_the_status_register_and_obeys_the_disable_bit) {
  client_->set_command_register(0x406);
  bus().set_intx(true);
  EXPECT_EQ(signals(event_), 0u);
  EXPECT_EQ(client_->read_value<uint16_t>(kRegionConfig, 6) & 8, 8);
  client_->set_command_register(6);
  EXPECT_EQ(signals(event_), 1u);
  bus().set_intx(false);
  EXPECT_EQ(client_->read_value<uint16_t>(kRegionConfig, 6) & 8, 0);
}

TEST_F(IntxTest, resumes_through_the_clients_eventfd) {
  const UniqueFd resume = event_fd();
  ASSERT_EQ(client_->set_irqs(kSetIrqsDataEventfd | kSetIrqsUnmask, kIrqIntx, 0, 1, {resume.get()}).header.error, 0u);
  bus().set_intx(true);
  EXPECT_EQ(signals(event_), 1u);
  const uint64_t one = 1;
  ASSERT_EQ(::write(resume.get(), &one, sizeof(one)), 8);
  pollfd again{event_.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&again, 1, 30000), 1);
  EXPECT_EQ(signals(event_), 1u);
}

TEST_F(IntxTest, a_new_eventfd_gets_a_standing_level_and_a_removed_one_nothing) {
  bus().set_intx(true);
  EXPECT_EQ(signals(event_), 1u);
  const UniqueFd other = event_fd();
  client_->set_irqs(kUseEventfd, kIrqIntx, 0, 1, {other.get()});
  EXPECT_EQ(signals(other), 1u);
  client_->set_irqs(kDisable, kIrqIntx, 0, 0);
  client_->set_irqs(kUnmask, kIrqIntx, 0, 1);
  EXPECT_EQ(signals(other) + signals(event_), 0u);
}

TEST_F(IntxTest, reset_takes_the_level_down) {
  bus().set_intx(true);
  EXPECT_EQ(signals(event_), 1u);
  client_->call(Command::kDeviceReset);
  client_->set_irqs(kUnmask, kIrqIntx, 0, 1);
  EXPECT_EQ(signals(event_), 0u);
}

TEST_F(IntxTest, refuses_what_makes_no_sense) {
  const unsigned invalid = EINVAL;
  EXPECT_EQ(client_->set_irqs(kUnmask | kMask, kIrqIntx, 0, 1).header.error, invalid);
  EXPECT_EQ(client_->set_irqs(kSetIrqsTrigger, kIrqIntx, 0, 1).header.error, invalid);
  EXPECT_EQ(client_->set_irqs(kSetIrqsDataNone, kIrqIntx, 0, 1).header.error, invalid);
  EXPECT_EQ(client_->set_irqs(kUnmask, kIrqIntx, 0, 2).header.error, invalid);
  EXPECT_EQ(client_->set_irqs(kUnmask, kIrqIntx, 2, 0xffffffff).header.error, invalid);
  EXPECT_EQ(client_->set_irqs(kUnmask, 1, 0, 1).header.error, invalid);
  EXPECT_EQ(client_->set_irqs(kUnmask, 77, 0, 1).header.error, invalid);
  EXPECT_EQ(client_->set_irqs(kSetIrqsDataEventfd | kSetIrqsMask, kIrqIntx, 0, 1, {event_.get()}).header.error,
            invalid);
  EXPECT_EQ(client_->set_irqs(0x100 | kUnmask, kIrqIntx, 0, 1).header.error, invalid);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd in(ends[0]), out(ends[1]);
  EXPECT_EQ(client_->set_irqs(kUseEventfd, kIrqIntx, 0, 1, {out.get()}).header.error, invalid) << "a pipe could block";
  bus().set_intx(true);
  EXPECT_EQ(signals(event_), 1u) << "the good eventfd has suffered";
}

TEST_F(IntxTest, ends_the_connection_when_descriptors_and_count_differ) {
  client_->send(Command::kDeviceSetIrqs, bytes_of(WireSetIrqs{20, kUseEventfd, kIrqMsix, 0, 2}),
                std::vector{event_.get()});
  EXPECT_NE(cut_off().find("2 interrupts with 1 file descriptors"), std::string::npos);
}

class MsixTest : public ServedDevice {
 protected:
  static constexpr uint32_t kBar = 4;
  static constexpr uint64_t kPba = 0x800;
  void SetUp() override {
    ServedDevice::SetUp();
    negotiate();
    client_->set_command_register(6);
    std::vector<int> fds;
    for (const UniqueFd& event : events_) fds.push_back(event.get());
    ASSERT_EQ(client_->set_irqs(kUseEventfd, kIrqMsix, 0, 3, fds).header.error, 0u);
    control(0x8000);
  }
  void control(uint16_t value) { client_->write<uint16_t>(kRegionConfig, 0x42, value); }
  uint64_t pending() { return client_->read_value<uint64_t>(kBar, kPba); }
  Bus& bus() { return server_->bus(); }
  std::array<UniqueFd, 3> events_{event_fd(), event_fd(), event_fd()};
};

TEST_F(MsixTest, sends_each_vector_to_its_eventfd) {
  EXPECT_TRUE(bus().msix_enabled());
  bus().msix(2);
  bus().msix(0);
  bus().msix(0);
  EXPECT_EQ(signals(events_[0]), 2u);
  EXPECT_EQ(signals(events_[1]), 0u);
  EXPECT_EQ(signals(events_[2]), 1u);
  bus().msix(3);
  bus().msix(0xffffffff);
}

TEST_F(MsixTest, keeps_masked_vectors_pending_and_sends_them_once) {
  client_->set_irqs(kMask, kIrqMsix, 1, 1);
  bus().msix(1);
  bus().msix(1);
  EXPECT_EQ(signals(events_[1]), 0u);
  EXPECT_EQ(pending(), 2u);
  client_->set_irqs(kUnmask, kIrqMsix, 1, 1);
  EXPECT_EQ(signals(events_[1]), 1u);
  EXPECT_EQ(pending(), 0u);
}

TEST_F(MsixTest, obeys_the_function_mask) {
  control(0xc000);
  bus().msix(0);
  bus().msix(2);
  EXPECT_EQ(pending(), 5u);
  control(0x8000);
  EXPECT_EQ(signals(events_[0]) + signals(events_[2]), 2u);
}

TEST_F(MsixTest, obeys_table_masks_once_the_client_writes_the_table) {
  EXPECT_EQ(client_->read_value<uint32_t>(kBar, 16 + 12), 1u) << "masked at power-on";
  client_->write<uint32_t>(kBar, 16 + 12, 0xffffffff);
  EXPECT_EQ(client_->read_value<uint32_t>(kBar, 16 + 12), 1u) << "reserved bits stay zero";
  bus().msix(1);
  EXPECT_EQ(signals(events_[1]), 0u);
  client_->write<uint64_t>(kBar, 16, 0xfee00000);
  EXPECT_EQ(client_->read_value<uint64_t>(kBar, 16), 0xfee00000u);
  client_->write<uint32_t>(kBar, 16 + 12, 0);
  EXPECT_EQ(signals(events_[1]), 1u);
}

TEST_F(MsixTest, is_silent_while_disabled) {
  control(0);
  EXPECT_FALSE(bus().msix_enabled());
  bus().msix(0);
  control(0x8000);
  EXPECT_EQ(signals(events_[0]), 0u);
  client_->set_irqs(kDisable, kIrqMsix, 0, 0);
  bus().msix(0);
  EXPECT_EQ(signals(events_[0]), 0u);
  EXPECT_EQ(pending(), 1u) << "no eventfd yet: it waits for one";
  client_->set_irqs(kUseEventfd, kIrqMsix, 0, 1, {events_[0].get()});
  EXPECT_EQ(signals(events_[0]), 1u);
}

TEST_F(MsixTest, gives_the_device_what_lies_beside_table_and_pba) {
  std::vector<std::byte> block(0x20, std::byte{0xab});
  // From the last table entry on into the device's part.
  client_->call(Command::kRegionWrite, bytes_of(WireRegionAccess{0x20, kBar, 0x20}) + block);
  EXPECT_EQ(device_.memory[4][0x30], std::byte{0xab});
  EXPECT_EQ(device_.memory[4][0x20], std::byte{0}) << "the table is the server's";
  client_->write<uint64_t>(kBar, kPba, ~0ull);
  EXPECT_EQ(pending(), 0u) << "the PBA is read-only";
  device_.memory[4][0x808] = std::byte{0x77};
  EXPECT_EQ(client_->read_value<uint8_t>(kBar, 0x808), 0x77);
  EXPECT_EQ(client_->read(kBar, 0, 0x1000).payload.size(), 0x1010u);
}

TEST_F(MsixTest, triggers_on_request_for_the_clients_self_test) {
  client_->set_irqs(kSetIrqsDataBool | kSetIrqsTrigger, kIrqMsix, 0, 3, {}, {std::byte{1}, std::byte{0}, std::byte{1}});
  EXPECT_EQ(signals(events_[0]), 1u);
  EXPECT_EQ(signals(events_[1]), 0u);
  EXPECT_EQ(signals(events_[2]), 1u);
}

TEST_F(MsixTest, replaces_and_removes_single_eventfds) {
  client_->set_irqs(kUseEventfd, kIrqMsix, 1, 1, {});
  bus().msix(1);
  EXPECT_EQ(signals(events_[1]), 0u);
  const UniqueFd other = event_fd();
  client_->set_irqs(kUseEventfd, kIrqMsix, 1, 1, {other.get()});
  EXPECT_EQ(signals(other), 1u);
}

// An eventfd whose counter is full must not block the device.
TEST_F(MsixTest, does_not_block_on_a_full_counter) {
  const UniqueFd full(::eventfd(0, EFD_CLOEXEC));
  const uint64_t most = 0xfffffffffffffffe;
  ASSERT_EQ(::write(full.get(), &most, sizeof(most)), 8);
  client_->set_irqs(kUseEventfd, kIrqMsix, 0, 1, {full.get()});
  bus().msix(0);
  EXPECT_EQ(pending(), 0u);
}

}  // namespace
}  // namespace npud::vfio_user::testing
