// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <functional>
#include <memory>
#include <string>

#include "api/backend.h"
#include "service/connections.h"

namespace npud {

// The Prometheus text endpoint (http://ADDRESS/metrics). Numbers are taken from snapshots when they are asked for;
// nothing is counted twice. Names that Triton has mean the same here; the rest begins with npud_. npud(8) lists them.
class Metrics {
 public:
  // `address` is "host:port". Fails when it can't be bound.
  static Result<std::unique_ptr<Metrics>> start(const std::string& address, const api::Backend& backend,
                                                std::function<ConnectionCounts()> connections);

 private:
  class Collector;
  Metrics() = default;
  std::shared_ptr<Collector> collector_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace npud
