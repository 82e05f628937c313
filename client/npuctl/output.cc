// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <format>
#include <iostream>

namespace npud::ctl {

std::string human_bytes(std::uint64_t bytes) {
  static constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? std::format("{} B", bytes) : std::format("{:.1f} {}", value, units[unit]);
}

std::string human_us(std::uint64_t us) {
  if (us < 1000) return std::format("{} us", us);
  if (us < 1'000'000) return std::format("{:.1f} ms", static_cast<double>(us) / 1e3);
  if (us < 120'000'000) return std::format("{:.1f} s", static_cast<double>(us) / 1e6);
  std::uint64_t minutes = us / 60'000'000;
  if (minutes < 120) return std::format("{} min", minutes);
  if (minutes < 48 * 60) return std::format("{} h {} min", minutes / 60, minutes % 60);
  return std::format("{} days", minutes / (24 * 60));
}

std::string human_share(double share) { return std::format("{:.1f}%", share * 100); }

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return out;
}

std::string json_escaped(std::string_view text) {
  std::string out;
  for (char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

namespace {

std::size_t width_of(const std::string& text) {  // code points
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string json(const google::protobuf::Message& message, bool indented) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = indented;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  return status.ok() ? text : "{}";
}

}  // namespace

Table::Table(std::initializer_list<std::string> headings) {
  for (const std::string& heading : headings) {
    right_.push_back(heading.starts_with('>'));
    headings_.push_back(right_.back() ? heading.substr(1) : heading);
  }
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(headings_.size());
  for (std::string& cell : cells) {
    cell = printable(cell);
    if (cell.empty()) cell = "-";
  }
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const std::string& heading : headings_) widths.push_back(width_of(heading));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      std::string blanks(widths[i] - width_of(cells[i]), ' ');
      if (i > 0) text += "  ";
      text += right_[i] ? blanks + cells[i] : cells[i] + blanks;
    }
    text.resize(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  line(headings_);
  for (const auto& row : rows_) line(row);
  return out;
}

std::string json_of(const google::protobuf::Message& message) { return json(message, true); }
std::string json_line_of(const google::protobuf::Message& message) { return json(message, false); }

int report(const client::Error& error) {
  std::cerr << "npuctl: " << printable(client::to_string(error)) << '\n';
  if (error.bytes_needed && error.bytes_free) {
    std::cerr << "npuctl: " << human_bytes(*error.bytes_needed) << " are needed, " << human_bytes(*error.bytes_free)
              << " are free\n";
  }
  return error.code == client::Code::unavailable ? exit_unreachable : exit_failed;
}

}  // namespace npud::ctl
