// SPDX-License-Identifier: Apache-2.0
// Command buffers as text, and held against the limits. What npu-regcmd prints, and what tests of emitters ask.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "devices/rknpu/hw/task.h"

namespace npud::rknpu {

struct DisassembleOptions {
  bool fields = true;        // one line for each field that isn't 0, else the register's value only
  bool zero_fields = false;  // those that are 0, too
};

// One word: "CNA.DATA_SIZE0 = 0x00010008" and its fields, indented. Words that can't be understood say so.
std::string disassemble(uint64_t word, const DisassembleOptions& options = {});
// All words with their index; tasks are separated by what their trailers say.
std::string disassemble(std::span<const uint64_t> words, const DisassembleOptions& options = {});

// Runs the words' register writes from reset values, as one ping-pong group, and checks each task at its enable word.
// Every violation is a sentence that begins with the index of its word. Empty: the hardware (as far as npud knows it)
// would run them all.
std::vector<std::string> check_commands(std::span<const uint64_t> words);

}  // namespace npud::rknpu
