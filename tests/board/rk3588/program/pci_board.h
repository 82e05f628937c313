// SPDX-License-Identifier: Apache-2.0
// The board as a PCI function for vfio_user::Server: BARs to registers, interrupt sources to INTA# or MSI-X vectors,
// DMA to the bus.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "tests/board/rk3588/board.h"
#include "tests/board/vfio_user/device.h"

namespace npud::rk3588 {

class PciBoard : public vfio_user::Device {
 public:
  PciBoard(const Options& options, std::function<void(std::string_view)> log);
  ~PciBoard() override;

  const vfio_user::FunctionSpec& function() const override { return spec_; }
  void attach(vfio_user::Bus& bus) override;
  void detach() override;
  bool region_read(unsigned bar, uint64_t offset, std::span<std::byte> data) override;
  bool region_write(unsigned bar, uint64_t offset, std::span<const std::byte> data) override;
  void reset() override;

  // Between attach() and detach(), for the control socket; nullptr otherwise.
  std::shared_ptr<Board> board() const;

 private:
  class BusDma;

  void interrupt(uint32_t sources);

  const vfio_user::FunctionSpec spec_;
  const Options options_;
  const std::function<void(std::string_view)> log_;
  vfio_user::Bus* bus_ = nullptr;
  std::unique_ptr<BusDma> dma_;
  mutable std::mutex mutex_;  // guards board_ itself, which the control socket's thread takes
  std::shared_ptr<Board> board_;
  uint32_t sources_ = 0;  // what was signalled last; the board calls interrupt() one at a time
};

}  // namespace npud::rk3588
