// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <charconv>
#include <format>

namespace npud::rk3588 {
namespace {

struct Switch {
  std::string_view key;
  std::string_view harsh;  // the default, true
  std::string_view kind;
  bool Options::* member;
  std::string_view text;
};

constexpr Switch kSwitches[] = {
    {"short-height", "wrong", "ok", &Options::short_height_wrong,
     "direct 1x1 tasks of fewer than 4 feature rows compute garbage (rockchip-npu-notes) or not (mtx512, ork-driver)"},
    {"chained-int", "accumulate", "clear", &Options::chained_int_accumulates,
     "integer tasks after the first of a job add to the accumulators of the one before (rockchip-npu-notes) or not "
     "(ork-driver)"},
    {"fp16-k128", "refuse", "ok", &Options::fp16_k128_refused, "fp16 GEMMs with K = 128 fail or not"},
    {"wide-cubes", "wrong", "ok", &Options::wide_cubes_wrong,
     "DPU cubes of 8191 and more in one direction have a wrong end (rockchip-npu-notes dpu-lut-activation.md) or not "
     "(ork-driver, with N = 8192)"},
    {"tlb", "lines", "pages", &Options::tlb_lines,
     "the TLB keeps lines of 16 entries, invalid ones too (what Linux' rockchip-iommu zaps for), or valid pages only"},
    {"fault-done", "retry", "drop", &Options::fault_retries,
     "after PAGE_FAULT_DONE the access is tried again, or dropped (reads give 0)"},
    {"stall-in-fault", "fails", "works", &Options::stall_in_fault_fails,
     "a stall asked for while a page fault is active never becomes active, or does"},
    {"reset-mmu", "clears", "keeps", &Options::reset_clears_mmu,
     "srst_h of a core clears its MMU banks, or leaves them"},
};

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
    if (value != s.harsh && value != s.kind) {
      return std::unexpected(std::format("option {} is \"{}\": it takes {} or {}", key, value, s.harsh, s.kind));
    }
    this->*s.member = value == s.harsh;
    return {};
  }
  if (key == "cbuf") {
    if (value != "garbage" && value != "strict" && value != "off") {
      return std::unexpected(std::format("option cbuf is \"{}\": it takes garbage, strict or off", value));
    }
    cbuf = value == "garbage" ? Cbuf::kGarbage : value == "strict" ? Cbuf::kStrict : Cbuf::kOff;
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
  for (const Switch& s : kSwitches) text += std::format("  {}={}|{}: {}\n", s.key, s.harsh, s.kind, s.text);
  text +=
      "  cbuf=garbage|strict|off: lines of features beyond their CBUF banks are garbage (rockchip-npu-notes "
      "cbuf-bank-slack.md), the task is refused, or the CBUF has no end\n";
  text += "  power=7: power domains and clocks that run at the start, bit n for core n\n";
  text += "  clock-khz=1000000: the NPU clock that cycles are counted in\n";
  return text;
}

}  // namespace npud::rk3588
