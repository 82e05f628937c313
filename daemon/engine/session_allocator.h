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

// One for each session; outlives it. Blocks that come back are kept for the next run of the session, as an arena would,
// up to what recent runs had in use at once. Beyond `limit_bytes` an allocation fails with std::bad_alloc, which ONNX
// Runtime turns into the failure of that run: a request whose shapes blow a model up costs itself, not the machine.
// Thread-safe.
class SessionAllocator final : public OrtAllocator {
 public:
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

  // After each run: lets go what runs of late didn't need.
  void run_ended();
  void drop_kept();

 private:
  struct Header {  // before each block, 64 bytes
    std::uint64_t size_bytes;
  };
  void* allocate(std::size_t size_bytes);
  void release(void* block);
  void shrink_kept(std::uint64_t held_limit_bytes);  // mutex_ held

  HostDevice& device_;
  const std::uint64_t limit_bytes_;
  const Ort::MemoryInfo memory_info_;
  std::atomic<std::uint64_t> held_bytes_{0}, refusals_{0}, refused_total_bytes_{0};

  mutable std::mutex mutex_;                          // all below
  std::map<std::uint64_t, std::vector<void*>> kept_;  // by size
  std::uint64_t in_use_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;         // in use, since the last run_ended()
  std::uint64_t recent_peak_bytes_ = 0;  // over the last runs, fading
};

}  // namespace npud
