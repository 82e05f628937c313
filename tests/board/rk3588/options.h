// SPDX-License-Identifier: Apache-2.0
// Switches of the virtual board. What was measured is the default. Where public reports about the silicon disagree,
// each report is a value of a switch and the harsher one is the default, so that what runs here does not depend on the
// kinder being true. Texts are in options.cc.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace npud::rk3588 {

enum class TaskStatus : uint8_t { kModulo, kCount, kStuck };
enum class Cbuf : uint8_t { kGarbage, kStrict, kOff };

struct Options {
  TaskStatus task_status = TaskStatus::kModulo;  // "task-status=modulo|count|stuck"
  bool int_raw_done_bits = true;                 // "int-raw=done-bits|plain"
  bool reset_values_silicon = true;              // "reset-values=silicon|zero"
  bool s_status_running = true;                  // "s-status=running|zero"
  bool zero_stops = true;                        // "op-en-zero=stops|ignored"
  bool core_pointer_required = true;             // "core-pointer=required|optional"
  bool mrdma_needed = true;                      // "mrdma=needed|optional"
  bool cbuf_survives = true;                     // "cbuf-state=survives|cleared"
  bool reset_keeps_cbuf = true;                  // "reset-cbuf=keeps|clears"
  bool rate_unpowered_kills = true;              // "rate-unpowered=dead|ignored"
  bool page_2000_loses = true;                   // "page-2000=lost|zero"
  bool short_height_wrong = true;                // "short-height=wrong|ok"
  bool chained_int_accumulates = true;           // "chained-int=accumulate|clear"
  bool fp16_k128_refused = true;                 // "fp16-k128=refuse|ok"
  bool wide_cubes_wrong = true;                  // "wide-cubes=wrong|ok"
  Cbuf cbuf = Cbuf::kGarbage;                    // "cbuf=garbage|strict|off"
  bool int8_out_k512 = true;                     // "int8-out=k512|any"
  bool int8_groups_whole = true;                 // "int8-groups=whole|any"
  bool depthwise_form_required = true;           // "depthwise-form=required|any"
  bool lut_zero_wrong = true;                    // "lut-zero=spike|ok"
  bool ppu_narrow_misread = true;                // "ppu-narrow=misread|ok"
  bool unsigned_out_scale = true;                // "out-cvt-scale=unsigned|signed"
  bool floor_out_shift = true;                   // "out-cvt-shift=floor|nearest"
  bool tlb_lines = true;                         // "tlb=lines|pages"
  bool fault_retries = true;                     // "fault-done=retry|drop"
  bool stall_in_fault_fails = true;              // "stall-in-fault=fails|works"
  bool stall_while_busy_works = true;            // "stall-busy=works|fails"
  bool reset_clears_mmu = true;                  // "reset-mmu=clears|keeps"
  uint32_t power_on_mask = 7;                    // "power=MASK": power domains and clocks that run at the start
  uint32_t clock_khz = 1000000;                  // "clock-khz=N"

  // Applies one "key=value". The error says what would have been right.
  std::expected<void, std::string> set(std::string_view assignment);
};

// One line for each switch: its values, the default first, and what they are about.
std::string options_help();

}  // namespace npud::rk3588
