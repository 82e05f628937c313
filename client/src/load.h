// SPDX-License-Identifier: Apache-2.0
// A closed-loop load: a fixed number of requests in flight, the next one sent as soon as one is answered. For npuctl
// bench and for bench/serving.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "npud/client.h"

namespace npud::client {

struct LoadOptions {
  unsigned in_flight = 1;
  std::uint64_t requests = 0;                // stop after as many; 0: by time alone
  std::chrono::milliseconds duration{5000};  // stop after as long; 0: by requests alone
  std::uint64_t warm_up_requests = 0;        // sent first, not counted
  // The next request; `worker` is 0…in_flight-1, each with one request at a time, so that it may own a piece of shared
  // memory. Called from several threads, never twice at once for one worker.
  std::function<InferRequest(unsigned worker)> make;
  // Every `progress_every`, on the calling thread.
  std::function<void(std::uint64_t done, std::chrono::microseconds elapsed)> progress;
  std::chrono::milliseconds progress_every{500};
};

struct LoadReport {
  std::uint64_t succeeded = 0, failed = 0;
  std::chrono::microseconds elapsed{0};
  std::vector<std::uint32_t> latencies_us;  // of the successful ones, sorted
  std::map<std::string, std::uint64_t>
      errors;                                  // "CODE: message" → how often; at most 16 kinds, the rest under "others"
  std::map<std::string, std::uint64_t> paths;  // npud-path → how often

  double per_second() const {
    return elapsed.count() > 0 ? 1e6 * static_cast<double>(succeeded) / static_cast<double>(elapsed.count()) : 0;
  }
  std::uint32_t percentile_us(double p) const;  // nearest rank, 0 < p ≤ 100; 0 when nothing succeeded
};

// Runs it to its end: returns when the last request was answered. A request that is refused with a retry_after is sent
// again no sooner. Stops early when `stop` returns true (asked every now and then) or when the first request fails as
// UNAVAILABLE.
LoadReport run_load(const Client& client, const LoadOptions& options, const std::function<bool()>& stop = {});

}  // namespace npud::client
