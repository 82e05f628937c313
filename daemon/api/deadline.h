// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>

#include "core/clock.h"

namespace npud::api {

// gRPC's deadline in the daemon's time; never, when the client set none.
inline TimePoint deadline_of(const grpc::CallbackServerContext& context, Clock& clock) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) {
    return TimePoint::never();
  }
  const auto left = std::chrono::duration_cast<Duration>(deadline - std::chrono::system_clock::now());
  // Far deadlines are none, so that adding can't overflow.
  return left > std::chrono::hours(24 * 365) ? TimePoint::never() : clock.now() + left;
}

// The same with a default, for calls that wait.
inline TimePoint deadline_or(const grpc::CallbackServerContext& context, Clock& clock, Duration otherwise) {
  const TimePoint deadline = deadline_of(context, clock);
  return deadline.is_never() ? clock.now() + otherwise : deadline;
}

}  // namespace npud::api
