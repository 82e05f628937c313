// SPDX-License-Identifier: Apache-2.0
#include "engine/session_allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace npud {
namespace {

constexpr std::size_t header_bytes = 64;  // keeps the blocks aligned for any vector instruction

// Sizes in eighths of a power of two: few enough that blocks fit the next run, at most an eighth wasted.
std::uint64_t size_class(std::uint64_t bytes) {
  bytes = std::max<std::uint64_t>(bytes, 1);
  const std::uint64_t step = std::max<std::uint64_t>(std::bit_floor(bytes) / 8, 64);
  return (bytes + step - 1) / step * step;
}

}  // namespace

SessionAllocator::SessionAllocator(HostDevice& device, std::uint64_t limit_bytes)
    : OrtAllocator{},
      device_(device),
      limit_bytes_(limit_bytes),
      memory_info_(Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault)) {
  OrtAllocator::version = ORT_API_VERSION;
  OrtAllocator::Alloc = [](OrtAllocator* self, std::size_t size) {
    return static_cast<SessionAllocator*>(self)->allocate(size);
  };
  OrtAllocator::Reserve = OrtAllocator::Alloc;
  OrtAllocator::Free = [](OrtAllocator* self, void* block) { static_cast<SessionAllocator*>(self)->release(block); };
  OrtAllocator::Info = [](const OrtAllocator* self) -> const OrtMemoryInfo* {
    return static_cast<const SessionAllocator*>(self)->memory_info_;
  };
  device_.attach(*this);
}

SessionAllocator::~SessionAllocator() {
  device_.detach(*this);
  std::scoped_lock lock(mutex_);
  shrink_kept(0);
}

std::uint64_t SessionAllocator::in_use_bytes() const {
  std::scoped_lock lock(mutex_);
  return in_use_bytes_;
}

void SessionAllocator::refuse(std::uint64_t total_bytes) {
  refused_total_bytes_ = total_bytes;
  ++refusals_;
  throw std::bad_alloc();
}

void* SessionAllocator::take_kept(std::uint64_t size_bytes) {
  // A block up to a quarter too large does as well: shapes that change from run to run then share their blocks.
  for (auto at = kept_.lower_bound(size_bytes); at != kept_.end() && at->first <= size_bytes + size_bytes / 4; ++at) {
    if (at->second.empty()) continue;
    void* start = at->second.back().start;
    at->second.pop_back();
    return start;
  }
  return nullptr;
}

void* SessionAllocator::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return nullptr;
  if (size_bytes > (1ull << 48)) refuse(size_bytes);
  const std::uint64_t size = size_class(size_bytes + header_bytes);
  std::scoped_lock lock(mutex_);
  void* start = take_kept(size);
  if (start == nullptr) {
    if (limit_bytes_ != 0) {
      if (in_use_bytes_ + size > limit_bytes_) refuse(in_use_bytes_ + size);
      shrink_kept(limit_bytes_ - size);  // what is kept makes room
    }
    start = std::aligned_alloc(header_bytes, size);
    if (start == nullptr) refuse(in_use_bytes_ + size);
    static_cast<Header*>(start)->size_bytes = size;
    held_bytes_ += size;
    device_.take(size);
  }
  in_use_bytes_ += static_cast<Header*>(start)->size_bytes;
  return static_cast<std::byte*>(start) + header_bytes;
}

void SessionAllocator::release(void* block) {
  if (block == nullptr) return;
  void* start = static_cast<std::byte*>(block) - header_bytes;
  const std::uint64_t size = static_cast<Header*>(start)->size_bytes;
  std::scoped_lock lock(mutex_);
  in_use_bytes_ -= size;
  kept_[size].push_back({start, runs_});
}

void SessionAllocator::free_block(void* start, std::uint64_t size_bytes) {
  std::free(start);
  held_bytes_ -= size_bytes;
  device_.give_back(size_bytes);
}

void SessionAllocator::shrink_kept(std::uint64_t held_limit_bytes) {
  while (held_bytes_ > held_limit_bytes && !kept_.empty()) {
    auto largest = std::prev(kept_.end());
    for (; !largest->second.empty() && held_bytes_ > held_limit_bytes; largest->second.pop_back()) {
      free_block(largest->second.back().start, largest->first);
    }
    if (largest->second.empty()) kept_.erase(largest);
  }
}

void SessionAllocator::let_go() {
  std::scoped_lock lock(mutex_);
  shrink_kept(0);
}

void SessionAllocator::run_ended() {
  std::scoped_lock lock(mutex_);
  if (++runs_ % (idle_runs / 4) != 0) return;
  std::erase_if(kept_, [&](auto& blocks) {
    std::erase_if(blocks.second, [&](const Kept& kept) {
      const bool idle = kept.last_run + idle_runs <= runs_;
      if (idle) free_block(kept.start, blocks.first);
      return idle;
    });
    return blocks.second.empty();
  });
}

}  // namespace npud
