// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/hw/disassemble.h"

#include <format>

namespace npud::rknpu {
namespace {

std::string enabled_blocks(uint32_t value) {
  std::string text;
  for (const auto& [bit, name] : {std::pair{kEnablePc, "PC"},
                                  {kEnableCna, "CNA+CORE"},
                                  {kEnableDpu, "DPU"},
                                  {kEnableRdma, "DPU_RDMA"},
                                  {kEnablePpu, "PPU"},
                                  {kEnablePpuRdma, "PPU_RDMA"}}) {
    if (value & bit) text += std::format("{}{}", text.empty() ? "" : " ", name);
  }
  return text.empty() ? "nothing" : text;
}

void append_fields(std::string& text, const Register& r, uint32_t value, const DisassembleOptions& options) {
  uint32_t known = 0;
  for (const Field& field : r.fields) {
    known |= field.mask();
    const uint32_t part = field.of(value);
    if (part != 0 || options.zero_fields) text += std::format("\n        {} = {:#x}", field.name, part);
  }
  if (value & ~known) text += std::format("\n        bits without a known meaning: {:#x}", value & ~known);
}

}  // namespace

std::string disassemble(uint64_t word, const DisassembleOptions& options) {
  const Command command = decode(word);
  switch (command.target) {
    case Target::kNone:
    case Target::kFiller:
      if (command.reg == 0 && command.value == 0) return "filler";
      break;
    case Target::kBarrier:
      return "barrier";
    case Target::kEnable:
      return std::format("enable {:#x}: {}", command.value, enabled_blocks(command.value));
    default:
      break;
  }
  const Register* r = find_register(command.reg);
  if (r == nullptr || block_target(r->block) != command.target) {
    return std::format("target {:#06x}, register {:#06x} = {:#010x}: {}", static_cast<unsigned>(command.target),
                       command.reg, command.value, command_violation(command));
  }
  std::string text = std::format("{} = {:#010x}", qualified_name(*r), command.value);
  // A single field of the register's own name would only repeat it.
  const bool plain = r->fields.size() == 1 && r->fields[0].mask() == ~0u;
  if (options.fields && !plain) append_fields(text, *r, command.value, options);
  return text;
}

std::string disassemble(std::span<const uint64_t> words, const DisassembleOptions& options) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += std::format("{:5}  {:016x}  {}\n", i, words[i], disassemble(words[i], options));
    if (decode(words[i]).target == Target::kEnable && i + 1 < words.size()) text += "       ---- next task\n";
  }
  return text;
}

std::vector<std::string> check_commands(std::span<const uint64_t> words) {
  std::vector<std::string> violations;
  RegisterFile file;
  bool barrier = false, in_task = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const Command command = decode(words[i]);
    if (words[i] != 0) in_task = true;
    if (auto text = command_violation(command); !text.empty()) {
      // Values of known registers are judged at the enable word, when it is clear which blocks run.
      const Register* r = find_register(command.reg);
      if (r == nullptr || block_target(r->block) != command.target)
        violations.push_back(std::format("word {}: {}", i, text));
    }
    if (command.target == Target::kBarrier) barrier = true;
    const Register* r = find_register(command.reg);
    if (r != nullptr && r->banked && block_target(r->block) == command.target) file.set(command.reg, command.value);
    if (command.target != Target::kEnable) continue;
    if (!barrier) violations.push_back(std::format("word {}: the enable word has no barrier (0x0041) before it", i));
    std::vector<std::string> of_task;
    decode_task(file, command.value, of_task);
    for (const std::string& text : of_task) violations.push_back(std::format("word {}: {}", i, text));
    barrier = in_task = false;
  }
  if (in_task) violations.push_back(std::format("word {}: the words end without an enable word", words.size()));
  return violations;
}

}  // namespace npud::rknpu
