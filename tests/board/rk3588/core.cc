// SPDX-License-Identifier: Apache-2.0
// The course of a job: how it begins, goes on and ends. Registers are in core_registers.cc, what a task computes is in
// core_task.cc.
#include "core.h"

#include <algorithm>
#include <format>

namespace npud::rk3588 {
namespace {

using namespace rknpu;

constexpr uint32_t kIrqReadError = 1u << 12, kIrqWriteError = 1u << 13;
constexpr uint32_t kSlaveMode = 1;  // BASE_ADDRESS.PC_SEL

}  // namespace

Core::Core(Wiring wiring, const Options& options) : wiring_(std::move(wiring)), options_(options) { reset_all(); }

void Core::set_options(const Options& options) {
  std::lock_guard lock(mutex_);
  options_ = options;
}

// --- stopping
// -----------------------------------------------------------------------------------------------------------------------

void Core::stop() {
  {
    std::lock_guard lock(mutex_);
    run_.fetch_add(1, std::memory_order_acq_rel);
    job_.reset();
    live_ = false;
    start_pending_ = false;
    hung_ = false;
    if (!options_.reset_keeps_cbuf) ++cbuf_;
    spurious_line_ = line_muted_ = false;
    line_not_before_us_.reset();
    int_raw_ = 0;
    tasks_ = task_number_ = 0;
    tasks_ran_ = false;
    last_task_not_before_us_.reset();
    if (death_ == Death::kUntilReset) death_ = Death::kAlive;
    update_interrupt();
  }
  // An access that had passed its check is over when the bank can be locked.
  wiring_.read_bank->barrier();
  wiring_.write_bank->barrier();
}

void Core::lose_power() {
  reset_registers();
  std::lock_guard lock(mutex_);
  ++cbuf_;
}

void Core::reset_all() {
  lose_power();
  std::lock_guard lock(mutex_);
  death_ = Death::kAlive;
  last_commands_.clear();
}

void Core::all_cores_were_reset() {
  std::lock_guard lock(mutex_);
  if (death_ == Death::kUntilAllReset) death_ = Death::kAlive;
}

void Core::die_for_good(std::string_view why) {
  stop();
  std::lock_guard lock(mutex_);
  death_ = Death::kForGood;
  wiring_.log(std::format("core {}: dies for good: {}", wiring_.core, why));
}

// OPERATION_ENABLE = 0: the job ends where it is, without an interrupt.
void Core::stop_job() {
  if (!job_ || job_->completed) return;
  wiring_.log(std::format("core {}: OPERATION_ENABLE = 0 stops a job at task {}", wiring_.core, job_->done));
  run_.fetch_add(1, std::memory_order_acq_rel);
  job_.reset();
  live_ = false;
  wiring_.read_bank->barrier();
  wiring_.write_bank->barrier();
}

void Core::set_running(bool running) {
  std::unique_lock lock(mutex_);
  running_allowed_ = running;
  lock.unlock();
  wiring_.wake();
}

void Core::hang(const std::string& why) {
  wiring_.log(std::format("core {}: hangs until its reset: {}", wiring_.core, why));
  hung_ = true;
  job_.reset();
  live_ = false;
  update_interrupt();
}

// --- the course of a job
// ------------------------------------------------------------------------------------------------------------

void Core::start() {
  const unsigned core = wiring_.core;
  if (death_ != Death::kAlive) {
    wiring_.log(std::format("core {}: is dead and takes no job", core));
    return;
  }
  if (wiring_.faults->strike(VBOARD_FAULT_DEAD_UNTIL_RESET, core)) {
    death_ = Death::kUntilReset;
    wiring_.log(std::format("core {}: dies until its reset", core));
    return;
  }
  if (wiring_.faults->strike(VBOARD_FAULT_DEAD, core)) {
    death_ = Death::kForGood;
    wiring_.log(std::format("core {}: dies for good", core));
    return;
  }
  if (wiring_.faults->strike(VBOARD_FAULT_DISPATCH_DROP, core)) {
    wiring_.log(std::format("core {}: a dispatch is dropped", core));
    return;
  }
  if (!job_ && !hung_ && wiring_.faults->strike(VBOARD_FAULT_NEVER_STARTS, core)) {
    death_ = Death::kUntilAllReset;
    wiring_.counters->add(VBOARD_COUNT_JOBS);
    wiring_.log(std::format("core {}: takes a job and never starts it, until all cores are reset together", core));
    return;
  }
  if (!running_allowed_) {
    wiring_.driver_fault(std::format("core {}: OPERATION_ENABLE while the core is in reset or without clock", core));
    return;
  }
  if (job_ && job_->completed) {  // its interrupt came early: it still writes, then the new job begins
    start_pending_ = true;
    job_->write_not_before_us.reset();
    return;
  }
  if (job_ || hung_) {
    wiring_.driver_fault(std::format("core {}: OPERATION_ENABLE while a job {}", core, hung_ ? "hangs" : "is running"));
    return;
  }
  if (base_address_ & kSlaveMode) {
    wiring_.driver_fault(
        std::format("core {}: OPERATION_ENABLE in slave mode (BASE_ADDRESS bit 0), which is not modelled", core));
    return;
  }
  begin_job();
}

void Core::begin_job() {
  const uint32_t tasks = task_con_ & 0xfff;
  if (tasks == 0) {
    wiring_.driver_fault(std::format("core {}: OPERATION_ENABLE with a task number of 0", wiring_.core));
    return;
  }
  wiring_.counters->add(VBOARD_COUNT_JOBS);
  wiring_.job_began();
  task_number_ = tasks;
  if (!options_.cbuf_survives) {
    ++cbuf_;
    reset_groups();
  }
  job_ = std::make_shared<Job>();
  job_->options = options_;
  job_->run = run_.load(std::memory_order_acquire);
  job_->cbuf = cbuf_;
  job_->tasks = tasks;
  job_->ping_pong = task_con_ & kTaskPingPong;
  live_ = true;
  if (const auto status = wiring_.faults->strike(VBOARD_FAULT_IRQ_SPURIOUS, wiring_.core)) {
    int_raw_ |= *status;
    spurious_line_ = true;
    update_interrupt();
  }
}

std::optional<uint64_t> Core::next_deadline_us() const {
  std::lock_guard lock(mutex_);
  std::optional<uint64_t> next = line_not_before_us_;
  if (job_ && job_->write_not_before_us && (!next || *job_->write_not_before_us < *next))
    next = job_->write_not_before_us;
  return next;
}

bool Core::advance() {
  std::unique_lock lock(mutex_);
  if (line_not_before_us_ && wiring_.now_us() >= *line_not_before_us_) {
    line_not_before_us_.reset();
    update_interrupt();
    return true;
  }
  const std::shared_ptr<Job> job = job_;
  if (!job || hung_ || !running_allowed_) return false;
  switch (job->phase) {
    case Phase::kFetch: {
      if (wiring_.read_bank->blocked()) return false;
      if (wiring_.faults->strike(VBOARD_FAULT_STALL, wiring_.core,
                                 [&](uint32_t after) { return after == job->done; })) {
        hang(std::format("a stall was ordered after task {}", job->done));
        return true;
      }
      const uint32_t address = base_address_ & ~0xfu;
      if (job->done > 0 && address == 0) {
        hang(std::format("task {} of {} has no address: the trailer before it names none", job->done, job->tasks));
        return true;
      }
      std::vector<uint64_t> words(words_for_amount(amount_));
      lock.unlock();
      const Access access = fetch(*job, address, words);
      lock.lock();
      if (!settle(job, access, "command words", false)) return access == Access::kWait ? false : true;
      wiring_.counters->add(VBOARD_COUNT_WORDS, words.size());
      if (!apply_commands(*job, words)) return true;
      job->phase = Phase::kCompute;
      return true;
    }
    case Phase::kCompute: {
      if (wiring_.read_bank->blocked() || wiring_.write_bank->blocked()) return false;
      lock.unlock();
      violations_.clear();
      const Access access = compute(*job);
      lock.lock();
      if (!settle(job, access, "operands", false)) return access == Access::kWait ? false : true;
      if (!violations_.empty()) {
        refuse(*job, violations_);
        return true;
      }
      if (wiring_.faults->strike(VBOARD_FAULT_WRONG_BIT, wiring_.core,
                                 [&](uint32_t task) { return task == job->done; })) {
        // In the last byte of an element, where it counts in every precision.
        job->result.bytes[job->result.bytes.size() / 2 | 3] ^= std::byte{0x10};
        wiring_.log(std::format("core {}: a bit of the result of task {} is inverted", wiring_.core, job->done));
      }
      job->phase = Phase::kWrite;
      job->written_runs = job->written_bytes = 0;
      if (job->done + 1 == job->tasks) {
        if (const auto early = wiring_.faults->strike(VBOARD_FAULT_IRQ_EARLY, wiring_.core)) {
          job->write_not_before_us = wiring_.now_us() + (*early & ~VBOARD_IRQ_EARLY_QUIET);
          // A bank knows of transactions, not of what the core is going to do.
          if (*early & VBOARD_IRQ_EARLY_QUIET) live_ = false;
          finish_task(*job);
          complete(*job);
        }
      }
      return true;
    }
    case Phase::kWrite: {
      if (job->write_not_before_us && wiring_.now_us() < *job->write_not_before_us) return false;
      job->write_not_before_us.reset();
      live_ = true;
      if (wiring_.write_bank->blocked()) return false;
      lock.unlock();
      const Access access = write_back(*job);
      lock.lock();
      if (!settle(job, access, "results", true)) return access == Access::kWait ? false : true;
      if (!job->completed) {
        finish_task(*job);
        if (job->done < job->tasks) {
          job->phase = Phase::kFetch;
          return true;
        }
        if (wiring_.faults->strike(VBOARD_FAULT_STALL, wiring_.core,
                                   [&](uint32_t after) { return after >= job->done; })) {
          hang(std::format("a stall was ordered after task {}", job->done));
          return true;
        }
        complete(*job);
      }
      job_.reset();
      live_ = false;
      if (start_pending_) {
        start_pending_ = false;
        begin_job();
      }
      return true;
    }
  }
  return false;
}

// Whether the worker may go on with the job after an access; if not, what the access demands has been done.
bool Core::settle(const std::shared_ptr<Job>& job, Access access, const char* what, bool writing) {
  if (job_ != job) return false;  // dropped meanwhile
  switch (access) {
    case Access::kDone:
      return true;
    case Access::kWait:
      return false;
    case Access::kAborted:
      return false;
    case Access::kHang:
      hang(std::format("an unmapped access to {} hangs the bus, as ordered", what));
      return false;
    case Access::kBusError:
      int_raw_ |= writing ? kIrqWriteError : kIrqReadError;
      hang(std::format("the bus has no memory for {} of task {}", what, job->done));
      return false;
  }
  return false;
}

bool Core::apply_commands(Job& job, const std::vector<uint64_t>& words) {
  last_commands_ = words;
  std::vector<std::string> violations;
  bool rdma_words = false;
  // The chain's next link must come from this task's own words.
  base_address_ = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const Command command = decode(words[i]);
    if (command.target == Target::kEnable && command.reg == reg::kPcOperationEnable) {
      if (!violations.empty()) break;
      job.enable = command.value;
      last_commands_.resize(i + 1);
      if (const std::string why = why_it_never_ends(job, rdma_words); !why.empty()) {
        hang(std::format("task {}: {}", job.done, why));
        return false;
      }
      return true;
    }
    // Fields are looked at when the task is decoded, by what its enable word starts; here only whether the word has a
    // known place.
    const Register* r = find_register(command.reg);
    const bool has_place = r != nullptr && block_target(r->block) == command.target;
    if (!has_place) {
      if (auto violation = command_violation(command); !violation.empty())
        violations.push_back(std::format("word {}: {}", i, violation));
    }
    switch (command.target) {
      case Target::kPc:
        if (command.reg == reg::kPcBaseAddress) {
          base_address_ = command.value;
        } else if (command.reg == reg::kPcRegisterAmounts) {
          amount_ = command.value & 0xffff;
        } else if (has_place) {
          violations.push_back(std::format("word {}: {} can't be written by a command word", i, qualified_name(*r)));
        }
        break;
      case Target::kCna:
      case Target::kCore:
      case Target::kDpu:
      case Target::kRdma:
      case Target::kPpu:
      case Target::kPpuRdma:
        rdma_words |= command.target == Target::kRdma;
        if (has_place) store(*r, command.value);
        break;
      default:
        break;
    }
  }
  if (violations.empty()) {
    violations.push_back(
        std::format("the {} words fetched end before the enable word: the amount is too small", words.size()));
  }
  refuse(job, violations);
  return false;
}

// What a convolution lacks without which it was seen to begin and never to end. Empty: nothing.
std::string Core::why_it_never_ends(const Job& job, bool rdma_words) const {
  if (!(job.enable & kEnableCna)) return {};
  if (job.options.mrdma_needed && !rdma_words) return "it has no words for DPU_RDMA (mrdma=needed)";
  for (const Block block : {Block::kCna, Block::kCore}) {
    const uint32_t named = pointers_[static_cast<size_t>(block)].core;
    if (job.options.core_pointer_required && named != wiring_.core) {
      return std::format("bits 29:28 of {}.S_POINTER name core {} (core-pointer=required)", block_name(block), named);
    }
  }
  return {};
}

void Core::refuse(const Job& job, const std::vector<std::string>& violations) {
  wiring_.counters->add(VBOARD_COUNT_BAD_COMMANDS, violations.size());
  for (const std::string& violation : violations) {
    wiring_.log(std::format("core {}: task {} is refused: {}", wiring_.core, job.done, violation));
  }
  hang(std::format("task {} can't be executed", job.done));
}

void Core::finish_task(Job& job) {
  wiring_.counters->add(VBOARD_COUNT_TASKS);
  ++job.done;
  ++tasks_;
  tasks_ran_ = true;
  // Status bits come in pairs, one for each ping-pong group. Those of the last task's blocks and groups are shown.
  struct Part {
    Block block;
    uint32_t enable, status_0, status_1;
  };
  job.status = 0;
  for (const Part& part : {Part{Block::kCna, kEnableCna, 0x15, 0x2a}, Part{Block::kCore, kEnableCna, 0x40, 0x80},
                           Part{Block::kDpu, kEnableDpu, 0x100, 0x200}, Part{Block::kRdma, kEnableRdma, 0, 0},
                           Part{Block::kPpu, kEnablePpu, 0x400, 0x800}, Part{Block::kPpuRdma, kEnablePpuRdma, 0, 0}}) {
    if (!(job.enable & part.enable)) continue;
    const Block block = part.block;
    job.status |= executes_from(block) ? part.status_1 : part.status_0;
    if (!job.ping_pong) continue;
    Pointers& p = pointers(block);
    if (p.config & kPointerProducerEnable) p.producer = !p.producer;
    if (p.config & kPointerConsumerEnable) p.consumer = !p.consumer;
  }
}

void Core::complete(Job& job) {
  job.completed = true;
  if (const auto late = wiring_.faults->strike(VBOARD_FAULT_IRQ_LATE, wiring_.core)) {
    line_not_before_us_ = wiring_.now_us() + *late;
    wiring_.wake();
  }
  if (const auto lag = wiring_.faults->strike(VBOARD_FAULT_STATUS_LAGS, wiring_.core)) {
    last_task_not_before_us_ = wiring_.now_us() + *lag;
    wiring_.log(std::format("core {}: TASK_STATUS lags {} us behind the interrupt", wiring_.core, *lag));
  }
  raise(job.status, wiring_.faults->strike(VBOARD_FAULT_IRQ_LOST, wiring_.core).has_value());
}

std::vector<uint64_t> Core::last_commands() const {
  std::lock_guard lock(mutex_);
  return last_commands_;
}

std::string Core::state() const {
  std::lock_guard lock(mutex_);
  if (death_ != Death::kAlive) return "dead";
  if (!running_allowed_) return "off";
  if (hung_) return "hung";
  if (!job_) return "idle";
  return wiring_.read_bank->blocked() || wiring_.write_bank->blocked() ? "waiting" : "running";
}

}  // namespace npud::rk3588
