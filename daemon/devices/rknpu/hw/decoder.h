// SPDX-License-Identifier: Apache-2.0
// What decoding a task's registers needs, shared by task.cc and its parts (ppu_task.cc).
#pragma once

#include <cstdint>
#include <format>
#include <string>
#include <utility>
#include <vector>

#include "devices/rknpu/hw/registers.h"

namespace npud::rknpu {

// Reads fields by name so that the table stays the one place for bit positions; collects violations.
class Decoder {
 public:
  Decoder(const RegisterFile& regs, std::vector<std::string>& violations) : regs_(regs), violations_(violations) {}

  uint32_t raw(uint16_t offset) const { return regs_.get(offset); }
  uint32_t bits(uint16_t offset, unsigned high, unsigned low) const {
    return raw(offset) >> low & (high - low == 31 ? ~0u : (1u << (high - low + 1)) - 1);
  }
  bool bit(uint16_t offset, unsigned pos) const { return bits(offset, pos, pos) != 0; }

  template <typename... Args>
  void refuse(std::format_string<Args...> text, Args&&... args) {
    violations_.push_back(std::format(text, std::forward<Args>(args)...));
  }
  // `value` is what the register says, `expected` what the rest of the task implies.
  void expect(const char* name, uint64_t value, uint64_t expected) {
    if (value != expected) refuse("{} is {}, the task's other registers imply {}", name, value, expected);
  }

  void check_fixed(Block block) {
    for (const Register& r : registers()) {
      if (r.block != block || !r.banked) continue;
      if (auto text = value_violation(r, raw(r.offset)); !text.empty()) violations_.push_back(std::move(text));
    }
  }

  static std::string value_violation(const Register& r, uint32_t value) {
    uint32_t known = 0;
    for (const Field& f : r.fields) {
      known |= f.mask();
      if (f.use == Use::kFixed && f.of(value) != f.fixed) {
        return std::format("{}.{} is {:#x}: only {:#x} is understood", qualified_name(r), f.name, f.of(value), f.fixed);
      }
    }
    if (value & ~known)
      return std::format("{} is {:#x}: bits {:#x} have no known meaning", qualified_name(r), value, value & ~known);
    return {};
  }

 private:
  const RegisterFile& regs_;
  std::vector<std::string>& violations_;
};

}  // namespace npud::rknpu
