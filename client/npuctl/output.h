// SPDX-License-Identifier: Apache-2.0
// How npuctl writes: tables for people, JSON for programs, one place for units.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "npud/error.h"

namespace npud::ctl {

// Exit statuses, documented in npuctl(1).
enum Exit : int {
  exit_ok = 0,
  exit_failed = 1,       // npud refused, or what was checked isn't well
  exit_usage = 2,        // the command line, or a file named on it
  exit_unreachable = 3,  // no npud answered
};

std::string human_bytes(std::uint64_t bytes);  // "4.0 MiB"
std::string human_us(std::uint64_t us);        // "350 us", "12.3 ms", "4.1 s", "2 h 5 min"
std::string human_share(double share);         // "12.5%"

// Columns as wide as their widest cell, two blanks between them, numbers to the right. Cells are UTF-8; control
// characters, which a server or a file name could smuggle to the terminal, are shown as '?'.
class Table {
 public:
  // A heading that begins with '>' is of a column of numbers.
  explicit Table(std::initializer_list<std::string> headings);
  void add(std::vector<std::string> cells);
  std::string text() const;
  bool empty() const { return rows_.empty(); }

 private:
  std::vector<std::string> headings_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

std::string printable(std::string_view text);
// printable(), for between the quotes of a JSON string.
std::string json_escaped(std::string_view text);

// Indented JSON with the protocol's own field names, with fields that are zero.
std::string json_of(const google::protobuf::Message& message);
std::string json_line_of(const google::protobuf::Message& message);

// "npuctl: CODE: message" on stderr; the exit status for it.
int report(const client::Error& error);

}  // namespace npud::ctl
