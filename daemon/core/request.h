// SPDX-License-Identifier: Apache-2.0
// A request on its way through npud, and what comes back. Made by api, owned by core until it is done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/tensor.h"

namespace npud {

// Who pays. Made from the kernel's word (uid of the peer) or a client certificate's name, never from a message.
struct TenantId {
  std::uint32_t value = 0;
  auto operator<=>(const TenantId&) const = default;
};

// Classes are strict up to realtime's share cap and ageing; see core/arbiter.
enum class PriorityClass : std::uint8_t { realtime, interactive, batch };

struct OutputWanted {
  std::string name;
  std::optional<Buffer> destination;  // the client's shared memory; the result is written there, not sent
};

// Where a request really ran; becomes the npud-path trailing metadata.
struct PathTaken {
  std::string device;                   // "host", "rknpu0"; several joined with '+', in order of first use
  std::string reason;                   // empty, or why it isn't the device that was configured
  std::optional<Duration> rearm_after;  // when the configured device is tried again
};

struct Timings {
  TimePoint received, queued, started, finished;  // `started`: its batch began to run
  Duration compute_input{0}, compute{0}, compute_output{0};
  std::uint32_t batch_size = 1;
};

struct Response {
  std::string model;
  std::int64_t version = 0;
  std::vector<Tensor>
      outputs;  // in the model's order, or that of the request's `outputs`; empty data where a destination took it
  PathTaken path;
  Timings timings;
};

struct Request {
  std::string id;
  std::string model;
  std::optional<std::int64_t> version;  // none: by version policy the newest
  TenantId tenant;
  PriorityClass priority_class = PriorityClass::interactive;
  std::uint64_t priority = 0;  // in the model's queue: 1 is highest, 0 the model's default
  TimePoint deadline = TimePoint::never();
  std::stop_token cancelled;
  std::vector<Tensor> inputs;
  std::vector<OutputWanted> outputs;  // empty: all
  std::uint64_t payload_bytes = 0;    // counted against the tenant's cap while it is queued or runs

  // Called exactly once, on any thread, with the response or the error; never while core holds a lock. Afterwards
  // nothing of the request is left anywhere in core.
  std::move_only_function<void(Result<Response>)> done;

  Timings timings;  // core fills it in
};

}  // namespace npud
