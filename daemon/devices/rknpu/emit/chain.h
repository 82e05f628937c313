// SPDX-License-Identifier: Apache-2.0
// Several tasks as one buffer of command words, each with the trailer that leads the program counter to the next.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "devices/rknpu/emit/words.h"

namespace npud::rknpu {

// What the driver's task array says of a task.
struct ChainedTask {
  uint32_t word_offset = 0;   // of its first word in the buffer; its bytes are at 8 * word_offset
  uint32_t amount_words = 0;  // without the trailer: rknpu_task.regcfg_amount
};

// The interrupt that says that a task is done: both ping-pong groups of the DPU.
inline constexpr uint32_t kDpuInterrupts = 0x300;

class Chain {
 public:
  void add(TaskWords task) { tasks_.push_back(std::move(task)); }
  std::size_t size() const { return tasks_.size(); }
  // Bytes of the buffer that link() makes; tasks start at multiples of 64 bytes.
  std::size_t size_bytes() const;

  struct Linked {
    std::vector<uint64_t> words;
    std::vector<ChainedTask> tasks;
  };
  // The buffer's contents when it lies at device address `base` (a multiple of 16, below 4 GiB).
  Result<Linked> link(uint32_t base) const;

 private:
  std::vector<TaskWords> tasks_;
};

}  // namespace npud::rknpu
