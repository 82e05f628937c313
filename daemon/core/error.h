// SPDX-License-Identifier: Apache-2.0
// What can go wrong, as a value. Every function of npud that can fail returns Result<T>; exceptions live only at the
// borders of libraries that throw.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <utility>

namespace npud {

// The codes are gRPC's, by name, so that the api layer maps them one to one; core itself knows no gRPC.
enum class ErrorCode : std::uint8_t {
  cancelled,            // the caller went away or cancelled
  invalid_argument,     // the message can never succeed: says which field and what was expected
  deadline_exceeded,    // its time was over before it ran, or while it ran
  not_found,            // no such model, version, region, tenant
  already_exists,       // a name is taken
  permission_denied,    // the caller may not
  resource_exhausted,   // a queue, slot, aperture or cap is full: retry_after says when to come back
  failed_precondition,  // not in this state: not loaded, draining, region shrank
  unavailable,          // device dead or daemon shutting down; may work later
  unimplemented,        // a known extension that this build or device hasn't
  data_loss,            // a file or a device's answer is corrupt
  internal,             // npud's own fault
};

// `message` is one sentence that says what to do ("queue of model 'det' is full (64 requests); retry in 20 ms or raise
// queue.max_requests"). The numbers are there for programs.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  std::optional<std::chrono::microseconds> retry_after;  // with resource_exhausted and unavailable
  std::optional<std::uint64_t> bytes_needed;             // with resource_exhausted of memory
  std::optional<std::uint64_t> bytes_free;
};

template <class T = void>
using Result = std::expected<T, Error>;

[[nodiscard]] inline std::unexpected<Error> fail(ErrorCode code, std::string message) {
  return std::unexpected<Error>(Error{code, std::move(message), {}, {}, {}});
}

// "RESOURCE_EXHAUSTED", as gRPC and its clients write it.
[[nodiscard]] const char* error_code_name(ErrorCode code);

}  // namespace npud
