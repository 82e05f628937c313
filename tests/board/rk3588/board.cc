// SPDX-License-Identifier: Apache-2.0
// Takes accesses apart by BAR and offset, holds cores, banks and the control registers together, and runs the cores.
#include "board.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <format>
#include <mutex>
#include <thread>

#include "core.h"
#include "counters.h"
#include "faults.h"
#include "kernel/include/vboard/vboard_regs.h"
#include "mmu.h"

namespace npud::rk3588 {
namespace {

constexpr uint32_t kBankOffsets[VBOARD_BANKS] = {VBOARD_BANK0, VBOARD_BANK1, VBOARD_BANK2, VBOARD_BANK3};
// Banks 0 and 1 serve core 0 (reads, and the DPU), bank 2 core 1, bank 3 core 2: the device trees give core 0 two, the
// others one.
constexpr unsigned kCoreOfBank[VBOARD_BANKS] = {0, 0, 1, 2};
constexpr unsigned kReadBank[VBOARD_CORES] = {0, 2, 3};
constexpr unsigned kWriteBank[VBOARD_CORES] = {1, 2, 3};
constexpr uint32_t kAllCores = (1u << VBOARD_CORES) - 1;
// The DMA arbiter of each core: priorities and outstanding requests. They are kept and change nothing.
constexpr uint32_t kArbiterBegin = 0x8000, kArbiterEnd = 0x8100;
constexpr struct {
  uint32_t offset, value;
} kArbiterReset[] = {{0x8000, 0xfff}, {0x8004, 0x01010101}, {0x8008, 0x00010101}, {0x8010, 0x101}, {0x8030, 0x100}};
// Nothing answers there: the vendor's amount counters of other SoCs.
constexpr uint32_t kHoleBegin = 0x2000, kHoleEnd = 0x3000;

}  // namespace

struct Board::Impl {
  // Wakes one core's worker. The sequence number closes the gap between looking for work and waiting for it.
  struct Waker {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t sequence = 0;
  };

  Impl(const Options& options, Environment environment) : env(std::move(environment)), options(options) {
    for (unsigned b = 0; b < VBOARD_BANKS; ++b) {
      const unsigned core = kCoreOfBank[b];
      MmuBank::Wiring wiring{
          .bank = b,
          .core = core,
          .dma = env.dma,
          .faults = &faults,
          .counters = &counters[core],
          .interrupt = [this, b](bool level) { set_source(8 + b, level, kCoreOfBank[b]); },
          .wake = [this, core] { wake(core); },
          .core_is_live = [this, core] { return cores[core] && cores[core]->live(); },
          .driver_fault = [this](std::string_view what) { driver_fault(what); },
      };
      banks[b] = std::make_unique<MmuBank>(std::move(wiring), options);
    }
    for (unsigned c = 0; c < VBOARD_CORES; ++c) {
      Core::Wiring wiring{
          .core = c,
          .faults = &faults,
          .counters = &counters[c],
          .read_bank = banks[kReadBank[c]].get(),
          .write_bank = banks[kWriteBank[c]].get(),
          .interrupt = [this, c](bool level) { set_source(c, level, c); },
          .wake = [this, c] { wake(c); },
          .now_us = env.now_us,
          .log = [this](std::string_view line) { log(line); },
          .driver_fault = [this](std::string_view what) { driver_fault(what); },
          .job_began = [this] { reset_since_job = 0; },
      };
      cores[c] = std::make_unique<Core>(std::move(wiring), options);
    }
    reset_arbiters();
    power_on_state();
  }

  void log(std::string_view line) const {
    if (env.log) env.log(line);
  }

  // `fault_offset` is set by the register access under way on this thread.
  void driver_fault(std::string_view what) {
    driver_faults.fetch_add(1);
    driver_fault_last = access_offset.load();
    log(std::format("driver fault: {}", what));
  }

  void set_source(unsigned bit, bool level, unsigned core) {
    std::lock_guard lock(source_mutex);
    const uint32_t before = sources.load();
    const uint32_t after = level ? before | 1u << bit : before & ~(1u << bit);
    if (after == before) return;
    sources = after;
    if (level) counters[core].add(VBOARD_COUNT_IRQS);
    announce();
  }

  // What the bus sees of the sources; source_mutex is held.
  void announce() {
    uint32_t seen = sources;
    for (unsigned line = 0; line < VBOARD_CORES; ++line) {
      if (irq_mask >> line & 1) seen &= ~VBOARD_IRQ_SOURCES(line);
    }
    if (env.interrupt && seen != announced) env.interrupt(seen);
    announced = seen;
  }

  void mask_lines(uint32_t value) {
    std::lock_guard lock(source_mutex);
    irq_mask = value & kAllCores;
    announce();
  }

  // A line that is still high falls and rises, for those to whom levels come as messages.
  void end_of_interrupt(uint32_t lines) {
    std::lock_guard lock(source_mutex);
    const uint32_t before = irq_mask;
    irq_mask |= lines & kAllCores;
    announce();
    irq_mask = before;
    announce();
  }

  void wake(unsigned core) {
    Waker& waker = wakers[core];
    {
      std::lock_guard lock(waker.mutex);
      ++waker.sequence;
    }
    waker.changed.notify_one();
  }

  // --- power, reset
  // ---------------------------------------------------------------------------------------------------------------

  bool bus_runs(unsigned core) const { return power >> core & 1 && clock >> core & 1; }
  bool powered(unsigned core) const { return bus_runs(core) && common_clocks; }
  // Of a core, or of its banks, which Linux' rockchip-iommu uses with aclk and iface alone.
  bool registers_live(unsigned core, bool bank) const {
    return (bank ? bus_runs(core) : powered(core)) && !(reset_lines & VBOARD_RESET_H(core));
  }

  void apply_running(unsigned core) {
    cores[core]->set_running(powered(core) && !(reset_lines & (VBOARD_RESET_A(core) | VBOARD_RESET_H(core))));
  }

  void reset_banks(unsigned core) {
    for (unsigned b = 0; b < VBOARD_BANKS; ++b) {
      if (kCoreOfBank[b] == core) banks[b]->reset();
    }
  }

  void power_on_state() {
    power = clock = options.power_on_mask;
    common_clocks = true;
    reset_lines = 0;
    clock_khz = options.clock_khz;
    fault_stage = {};
    mask_lines(0);
    for (unsigned c = 0; c < VBOARD_CORES; ++c) apply_running(c);
  }

  // The vendor's driver resets all cores at once when one never starts; here one after the other helps as well, if no
  // job began in between.
  void note_reset(unsigned core) {
    const bool others_run = std::ranges::any_of(cores, [](const auto& c) { return c->live(); });
    if (others_run) {
      reset_since_job = 0;
      return;
    }
    const uint32_t all = reset_since_job.fetch_or(1u << core) | 1u << core | (~power & kAllCores);
    if (all != kAllCores) return;
    for (auto& c : cores) c->all_cores_were_reset();
  }

  void reset_arbiters() {
    for (auto& words : arbiter) {
      words.fill(0);
      if (!options.reset_values_silicon) continue;
      for (const auto& [offset, value] : kArbiterReset) words[(offset - kArbiterBegin) / 4] = value;
    }
  }

  void write_reset(uint32_t value) {
    const uint32_t asserted = value & ~reset_lines;
    reset_lines = value & (kAllCores | kAllCores << 8);
    for (unsigned c = 0; c < VBOARD_CORES; ++c) {
      if (asserted & VBOARD_RESET_H(c)) {
        cores[c]->reset_registers();
        if (options.reset_clears_mmu) reset_banks(c);
      } else if (asserted & VBOARD_RESET_A(c)) {
        cores[c]->stop();
      }
      if (asserted & (VBOARD_RESET_H(c) | VBOARD_RESET_A(c))) note_reset(c);
      apply_running(c);
    }
  }

  void write_power(uint32_t value) {
    const uint32_t lost = power & ~value;
    for (unsigned c = 0; c < VBOARD_CORES; ++c) {
      if (!(lost >> c & 1)) continue;
      if (cores[c]->live()) driver_fault(std::format("core {}: power was switched off under a running job", c));
      cores[c]->lose_power();
      reset_banks(c);
      note_reset(c);
    }
    power = value & kAllCores;
    for (unsigned c = 0; c < VBOARD_CORES; ++c) apply_running(c);
  }

  void write_rate(uint32_t khz) {
    const bool unpowered = power == 0 && khz != clock_khz;
    clock_khz = khz;
    if (!unpowered) return;
    driver_fault("the rate of the clock was changed while no core has power");
    const bool struck = faults.strike(VBOARD_FAULT_RATE_UNPOWERED, 0).has_value();
    if (!struck && !options.rate_unpowered_kills) return;
    for (auto& core : cores) core->die_for_good("the rate of the clock was changed without power");
  }

  // As a system on chip whose bus waits for ever.
  void lose_board() {
    driver_fault("page 0x2000 of a core was read, where nothing answers: the board is lost");
    for (auto& core : cores) {
      core->set_running(false);
      core->stop();
    }
    lost = true;
  }

  // --- BAR 0
  // ----------------------------------------------------------------------------------------------------------------------

  struct Place {
    unsigned core = 0;
    int bank = -1;
    uint32_t offset = 0;  // in the core's window, or in the bank
  };

  static std::optional<Place> place(uint32_t offset) {
    for (unsigned b = 0; b < VBOARD_BANKS; ++b) {
      if (offset >= kBankOffsets[b] && offset < kBankOffsets[b] + VBOARD_BANK_SIZE) {
        return Place{kCoreOfBank[b], static_cast<int>(b), offset - kBankOffsets[b]};
      }
    }
    const unsigned core = offset / VBOARD_CORE_STRIDE;
    if (core >= VBOARD_CORES) return std::nullopt;
    return Place{core, -1, offset % VBOARD_CORE_STRIDE};
  }

  bool accessible(const Place& at, uint32_t offset, const char* verb) {
    if (registers_live(at.core, at.bank >= 0)) return true;
    driver_fault(std::format(
        "register {:#x} was {} while core {} can't answer (power {:#x}, clocks {:#x}, common clocks {}, reset lines {:#x})",
        offset, verb, at.core, power, clock, common_clocks ? "on" : "off", reset_lines));
    return false;
  }

  uint32_t read_register(uint32_t offset) {
    const auto at = place(offset);
    if (!at) return 0;
    counters[at->core].add(VBOARD_COUNT_REG_READS);
    if (!accessible(*at, offset, "read")) return 0;
    if (at->bank < 0 && at->offset >= kHoleBegin && at->offset < kHoleEnd && options.page_2000_loses) {
      lose_board();
      return ~0u;
    }
    if (at->bank >= 0) return banks[at->bank]->read(at->offset);
    if (at->offset >= kArbiterBegin && at->offset < kArbiterEnd)
      return arbiter[at->core][(at->offset - kArbiterBegin) / 4];
    return cores[at->core]->read(at->offset);
  }

  void write_register(uint32_t offset, uint32_t value) {
    const auto at = place(offset);
    if (!at) return;
    counters[at->core].add(VBOARD_COUNT_REG_WRITES);
    if (!accessible(*at, offset, "written")) return;
    if (at->bank >= 0) {
      banks[at->bank]->write(at->offset, value);
    } else if (at->offset >= kArbiterBegin && at->offset < kArbiterEnd) {
      arbiter[at->core][(at->offset - kArbiterBegin) / 4] = value;
    } else {
      cores[at->core]->write(at->offset, value);
    }
  }

  // --- BAR 2
  // ----------------------------------------------------------------------------------------------------------------------

  uint32_t read_counter(uint32_t offset) {
    const uint32_t relative = offset - VBOARD_COUNTERS;
    const unsigned core = relative / VBOARD_COUNTER_STRIDE;
    const unsigned index = relative % VBOARD_COUNTER_STRIDE / 8;
    if (relative % 8 != 0) return static_cast<uint32_t>(counter_latch >> 32);
    counter_latch = counters[core].get(index);  // the high word belongs to the low word read before it
    return static_cast<uint32_t>(counter_latch);
  }

  uint32_t read_control(uint32_t offset) {
    if (offset >= VBOARD_COUNTERS && offset < VBOARD_COUNTER(VBOARD_CORES, 0)) return read_counter(offset);
    switch (offset) {
      case VBOARD_MAGIC:
        return VBOARD_MAGIC_VALUE;
      case VBOARD_VERSION:
        return VBOARD_VERSION_VALUE;
      case VBOARD_SOC:
        return 0x3588;
      case VBOARD_NR_CORES:
        return VBOARD_CORES;
      case VBOARD_NR_BANKS:
        return VBOARD_BANKS;
      case VBOARD_RESET:
        return reset_lines;
      case VBOARD_POWER:
        return power;
      case VBOARD_CLOCK:
        return clock;
      case VBOARD_CLOCK_COMMON:
        return common_clocks ? 1 : 0;
      case VBOARD_CLOCK_KHZ:
        return clock_khz;
      case VBOARD_OPTION:
        return option_refused;
      case VBOARD_DRIVER_FAULTS:
        return driver_faults;
      case VBOARD_DRIVER_FAULT_LAST:
        return driver_fault_last;
      case VBOARD_IRQ_STATUS:
        return sources;
      case VBOARD_IRQ_MASK:
        return irq_mask;
      case VBOARD_FAULT_KIND:
        return fault_stage.kind;
      case VBOARD_FAULT_CORE:
        return fault_stage.core;
      case VBOARD_FAULT_ARG:
        return fault_stage.arg;
      case VBOARD_FAULT_COUNT:
        return fault_stage.left;
      case VBOARD_FAULT_ARM:
        return faults.armed();
      case VBOARD_FAULT_FIRED:
        return static_cast<uint32_t>(faults.strikes());
      default:
        return 0;
    }
  }

  // Text comes four bytes at a time; a zero byte ends it.
  void write_option(uint32_t value) {
    for (unsigned i = 0; i < 4; ++i) {
      const char c = static_cast<char>(value >> 8 * i);
      if (c != 0) {
        if (option_text.size() < 64) option_text += c;
        continue;
      }
      const auto set = options.set(option_text);
      option_refused = !set;
      for (auto& core : cores) core->set_options(options);
      for (auto& bank : banks) bank->set_options(options);
      log(set ? std::format("option {}", option_text) : set.error());
      option_text.clear();
      return;
    }
  }

  void write_control(uint32_t offset, uint32_t value) {
    switch (offset) {
      case VBOARD_RESET:
        write_reset(value);
        break;
      case VBOARD_POWER:
        write_power(value);
        break;
      case VBOARD_CLOCK:
        clock = value & kAllCores;
        for (unsigned c = 0; c < VBOARD_CORES; ++c) apply_running(c);
        break;
      case VBOARD_CLOCK_KHZ:
        write_rate(value);
        break;
      case VBOARD_OPTION:
        write_option(value);
        break;
      case VBOARD_CLOCK_COMMON:
        common_clocks = value & 1;
        for (unsigned c = 0; c < VBOARD_CORES; ++c) apply_running(c);
        break;
      case VBOARD_DRIVER_FAULTS:
        if (value == 0) driver_faults = driver_fault_last = 0;
        break;
      case VBOARD_IRQ_MASK:
        mask_lines(value);
        break;
      case VBOARD_IRQ_EOI:
        end_of_interrupt(value);
        break;
      case VBOARD_FAULT_KIND:
        fault_stage.kind = static_cast<vboard_fault>(value);
        break;
      case VBOARD_FAULT_CORE:
        fault_stage.core = value;
        break;
      case VBOARD_FAULT_ARG:
        fault_stage.arg = value;
        break;
      case VBOARD_FAULT_COUNT:
        fault_stage.left = value;
        break;
      case VBOARD_FAULT_ARM:
        if (value != 1) break;
        if (const auto armed = arm(fault_stage); !armed) log(armed.error());
        break;
      case VBOARD_FAULT_CLEAR:
        if (value == 1) faults.disarm_all();
        break;
      default:
        break;
    }
  }

  std::expected<void, std::string> arm(const Fault& fault) {
    if (!fault_is_valid(fault)) {
      return std::unexpected(std::format("a fault of kind {} at core {} can't be armed: there is no such kind or core",
                                         static_cast<uint32_t>(fault.kind), fault.core));
    }
    faults.arm(fault);
    if (fault.kind != VBOARD_FAULT_IRQ_SPURIOUS) return {};
    // The first strike needs no job.
    const unsigned core = fault.core == VBOARD_FAULT_ANY_CORE ? 0 : fault.core;
    if (const auto status = faults.strike(fault.kind, core)) cores[core]->spurious_interrupt(*status);
    return {};
  }

  // --- running
  // --------------------------------------------------------------------------------------------------------------------

  void work(unsigned core, const std::stop_token& stop) {
    Waker& waker = wakers[core];
    while (!stop.stop_requested()) {
      uint64_t seen;
      {
        std::lock_guard lock(waker.mutex);
        seen = waker.sequence;
      }
      if (cores[core]->advance()) continue;
      const auto deadline = cores[core]->next_deadline_us();
      std::unique_lock lock(waker.mutex);
      const auto news = [&] { return waker.sequence != seen || stop.stop_requested(); };
      if (deadline) {
        const uint64_t now = env.now_us();
        waker.changed.wait_for(lock, std::chrono::microseconds(*deadline > now ? *deadline - now : 0), news);
      } else {
        waker.changed.wait(lock, news);
      }
    }
  }

  void stop_workers() {
    for (auto& worker : workers) worker.request_stop();
    for (unsigned c = 0; c < VBOARD_CORES; ++c) wake(c);
    workers.clear();  // joins
  }

  void reset() {
    faults.reset();
    for (auto& core : cores) core->reset_all();
    for (auto& bank : banks) bank->reset();
    for (auto& counter : counters) counter.clear();
    reset_arbiters();
    lost = false;
    option_text.clear();
    option_refused = false;
    driver_faults = driver_fault_last = 0;
    power_on_state();
  }

  const Environment env;
  Faults faults;
  std::array<Counters, VBOARD_CORES> counters;
  std::array<std::unique_ptr<MmuBank>, VBOARD_BANKS> banks;
  std::array<std::unique_ptr<Core>, VBOARD_CORES> cores;
  std::array<Waker, VBOARD_CORES> wakers;
  std::mutex source_mutex;  // orders the calls of env.interrupt; guards irq_mask and announced
  uint32_t irq_mask = 0;    // bit n: line n is kept low
  uint32_t announced = 0;   // what env.interrupt was last told
  std::atomic<uint32_t> sources{0};
  std::atomic<uint32_t> driver_faults{0};
  std::atomic<uint32_t> driver_fault_last{0};
  std::atomic<uint32_t> access_offset{0};
  std::atomic<uint32_t> reset_since_job{0};  // cores that were reset since any began a job
  std::mutex access_mutex;                   // one register access at a time; guards what follows
  bool lost = false;                         // until the device reset
  Options options;                           // as given at the start, but for what was set through VBOARD_OPTION
  std::string option_text;
  bool option_refused = false;
  uint32_t power = 0, clock = 0, reset_lines = 0, clock_khz = 0;
  bool common_clocks = true;
  Fault fault_stage;
  uint64_t counter_latch = 0;
  std::array<std::array<uint32_t, (kArbiterEnd - kArbiterBegin) / 4>, VBOARD_CORES> arbiter{};
  std::vector<std::jthread> workers;
};

Board::Board(const Options& options, Environment environment)
    : impl_(std::make_unique<Impl>(options, std::move(environment))) {}

Board::~Board() { impl_->stop_workers(); }

uint32_t Board::read32(unsigned bar, uint32_t offset) {
  std::lock_guard lock(impl_->access_mutex);
  if (offset % 4 != 0) return 0;
  if (impl_->lost) return ~0u;
  if (bar == VBOARD_BAR_REGS && offset < VBOARD_BAR_REGS_SIZE) {
    impl_->access_offset = offset;
    return impl_->read_register(offset);
  }
  if (bar == VBOARD_BAR_CONTROL && offset < VBOARD_BAR_CONTROL_SIZE) return impl_->read_control(offset);
  return 0;
}

void Board::write32(unsigned bar, uint32_t offset, uint32_t value) {
  std::lock_guard lock(impl_->access_mutex);
  if (offset % 4 != 0 || impl_->lost) return;
  if (bar == VBOARD_BAR_REGS && offset < VBOARD_BAR_REGS_SIZE) {
    impl_->access_offset = offset;
    impl_->write_register(offset, value);
  } else if (bar == VBOARD_BAR_CONTROL && offset < VBOARD_BAR_CONTROL_SIZE) {
    impl_->write_control(offset, value);
  }
}

void Board::reset() {
  std::lock_guard lock(impl_->access_mutex);
  impl_->reset();
}

void Board::run_until_idle() {
  bool worked = true;
  while (worked) {
    worked = false;
    for (auto& core : impl_->cores) worked |= core->advance();
  }
}

void Board::start_workers() {
  for (unsigned c = 0; c < VBOARD_CORES; ++c) {
    impl_->workers.emplace_back([impl = impl_.get(), c](const std::stop_token& stop) { impl->work(c, stop); });
  }
}

void Board::stop_workers() { impl_->stop_workers(); }

std::expected<void, std::string> Board::arm(const Fault& fault) {
  std::lock_guard lock(impl_->access_mutex);
  return impl_->arm(fault);
}

void Board::disarm_all() { impl_->faults.disarm_all(); }

std::vector<uint64_t> Board::last_commands(unsigned core) const {
  return core < VBOARD_CORES ? impl_->cores[core]->last_commands() : std::vector<uint64_t>{};
}

uint64_t Board::counter(unsigned core, unsigned index) const {
  return core < VBOARD_CORES ? impl_->counters[core].get(index) : 0;
}

std::string Board::core_state(unsigned core) const { return core < VBOARD_CORES ? impl_->cores[core]->state() : ""; }

}  // namespace npud::rk3588
