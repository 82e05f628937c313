// SPDX-License-Identifier: Apache-2.0
// npud whole, with the virtual board as a library where the kernel's driver would be: this file is linked before
// devices/rknpu/driver and answers for it. For tests that need no guest.
//
// NPUD_BOARD_FAULTS=N in the environment makes one NPU job in N meet a fault (dropped, stalled or a wrong bit; a fixed
// sequence). At the end the process reports what is left allocated on the board, and fails if anything is.
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>

#include "devices/rknpu/driver/drm_port.h"
#include "tests/unit/rknpu/board_port.h"

namespace npud::rknpu {
namespace {

constexpr const char* kNode = "board";

// Destroyed when the process ends, after the daemon.
struct Board {
  BoardPort::State state;
  std::uint64_t runs = 0, struck = 0;
  ~Board() {
    std::fprintf(stderr, "board: %llu runs, %llu struck, %llu bytes in %u buffers left\n",
                 static_cast<unsigned long long>(runs), static_cast<unsigned long long>(struck),
                 static_cast<unsigned long long>(state.allocated_bytes), state.buffers);
    std::fflush(stderr);
    if (state.allocated_bytes != 0) std::_Exit(70);
  }
};
Board board;

class StruckPort final : public Port {
 public:
  StruckPort() : port_(board.state, std::uint64_t{256} << 20, 2) {
    const char* text = std::getenv("NPUD_BOARD_FAULTS");
    one_in_ = text == nullptr ? 0 : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
  }
  const PortInfo& info() const override { return port_.info(); }
  Result<Memory> allocate(uint32_t space, uint64_t bytes, Caching caching) override {
    return port_.allocate(space, bytes, caching);
  }
  void release(Memory& memory) noexcept override { port_.release(memory); }
  Result<> to_device(const Memory& m, uint64_t offset, uint64_t size) override {
    return port_.to_device(m, offset, size);
  }
  Result<> from_device(const Memory& m, uint64_t offset, uint64_t size) override {
    return port_.from_device(m, offset, size);
  }
  void write_tasks(const Memory& m, std::span<const TaskEntry> tasks) override { port_.write_tasks(m, tasks); }
  Result<> run(const Submission& submission) override {
    const std::lock_guard lock(mutex_);
    ++board.runs;
    // The first jobs are the calibration's.
    if (one_in_ > 0 && board.runs > 40 && random_() % one_in_ == 0) {
      constexpr std::uint32_t kinds[] = {VBOARD_FAULT_DISPATCH_DROP, VBOARD_FAULT_STALL, VBOARD_FAULT_WRONG_BIT};
      ++board.struck;
      const std::uint32_t kind = kinds[random_() % 3];
      // One wrong bit in a job: two in a pixel may cancel each other in the sum that is checked.
      port_.arm(kind, VBOARD_FAULT_ANY_CORE, 0, kind == VBOARD_FAULT_WRONG_BIT ? 1 : 1 + random_() % 3);
    }
    return port_.run(submission);
  }

 private:
  BoardPort port_;
  std::uint32_t one_in_ = 0;
  std::mutex mutex_;
  std::mt19937 random_{11};
};

}  // namespace

std::vector<std::string> find_nodes() { return {kNode}; }

Result<std::unique_ptr<Port>> open_drm_port(const std::string& node) {
  if (node != kNode) return fail(ErrorCode::not_found, "there is only the node \"board\"");
  return std::make_unique<StruckPort>();
}

}  // namespace npud::rknpu
