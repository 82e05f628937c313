// SPDX-License-Identifier: Apache-2.0
#include "engine/offload_settings.h"

#include <fnmatch.h>

#include <algorithm>

namespace npud {

std::vector<std::string> split_patterns(std::string_view text) {
  constexpr std::string_view separators = ", \t\n";
  std::vector<std::string> patterns;
  while (true) {
    const auto begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return patterns;
    const auto end = std::min(text.find_first_of(separators, begin), text.size());
    patterns.emplace_back(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  // Without FNM_PATHNAME: '*' crosses the slashes that exporters put into names.
  return std::ranges::any_of(
      patterns, [&](const std::string& pattern) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

}  // namespace npud
