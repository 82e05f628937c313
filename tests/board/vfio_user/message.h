// SPDX-License-Identifier: Apache-2.0
// From bytes to requests. A message that breaks the protocol's framing (sizes that don't add up, descriptors where none
// belong) is an error that ends the connection, since nothing after it can be trusted; what is well formed and merely
// impossible is left to the session, which answers it with an errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "protocol.h"

namespace npud::vfio_user {

struct VersionRequest {
  uint16_t major = 0, minor = 0;
  std::string_view capabilities;  // JSON, without its NUL
};
struct DmaMapRequest {
  uint32_t flags = 0;
  uint64_t offset = 0, iova = 0, size_bytes = 0;
};
struct DmaUnmapRequest {
  uint32_t argsz = 0, flags = 0;
  uint64_t iova = 0, size_bytes = 0;
};
struct DeviceInfoRequest {};
struct RegionInfoRequest {
  uint32_t index = 0;
};
struct IrqInfoRequest {
  uint32_t index = 0;
};
struct SetIrqsRequest {
  uint32_t flags = 0, index = 0, start = 0, count = 0;
  std::span<const std::byte> bools;  // count bytes with kSetIrqsDataBool
};
struct RegionReadRequest {
  uint32_t region = 0;
  uint64_t offset = 0;
  uint32_t count = 0;
};
struct RegionWriteRequest {
  uint32_t region = 0;
  uint64_t offset = 0;
  std::span<const std::byte> data;
};
struct RegionWriteMultiRequest {
  std::vector<RegionWriteRequest> writes;
};
struct ResetRequest {};
struct UnsupportedRequest {
  uint16_t command = 0;
};

using Request = std::variant<VersionRequest, DmaMapRequest, DmaUnmapRequest, DeviceInfoRequest, RegionInfoRequest,
                             IrqInfoRequest, SetIrqsRequest, RegionReadRequest, RegionWriteRequest,
                             RegionWriteMultiRequest, ResetRequest, UnsupportedRequest>;

// Checks a header on its own, before its payload is read. The error is a sentence for the log.
std::expected<Header, std::string> parse_header(std::span<const std::byte, sizeof(Header)> bytes);

// Decodes the payload of a message whose header has passed parse_header. Spans and views in the result point into
// `payload`.
std::expected<Request, std::string> decode(const Header& header, std::span<const std::byte> payload, size_t fds);

}  // namespace npud::vfio_user
