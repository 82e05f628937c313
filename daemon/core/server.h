// SPDX-License-Identifier: Apache-2.0
// Where requests and models meet: admission, one bounded queue for each model version, a bounded number of worker
// threads that run batches. What the api layer calls for requests, the repository for models, and Control for looking
// in.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/events.h"
#include "core/request.h"
#include "core/servable.h"
#include "core/statistics.h"
#include "core/tenants.h"

namespace npud {

struct ServerSettings {
  std::uint32_t workers = 16;           // threads that run batches; each may wait for a device
  std::uint32_t realtime_workers = 0;   // of these, kept free for class realtime; < workers
  std::uint64_t max_payload_bytes = 0;  // of all requests in flight; 0: no bound
  // A model whose runs take less may run on the thread that submits, while nothing waits and nothing longer runs: the
  // hand-over to a worker would cost more than the run. A submitting thread is somebody's event loop: after one run of
  // `inline_surprise` times as long the version has to show inline_probation quick runs on workers first, after every
  // further one twice as many, up to max_inline_probation. 0: never.
  Duration inline_below{0};
};
constexpr int inline_surprise = 50;
constexpr std::uint32_t inline_probation = 1'000, max_inline_probation = 32'000;

// What runs and waits at one moment, for Control.
struct QueueSnapshot {
  std::string model;
  std::int64_t version = 0;
  std::uint32_t queued = 0, running = 0;  // requests
  std::uint32_t max_queued = 0, queued_peak = 0;
  Duration oldest{0};  // how long the oldest queued one has waited
  bool draining = false;
  bool retired = false;  // removed or replaced: finishes what it has
};
struct TenantSnapshot {
  TenantId tenant;
  std::uint32_t in_flight = 0;                            // queued or running
  std::uint64_t bytes = 0;                                // their payload
  std::uint64_t succeeded = 0, failed = 0, rejected = 0;  // rejected: for a cap or a full queue; not in failed
  Duration latency_p50{0}, latency_p99{0};                // of the succeeded, from received to finished
};
struct RunningSnapshot {
  std::string model;
  std::int64_t version = 0;
  TenantId tenant;
  PriorityClass priority_class = PriorityClass::interactive;
  std::uint32_t batch = 0;  // requests in it
  Duration running_for{0};
};
struct ServerSnapshot {
  std::uint32_t workers = 0, workers_busy = 0;
  std::uint64_t in_flight = 0, queued = 0, payload_bytes = 0;
  bool draining = false;
  std::vector<QueueSnapshot> queues;
  std::vector<TenantSnapshot> tenants;  // that ever sent a request
  std::vector<RunningSnapshot> running;
};

// Thread-safe; no call blocks but drain*() and what inline_below allows. Clock, tenants and events must outlive it.
class Server {
 public:
  Server(ServerSettings settings, Clock& clock, TenantTable& tenants, EventBus& events);
  // Refuses what comes, completes what is queued with `unavailable`, asks what runs to stop and waits for it.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // --- models
  // ---------------------------------------------------------------------------------------------------------------

  // From now on requests for this model and version go here. A version of the same number is replaced: what it has
  // queued and running ends there, and it is let go with its last request. Publishes `loaded`.
  void add(std::shared_ptr<Servable> servable);
  // As the whole set of a model's versions at once: versions not in `versions` are removed, no request sees a gap
  // between.
  void replace(const std::string& model, std::vector<std::shared_ptr<Servable>> versions);
  // No new requests; queued and running ones end. Publishes `unloaded` when the last one has. not_found.
  Result<> remove(const std::string& model, std::int64_t version);
  // Waits until versions of `model` that were removed or replaced have ended their requests and were let go.
  Result<> wait_retired(const std::string& model, TimePoint until);

  // By name and version (none: the newest); not_found says what there is.
  Result<std::shared_ptr<Servable>> find(const std::string& model, std::optional<std::int64_t> version) const;
  std::vector<std::shared_ptr<Servable>> all() const;  // by name, then version; without the retired

  // --- requests
  // -------------------------------------------------------------------------------------------------------------

  // Takes the request over. `done` is called exactly once: at once on this thread when it is refused (unknown model;
  // inputs that don't fit the signature; a cap, the queue or the daemon is full or draining) or runs inline, else from
  // a worker, the timer or whoever cancels. Refused and expired requests never run. timings.received is kept if the
  // caller set it.
  void submit(Request request);

  // --- control
  // --------------------------------------------------------------------------------------------------------------

  // New requests for the model are refused with failed_precondition until resume(); waits until none is queued or
  // running. deadline_exceeded: some still are; the drain stays in force. not_found.
  Result<> drain_model(const std::string& model, TimePoint until);
  Result<> resume_model(const std::string& model);
  // The same for all models and those to come; with `unavailable`. For shutting down.
  Result<> drain(TimePoint until);

  ServerSnapshot snapshot() const;
  // Version by version, the retired left out. Empty model: all.
  std::vector<ModelStatisticsSnapshot> statistics(const std::string& model, std::optional<std::int64_t> version) const;

  // Looks at the clock again. Only needed when the clock isn't the system's.
  void wake();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npud
