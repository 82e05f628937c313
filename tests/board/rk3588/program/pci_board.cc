// SPDX-License-Identifier: Apache-2.0
#include "pci_board.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernel/include/vboard/vboard_regs.h"

namespace npud::rk3588 {
namespace {

vfio_user::FunctionSpec make_spec() {
  vfio_user::FunctionSpec spec;
  spec.vendor = VBOARD_PCI_VENDOR;
  spec.device = VBOARD_PCI_DEVICE;
  spec.class_code = VBOARD_PCI_CLASS;
  spec.bar_bytes[VBOARD_BAR_REGS] = VBOARD_BAR_REGS_SIZE;
  spec.bar_bytes[VBOARD_BAR_CONTROL] = VBOARD_BAR_CONTROL_SIZE;
  spec.bar_bytes[VBOARD_BAR_MSIX] = VBOARD_BAR_MSIX_SIZE;
  spec.msix_vectors = VBOARD_MSIX_VECTORS;
  spec.msix_bar = VBOARD_BAR_MSIX;
  return spec;
}

uint64_t monotonic_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

}  // namespace

class PciBoard::BusDma : public Dma {
 public:
  explicit BusDma(vfio_user::Bus& bus) : bus_(bus) {}
  bool read(uint64_t address, std::span<std::byte> to) override { return bus_.dma_read(address, to); }
  bool write(uint64_t address, std::span<const std::byte> from) override { return bus_.dma_write(address, from); }

 private:
  vfio_user::Bus& bus_;
};

PciBoard::PciBoard(const Options& options, std::function<void(std::string_view)> log)
    : spec_(make_spec()), options_(options), log_(std::move(log)) {}

PciBoard::~PciBoard() = default;

void PciBoard::attach(vfio_user::Bus& bus) {
  bus_ = &bus;
  dma_ = std::make_unique<BusDma>(bus);
  auto board = std::make_shared<Board>(options_, Environment{
                                                     .dma = dma_.get(),
                                                     .interrupt = [this](uint32_t sources) { interrupt(sources); },
                                                     .now_us = monotonic_us,
                                                     .log = log_,
                                                 });
  board->start_workers();
  std::lock_guard lock(mutex_);
  board_ = std::move(board);
}

void PciBoard::detach() {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Board> board = std::move(board_);
  board_ = nullptr;
  lock.unlock();
  // The control socket may still hold the board; without workers it uses the bus no more.
  if (board) board->stop_workers();
}

std::shared_ptr<Board> PciBoard::board() const {
  std::lock_guard lock(mutex_);
  return board_;
}

// Level sources on message-signalled vectors: a message for each source that rises, and another when one falls while
// others of its vector stand, so that no driver that handles one source a message is left waiting.
void PciBoard::interrupt(uint32_t sources) {
  const uint32_t changed = sources ^ sources_;
  sources_ = sources;
  const bool messages = bus_->msix_enabled();
  bus_->set_intx(sources != 0 && !messages);
  if (!messages) return;
  for (uint32_t v = 0; v < VBOARD_MSIX_VECTORS; ++v) {
    if (changed & VBOARD_IRQ_SOURCES(v) && sources & VBOARD_IRQ_SOURCES(v)) bus_->msix(v);
  }
}

bool PciBoard::region_read(unsigned bar, uint64_t offset, std::span<std::byte> data) {
  if (bar != VBOARD_BAR_REGS && bar != VBOARD_BAR_CONTROL) return false;
  // Registers have 32 bits: narrower reads take their part of one, wider ones read several.
  for (size_t done = 0; done < data.size();) {
    const uint64_t at = offset + done;
    const uint32_t value = board_->read32(bar, static_cast<uint32_t>(at & ~3ull));
    const size_t skip = at % 4, part = std::min(data.size() - done, 4 - skip);
    std::memcpy(data.data() + done, reinterpret_cast<const std::byte*>(&value) + skip, part);
    done += part;
  }
  return true;
}

bool PciBoard::region_write(unsigned bar, uint64_t offset, std::span<const std::byte> data) {
  if (bar != VBOARD_BAR_REGS && bar != VBOARD_BAR_CONTROL) return false;
  if (offset % 4 != 0 || data.size() % 4 != 0) return false;
  for (size_t done = 0; done < data.size(); done += 4) {
    uint32_t value;
    std::memcpy(&value, data.data() + done, sizeof(value));
    board_->write32(bar, static_cast<uint32_t>(offset + done), value);
  }
  return true;
}

void PciBoard::reset() { board_->reset(); }

}  // namespace npud::rk3588
