// SPDX-License-Identifier: Apache-2.0
// What npud asks of a driver with the RKNPU interface, and no more: memory in address spaces, jobs, a verdict. DrmPort
// is the one for /dev/dri; the unit tests put the virtual board behind the same interface.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace npud::rknpu {

struct PortInfo {
  std::string node;       // "/dev/dri/renderD128"
  std::string driver;     // "npud_rknpu 0.9.8" or "rknpu 0.9.8"
  bool isolated = false;  // every file has its own address spaces (npud's driver); else one space shared with everybody
  bool fences = false;    // completion can be had as a sync_file
  uint32_t cores = 1;
  uint32_t spaces = 1;  // address spaces this file may use, each of space_bytes
  uint64_t space_bytes = 0;
};

enum class Caching : uint8_t { cached, write_combined };

// Owned by whoever allocated it, given back with Port::release(). `bytes` is mapped for the CPU; `address` is the
// device's, below 4 GiB.
struct Memory {
  uint32_t handle = 0;
  uint64_t cookie = 0;  // names it in jobs and syncs
  uint32_t space = 0;
  uint32_t address = 0;
  Caching caching = Caching::cached;
  std::span<std::byte> bytes;
};

// One entry of a task array (uapi struct rknpu_task), as far as anybody reads it.
struct TaskEntry {
  uint32_t interrupts = 0;
  uint32_t amount_words = 0;
  uint32_t words_address = 0;
};

// What one core of a job runs: tasks [first, first + count) of the array, chained in memory.
struct CoreTasks {
  uint32_t first = 0;
  uint32_t count = 0;
};

struct Submission {
  uint32_t space = 0;
  const Memory* tasks = nullptr;            // where write_tasks() put the array
  std::vector<CoreTasks> cores;             // one: any core; two or three: a gang on the first two or three
  std::chrono::milliseconds timeout{1000};  // of execution
  int priority = 0;                         // -20..19, lower runs first
};

// Thread-safe.
class Port {
 public:
  virtual ~Port() = default;
  virtual const PortInfo& info() const = 0;

  // Zeroed. resource_exhausted with bytes needed and free when the space is full.
  virtual Result<Memory> allocate(uint32_t space, uint64_t bytes, Caching caching) = 0;
  virtual void release(Memory& memory) noexcept = 0;
  // Hands [offset, offset + size) of cached memory to the device, or takes it back.
  virtual Result<> to_device(const Memory& memory, uint64_t offset, uint64_t size) = 0;
  virtual Result<> from_device(const Memory& memory, uint64_t offset, uint64_t size) = 0;

  static constexpr std::size_t kTaskEntryBytes = 40;
  virtual void write_tasks(const Memory& memory, std::span<const TaskEntry> tasks) = 0;

  // Runs the job and waits for its end. Errors: deadline_exceeded (ran too long; the driver has stopped the core),
  // data_loss (page fault), unavailable (device or file gone), internal (anything else); the message has the driver's
  // verdict.
  virtual Result<> run(const Submission& submission) = 0;
};

}  // namespace npud::rknpu
