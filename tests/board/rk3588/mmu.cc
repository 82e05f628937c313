// SPDX-License-Identifier: Apache-2.0
#include "mmu.h"

#include <algorithm>
#include <cstring>
#include <format>

namespace npud::rk3588 {
namespace {

// Registers and commands: Linux, drivers/iommu/rockchip-iommu.c.
enum Offset : uint32_t {
  kDteAddr = 0x00,
  kStatus = 0x04,
  kCommand = 0x08,
  kPageFaultAddr = 0x0c,
  kZapOneLine = 0x10,
  kIntRawstat = 0x14,
  kIntClear = 0x18,
  kIntMask = 0x1c,
  kIntStatus = 0x20,
  kAutoGating = 0x24,
};
enum Command : uint32_t {
  kEnablePaging = 0,
  kDisablePaging = 1,
  kEnableStall = 2,
  kDisableStall = 3,
  kZapCache = 4,
  kPageFaultDone = 5,
  kForceReset = 6,
};
constexpr uint32_t kStatusPaging = 1u << 0, kStatusFault = 1u << 1, kStatusStall = 1u << 2, kStatusIdle = 1u << 3,
                   kStatusReplayEmpty = 1u << 4, kStatusFaultIsWrite = 1u << 5;
// A bank that stands in a page fault was seen as 0x18b: idle, and a bus id of 6 (gregordinary/patches, rocket/088).
constexpr uint32_t kStatusFaultBusId = 6u << 6;
constexpr uint32_t kIrqPageFault = 1, kIrqBusError = 2;
constexpr uint32_t kValid = 1, kReadable = 2, kWritable = 4;
constexpr uint32_t kPage = 4096;
constexpr uint32_t kDteDummy = 0xcafebabe & ~0xfffu;  // what rockchip-iommu writes before a force reset
// Without paging there are no pages; a piece is what is copied under one hold of the lock.
constexpr uint32_t kPhysicalPiece = 65536;

// Version 2 entries fold address bits 35:32 into bits 11:8 and 39:36 into bits 7:4.
uint64_t entry_address(uint32_t entry) {
  return (entry & 0xfffff000u) | static_cast<uint64_t>(entry & 0xf00) << 24 | static_cast<uint64_t>(entry & 0xf0) << 32;
}

}  // namespace

MmuBank::MmuBank(Wiring wiring, const Options& options) : wiring_(std::move(wiring)), options_(options) {}

void MmuBank::set_options(const Options& options) {
  std::lock_guard lock(mutex_);
  options_ = options;
}

uint32_t MmuBank::read(uint32_t offset) {
  std::lock_guard lock(mutex_);
  switch (offset) {
    case kDteAddr:
      if (dte_addr_ == kDteDummy && wiring_.faults->strike(VBOARD_FAULT_MMU_NO_READBACK, wiring_.bank)) return 0;
      return dte_addr_;
    case kStatus:
      return (paging_ ? kStatusPaging : 0) | (fault_active_ ? kStatusFault | kStatusFaultBusId : kStatusReplayEmpty) |
             (stall_ ? kStatusStall : 0) | (!fault_active_ && wiring_.core_is_live() ? 0 : kStatusIdle) |
             (fault_is_write_ ? kStatusFaultIsWrite : 0);
    case kPageFaultAddr:
      return fault_addr_;
    case kIntRawstat:
      return int_raw_;
    case kIntMask:
      return int_mask_;
    case kIntStatus:
      return int_raw_ & int_mask_;
    case kAutoGating:
      return auto_gating_;
    default:
      return 0;
  }
}

void MmuBank::write(uint32_t offset, uint32_t value) {
  std::unique_lock lock(mutex_);
  switch (offset) {
    case kDteAddr:
      if (paging_ && !stall_ && !fault_active_ && wiring_.core_is_live()) {
        wiring_.driver_fault(
            std::format("bank {}: the page table was exchanged under a running job without a stall", wiring_.bank));
      }
      dte_addr_ = value;
      break;
    case kCommand:
      command(value);
      break;
    case kZapOneLine:
      page_lines_.erase(value / (kPage * kLineEntries));
      directory_lines_.erase((value >> 22) / kLineEntries);
      break;
    case kIntClear:
      int_raw_ &= ~value;
      update_interrupt();
      break;
    case kIntMask:
      int_mask_ = value & (kIrqPageFault | kIrqBusError);
      update_interrupt();
      break;
    case kAutoGating:
      auto_gating_ = value;
      break;
    default:
      break;
  }
  lock.unlock();
  wiring_.wake();
}

void MmuBank::command(uint32_t value) {
  switch (value) {
    case kEnablePaging:
      paging_ = true;
      break;
    case kDisablePaging:
      if (paging_ && !stall_ && wiring_.core_is_live()) {
        wiring_.driver_fault(std::format("bank {}: paging was switched off under a running job", wiring_.bank));
      }
      paging_ = false;
      break;
    case kEnableStall:
      if (may_stall()) stall_ = true;
      break;
    case kDisableStall:
      stall_ = false;
      break;
    case kZapCache:
      page_lines_.clear();
      directory_lines_.clear();
      break;
    case kPageFaultDone:
      if (fault_active_ && !options_.fault_retries) dropped_page_ = fault_addr_ / kPage;
      fault_active_ = false;
      break;
    case kForceReset:
      force_reset();
      break;
    default:
      wiring_.driver_fault(std::format("bank {}: MMU command {} does not exist", wiring_.bank, value));
      break;
  }
}

bool MmuBank::may_stall() const {
  if (!paging_) return false;  // Linux: "Stall can only be enabled if paging is enabled"
  if (stall_) return true;
  const bool busy = wiring_.core_is_live() && !fault_active_;
  const bool refused =
      wiring_.faults
          ->strike(VBOARD_FAULT_STALL_REFUSED, wiring_.bank, [&](uint32_t idle_too) { return busy || idle_too != 0; })
          .has_value();
  return !refused && !(busy && !options_.stall_while_busy_works) && !(fault_active_ && options_.stall_in_fault_fails);
}

void MmuBank::force_reset() {
  dte_addr_ = fault_addr_ = int_raw_ = int_mask_ = auto_gating_ = 0;
  paging_ = stall_ = fault_active_ = fault_is_write_ = false;
  dropped_page_.reset();
  page_lines_.clear();
  directory_lines_.clear();
  update_interrupt();
}

void MmuBank::reset() {
  std::unique_lock lock(mutex_);
  force_reset();
  lock.unlock();
  wiring_.wake();
}

void MmuBank::barrier() { std::lock_guard lock(mutex_); }

bool MmuBank::blocked() const {
  std::lock_guard lock(mutex_);
  return paging_ && (stall_ || fault_active_);
}

void MmuBank::update_interrupt() { wiring_.interrupt((int_raw_ & int_mask_) != 0); }

std::optional<MmuBank::Line> MmuBank::fetch_line(uint64_t table, uint32_t index) {
  Line line;
  const uint64_t address = table + (index & ~(kLineEntries - 1)) * sizeof(uint32_t);
  if (!wiring_.dma->read(address, std::as_writable_bytes(std::span(line)))) return std::nullopt;
  return line;
}

Access MmuBank::fault(uint32_t address, bool write, bool bus_error) {
  if (!bus_error && wiring_.faults->strike(VBOARD_FAULT_UNMAPPED_HANGS, wiring_.core)) return Access::kHang;
  fault_active_ = true;
  fault_addr_ = address;
  fault_is_write_ = write;
  int_raw_ |= bus_error ? kIrqBusError : kIrqPageFault;
  wiring_.counters->add(VBOARD_COUNT_PAGE_FAULTS);
  update_interrupt();
  return Access::kWait;
}

MmuBank::Translation MmuBank::translate(uint32_t address, bool write) {
  if (!paging_) return {.physical = address};
  const bool keep_all = options_.tlb_lines;
  const uint32_t page_key = address / (kPage * kLineEntries);
  const uint32_t page_index = address / kPage % 1024;
  const uint32_t slot = page_index % kLineEntries;
  auto page_line = page_lines_.find(page_key);
  if (page_line != page_lines_.end() && (keep_all || page_line->second[slot] & kValid)) {
    wiring_.counters->add(VBOARD_COUNT_TLB_HITS);
  } else {
    wiring_.counters->add(VBOARD_COUNT_WALKS);
    const uint32_t directory_index = address >> 22;
    const uint32_t directory_key = directory_index / kLineEntries;
    auto directory_line = directory_lines_.find(directory_key);
    if (directory_line == directory_lines_.end() ||
        (!keep_all && !(directory_line->second[directory_index % kLineEntries] & kValid))) {
      const auto line = fetch_line(entry_address(dte_addr_), directory_index);
      if (!line) return {.access = fault(address, write, true)};
      directory_line = directory_lines_.insert_or_assign(directory_key, *line).first;
    }
    const uint32_t directory_entry = directory_line->second[directory_index % kLineEntries];
    if (directory_entry & kValid) {
      auto line = fetch_line(entry_address(directory_entry), page_index);
      if (!line) return {.access = fault(address, write, true)};
      if (!keep_all) {  // only this page, beside those that were asked for earlier
        Line one = page_line == page_lines_.end() ? Line{} : page_line->second;
        one[slot] = (*line)[slot];
        line = one;
      }
      page_line = page_lines_.insert_or_assign(page_key, *line).first;
    } else {
      page_line = page_lines_.end();
    }
  }
  const uint32_t entry = page_line == page_lines_.end() ? 0 : page_line->second[slot];
  const uint32_t needed = kValid | (write ? kWritable : kReadable);
  if ((entry & needed) != needed) {
    if (dropped_page_ == address / kPage) {
      dropped_page_.reset();
      return {.dropped = true};
    }
    return {.access = fault(address, write, false)};
  }
  return {.physical = entry_address(entry & ~0xfu) + address % kPage};
}

template <typename Copy>
Access MmuBank::copy(uint32_t address, size_t size, size_t& done, bool write, const RunToken& token, Copy&& piece) {
  while (done < size) {
    std::lock_guard lock(mutex_);
    if (token.stale()) return Access::kAborted;
    if (paging_ && (stall_ || fault_active_)) return Access::kWait;
    const uint32_t at = address + static_cast<uint32_t>(done);  // device addresses have 32 bits and wrap
    const uint32_t unit = paging_ ? kPage : kPhysicalPiece;
    const size_t length = std::min<size_t>(unit - at % unit, size - done);
    const Translation translation = translate(at, write);
    if (translation.access != Access::kDone) return translation.access;
    if (!piece(translation, done, length)) return Access::kBusError;
    done += length;
  }
  return Access::kDone;
}

Access MmuBank::read_memory(uint32_t address, std::span<std::byte> to, size_t& done, const RunToken& token) {
  return copy(address, to.size(), done, false, token, [&](const Translation& t, size_t offset, size_t length) {
    if (t.dropped) {
      std::memset(to.data() + offset, 0, length);
      return true;
    }
    if (!wiring_.dma->read(t.physical, to.subspan(offset, length))) return false;
    wiring_.counters->add(VBOARD_COUNT_READ_BYTES, length);
    return true;
  });
}

Access MmuBank::write_memory(uint32_t address, std::span<const std::byte> from, size_t& done, const RunToken& token) {
  return copy(address, from.size(), done, true, token, [&](const Translation& t, size_t offset, size_t length) {
    if (t.dropped) return true;
    if (!wiring_.dma->write(t.physical, from.subspan(offset, length))) return false;
    wiring_.counters->add(VBOARD_COUNT_WRITTEN_BYTES, length);
    return true;
  });
}

}  // namespace npud::rk3588
