// SPDX-License-Identifier: Apache-2.0
// Feeds a session with whatever a client may say, well formed or not, with good and bad descriptors. The device's
// registers start DMA and interrupts with addresses and vectors from the input, as a guest could.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "vfio_user/session.h"

namespace npud::vfio_user {
namespace {

// BAR 0: a write at 0 or 4 does DMA of 16 bytes at that address, at 8 sets INTx, at 12 sends a message.
class Poked final : public Device {
 public:
  Poked() {
    spec_.bar_bytes = {0x1000, 0, 0x100, 0, 0x1000, 0};
    spec_.msix_vectors = 3;
  }
  const FunctionSpec& function() const override { return spec_; }
  void attach(Bus& bus) override { bus_ = &bus; }
  void detach() override { bus_ = nullptr; }
  bool region_read(unsigned bar, uint64_t offset, std::span<std::byte> data) override {
    check(bar, offset, data.size());
    std::memset(data.data(), 0x5a, data.size());
    return offset != 0x10;
  }
  bool region_write(unsigned bar, uint64_t offset, std::span<const std::byte> data) override {
    check(bar, offset, data.size());
    uint64_t value = 0;
    std::memcpy(&value, data.data(), std::min<size_t>(data.size(), 8));
    std::byte buffer[16]{};
    if (bar != 0) return true;
    if (offset == 0) bus_->dma_write(value, buffer);
    if (offset == 4) bus_->dma_read(value, buffer);
    if (offset == 8) bus_->set_intx(value & 1);
    if (offset == 12) bus_->msix(static_cast<uint32_t>(value));
    if (offset == 16) {
      const DmaWindow window = bus_->dma_window(value, 64, DmaAccess::kReadWrite);
      if (window) std::memset(window.data(), 1, window.size());
    }
    return true;
  }
  void reset() override {}

 private:
  void check(unsigned bar, uint64_t offset, size_t bytes) {
    if (bar >= kBars || bytes == 0 || offset + bytes > spec_.bar_bytes[bar]) std::abort();
  }
  FunctionSpec spec_;
  Bus* bus_ = nullptr;
};

template <typename T>
T take(std::span<const std::byte>& input) {
  T value{};
  const size_t n = std::min(sizeof(T), input.size());
  std::memcpy(&value, input.data(), n);
  input = input.subspan(n);
  return value;
}

void run(std::span<const std::byte> input) {
  static const UniqueFd memory = [] {
    UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
    if (::ftruncate(fd.get(), 0x10000) != 0) std::abort();
    return fd;
  }();
  static const UniqueFd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));

  Poked device;
  auto session = *Session::create(device, {});
  device.attach(*session);
  while (!input.empty()) {
    const uint8_t fd_kind = take<uint8_t>(input);
    Header header;
    header.command = take<uint16_t>(input);
    header.flags = take<uint32_t>(input);
    const size_t length = std::min<size_t>(take<uint16_t>(input), input.size());
    const auto payload = input.first(length);
    input = input.subspan(length);
    header.size_bytes = static_cast<uint32_t>(sizeof(Header) + length);
    const auto parsed = parse_header(std::span<const std::byte, sizeof(Header)>(std::as_bytes(std::span(&header, 1))));
    if (!parsed) break;
    std::vector<UniqueFd> fds;
    for (int i = 0; i < (fd_kind & 0xf); i++) fds.emplace_back(::dup(fd_kind & 0x80 ? event.get() : memory.get()));
    const auto reply = session->handle(*parsed, payload, std::move(fds));
    if (!reply) break;
    if (reply->empty() != ((header.flags & kFlagNoReply) != 0)) std::abort();
    if (!reply->empty()) {
      Header answer;
      std::memcpy(&answer, reply->data(), sizeof(answer));
      if (answer.size_bytes != reply->size() || answer.size_bytes > kMaxMessageBytes) std::abort();
      if (((answer.flags & kFlagError) != 0) != (answer.error != 0)) std::abort();
    }
  }
  session->disconnect();
  std::byte byte;
  if (session->dma_read(0, std::span(&byte, 1))) std::abort();
}

}  // namespace
}  // namespace npud::vfio_user

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  npud::vfio_user::run(std::as_bytes(std::span(data, size)));
  return 0;
}
