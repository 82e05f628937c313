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
}

SessionAllocator::~SessionAllocator() { drop_kept(); }

std::uint64_t SessionAllocator::in_use_bytes() const {
  std::scoped_lock lock(mutex_);
  return in_use_bytes_;
}

void* SessionAllocator::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return nullptr;
  if (size_bytes > (1ull << 48)) {
    refused_total_bytes_ = size_bytes;
    ++refusals_;
    throw std::bad_alloc();
  }
  const std::uint64_t size = size_class(size_bytes + header_bytes);
  std::scoped_lock lock(mutex_);
  void* start = nullptr;
  if (auto found = kept_.find(size); found != kept_.end()) {
    start = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) kept_.erase(found);
  } else {
    if (limit_bytes_ != 0 && in_use_bytes_ + size > limit_bytes_) {
      refused_total_bytes_ = in_use_bytes_ + size;
      ++refusals_;
      throw std::bad_alloc();
    }
    // Kept blocks of other sizes make room rather than adding up.
    const std::uint64_t bound = std::max({recent_peak_bytes_, peak_bytes_, in_use_bytes_ + size});
    shrink_kept(bound - size);
    start = std::aligned_alloc(header_bytes, size);
    if (start == nullptr) {
      refused_total_bytes_ = in_use_bytes_ + size;
      ++refusals_;
      throw std::bad_alloc();
    }
    held_bytes_ += size;
    device_.take(size);
  }
  static_cast<Header*>(start)->size_bytes = size;
  in_use_bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, in_use_bytes_);
  return static_cast<std::byte*>(start) + header_bytes;
}

void SessionAllocator::release(void* block) {
  if (block == nullptr) return;
  void* start = static_cast<std::byte*>(block) - header_bytes;
  const std::uint64_t size = static_cast<Header*>(start)->size_bytes;
  std::scoped_lock lock(mutex_);
  in_use_bytes_ -= size;
  kept_[size].push_back(start);
}

void SessionAllocator::shrink_kept(std::uint64_t held_limit_bytes) {
  while (held_bytes_ > held_limit_bytes && !kept_.empty()) {
    auto largest = std::prev(kept_.end());
    std::free(largest->second.back());
    held_bytes_ -= largest->first;
    device_.give_back(largest->first);
    largest->second.pop_back();
    if (largest->second.empty()) kept_.erase(largest);
  }
}

void SessionAllocator::run_ended() {
  std::scoped_lock lock(mutex_);
  // An eighth less each run: after about ten small runs, what one big run took has mostly gone back.
  recent_peak_bytes_ = std::max(peak_bytes_, recent_peak_bytes_ - recent_peak_bytes_ / 8);
  peak_bytes_ = in_use_bytes_;
  shrink_kept(recent_peak_bytes_);
}

void SessionAllocator::drop_kept() {
  std::scoped_lock lock(mutex_);
  recent_peak_bytes_ = peak_bytes_ = in_use_bytes_;
  shrink_kept(0);
}

}  // namespace npud
