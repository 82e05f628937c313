// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"

namespace npud {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::cancelled:
      return "CANCELLED";
    case ErrorCode::invalid_argument:
      return "INVALID_ARGUMENT";
    case ErrorCode::deadline_exceeded:
      return "DEADLINE_EXCEEDED";
    case ErrorCode::not_found:
      return "NOT_FOUND";
    case ErrorCode::already_exists:
      return "ALREADY_EXISTS";
    case ErrorCode::permission_denied:
      return "PERMISSION_DENIED";
    case ErrorCode::resource_exhausted:
      return "RESOURCE_EXHAUSTED";
    case ErrorCode::failed_precondition:
      return "FAILED_PRECONDITION";
    case ErrorCode::unavailable:
      return "UNAVAILABLE";
    case ErrorCode::unimplemented:
      return "UNIMPLEMENTED";
    case ErrorCode::data_loss:
      return "DATA_LOSS";
    case ErrorCode::internal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

}  // namespace npud
