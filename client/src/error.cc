// SPDX-License-Identifier: Apache-2.0
#include "npud/error.h"

#include <array>
#include <format>

namespace npud::client {

const char* code_name(Code code) {
  static constexpr std::array<const char*, 17> names = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  auto index = static_cast<std::size_t>(code);
  return index < names.size() ? names[index] : "UNKNOWN";
}

std::string to_string(const Error& error) {
  std::string text = std::format("{}: {}", code_name(error.code), error.message);
  if (error.retry_after)
    text += std::format(" (retry in {:.1f} ms)", static_cast<double>(error.retry_after->count()) / 1000);
  return text;
}

}  // namespace npud::client
