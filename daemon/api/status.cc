// SPDX-License-Identifier: Apache-2.0
#include "api/status.h"

#include <string>

#include "core/utf8.h"
#include "rpc/status_details.pb.h"

namespace npud::api {
namespace {

grpc::StatusCode code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::cancelled:
      return grpc::StatusCode::CANCELLED;
    case ErrorCode::invalid_argument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case ErrorCode::deadline_exceeded:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case ErrorCode::not_found:
      return grpc::StatusCode::NOT_FOUND;
    case ErrorCode::already_exists:
      return grpc::StatusCode::ALREADY_EXISTS;
    case ErrorCode::permission_denied:
      return grpc::StatusCode::PERMISSION_DENIED;
    case ErrorCode::resource_exhausted:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case ErrorCode::failed_precondition:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case ErrorCode::unavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case ErrorCode::unimplemented:
      return grpc::StatusCode::UNIMPLEMENTED;
    case ErrorCode::data_loss:
      return grpc::StatusCode::DATA_LOSS;
    case ErrorCode::internal:
      return grpc::StatusCode::INTERNAL;
  }
  return grpc::StatusCode::INTERNAL;
}

// Headers are limited to some KiB by every gRPC client; a sentence that quotes a long name must not cost the whole
// answer.
constexpr std::size_t max_message_bytes = 2048;

}  // namespace

grpc::Status to_status(const Error& error) {
  const grpc::StatusCode code = code_of(error.code);
  std::string message = error.message;
  if (message.size() > max_message_bytes) {
    message.resize(utf8_prefix(message, max_message_bytes).size());
    message += "…";
  }
  if (!error.retry_after && !error.bytes_needed && !error.bytes_free) {
    return {code, message};
  }
  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  if (error.retry_after) {
    google::rpc::RetryInfo retry;
    const auto seconds = std::chrono::floor<std::chrono::seconds>(*error.retry_after);
    retry.mutable_retry_delay()->set_seconds(seconds.count());
    retry.mutable_retry_delay()->set_nanos(static_cast<std::int32_t>((*error.retry_after - seconds).count() * 1000));
    details.add_details()->PackFrom(retry);
  }
  google::rpc::ErrorInfo info;
  info.set_reason(error_code_name(error.code));
  info.set_domain("npud");
  if (error.bytes_needed) {
    (*info.mutable_metadata())["bytes_needed"] = std::to_string(*error.bytes_needed);
  }
  if (error.bytes_free) {
    (*info.mutable_metadata())["bytes_free"] = std::to_string(*error.bytes_free);
  }
  details.add_details()->PackFrom(info);
  return {code, message, details.SerializeAsString()};
}

}  // namespace npud::api
