// SPDX-License-Identifier: Apache-2.0
// The vfio-user wire format, version 0.0: numbers and layouts. Source: QEMU's docs/interop/vfio-user.rst and Linux's
// <linux/vfio.h> (whose structures the messages carry). Little endian, packed by natural alignment.
#pragma once

#include <cstddef>
#include <cstdint>

namespace npud::vfio_user {

enum class Command : uint16_t {
  kVersion = 1,
  kDmaMap = 2,
  kDmaUnmap = 3,
  kDeviceGetInfo = 4,
  kDeviceGetRegionInfo = 5,
  kDeviceGetRegionIoFds = 6,
  kDeviceGetIrqInfo = 7,
  kDeviceSetIrqs = 8,
  kRegionRead = 9,
  kRegionWrite = 10,
  kDmaRead = 11,
  kDmaWrite = 12,
  kDeviceReset = 13,
  kDirtyPages = 14,
  kRegionWriteMulti = 15,
};

struct Header {
  uint16_t id = 0;
  uint16_t command = 0;
  uint32_t size_bytes = 0;  // of the message, this header included
  uint32_t flags = 0;
  uint32_t error = 0;  // errno of a reply with kFlagError
};
static_assert(sizeof(Header) == 16);

inline constexpr uint32_t kTypeMask = 0xf;
inline constexpr uint32_t kTypeCommand = 0;
inline constexpr uint32_t kTypeReply = 1;
inline constexpr uint32_t kFlagNoReply = 0x10;
inline constexpr uint32_t kFlagError = 0x20;

// What this server promises in its version reply, and enforces.
inline constexpr size_t kMaxFds = 8;
inline constexpr size_t kMaxTransferBytes = 1 << 20;
inline constexpr size_t kMaxMessageBytes = sizeof(Header) + 16 + kMaxTransferBytes;
inline constexpr size_t kMaxDmaMaps = 65535;

// Region and interrupt indices of a PCI function (linux/vfio.h).
inline constexpr uint32_t kRegionRom = 6;
inline constexpr uint32_t kRegionConfig = 7;
inline constexpr uint32_t kRegions = 9;
inline constexpr uint32_t kIrqIntx = 0;
inline constexpr uint32_t kIrqMsix = 2;
inline constexpr uint32_t kIrqs = 5;

inline constexpr uint32_t kDmaMapRead = 1;
inline constexpr uint32_t kDmaMapWrite = 2;
inline constexpr uint32_t kDmaUnmapAll = 2;

inline constexpr uint32_t kDeviceReset = 1;
inline constexpr uint32_t kDevicePci = 2;

inline constexpr uint32_t kRegionReadable = 1;
inline constexpr uint32_t kRegionWritable = 2;

inline constexpr uint32_t kIrqEventfd = 1;
inline constexpr uint32_t kIrqMaskable = 2;
inline constexpr uint32_t kIrqAutomasked = 4;
inline constexpr uint32_t kIrqNoResize = 8;

inline constexpr uint32_t kSetIrqsDataNone = 1;
inline constexpr uint32_t kSetIrqsDataBool = 2;
inline constexpr uint32_t kSetIrqsDataEventfd = 4;
inline constexpr uint32_t kSetIrqsDataMask = 7;
inline constexpr uint32_t kSetIrqsMask = 8;
inline constexpr uint32_t kSetIrqsUnmask = 16;
inline constexpr uint32_t kSetIrqsTrigger = 32;
inline constexpr uint32_t kSetIrqsActionMask = 56;

struct WireDmaMap {
  uint32_t argsz, flags;
  uint64_t offset, iova, size;
};
struct WireDmaUnmap {
  uint32_t argsz, flags;
  uint64_t iova, size;
};
struct WireDeviceInfo {
  uint32_t argsz, flags, regions, irqs;
};
struct WireRegionInfo {
  uint32_t argsz, flags, index, cap_offset;
  uint64_t size, offset;
};
struct WireIrqInfo {
  uint32_t argsz, flags, index, count;
};
struct WireSetIrqs {
  uint32_t argsz, flags, index, start, count;
};
struct WireRegionAccess {
  uint64_t offset;
  uint32_t region, count;
};
struct WireMultiWrite {
  uint64_t offset;
  uint32_t region, count;
  uint8_t data[8];
};
static_assert(sizeof(WireDmaMap) == 32 && sizeof(WireDmaUnmap) == 24 && sizeof(WireDeviceInfo) == 16);
static_assert(sizeof(WireRegionInfo) == 32 && sizeof(WireIrqInfo) == 16 && sizeof(WireSetIrqs) == 20);
static_assert(sizeof(WireRegionAccess) == 16 && sizeof(WireMultiWrite) == 24);

}  // namespace npud::vfio_user
