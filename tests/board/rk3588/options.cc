// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <format>
#include <span>

namespace npud::rk3588 {
namespace {

struct Switch {
  std::string_view key;
  std::array<std::string_view, 3> values;  // the default first; those that are empty don't exist
  void (*set)(Options&, size_t value);
  std::string_view text;
};

// The first value of a flag is true; values of others are in the order of their enumerators.
template <auto member>
void choose(Options& options, size_t value) {
  auto& to = options.*member;
  if constexpr (std::is_same_v<decltype(options.*member), bool&>) {
    to = value == 0;
  } else {
    to = static_cast<std::remove_reference_t<decltype(to)>>(value);
  }
}

constexpr Switch kSwitches[] = {
    {"task-status",
     {"modulo", "count", "stuck"},
     choose<&Options::task_status>,
     "TASK_STATUS counts modulo the task number, so that a job that is done shows 0 (gregordinary/patches, "
     "BATCHED_SUBMIT_FINDINGS.md, dumps of a ROCK 5B), up to the task number, or stands at 1 once a task ran"},
    {"int-raw",
     {"done-bits", "plain"},
     choose<&Options::int_raw_done_bits>,
     "bits 31:30 of INT_RAW are 01 in an idle core and 11 in one that worked (dumps of a ROCK 5B), or always 00"},
    {"reset-values",
     {"silicon", "zero"},
     choose<&Options::reset_values_silicon>,
     "after a reset BASE_ADDRESS is 1, INT_MASK 0x8001ffff, TASK_STATUS 0x5000 (dumps of a ROCK 5B) and the arbiter "
     "has its weights (rockchip-npu-notes hw-byte-counters.md), or all are 0"},
    {"s-status",
     {"running", "zero"},
     choose<&Options::s_status_running>,
     "S_STATUS of CNA, CORE and DPU tell which group is running (TRM), or read 0"},
    {"op-en-zero",
     {"stops", "ignored"},
     choose<&Options::zero_stops>,
     "OPERATION_ENABLE = 0 stops a job (gregordinary/patches rocket/090), but for one right after the 1, as the "
     "vendor's driver writes it; or does nothing"},
    {"core-pointer",
     {"required", "optional"},
     choose<&Options::core_pointer_required>,
     "convolutions on cores 1 and 2 hang unless bits 29:28 of S_POINTER of CNA and CORE were written with the number "
     "of the core (rocket, LKML 2026-02-16), or run"},
    {"mrdma",
     {"needed", "optional"},
     choose<&Options::mrdma_needed>,
     "convolutions without words for DPU_RDMA never end (rockchip-npu-notes mrdma-trap.md), or run (mtx512, "
     "ork-driver)"},
    {"cbuf-state",
     {"survives", "cleared"},
     choose<&Options::cbuf_survives>,
     "the CBUF and the registers keep what the job before left, of whatever space (rockchip-npu-notes "
     "regcmd-task-model.md), or are clean at the start of a job"},
    {"reset-cbuf",
     {"keeps", "clears"},
     choose<&Options::reset_keeps_cbuf>,
     "srst leaves the CBUF as it is, or clears it; nobody has measured it"},
    {"rate-unpowered",
     {"dead", "ignored"},
     choose<&Options::rate_unpowered_kills>,
     "a change of the clock's rate while no core has power kills the NPU until a device reset (rockchip-npu-notes "
     "clock.md), or only counts as a driver fault"},
    {"page-2000",
     {"lost", "zero"},
     choose<&Options::page_2000_loses>,
     "reading a core's page 0x2000 locks the SoC up: all reads are ~0 until a device reset (rockchip-npu-notes "
     "hw-byte-counters.md), or gives 0"},
    {"short-height",
     {"wrong", "ok"},
     choose<&Options::short_height_wrong>,
     "direct 1x1 tasks of fewer than 4 feature rows compute garbage (rockchip-npu-notes) or not (mtx512, ork-driver)"},
    {"chained-int",
     {"accumulate", "clear"},
     choose<&Options::chained_int_accumulates>,
     "integer tasks after the first of a job add to the accumulators of the one before (rockchip-npu-notes) or not "
     "(ork-driver)"},
    {"fp16-k128",
     {"refuse", "ok"},
     choose<&Options::fp16_k128_refused>,
     "fp16 GEMMs with K = 128 are refused, as some report them wrong, or run (rockchip-npu-notes has bf16 of that K)"},
    {"wide-cubes",
     {"wrong", "ok"},
     choose<&Options::wide_cubes_wrong>,
     "DPU cubes of 8191 and more in one direction have a wrong end (rockchip-npu-notes dpu-lut-activation.md) or not "
     "(ork-driver, with N = 8192)"},
    {"cbuf",
     {"garbage", "strict", "off"},
     choose<&Options::cbuf>,
     "lines of features beyond their CBUF banks are garbage (rockchip-npu-notes cbuf-bank-slack.md), the task is "
     "refused, or the CBUF has no end"},
    {"int8-out",
     {"k512", "any"},
     choose<&Options::int8_out_k512>,
     "int8 results of GEMMs are garbage for K below 512 (ork-driver OPS_REGISTRY.md) or right (rockchip-npu-notes)"},
    {"int8-groups",
     {"whole", "any"},
     choose<&Options::int8_groups_whole>,
     "int8 results for a part of a group of 32 kernels or 64 depthwise channels never end (rockchip-npu-notes), or do "
     "(Mesa programs them)"},
    {"depthwise-form",
     {"required", "any"},
     choose<&Options::depthwise_form_required>,
     "depthwise tasks with BS_OW_CFG.OD_BYPASS, or in fp16 with a BS_OW_OP other than 128, compute garbage "
     "(rockchip-npu-notes depthwise-conv.md) or not (allbilly/rk3588 conv.py)"},
    {"lut-zero",
     {"spike", "ok"},
     choose<&Options::lut_zero_wrong>,
     "what the converter behind the look-up tables makes of exactly 0: the spikes of rockchip-npu-notes "
     "dpu-lut-activation.md, or 0"},
    {"ppu-narrow",
     {"misread", "ok"},
     choose<&Options::ppu_narrow_misread>,
     "a cube less than 4 wide or high that the PPU wrote is misread by a pooling task that follows (rockchip-npu-notes "
     "ppu-reduce-mean.md), or read (its later versions)"},
    {"out-cvt-scale",
     {"unsigned", "signed"},
     choose<&Options::unsigned_out_scale>,
     "how bit 15 of the output converter's scale reads (both in versions of rockchip-npu-notes out-cvt-converter.md)"},
    {"out-cvt-shift",
     {"floor", "nearest"},
     choose<&Options::floor_out_shift>,
     "how the output converter's shift rounds int32 and fp32 results (both in versions of the same note)"},
    {"tlb",
     {"lines", "pages"},
     choose<&Options::tlb_lines>,
     "the TLB keeps lines of 16 entries, invalid ones too (what Linux' rockchip-iommu zaps for), or valid pages only"},
    {"fault-done",
     {"retry", "drop"},
     choose<&Options::fault_retries>,
     "after PAGE_FAULT_DONE the access is tried again, or dropped (reads give 0); nobody has measured it"},
    {"stall-in-fault",
     {"fails", "works"},
     choose<&Options::stall_in_fault_fails>,
     "a stall asked for while a page fault is active never becomes active (gregordinary/patches rocket/088), or does"},
    {"stall-busy",
     {"works", "fails"},
     choose<&Options::stall_while_busy_works>,
     "a stall asked for while the core has a job becomes active, or never does, as gregordinary/patches rocket/088 "
     "says "
     "of cores in the middle of DMA, while it measured those in a fault"},
    {"reset-mmu",
     {"clears", "keeps"},
     choose<&Options::reset_clears_mmu>,
     "srst_h of a core clears its MMU banks (gregordinary/patches rocket/088), or leaves them"},
};

std::string joined(const Switch& s, std::string_view between) {
  std::string text(s.values.front());
  for (const std::string_view value : std::span(s.values).subspan(1)) {
    if (!value.empty()) text.append(between).append(value);
  }
  return text;
}

std::expected<uint32_t, std::string> number(std::string_view key, std::string_view text, uint32_t most) {
  uint32_t value = 0;
  const bool hex = text.starts_with("0x");
  const std::string_view digits = hex ? text.substr(2) : text;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  if (error != std::errc{} || end != digits.data() + digits.size() || digits.empty() || value > most) {
    return std::unexpected(std::format("option {} is \"{}\": it takes a number from 0 to {}", key, text, most));
  }
  return value;
}

}  // namespace

std::expected<void, std::string> Options::set(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    return std::unexpected(std::format("option \"{}\" has no value: write key=value", assignment));
  }
  const std::string_view key = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  for (const Switch& s : kSwitches) {
    if (s.key != key) continue;
    const auto found = std::ranges::find(s.values, value);
    if (value.empty() || found == s.values.end()) {
      return std::unexpected(std::format("option {} is \"{}\": it takes {}", key, value, joined(s, " or ")));
    }
    s.set(*this, static_cast<size_t>(found - s.values.begin()));
    return {};
  }
  uint32_t* target = key == "power" ? &power_on_mask : key == "clock-khz" ? &clock_khz : nullptr;
  if (target == nullptr)
    return std::unexpected(std::format("there is no option \"{}\"; these exist:\n{}", key, options_help()));
  const auto parsed = number(key, value, key == "power" ? 7 : 10'000'000);
  if (!parsed) return std::unexpected(parsed.error());
  *target = *parsed;
  return {};
}

std::string options_help() {
  std::string text;
  for (const Switch& s : kSwitches) text += std::format("  {}={}: {}\n", s.key, joined(s, "|"), s.text);
  text += "  power=7: power domains and clocks that run at the start, bit n for core n\n";
  text += "  clock-khz=1000000: the NPU clock that cycles are counted in\n";
  return text;
}

}  // namespace npud::rk3588
