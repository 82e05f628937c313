// SPDX-License-Identifier: Apache-2.0
// One NPU core: its window of registers (PC, two ping-pong groups of the other blocks), and the job that runs on it. A
// job is a chain of tasks; each is fetched, computed from what memory held then, and written back. Work never waits
// inside: whatever has to wait (an MMU stall or fault, a delay) ends advance(), which is called again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "board.h"
#include "conv.h"
#include "counters.h"
#include "devices/rknpu/hw/registers.h"
#include "devices/rknpu/hw/task.h"
#include "dpu.h"
#include "faults.h"
#include "mmu.h"

namespace npud::rk3588 {

class Core {
 public:
  struct Wiring {
    unsigned core = 0;
    Faults* faults = nullptr;
    Counters* counters = nullptr;
    MmuBank* read_bank = nullptr;   // PC, features, weights
    MmuBank* write_bank = nullptr;  // the DPU's reads and writes
    std::function<void(bool level)> interrupt;
    std::function<void()> wake;  // advance() may have something to do
    std::function<uint64_t()> now_us;
    std::function<void(std::string_view)> log;
    std::function<void(std::string_view)> driver_fault;
    std::function<void()> job_began;
  };

  Core(Wiring wiring, const Options& options);
  // For registers from now on, and for the jobs that begin then. Any thread.
  void set_options(const Options& options);

  // Registers, by offset in the core's window. Any thread.
  uint32_t read(uint32_t offset);
  void write(uint32_t offset, uint32_t value);

  // Drops the job; no DMA of it is under way when this returns. The core is idle again, also if it hung.
  void stop();
  // As stop(), and the registers are as after power-on.
  void reset_registers();
  // As reset_registers(), and the CBUF is empty.
  void lose_power();
  // As lose_power(), and a core that died for good lives again.
  void reset_all();
  // Ends what only a reset of all cores ends.
  void all_cores_were_reset();
  // The core takes no job until reset_all().
  void die_for_good(std::string_view why);
  // Whether reset, power and clock let it work; kept by the board.
  void set_running(bool running);

  // The fault "irq-spurious" at the moment it is armed.
  void spurious_interrupt(uint32_t status);

  // Does a piece of work; false if there was nothing to do. One thread at a time, without locks of the board.
  bool advance();
  // When advance() will have something to do without anybody's wake, if that is known.
  std::optional<uint64_t> next_deadline_us() const;
  bool live() const { return live_.load(std::memory_order_acquire); }

  std::vector<uint64_t> last_commands() const;
  std::string state() const;

 private:
  // Of TASK_CON and S_POINTER.
  static constexpr uint32_t kTaskPingPong = 1u << 12;
  static constexpr uint32_t kPointerProducerEnable = 1u << 1, kPointerConsumerEnable = 1u << 2;

  enum class Phase { kFetch, kCompute, kWrite };
  enum class Death { kAlive, kUntilReset, kUntilAllReset, kForGood };
  // Shared by the worker that advances it and by register accesses that drop it.
  struct Job {
    Options options;  // when it began
    uint64_t run = 0;
    uint64_t cbuf = 0;  // content of the CBUF from before another number is gone
    uint32_t tasks = 1;
    uint32_t done = 0;
    bool ping_pong = false;
    Phase phase = Phase::kFetch;
    rknpu::Task task;
    uint32_t enable = 0;
    bool stale_operands = false;  // "stale-operands" struck its first task
    uint32_t status = 0;          // interrupt bits of the task that ended last
    Surfaces result;
    size_t written_runs = 0;
    size_t written_bytes = 0;                     // of the run after those
    std::optional<uint64_t> write_not_before_us;  // "irq-early"
    bool completed = false;                       // the interrupt came already
  };
  // A block's ping-pong state.
  struct Pointers {
    uint32_t config = 0;
    bool producer = false;
    bool consumer = false;
    uint32_t core = 0;  // bits 29:28, which only the host writes
  };

  // All below: mutex_ held.
  uint32_t read_pc(uint32_t offset) const;
  uint32_t task_status() const;
  uint32_t raw_bits() const;
  void write_pc(uint32_t offset, uint32_t value);
  void start();
  void begin_job();
  void stop_job();
  void write_pointer(rknpu::Block block, uint32_t value);
  void reset_groups();
  bool store(const rknpu::Register& reg, uint32_t value);
  Pointers& pointers(rknpu::Block block) { return pointers_[static_cast<size_t>(block)]; }
  bool executes_from(rknpu::Block block) const;
  rknpu::RegisterFile merged_registers() const;
  bool apply_commands(Job& job, const std::vector<uint64_t>& words);
  std::string why_it_never_ends(const Job& job, bool rdma_words) const;
  void finish_task(Job& job);
  void complete(Job& job);
  void raise(uint32_t bits, bool lost);
  void update_interrupt();
  void hang(const std::string& why);
  void refuse(const Job& job, const std::vector<std::string>& violations);
  bool settle(const std::shared_ptr<Job>& job, Access access, const char* what, bool writing);

  // The worker's, without mutex_: they touch the job and the worker's buffers only.
  Access fetch(const Job& job, uint32_t address, std::vector<uint64_t>& words);
  Access compute(Job& job);
  Access load_conv(const Job& job, const rknpu::ConvTask& conv);
  Access load_pixels(const Job& job, const rknpu::ConvTask& conv);
  Access load_operands(const Job& job, const rknpu::DpuTask& dpu, DpuOperands& operands);
  Access load_elementwise(const Job& job, const rknpu::DpuTask& dpu, std::vector<std::byte>& to);
  // A cube of 16-byte atoms; pitches in bytes.
  struct CubeSource {
    uint32_t address, surfaces, lines, line_bytes, line_pitch, surface_pitch;
  };
  Access load_cube(const Job& job, MmuBank& bank, const CubeSource& from, std::vector<std::byte>& to);
  Access pool(Job& job, const rknpu::PpuTask& ppu);
  bool check_sizes(const rknpu::Task& task);
  void accumulate(const Job& job, const rknpu::ConvTask& conv, Accumulators& sums);
  void charge(const rknpu::Task& task, size_t result_bytes);
  Access read_all(const Job& job, MmuBank& bank, uint32_t address, std::span<std::byte> to);
  Access write_back(Job& job);
  RunToken token(const Job& job) const { return {&run_, job.run}; }

  const Wiring wiring_;
  std::atomic<uint64_t> run_{0};  // changes with every stop: accesses of older runs are aborted
  std::atomic<bool> live_{false};

  mutable std::mutex mutex_;  // guards all below, but for the worker's buffers
  Options options_;
  std::array<rknpu::RegisterFile, 2> groups_;
  std::array<Pointers, 8> pointers_;
  LookupTables lut_;
  uint32_t base_address_ = 0;
  uint32_t amount_ = 0;
  uint32_t int_mask_ = 0;
  uint32_t int_raw_ = 0;
  uint32_t task_con_ = 0;
  uint32_t dma_base_ = 0;
  uint32_t tasks_ = 0;                               // since TASK_COUNT_CLEAR
  uint32_t task_number_ = 0;                         // of the job that began last; 0: none since the reset
  bool tasks_ran_ = false;                           // since the reset
  std::optional<uint64_t> last_task_not_before_us_;  // TASK_STATUS shows it from then on: "status-lags"
  uint32_t enable_mask_ = 0;
  bool zero_follows_one_ = false;  // OPERATION_ENABLE = 1 was the last write
  uint64_t cbuf_ = 0;              // changes whenever the CBUF is emptied
  bool running_allowed_ = true;
  bool hung_ = false;
  Death death_ = Death::kAlive;
  bool spurious_line_ = false;
  bool line_muted_ = false;                     // "irq-lost"
  std::optional<uint64_t> line_not_before_us_;  // "irq-late"
  std::shared_ptr<Job> job_;
  bool start_pending_ = false;  // OPERATION_ENABLE while an early-interrupt job still writes
  std::vector<uint64_t> last_commands_;

  // The worker's: what stands for the CBUF and the accumulators, which outlive a task (reuse bits, chained integer
  // tasks).
  std::vector<std::byte> features_;
  std::vector<std::byte> weights_;
  uint64_t operands_of_ = 0;  // the Job::cbuf that features_ and weights_ are of
  Accumulators residue_;
  std::optional<uint32_t>
      narrow_cube_;  // address of what the task before, a pooling one, wrote less than 4 wide or high
  std::vector<std::string> violations_;  // found by compute()
};

}  // namespace npud::rk3588
