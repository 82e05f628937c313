// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <format>

#include "protocol.h"

namespace npud::vfio_user {
namespace {

enum class BarPart { kDevice, kTable, kPba };

// Which part of a BAR an offset is in, and how many bytes that part goes on from there.
struct BarPiece {
  BarPart part;
  uint64_t offset;  // in the part
  uint64_t bytes;
};

BarPiece piece_at(const FunctionSpec& spec, unsigned bar, uint64_t offset) {
  const uint64_t end = spec.bar_bytes[bar];
  if (spec.msix_vectors == 0 || bar != spec.msix_bar) return {BarPart::kDevice, offset, end - offset};
  const uint64_t table = spec.msix_table_offset, table_end = table + 16ull * spec.msix_vectors;
  const uint64_t pba = spec.msix_pba_offset, pba_end = pba + 8ull * ((spec.msix_vectors + 63) / 64);
  if (offset >= table && offset < table_end) return {BarPart::kTable, offset - table, table_end - offset};
  if (offset >= pba && offset < pba_end) return {BarPart::kPba, offset - pba, pba_end - offset};
  uint64_t next = end;
  if (table > offset) next = std::min(next, table);
  if (pba > offset) next = std::min(next, pba);
  return {BarPart::kDevice, offset, next - offset};
}

}  // namespace

std::expected<std::unique_ptr<Session>, std::string> Session::create(Device& device, Log log) {
  auto config = PciConfig::create(device.function());
  if (!config) return std::unexpected(config.error());
  return std::unique_ptr<Session>(new Session(device, *config, std::move(log)));
}

Session::Session(Device& device, PciConfig config, Log log)
    : device_(device),
      spec_(device.function()),
      log_(log ? std::move(log) : [](std::string_view) {}),
      config_(config),
      irqs_(spec_.intx, spec_.msix_vectors) {}

std::expected<std::span<const std::byte>, std::string> Session::handle(const Header& header,
                                                                       std::span<const std::byte> payload,
                                                                       std::vector<UniqueFd> fds) {
  auto request = decode(header, payload, fds.size());
  if (!request) return std::unexpected(request.error());
  const bool is_version = std::holds_alternative<VersionRequest>(*request);
  if (is_version == negotiated_) {
    return std::unexpected(is_version ? "a second VERSION message"
                                      : std::format("command {} before VERSION", header.command));
  }
  fds_ = std::move(fds);
  reply_.resize(sizeof(Header));
  const Outcome outcome = std::visit([this](const auto& r) { return answer(r); }, *request);
  fds_.clear();
  if (!outcome) {
    log_(std::format("refused: {}", outcome.error().reason));
    if (is_version) return std::unexpected(outcome.error().reason);
    reply_.resize(sizeof(Header));
  }
  if (header.flags & kFlagNoReply) return std::span<const std::byte>();
  const Header reply{header.id, header.command, static_cast<uint32_t>(reply_.size()),
                     kTypeReply | (outcome ? 0 : kFlagError),
                     outcome ? 0 : static_cast<uint32_t>(outcome.error().error)};
  std::memcpy(reply_.data(), &reply, sizeof(reply));
  return reply_;
}

void Session::disconnect() {
  reset();
  irqs_.disconnect();
  if (auto cleared = dma_.clear(); !cleared) log_(cleared.error().reason);
  negotiated_ = false;
}

template <typename T>
void Session::append(const T& wire) {
  const auto bytes = std::as_bytes(std::span(&wire, 1));
  reply_.insert(reply_.end(), bytes.begin(), bytes.end());
}

Session::Outcome Session::answer(const VersionRequest& request) {
  if (request.major != 0) {
    return std::unexpected(
        Refusal{EPROTONOSUPPORT,
                std::format("the client speaks version {}.{}; this server speaks 0.0", request.major, request.minor)});
  }
  negotiated_ = true;
  const std::string capabilities = std::format(
      R"({{"capabilities":{{"max_msg_fds":{},"max_data_xfer_size":{},"max_dma_maps":{},"pgsizes":4096,"write_multiple":true}}}})",
      kMaxFds, kMaxTransferBytes, kMaxDmaMaps);
  append(uint16_t{0});
  append(uint16_t{0});
  const auto text = std::as_bytes(std::span(capabilities.c_str(), capabilities.size() + 1));
  reply_.insert(reply_.end(), text.begin(), text.end());
  return {};
}

Session::Outcome Session::answer(const DmaMapRequest& request) {
  UniqueFd fd = fds_.empty() ? UniqueFd() : std::move(fds_[0]);
  return dma_.map(request.iova, request.size_bytes, request.flags, request.offset, std::move(fd));
}

Session::Outcome Session::answer(const DmaUnmapRequest& request) {
  if (request.flags & ~kDmaUnmapAll) {
    return std::unexpected(Refusal{ENOTSUP, std::format("DMA_UNMAP with flags {:#x}", request.flags)});
  }
  auto bytes = request.flags & kDmaUnmapAll ? dma_.clear() : dma_.unmap(request.iova, request.size_bytes);
  if (!bytes) return std::unexpected(bytes.error());
  append(WireDmaUnmap{sizeof(WireDmaUnmap), request.flags, request.iova, *bytes});
  return {};
}

Session::Outcome Session::answer(const DeviceInfoRequest&) {
  append(WireDeviceInfo{sizeof(WireDeviceInfo), kDeviceReset | kDevicePci, kRegions, kIrqs});
  return {};
}

Session::Outcome Session::answer(const RegionInfoRequest& request) {
  if (request.index >= kRegions)
    return std::unexpected(Refusal{EINVAL, std::format("there is no region {}", request.index)});
  const uint64_t bytes = region_bytes(request.index);
  append(WireRegionInfo{sizeof(WireRegionInfo), bytes ? kRegionReadable | kRegionWritable : 0, request.index, 0, bytes,
                        0});
  return {};
}

Session::Outcome Session::answer(const IrqInfoRequest& request) {
  if (request.index >= kIrqs)
    return std::unexpected(Refusal{EINVAL, std::format("there is no interrupt index {}", request.index)});
  append(WireIrqInfo{sizeof(WireIrqInfo), irqs_.flags(request.index), request.index, irqs_.count(request.index)});
  return {};
}

Session::Outcome Session::answer(const SetIrqsRequest& request) { return irqs_.set(request, std::move(fds_)); }

Session::Outcome Session::answer(const RegionReadRequest& request) {
  if (auto ok = check_access("REGION_READ", request.region, request.offset, request.count); !ok) return ok;
  append(WireRegionAccess{request.offset, request.region, request.count});
  const size_t at = reply_.size();
  reply_.resize(at + request.count);
  const std::span data = std::span(reply_).subspan(at);
  if (request.region == kRegionConfig) {
    config_.set_interrupt_status(irqs_.intx_level());
    config_.read(request.offset, data);
  } else {
    bar_read(request.region, request.offset, data);
  }
  return {};
}

Session::Outcome Session::answer(const RegionWriteRequest& request) {
  if (auto ok = check_access("REGION_WRITE", request.region, request.offset, request.data.size()); !ok) return ok;
  if (request.region == kRegionConfig) {
    if (config_.write(request.offset, request.data)) {
      reset();
    } else {
      config_changed();
    }
  } else {
    bar_write(request.region, request.offset, request.data);
  }
  append(WireRegionAccess{request.offset, request.region, static_cast<uint32_t>(request.data.size())});
  return {};
}

Session::Outcome Session::answer(const RegionWriteMultiRequest& request) {
  for (const RegionWriteRequest& write : request.writes) {
    if (auto ok = answer(write); !ok) return ok;
  }
  reply_.resize(sizeof(Header));
  append(static_cast<uint64_t>(request.writes.size()));
  return {};
}

Session::Outcome Session::answer(const ResetRequest&) {
  reset();
  return {};
}

void Session::reset() {
  device_.reset();
  irqs_.reset();
  config_.reset();
  config_changed();
}

Session::Outcome Session::answer(const UnsupportedRequest& request) {
  return std::unexpected(Refusal{ENOTSUP, std::format("command {} is not supported", request.command)});
}

uint64_t Session::region_bytes(uint32_t region) const {
  if (region == kRegionConfig) return PciConfig::kSizeBytes;
  return region < kBars ? spec_.bar_bytes[region] : 0;
}

Session::Outcome Session::check_access(const char* what, uint32_t region, uint64_t offset, uint64_t bytes) const {
  const uint64_t size = region_bytes(region);
  if (bytes != 0 && offset <= size && bytes <= size - offset) return {};
  return std::unexpected(Refusal{
      EINVAL, std::format("{} of {} bytes at {:#x} of region {}, which has {:#x}", what, bytes, offset, region, size)});
}

void Session::bar_read(unsigned bar, uint64_t offset, std::span<std::byte> data) {
  while (!data.empty()) {
    const BarPiece piece = piece_at(spec_, bar, offset);
    const std::span part = data.first(std::min<uint64_t>(data.size(), piece.bytes));
    switch (piece.part) {
      case BarPart::kTable:
        irqs_.table_read(piece.offset, part);
        break;
      case BarPart::kPba:
        irqs_.pba_read(piece.offset, part);
        break;
      case BarPart::kDevice:
        if (!device_.region_read(bar, offset, part)) std::ranges::fill(part, std::byte{0xff});
        break;
    }
    offset += part.size();
    data = data.subspan(part.size());
  }
}

void Session::bar_write(unsigned bar, uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const BarPiece piece = piece_at(spec_, bar, offset);
    const std::span part = data.first(std::min<uint64_t>(data.size(), piece.bytes));
    switch (piece.part) {
      case BarPart::kTable:
        irqs_.table_write(piece.offset, part);
        break;
      case BarPart::kPba:
        break;  // read-only
      case BarPart::kDevice:
        device_.region_write(bar, offset, part);
        break;
    }
    offset += part.size();
    data = data.subspan(part.size());
  }
}

void Session::config_changed() {
  if (bus_master_.exchange(config_.bus_master()) != config_.bus_master()) told_no_master_ = false;
  irqs_.configure(config_.intx_disabled(), config_.msix_enabled(), config_.msix_function_masked());
}

bool Session::may_dma() {
  if (bus_master_) return true;
  if (!told_no_master_.exchange(true))
    log_("DMA is refused while bus mastering is off: the guest's driver must call pci_set_master()");
  return false;
}

bool Session::dma_read(uint64_t iova, std::span<std::byte> to) { return may_dma() && dma_.read(iova, to); }

bool Session::dma_write(uint64_t iova, std::span<const std::byte> from) { return may_dma() && dma_.write(iova, from); }

DmaWindow Session::dma_window(uint64_t iova, size_t size_bytes, DmaAccess access) {
  return may_dma() ? dma_.window(iova, size_bytes, access) : DmaWindow();
}

}  // namespace npud::vfio_user
