// SPDX-License-Identifier: Apache-2.0
// The 256 bytes of configuration space of a conventional PCI function with memory BARs and, if it has vectors, an MSI-X
// capability. Source: PCI Local Bus Specification 3.0, 6.1 (header), 6.2.5.1 (BAR sizing), 6.8.2 (MSI-X).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>

#include "device.h"

namespace npud::vfio_user {

// Not thread-safe: the server's thread owns it.
class PciConfig {
 public:
  static constexpr size_t kSizeBytes = 256;
  static constexpr uint8_t kMsixCapability = 0x40;
  static constexpr uint8_t kAfCapability = 0x50;

  // An error says what in the spec no PCI function can have.
  static std::expected<PciConfig, std::string> create(const FunctionSpec& spec);

  // Back to power-on: BARs unassigned, decoding, bus mastering and MSI-X off.
  void reset();

  // Accesses of any size and alignment; bytes beyond the space read as zero and are not written. Read-only bits keep
  // their value.
  void read(uint64_t offset, std::span<std::byte> data) const;
  // True: the write asked for a function level reset, which is the caller's to carry out.
  [[nodiscard]] bool write(uint64_t offset, std::span<const std::byte> data);

  // Shown as bit 3 of the status register.
  void set_interrupt_status(bool asserted);

  bool bus_master() const { return value(kCommand, 2) & 0x0004; }
  bool intx_disabled() const { return value(kCommand, 2) & 0x0400; }
  bool msix_enabled() const { return msix_vectors_ != 0 && (value(kMsixCapability + 2, 2) & 0x8000); }
  bool msix_function_masked() const { return msix_vectors_ != 0 && (value(kMsixCapability + 2, 2) & 0x4000); }

 private:
  static constexpr size_t kCommand = 0x04;
  static constexpr size_t kStatus = 0x06;

  PciConfig() = default;
  void define(size_t offset, size_t bytes, uint32_t initial, uint32_t writable = 0);
  uint32_t value(size_t offset, size_t bytes) const;

  std::array<uint8_t, kSizeBytes> initial_{}, writable_{}, bytes_{};
  uint16_t msix_vectors_ = 0;
};

}  // namespace npud::vfio_user
