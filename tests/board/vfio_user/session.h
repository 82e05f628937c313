// SPDX-License-Identifier: Apache-2.0
// What a client's requests do to the function, and what they are answered. No sockets here: bytes and descriptors in,
// bytes out, so that unit tests and the fuzzer drive it directly.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device.h"
#include "dma_table.h"
#include "irqs.h"
#include "message.h"
#include "pci_config.h"
#include "unique_fd.h"

namespace npud::vfio_user {

// One function's state on its bus, through any number of clients, one after the other. All but the Bus members belong
// to the server's thread. The caller attaches the device to it.
class Session final : public Bus {
 public:
  using Log = std::function<void(std::string_view)>;

  static std::expected<std::unique_ptr<Session>, std::string> create(Device& device, Log log);

  // Carries out one message and returns the reply, empty if none is due; it is valid until the next call. An error is
  // the reason to end the connection.
  std::expected<std::span<const std::byte>, std::string> handle(const Header& header,
                                                                std::span<const std::byte> payload,
                                                                std::vector<UniqueFd> fds);

  // The client is gone: the device and the function are reset, its memory and eventfds are released.
  void disconnect();

  // The client's eventfd for the end of INTx, to be polled for reading and followed by resume_intx(); -1 if it gave
  // none.
  int resume_fd() const { return irqs_.resume_fd(); }
  void resume_intx() { irqs_.resume(); }

  bool dma_read(uint64_t iova, std::span<std::byte> to) override;
  bool dma_write(uint64_t iova, std::span<const std::byte> from) override;
  DmaWindow dma_window(uint64_t iova, size_t size_bytes, DmaAccess access) override;
  void set_intx(bool level) override { irqs_.set_intx(level); }
  void msix(uint32_t vector) override { irqs_.msix(vector); }
  bool msix_enabled() const override { return irqs_.msix_enabled(); }

 private:
  // Each answers one kind of request: appends to reply_, or refuses with an errno, which the client gets.
  using Outcome = std::expected<void, Refusal>;
  Outcome answer(const VersionRequest& request);
  Outcome answer(const DmaMapRequest& request);
  Outcome answer(const DmaUnmapRequest& request);
  Outcome answer(const DeviceInfoRequest& request);
  Outcome answer(const RegionInfoRequest& request);
  Outcome answer(const IrqInfoRequest& request);
  Outcome answer(const SetIrqsRequest& request);
  Outcome answer(const RegionReadRequest& request);
  Outcome answer(const RegionWriteRequest& request);
  Outcome answer(const RegionWriteMultiRequest& request);
  Outcome answer(const ResetRequest& request);
  Outcome answer(const UnsupportedRequest& request);

  Session(Device& device, PciConfig config, Log log);
  uint64_t region_bytes(uint32_t region) const;
  Outcome check_access(const char* what, uint32_t region, uint64_t offset, uint64_t bytes) const;
  void bar_read(unsigned bar, uint64_t offset, std::span<std::byte> data);
  void bar_write(unsigned bar, uint64_t offset, std::span<const std::byte> data);
  void config_changed();
  void reset();
  bool may_dma();
  template <typename T>
  void append(const T& wire);

  Device& device_;
  const FunctionSpec spec_;
  Log log_;
  PciConfig config_;
  DmaTable dma_;
  Irqs irqs_;
  std::atomic<bool> bus_master_{false};
  std::atomic<bool> told_no_master_{false};  // logged once until bus mastering changes
  bool negotiated_ = false;
  std::vector<UniqueFd> fds_;     // of the message at hand
  std::vector<std::byte> reply_;  // reused
};

}  // namespace npud::vfio_user
