// SPDX-License-Identifier: Apache-2.0
// How interrupts reach the client: eventfds that it gave with SET_IRQS, for INTA# and for the MSI-X vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <mutex>
#include <span>
#include <vector>

#include "dma_table.h"
#include "message.h"
#include "unique_fd.h"

namespace npud::vfio_user {

// INTA# is a level, but an eventfd is an edge. As in the kernel's vfio-pci, each signal masks the interrupt
// ("automasked"); the client passes it to the guest, and unmasks when the guest has done something about it (QEMU: at
// the guest's next access to any BAR; with KVM, by the eventfd given for ACTION_UNMASK at the guest's end of
// interrupt). If the level stands then, it is signalled again: no interrupt is lost and none is repeated while nobody
// could have served it.
//
// MSI-X masks come from three sides: SET_IRQS, the function mask in the capability, and the mask bit in the table. QEMU
// keeps the table itself and never writes ours, whose bits would say "masked" for ever; so an entry's bit counts once
// it has been written.
//
// Thread-safe; signals are sent under the lock, so none comes after a mask has been acknowledged.
class Irqs {
 public:
  Irqs(bool has_intx, uint16_t msix_vectors);

  // From the server's thread.
  std::expected<void, Refusal> set(const SetIrqsRequest& request, std::vector<UniqueFd> fds);
  uint32_t count(uint32_t index) const;
  uint32_t flags(uint32_t index) const;
  // Readable when the client unmasks INTA# through an eventfd, which resume() then takes; -1 without one.
  int resume_fd() const { return resume_.get(); }
  void resume();
  void configure(bool intx_disabled, bool msix_enabled, bool msix_function_masked);
  void table_read(uint64_t offset, std::span<std::byte> data) const;
  void table_write(uint64_t offset, std::span<const std::byte> data);
  void pba_read(uint64_t offset, std::span<std::byte> data) const;
  void reset();       // the function's state; the client's eventfds stay
  void disconnect();  // the client's eventfds too

  // From any thread.
  void set_intx(bool level);
  bool intx_level() const;
  void msix(uint32_t vector);
  bool msix_enabled() const;

 private:
  struct Vector {
    UniqueFd trigger;
    bool client_masked = false;
    bool table_written = false;
    bool pending = false;
  };

  // All need lock_.
  void signal(const UniqueFd& eventfd);
  void offer_intx();
  void offer_msix(uint32_t vector);
  bool masked(uint32_t vector) const;
  std::expected<void, Refusal> set_intx_action(const SetIrqsRequest& request, std::vector<UniqueFd> fds);
  std::expected<void, Refusal> set_msix_action(const SetIrqsRequest& request, std::vector<UniqueFd> fds);

  const bool has_intx_;
  mutable std::mutex lock_;  // all below, except resume_ which is the server thread's
  UniqueFd resume_;
  UniqueFd intx_trigger_;
  bool intx_level_ = false;
  bool intx_masked_ = false;    // by the client, or since the last signal
  bool intx_disabled_ = false;  // in the command register
  bool msix_enabled_ = false;
  bool msix_function_masked_ = false;
  std::vector<Vector> vectors_;
  std::vector<uint8_t> table_;
};

}  // namespace npud::vfio_user
