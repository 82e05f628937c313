// SPDX-License-Identifier: Apache-2.0
// npud-board-scratch SOCKET [--log FILE]: the smallest board there is, to try the vfio-user server with a real QEMU and
// a real kernel: registers, an interrupt line, and a DMA engine with a thread of its own. tests/vm/guest/scratch drives
// it.
//
// PCI 1234:7075. BAR 0, 32-bit registers:
//   0x00 identity, reads 0x53435254       0x04 scratch word             0x08 level of INTA#
//   0x10, 0x14 bus address, low and high  0x18 length in 32-bit words   0x20 value
//   0x1c command: 1 sums the words into value, 2 fills them with value, 3 does 2 through a window; INTA# rises at the
//   end 0x24 state: 0 idle, 1 busy, 2 done, 3 the bus refused
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <format>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "vfio_user/server.h"

namespace npud::vfio_user {
namespace {

class Scratch final : public Device {
 public:
  Scratch() {
    spec_.vendor = 0x1234;
    spec_.device = 0x7075;
    spec_.class_code = 0xff0000;
    spec_.bar_bytes = {0x1000, 0, 0, 0, 0x1000, 0};
    spec_.msix_vectors = 2;
  }
  const FunctionSpec& function() const override { return spec_; }
  void attach(Bus& bus) override {
    bus_ = &bus;
    worker_ = std::jthread([this](std::stop_token stop) { work(stop); });
  }
  void detach() override { worker_ = {}; }

  bool region_read(unsigned bar, uint64_t offset, std::span<std::byte> data) override {
    const std::lock_guard guard(lock_);
    if (bar != 0 || data.size() != 4 || offset % 4) return false;
    const uint32_t value = offset / 4 < registers_.size() ? registers_[offset / 4] : 0;
    std::memcpy(data.data(), &value, 4);
    return true;
  }

  bool region_write(unsigned bar, uint64_t offset, std::span<const std::byte> data) override {
    const std::lock_guard guard(lock_);
    if (bar != 0 || data.size() != 4 || offset % 4 || offset / 4 >= registers_.size()) return false;
    if (offset / 4 == kIdentity || offset / 4 == kState) return true;
    std::memcpy(&registers_[offset / 4], data.data(), 4);
    if (offset / 4 == kLevel) bus_->set_intx(registers_[kLevel] & 1);
    if (offset / 4 == kCommand) {
      registers_[kState] = 1;
      wake_.notify_all();
    }
    return true;
  }

  void reset() override {
    std::unique_lock guard(lock_);
    wake_.wait(guard, [this] { return registers_[kState] != 1; });
    registers_ = kPowerOn;
  }

 private:
  enum Register {
    kIdentity = 0,
    kLevel = 2,
    kAddress = 4,
    kLength = 6,
    kCommand = 7,
    kValue = 8,
    kState = 9,
    kRegisters = 16
  };
  static constexpr std::array<uint32_t, kRegisters> kPowerOn{0x53435254};

  void work(std::stop_token stop) {
    std::unique_lock guard(lock_);
    while (wake_.wait(guard, stop, [this] { return registers_[kState] == 1; })) {
      const std::array<uint32_t, kRegisters> job = registers_;
      guard.unlock();
      const std::optional<uint32_t> value = run(job);
      guard.lock();
      if (value) registers_[kValue] = *value;
      registers_[kState] = value ? 2 : 3;
      registers_[kLevel] = 1;
      wake_.notify_all();
      bus_->set_intx(true);
    }
  }

  std::optional<uint32_t> run(const std::array<uint32_t, kRegisters>& job) {
    const uint64_t address = job[kAddress] | uint64_t{job[kAddress + 1]} << 32;
    std::vector<uint32_t> words(job[kLength] % (1 << 20), job[kValue]);
    const auto bytes = std::as_writable_bytes(std::span(words));
    if (job[kCommand] == 1) {
      if (!bus_->dma_read(address, bytes)) return {};
      uint32_t sum = 0;
      for (const uint32_t word : words) sum += word;
      return sum;
    }
    if (job[kCommand] == 3) {
      const DmaWindow window = bus_->dma_window(address, bytes.size(), DmaAccess::kReadWrite);
      if (!window) return {};
      std::memcpy(window.data(), bytes.data(), bytes.size());
      return job[kValue];
    }
    return bus_->dma_write(address, bytes) ? std::optional(job[kValue]) : std::nullopt;
  }

  FunctionSpec spec_;
  Bus* bus_ = nullptr;
  std::mutex lock_;  // registers_
  std::condition_variable_any wake_;
  std::array<uint32_t, kRegisters> registers_ = kPowerOn;
  std::jthread worker_;
};

Server* serving = nullptr;

int run(std::string_view socket, std::FILE* log) {
  Scratch scratch;
  auto server = Server::create(scratch, [log](std::string_view line) {
    std::fprintf(log, "%.*s\n", static_cast<int>(line.size()), line.data());
    std::fflush(log);
  });
  if (!server) {
    std::fprintf(stderr, "npud-board-scratch: %s\n", server.error().c_str());
    return 1;
  }
  serving = server->get();
  std::signal(SIGTERM, [](int) { serving->stop(); });
  std::signal(SIGINT, [](int) { serving->stop(); });
  const auto result = (*server)->serve(std::string(socket));
  if (!result) std::fprintf(stderr, "npud-board-scratch: %s\n", result.error().c_str());
  return result ? 0 : 1;
}

}  // namespace
}  // namespace npud::vfio_user

int main(int argc, char** argv) {
  std::FILE* log = stderr;
  std::string_view socket;
  for (int i = 1; i < argc; i++) {
    const std::string_view argument = argv[i];
    if (argument == "--log" && i + 1 < argc) {
      log = std::fopen(argv[++i], "w");
      if (!log) {
        std::perror(argv[i]);
        return 2;
      }
    } else if (argument == "--control" && i + 1 < argc) {
      i++;  // every board takes it; there is nothing to control here
    } else if (socket.empty() && !argument.starts_with("-")) {
      socket = argument;
    } else {
      std::fprintf(stderr, "npud-board-scratch: what is '%s'? Usage: npud-board-scratch SOCKET [--log FILE]\n",
                   argv[i]);
      return 2;
    }
  }
  if (socket.empty()) {
    std::fprintf(stderr, "npud-board-scratch: which socket? Usage: npud-board-scratch SOCKET [--log FILE]\n");
    return 2;
  }
  return npud::vfio_user::run(socket, log);
}
