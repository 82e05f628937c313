// SPDX-License-Identifier: Apache-2.0
#include "pci_config.h"

#include <bit>
#include <format>

namespace npud::vfio_user {
namespace {

std::expected<void, std::string> check(const FunctionSpec& spec) {
  for (unsigned bar = 0; bar < kBars; bar++) {
    const uint64_t bytes = spec.bar_bytes[bar];
    if (bytes != 0 && (bytes < 16 || bytes > (1u << 31) || !std::has_single_bit(bytes))) {
      return std::unexpected(
          std::format("BAR {} can't have {:#x} bytes: a power of two from 16 to 2 GiB is needed", bar, bytes));
    }
  }
  if (spec.class_code > 0xffffff)
    return std::unexpected(std::format("class code {:#x} has more than 24 bits", spec.class_code));
  if (spec.msix_vectors == 0) return {};
  if (spec.msix_vectors > 2048)
    return std::unexpected(std::format("{} MSI-X vectors; 2048 is the most", spec.msix_vectors));
  const uint64_t bar_bytes = spec.msix_bar < kBars ? spec.bar_bytes[spec.msix_bar] : 0;
  const uint64_t table_end = spec.msix_table_offset + 16ull * spec.msix_vectors;
  const uint64_t pba_end = spec.msix_pba_offset + 8ull * ((spec.msix_vectors + 63) / 64);
  if (table_end > bar_bytes || pba_end > bar_bytes) {
    return std::unexpected(
        std::format("the MSI-X table and PBA don't fit into BAR {} of {:#x} bytes", spec.msix_bar, bar_bytes));
  }
  if (spec.msix_table_offset % 8 || spec.msix_pba_offset % 8)
    return std::unexpected("the MSI-X table and PBA must be aligned to 8");
  if (spec.msix_table_offset < pba_end && spec.msix_pba_offset < table_end) {
    return std::unexpected("the MSI-X table and PBA overlap");
  }
  return {};
}

}  // namespace

std::expected<PciConfig, std::string> PciConfig::create(const FunctionSpec& spec) {
  if (auto ok = check(spec); !ok) return std::unexpected(ok.error());
  PciConfig config;
  config.msix_vectors_ = spec.msix_vectors;
  config.define(0x00, 2, spec.vendor);
  config.define(0x02, 2, spec.device);
  // Writable: memory space, bus master, parity response, SERR#, interrupt disable.
  config.define(kCommand, 2, 0, 0x0546);
  config.define(kStatus, 2, 0x0010);  // capabilities list
  config.define(0x08, 1, spec.revision);
  config.define(0x09, 3, spec.class_code);
  config.define(0x0c, 1, 0, 0xff);  // cache line size
  for (unsigned bar = 0; bar < kBars; bar++) {
    const uint64_t bytes = spec.bar_bytes[bar];
    if (bytes != 0) config.define(0x10 + 4 * bar, 4, 0, static_cast<uint32_t>(~(bytes - 1)));
  }
  config.define(0x2c, 2, spec.subsystem_vendor);
  config.define(0x2e, 2, spec.subsystem_device);
  config.define(0x3c, 1, 0, 0xff);  // interrupt line
  config.define(0x3d, 1, spec.intx ? 1 : 0);
  config.define(0x34, 1, spec.msix_vectors ? kMsixCapability : kAfCapability);
  config.define(kAfCapability, 4,
                0x03060013);  // 6 bytes: transactions pending and function level reset are implemented
  if (spec.msix_vectors) {
    config.define(kMsixCapability, 2, 0x0011 | kAfCapability << 8);
    config.define(kMsixCapability + 2, 2, spec.msix_vectors - 1, 0xc000);
    config.define(kMsixCapability + 4, 4, spec.msix_table_offset | spec.msix_bar);
    config.define(kMsixCapability + 8, 4, spec.msix_pba_offset | spec.msix_bar);
  }
  config.reset();
  return config;
}

void PciConfig::reset() { bytes_ = initial_; }

void PciConfig::read(uint64_t offset, std::span<std::byte> data) const {
  for (size_t i = 0; i < data.size(); i++) {
    const bool inside = offset < kSizeBytes && i < kSizeBytes - offset;
    data[i] = inside ? static_cast<std::byte>(bytes_[offset + i]) : std::byte{0};
  }
}

bool PciConfig::write(uint64_t offset, std::span<const std::byte> data) {
  bool reset = false;
  for (size_t i = 0; i < data.size(); i++) {
    if (offset >= kSizeBytes || i >= kSizeBytes - offset) break;
    // The control byte's bit reads as zero.
    if (offset + i == kAfCapability + 4) reset = (data[i] & std::byte{1}) != std::byte{0};
    const uint8_t mask = writable_[offset + i];
    uint8_t& byte = bytes_[offset + i];
    byte = static_cast<uint8_t>((byte & ~mask) | (std::to_integer<uint8_t>(data[i]) & mask));
  }
  return reset;
}

void PciConfig::set_interrupt_status(bool asserted) {
  bytes_[kStatus] = static_cast<uint8_t>((bytes_[kStatus] & ~0x08) | (asserted ? 0x08 : 0));
}

void PciConfig::define(size_t offset, size_t bytes, uint32_t initial, uint32_t writable) {
  for (size_t i = 0; i < bytes; i++) {
    initial_[offset + i] = static_cast<uint8_t>(initial >> (8 * i));
    writable_[offset + i] = static_cast<uint8_t>(writable >> (8 * i));
  }
}

uint32_t PciConfig::value(size_t offset, size_t bytes) const {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; i++) value |= static_cast<uint32_t>(bytes_[offset + i]) << (8 * i);
  return value;
}

}  // namespace npud::vfio_user
