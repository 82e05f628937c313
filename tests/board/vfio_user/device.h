// SPDX-License-Identifier: Apache-2.0
// What a virtual PCI function is made of: FunctionSpec says what it looks like, Device is what it does, Bus is what it
// may do to the guest. Nothing here knows the vfio-user protocol, so a device can be tested with a Bus of the test's
// own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace npud::vfio_user {

inline constexpr unsigned kBars = 6;

// The function's identity and resources, constant for its life.
struct FunctionSpec {
  uint16_t vendor = 0;
  uint16_t device = 0;
  uint16_t subsystem_vendor = 0;
  uint16_t subsystem_device = 0;
  uint32_t class_code = 0;  // 24 bits: base class, subclass, programming interface
  uint8_t revision = 0;
  bool intx = true;                         // INTA#
  std::array<uint64_t, kBars> bar_bytes{};  // 32-bit memory BARs, not prefetchable: a power of two >= 16, or 0 = absent
  uint16_t msix_vectors = 0;                // 0: no MSI-X capability
  uint8_t msix_bar = 4;              // the server handles the table and the PBA in it, the device never sees them
  uint32_t msix_table_offset = 0;    // multiple of 8; 16 bytes a vector
  uint32_t msix_pba_offset = 0x800;  // multiple of 8; 8 bytes for each 64 vectors
};

// A piece of guest memory in the address space of this process. While it exists, the guest's unmapping of that memory
// waits, so hold one for a job's piece of work, not for longer, and never wait for the server's thread (a register
// access) while holding it.
class DmaWindow {
 public:
  DmaWindow() = default;
  DmaWindow(std::byte* data, size_t size_bytes, std::shared_ptr<const void> hold)
      : data_(data), size_bytes_(size_bytes), hold_(std::move(hold)) {}
  DmaWindow(DmaWindow&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)),
        hold_(std::move(other.hold_)) {}
  DmaWindow& operator=(DmaWindow&& other) noexcept {
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    hold_ = std::move(other.hold_);
    return *this;
  }

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  size_t size() const { return size_bytes_; }
  std::span<std::byte> bytes() const { return {data_, size_bytes_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
  std::shared_ptr<const void> hold_;
};

enum class DmaAccess { kRead, kReadWrite };

// The device's way to guest memory and to the interrupt controller. Every member may be called from any thread at any
// time, also while no guest is connected: DMA then fails, interrupts are remembered (INTx) or lost (MSI-X), as on a bus
// without a host.
class Bus {
 public:
  virtual ~Bus() = default;

  // Copy between guest memory at bus address `iova` and the span. False, with nothing copied, if a byte of the range
  // isn't mapped with that right, or the function is not a bus master (the guest's driver has not called
  // pci_set_master).
  virtual bool dma_read(uint64_t iova, std::span<std::byte> to) = 0;
  virtual bool dma_write(uint64_t iova, std::span<const std::byte> from) = 0;

  // The same memory without a copy. Empty where dma_read/dma_write would fail, and also where the range is not
  // contiguous in this process: callers then fall back to copying.
  virtual DmaWindow dma_window(uint64_t iova, size_t size_bytes, DmaAccess access) = 0;

  // The level of INTA#. The guest is interrupted while it is true, again after each acknowledgement, until it is false.
  virtual void set_intx(bool level) = 0;

  // One message on an MSI-X vector. While the vector is masked it is kept in the PBA and sent once when unmasked.
  virtual void msix(uint32_t vector) = 0;

  // Whether the guest has MSI-X enabled; a device then uses vectors instead of INTA#.
  virtual bool msix_enabled() const = 0;
};

// The behaviour. All calls come on the server's thread, one at a time. The Bus given to attach() outlives the Device's
// use of it: it is valid until detach() returns.
class Device {
 public:
  virtual ~Device() = default;

  virtual const FunctionSpec& function() const = 0;

  // Once, before any other call; and once at the server's end. detach() returns when no thread of the device uses the
  // bus.
  virtual void attach(Bus& bus) = 0;
  virtual void detach() = 0;

  // Accesses to BAR `bar`. offset + data.size() lies within the BAR; data is whatever size the guest used (1 to 8
  // bytes, or a block copy). False: the access is refused and the guest reads all ones.
  virtual bool region_read(unsigned bar, uint64_t offset, std::span<std::byte> data) = 0;
  virtual bool region_write(unsigned bar, uint64_t offset, std::span<const std::byte> data) = 0;

  // Function reset, or the guest is gone: back to the power-on state. No DMA begins after it returns on behalf of what
  // ran before.
  virtual void reset() = 0;
};

}  // namespace npud::vfio_user
