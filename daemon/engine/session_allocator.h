// SPDX-License-Identifier: Apache-2.0
// Where one session's weights and activations come from, so that every byte of it is known, bounded, and provably back
// at the end.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "devices/host/host_device.h"

namespace npud {

// One for each session; outlives it. Blocks that come back are kept for the next runs of the session, as an arena
// would: a run like the ones before it asks the system for nothing. What `idle_runs` runs in a row had no use for goes
// back, and sooner when the limit needs it or the device lets reserves go. Beyond `limit_bytes` an allocation fails
// with std::bad_alloc, which ONNX Runtime turns into the failure of that run: a request whose shapes blow a model up
// costs itself, not the machine. Thread-safe.
class SessionAllocator final : public OrtAllocator, private Reserve {
 public:
  static constexpr std::uint64_t idle_runs = 16;

  SessionAllocator(HostDevice& device, std::uint64_t limit_bytes);  // 0: no limit
  ~SessionAllocator();
  SessionAllocator(const SessionAllocator&) = delete;
  SessionAllocator& operator=(const SessionAllocator&) = delete;

  // What the session has now, kept blocks included; any thread.
  std::uint64_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t in_use_bytes() const;

  // Refusals so far, and the size that the last one would have come to.
  std::uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }
  std::uint64_t refused_total_bytes() const { return refused_total_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t limit_bytes() const { return limit_bytes_; }

  // After each run: lets go what the last `idle_runs` runs didn't need.
  void run_ended();

 private:
  struct Header {  // before each block, 64 bytes
    std::uint64_t size_bytes;
  };
  struct Kept {
    void* start;
    std::uint64_t last_run;  // the number of the run that gave it back
  };
  void* allocate(std::size_t size_bytes);
  void release(void* block);
  void* take_kept(std::uint64_t size_bytes);         // mutex_ held, as for the next two; null if none fits
  void shrink_kept(std::uint64_t held_limit_bytes);  // the largest first
  void free_block(void* start, std::uint64_t size_bytes);
  void let_go() override;
  [[noreturn]] void refuse(std::uint64_t total_bytes);

  HostDevice& device_;
  const std::uint64_t limit_bytes_;
  const Ort::MemoryInfo memory_info_;
  std::atomic<std::uint64_t> held_bytes_{0}, refusals_{0}, refused_total_bytes_{0};

  mutable std::mutex mutex_;  // all below
  // By size; within a size the last given back is at the end. A size stays here empty until run_ended() sweeps.
  std::map<std::uint64_t, std::vector<Kept>> kept_;
  std::uint64_t in_use_bytes_ = 0;
  std::uint64_t runs_ = 0;
};

}  // namespace npud
