// SPDX-License-Identifier: Apache-2.0
// A core's registers as the host and command words reach them, and its interrupt line.
#include <format>

#include "core.h"

namespace npud::rk3588 {
namespace {

using namespace rknpu;

constexpr uint32_t kRawIdle = 0x40000000, kRawWorked = 0xc0000000;
// TASK_STATUS above the 12 bits of its count: states that were read out; what their bits mean nobody knows.
constexpr uint32_t kTaskStatusBusy = 0x7000, kTaskStatusDone = 0xf000, kTaskStatusCount = 0xfff;
constexpr uint32_t kIrqAll = 0x1ffff, kMaskWritable = 0x7fffffff;  // bit 31 of the mask reads 1
constexpr uint32_t kTaskCountClear = 1u << 13;
constexpr uint32_t kPointerProducerClear = 1u << 4, kPointerConsumerClear = 1u << 5;
constexpr uint32_t kPointerCoreShift = 28, kPointerCoreMask = 3;

uint32_t reset_value(uint16_t offset) { return find_register(offset)->reset; }

bool is_pointer(uint32_t offset) {
  return offset == reg::kCnaSPointer || offset == reg::kCoreSPointer || offset == reg::kDpuSPointer ||
         offset == reg::kRdmaSPointer || offset == reg::kPpuSPointer || offset == reg::kPpuRdmaSPointer;
}
bool is_status(uint32_t offset) {
  return offset == reg::kCnaSStatus || offset == reg::kCoreSStatus || offset == reg::kDpuSStatus ||
         offset == reg::kRdmaSStatus || offset == reg::kPpuSStatus || offset == reg::kPpuRdmaSStatus;
}

}  // namespace

uint32_t Core::read(uint32_t offset) {
  std::lock_guard lock(mutex_);
  const Register* r = offset <= 0xffff ? find_register(static_cast<uint16_t>(offset)) : nullptr;
  if (r == nullptr) {
    wiring_.driver_fault(std::format("core {}: register {:#x} was read, which does not exist", wiring_.core, offset));
    return 0;
  }
  if (r->block == Block::kPc) return read_pc(offset);
  if (r->block == Block::kGlobal) return enable_mask_;
  const Pointers& p = pointers(r->block);
  if (is_pointer(offset))
    return p.config | p.core << kPointerCoreShift | (p.producer ? 1u : 0) | (p.consumer ? 1u << 16 : 0);
  if (is_status(offset) && !options_.s_status_running) return 0;
  if (is_status(offset)) return hung_ || (job_ && !job_->completed) ? (executes_from(r->block) ? 1u << 16 : 1u) : 0;
  return groups_[p.producer].get(r->offset);
}

void Core::write(uint32_t offset, uint32_t value) {
  std::unique_lock lock(mutex_);
  const Register* r = offset <= 0xffff ? find_register(static_cast<uint16_t>(offset)) : nullptr;
  if (r == nullptr) {
    wiring_.driver_fault(
        std::format("core {}: register {:#x} was written, which does not exist", wiring_.core, offset));
  } else if (r->block == Block::kPc) {
    write_pc(offset, value);
  } else if (r->block == Block::kGlobal) {
    enable_mask_ = value;
  } else {
    if (is_pointer(offset)) pointers(r->block).core = value >> kPointerCoreShift & kPointerCoreMask;
    store(*r, value);
  }
  zero_follows_one_ = offset == reg::kPcOperationEnable && (value & 1);
  lock.unlock();
  wiring_.wake();
}

uint32_t Core::read_pc(uint32_t offset) const {
  switch (offset) {
    case reg::kPcVersion:
    case reg::kPcVersionNum:
      return find_register(static_cast<uint16_t>(offset))->reset;
    case reg::kPcOperationEnable:
      return job_ && !job_->completed ? 1 : 0;
    case reg::kPcBaseAddress:
      return base_address_;
    case reg::kPcRegisterAmounts:
      return amount_;
    case reg::kPcInterruptMask:
      return options_.reset_values_silicon ? int_mask_ | ~kMaskWritable : int_mask_;
    case reg::kPcInterruptStatus:
      return spurious_line_ ? int_raw_ : int_raw_ & int_mask_;
    case reg::kPcInterruptRawStatus:
      return int_raw_ | raw_bits();
    case reg::kPcTaskCon:
      return task_con_;
    case reg::kPcTaskDmaBaseAddr:
      return dma_base_;
    case reg::kPcTaskStatus:
      return task_status();
    default:
      return 0;
  }
}

uint32_t Core::task_status() const {
  const bool lags = last_task_not_before_us_ && wiring_.now_us() < *last_task_not_before_us_;
  const uint32_t tasks = lags ? tasks_ - 1 : tasks_;
  if (task_number_ == 0) return options_.reset_values_silicon ? reset_value(reg::kPcTaskStatus) : 0;
  switch (options_.task_status) {
    case TaskStatus::kModulo: {
      const bool busy = lags || hung_ || (job_ && !job_->completed);
      return (busy ? kTaskStatusBusy : kTaskStatusDone) | tasks % task_number_;
    }
    case TaskStatus::kCount:
      return tasks & kTaskStatusCount;
    case TaskStatus::kStuck:
      return tasks_ran_ ? 1 : 0;
  }
  return 0;
}

uint32_t Core::raw_bits() const {
  if (!options_.int_raw_done_bits) return 0;
  return task_number_ == 0 ? kRawIdle : kRawWorked;
}

void Core::write_pc(uint32_t offset, uint32_t value) {
  switch (offset) {
    case reg::kPcOperationEnable:
      if (value & 1) {
        start();
      } else if (!zero_follows_one_ && options_.zero_stops) {
        stop_job();
      }
      break;
    case reg::kPcBaseAddress:
      base_address_ = value;
      break;
    case reg::kPcRegisterAmounts:
      amount_ = value & 0xffff;
      break;
    case reg::kPcInterruptMask:
      int_mask_ = value & kIrqAll;
      break;
    case reg::kPcInterruptClear:
      int_raw_ &= ~value;
      spurious_line_ = false;
      if (int_raw_ == 0) {
        line_muted_ = false;
        line_not_before_us_.reset();
      }
      break;
    case reg::kPcTaskCon:
      // The trigger bits above TASK_PP_EN clear themselves: 0x7002 reads back 0x1002.
      task_con_ = value & (kTaskPingPong | 0xfff);
      if (value & kTaskCountClear) {
        tasks_ = 0;
        last_task_not_before_us_.reset();
      }
      break;
    case reg::kPcTaskDmaBaseAddr:
      dma_base_ = value & ~0xfu;
      if (dma_base_ != 0)
        wiring_.log(std::format("core {}: TASK_DMA_BASE_ADDR {:#x} is kept, but addresses are not relative to it here",
                                wiring_.core, value));
      break;
    default:
      break;  // read-only
  }
  update_interrupt();
}

void Core::write_pointer(Block block, uint32_t value) {
  Pointers& p = pointers(block);
  p.config = value & 0xe;
  if (value & kPointerProducerClear) p.producer = false;
  if (value & kPointerConsumerClear) p.consumer = false;
  if (!(value & kPointerProducerEnable)) p.producer = value & 1;
  if (!(value & kPointerConsumerEnable)) p.consumer = p.producer;
}

bool Core::store(const Register& r, uint32_t value) {
  if (is_pointer(r.offset)) {
    write_pointer(r.block, value);
    return true;
  }
  if (!r.banked) return true;  // status and the blocks' own enables, which the PC stands in for
  if (r.offset == reg::kDpuLutAccessCfg) lut_.select(value);
  if (r.offset == reg::kDpuLutAccessData) lut_.write(value);
  return groups_[pointers(r.block).producer].set(r.offset, value);
}

bool Core::executes_from(Block block) const {
  const Pointers& p = pointers_[static_cast<size_t>(block)];
  return p.config & kPointerConsumerEnable ? p.consumer : p.producer;
}

RegisterFile Core::merged_registers() const {
  RegisterFile merged;
  for (const Register& r : registers()) {
    if (r.banked) merged.set(r.offset, groups_[executes_from(r.block)].get(r.offset));
  }
  return merged;
}

void Core::reset_groups() {
  for (auto& group : groups_) group.reset();
}

void Core::reset_registers() {
  stop();
  std::lock_guard lock(mutex_);
  const bool silicon = options_.reset_values_silicon;
  reset_groups();
  pointers_ = {};
  amount_ = task_con_ = dma_base_ = enable_mask_ = 0;
  base_address_ = silicon ? reset_value(reg::kPcBaseAddress) : 0;
  int_mask_ = silicon ? reset_value(reg::kPcInterruptMask) & kIrqAll : 0;
  zero_follows_one_ = false;
  update_interrupt();
}

// --- interrupts
// ---------------------------------------------------------------------------------------------------------------------

void Core::update_interrupt() {
  const bool late = line_not_before_us_ && wiring_.now_us() < *line_not_before_us_;
  wiring_.interrupt(spurious_line_ || ((int_raw_ & int_mask_) != 0 && !line_muted_ && !late));
}

void Core::raise(uint32_t bits, bool lost) {
  int_raw_ |= bits;
  if (lost) line_muted_ = true;
  update_interrupt();
}

void Core::spurious_interrupt(uint32_t status) {
  std::unique_lock lock(mutex_);
  int_raw_ |= status;
  spurious_line_ = true;
  update_interrupt();
}

}  // namespace npud::rk3588
