// SPDX-License-Identifier: Apache-2.0
#include "message.h"

#include <cstring>
#include <format>

namespace npud::vfio_user {
namespace {

using Payload = std::span<const std::byte>;
using Decoded = std::expected<Request, std::string>;

// Reads a wire structure from the front of a payload.
template <typename T>
std::expected<T, std::string> take(Payload payload, const char* what) {
  if (payload.size() < sizeof(T)) {
    return std::unexpected(std::format("{} of {} bytes is shorter than {}", what, payload.size(), sizeof(T)));
  }
  T value;
  std::memcpy(&value, payload.data(), sizeof(T));
  return value;
}

Decoded decode_version(Payload payload) {
  struct Wire {
    uint16_t major, minor;
  };
  auto wire = take<Wire>(payload, "version message");
  if (!wire) return std::unexpected(wire.error());
  std::string_view text(reinterpret_cast<const char*>(payload.data()) + sizeof(Wire), payload.size() - sizeof(Wire));
  if (!text.empty()) {
    if (text.back() != '\0') return std::unexpected("version message whose capabilities do not end in NUL");
    text.remove_suffix(1);
  }
  return VersionRequest{wire->major, wire->minor, text};
}

Decoded decode_dma_map(Payload payload, size_t fds) {
  auto wire = take<WireDmaMap>(payload, "DMA_MAP");
  if (!wire) return std::unexpected(wire.error());
  if (fds > 1) return std::unexpected(std::format("DMA_MAP with {} file descriptors", fds));
  return DmaMapRequest{wire->flags, wire->offset, wire->iova, wire->size};
}

Decoded decode_dma_unmap(Payload payload) {
  auto wire = take<WireDmaUnmap>(payload, "DMA_UNMAP");
  if (!wire) return std::unexpected(wire.error());
  return DmaUnmapRequest{wire->argsz, wire->flags, wire->iova, wire->size};
}

Decoded decode_set_irqs(Payload payload, size_t fds) {
  auto wire = take<WireSetIrqs>(payload, "SET_IRQS");
  if (!wire) return std::unexpected(wire.error());
  const uint32_t data = wire->flags & kSetIrqsDataMask;
  if (fds != 0 && data != kSetIrqsDataEventfd)
    return std::unexpected("SET_IRQS with file descriptors but without DATA_EVENTFD");
  if (fds != 0 && fds != wire->count) {
    return std::unexpected(std::format("SET_IRQS for {} interrupts with {} file descriptors", wire->count, fds));
  }
  SetIrqsRequest request{wire->flags, wire->index, wire->start, wire->count, {}};
  if (data == kSetIrqsDataBool) {
    const Payload rest = payload.subspan(sizeof(WireSetIrqs));
    if (rest.size() < wire->count) {
      return std::unexpected(std::format("SET_IRQS for {} interrupts with {} bytes of data", wire->count, rest.size()));
    }
    request.bools = rest.first(wire->count);
  }
  return request;
}

Decoded decode_read(Payload payload) {
  auto wire = take<WireRegionAccess>(payload, "REGION_READ");
  if (!wire) return std::unexpected(wire.error());
  if (wire->count > kMaxTransferBytes) {
    return std::unexpected(
        std::format("REGION_READ of {} bytes; the limit given was {}", wire->count, kMaxTransferBytes));
  }
  return RegionReadRequest{wire->region, wire->offset, wire->count};
}

Decoded decode_write(Payload payload) {
  auto wire = take<WireRegionAccess>(payload, "REGION_WRITE");
  if (!wire) return std::unexpected(wire.error());
  const Payload data = payload.subspan(sizeof(WireRegionAccess));
  if (data.size() != wire->count) {
    return std::unexpected(std::format("REGION_WRITE of {} bytes with {} bytes of data", wire->count, data.size()));
  }
  return RegionWriteRequest{wire->region, wire->offset, data};
}

Decoded decode_multi(Payload payload) {
  auto count = take<uint64_t>(payload, "REGION_WRITE_MULTI");
  if (!count) return std::unexpected(count.error());
  Payload rest = payload.subspan(sizeof(uint64_t));
  if (*count > rest.size() / sizeof(WireMultiWrite)) {
    return std::unexpected(std::format("REGION_WRITE_MULTI of {} writes in {} bytes", *count, rest.size()));
  }
  RegionWriteMultiRequest request;
  request.writes.reserve(*count);
  for (uint64_t i = 0; i < *count; i++, rest = rest.subspan(sizeof(WireMultiWrite))) {
    WireMultiWrite wire;
    std::memcpy(&wire, rest.data(), sizeof(wire));
    if (wire.count > sizeof(wire.data)) {
      return std::unexpected(std::format("REGION_WRITE_MULTI with a write of {} bytes; 8 is the most", wire.count));
    }
    request.writes.push_back({wire.region, wire.offset, rest.subspan(offsetof(WireMultiWrite, data), wire.count)});
  }
  return request;
}

}  // namespace

std::expected<Header, std::string> parse_header(std::span<const std::byte, sizeof(Header)> bytes) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.size_bytes < sizeof(Header) || header.size_bytes > kMaxMessageBytes) {
    return std::unexpected(std::format("message {} says that it has {} bytes; {} to {} are allowed", header.id,
                                       header.size_bytes, sizeof(Header), kMaxMessageBytes));
  }
  if ((header.flags & kTypeMask) != kTypeCommand) {
    // This server sends no commands, so no reply is due to it.
    return std::unexpected(std::format("message {} is no command (flags {:#x})", header.id, header.flags));
  }
  return header;
}

std::expected<Request, std::string> decode(const Header& header, std::span<const std::byte> payload, size_t fds) {
  const auto command = static_cast<Command>(header.command);
  if (fds != 0 && command != Command::kDmaMap && command != Command::kDeviceSetIrqs) {
    return std::unexpected(
        std::format("command {} with {} file descriptors, which it does not take", header.command, fds));
  }
  switch (command) {
    case Command::kVersion:
      return decode_version(payload);
    case Command::kDmaMap:
      return decode_dma_map(payload, fds);
    case Command::kDmaUnmap:
      return decode_dma_unmap(payload);
    case Command::kDeviceGetInfo:
      return DeviceInfoRequest{};
    case Command::kDeviceGetRegionInfo: {
      auto wire = take<WireRegionInfo>(payload, "DEVICE_GET_REGION_INFO");
      if (!wire) return std::unexpected(wire.error());
      return RegionInfoRequest{wire->index};
    }
    case Command::kDeviceGetIrqInfo: {
      auto wire = take<WireIrqInfo>(payload, "DEVICE_GET_IRQ_INFO");
      if (!wire) return std::unexpected(wire.error());
      return IrqInfoRequest{wire->index};
    }
    case Command::kDeviceSetIrqs:
      return decode_set_irqs(payload, fds);
    case Command::kRegionRead:
      return decode_read(payload);
    case Command::kRegionWrite:
      return decode_write(payload);
    case Command::kRegionWriteMulti:
      return decode_multi(payload);
    case Command::kDeviceReset:
      return ResetRequest{};
    default:
      return UnsupportedRequest{header.command};
  }
}

}  // namespace npud::vfio_user
