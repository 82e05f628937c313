// SPDX-License-Identifier: Apache-2.0
// One loaded version of a model, as core sees it. Implemented by the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/request.h"
#include "core/tensor.h"

namespace npud {

class Arbiter;  // core/arbiter.h

struct Signature {
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;
  std::int64_t max_batch_size = 0;  // 0: shapes are as declared, no batching; else a leading batch dimension is implied
};

// How a model's requests wait. From config.pbtxt (dynamic_batching, instance_group, parameters) and the daemon's
// defaults.
struct QueueSettings {
  std::uint32_t max_queued = 64;  // beyond: resource_exhausted with retry_after
  std::uint32_t instances = 1;    // batches of this model in flight at once
  std::vector<std::int64_t> preferred_batch_sizes;
  Duration max_queue_delay{0};  // how long a batch may wait to fill up
  std::uint64_t default_priority = 0, priority_levels = 0;
  Duration default_timeout{0};  // 0: none
};

// Where one node of a model runs, for who asks to have it explained.
struct NodePlacement {
  std::string name;  // as the graph calls it
  std::string op;
  std::string device;
  std::string precision;
  std::string reason;  // why there
  std::uint64_t weight_bytes = 0;
  std::uint64_t runs = 0;
  std::uint64_t macs = 0;  // multiply-accumulates in all runs
  Duration total{0};       // of all runs, waiting for the device included
};

// What a running batch may use. Made by core for each run; lives on the stack of the run.
class ExecutionContext {
 public:
  virtual ~ExecutionContext() = default;
  virtual TenantId tenant() const = 0;  // who pays for the jobs (batches hold one tenant's requests)
  virtual PriorityClass priority_class() const = 0;
  virtual TimePoint deadline() const = 0;         // the latest of the batch's
  virtual std::stop_token cancelled() const = 0;  // set when every request of the batch was cancelled
  virtual Clock& clock() const = 0;
};

// Shared by the repository and by requests in flight: a version that was unloaded or replaced lives until its last
// request is done.
class Servable {
 public:
  virtual ~Servable() = default;
  virtual const std::string& model() const = 0;
  virtual std::int64_t version() const = 0;
  virtual const Signature& signature() const = 0;
  virtual const QueueSettings& queue_settings() const = 0;

  // Runs one batch (size 1 unless max_batch_size > 0; requests of equal shapes but for the batch dimension) to its end,
  // on a worker thread of core's or the one that submits (ServerSettings::inline_below); hands its device jobs to
  // arbiters and waits for them. Returns a response per request, in order: outputs, path and compute timings filled in.
  // An Error fails all requests of the batch. Inputs were checked against the signature before.
  virtual Result<std::vector<Response>> run(ExecutionContext& context, std::span<const Request* const> batch) = 0;

  // Whether run() may wait for a device that can stop answering: then never on the thread of who submits.
  virtual bool waits_for_device() const { return false; }

  // Node by node where that differs; empty: the whole graph runs as one program. Any thread.
  virtual std::vector<NodePlacement> placements() const { return {}; }
};

}  // namespace npud
