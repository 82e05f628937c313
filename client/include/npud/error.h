// SPDX-License-Identifier: Apache-2.0
// What a call to npud can end with, as a value.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>

namespace npud::client {

// gRPC's status codes, by name and number.
enum class Code : std::uint8_t {
  ok = 0,
  cancelled = 1,
  unknown = 2,
  invalid_argument = 3,
  deadline_exceeded = 4,
  not_found = 5,
  already_exists = 6,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  aborted = 10,
  out_of_range = 11,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  data_loss = 15,
  unauthenticated = 16,
};

[[nodiscard]] const char* code_name(Code code);  // "RESOURCE_EXHAUSTED"

struct Error {
  Code code = Code::unknown;
  std::string message;                                    // npud's own sentence, which says what to do
  std::optional<std::chrono::microseconds> retry_after;   // when the same request has a chance again
  std::optional<std::uint64_t> bytes_needed, bytes_free;  // where memory was short
  std::string path;                                       // npud-path, where the request got as far as a device
};

// "RESOURCE_EXHAUSTED: queue of model 'det' is full… (retry in 20 ms)"
[[nodiscard]] std::string to_string(const Error& error);

template <class T = void>
using Result = std::expected<T, Error>;

[[nodiscard]] inline std::unexpected<Error> fail(Code code, std::string message) {
  return std::unexpected(Error{code, std::move(message), {}, {}, {}, {}});
}

}  // namespace npud::client
