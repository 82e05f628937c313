// SPDX-License-Identifier: Apache-2.0
// Text that goes out in protobuf's strings: those must be UTF-8, or the receiver refuses the whole message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace npud {

// Bytes of the character that `text` begins with; 0 when that isn't well-formed (RFC 3629: the shortest form, no
// surrogates, at most U+10FFFF) or `text` is empty.
constexpr std::size_t utf8_first(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xed && byte(1) >= 0xa0;
  const bool too_large = lead == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : size;
}

constexpr bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = utf8_first(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

// The first characters of UTF-8 text that are whole within `most_bytes`.
constexpr std::string_view utf8_prefix(std::string_view text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  while (most_bytes > 0 && (static_cast<unsigned char>(text[most_bytes]) & 0xc0) == 0x80) --most_bytes;
  return text.substr(0, most_bytes);
}

// A name from a message, short enough and without control characters, for a sentence.
inline std::string printable(std::string_view name) {
  const std::string_view shown = utf8_prefix(name, 80);
  std::string text;
  for (const char c : shown) text += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  return shown.size() < name.size() ? text + "…" : text;
}

}  // namespace npud
