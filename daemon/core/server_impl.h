// SPDX-License-Identifier: Apache-2.0
// Inside of Server: its state, and the two halves of its code. server.cc is what callers see (models, admission,
// control); server_run.cc is what happens to a request afterwards (workers, timer, cancellation, completion).
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/latency.h"
#include "core/request_queue.h"
#include "core/server.h"

namespace npud {

struct Server::Impl {
  // A model version and its queue. Alive while it is in a model's map, has requests, or is being let go.
  struct Version {
    Version(std::shared_ptr<Servable> s)
        : servable(std::move(s)),
          queue(servable->queue_settings(), servable->signature().max_batch_size),
          may_inline(!servable->waits_for_device()) {}
    bool on_probation() const { return probation_left > 0; }
    std::shared_ptr<Servable> servable;
    RequestQueue queue;
    std::uint32_t running_batches = 0, running_requests = 0;
    bool retired = false;
    Duration mean_run{0};                                                 // of a batch, smoothed
    bool may_inline;                                                      // as far as its kind goes
    std::uint32_t probation_left = 0, next_probation = inline_probation;  // in quick runs
    ModelStatisticsCounter statistics;

    std::uint32_t instances() const { return std::max(servable->queue_settings().instances, 1u); }
    bool idle() const { return queue.size() == 0 && running_requests == 0; }
  };
  struct Model {
    std::map<std::int64_t, std::shared_ptr<Version>> versions;
    bool draining = false;
    std::uint32_t letting_go = 0;  // retired ones that aren't destroyed yet
  };

  struct BatchRun;
  // A request inside. `on_cancel` is destroyed without the lock, since its callback takes it.
  struct Record {
    Request request;
    std::shared_ptr<Version> version;
    RequestKey key = 0;
    std::int64_t elements = 1;
    std::uint64_t payload_bytes = 0;
    std::shared_ptr<BatchRun> batch;  // while it runs
    bool cancelled = false;
    std::optional<std::stop_callback<std::function<void()>>> on_cancel;
  };
  struct BatchRun {
    std::shared_ptr<Version> version;
    std::vector<std::shared_ptr<Record>> records;
    std::size_t live = 0;  // not cancelled
    std::stop_source stop;
    TenantId tenant;
    PriorityClass priority_class = PriorityClass::interactive;
    TimePoint deadline;
    TimePoint started;
    bool quick = false;  // its version was, when it was picked
  };
  struct Account {
    std::uint32_t in_flight = 0, running_batches = 0;
    std::uint64_t bytes = 0, succeeded = 0, failed = 0, rejected = 0;
    LatencyHistogram latency;
    std::uint64_t throttled_unsaid = 0;
    std::optional<TimePoint> throttled_said;
  };

  Impl(ServerSettings settings, Clock& clock, TenantTable& tenants, EventBus& events);
  ~Impl();

  // --- server.cc, with the lock held
  // ------------------------------------------------------------------------------------------
  Result<std::shared_ptr<Version>> find(const std::string& model, std::optional<std::int64_t> version) const;
  Result<> admit(Record& record, const TenantSettings& tenant, std::uint64_t shape, TimePoint now);
  Duration retry_after(const Version& version) const;
  // Takes a version out of its model; answers it if nothing of it is left to do, for let_go().
  std::shared_ptr<Version> retire(Model& model, std::int64_t version);
  bool idle(const std::string& model) const;
  void refused(TenantId tenant, const Error& error, TimePoint now, std::optional<Event>& event);

  // --- without the lock
  // ---------------------------------------------------------------------------------------------------------
  void let_go(std::shared_ptr<Version> version);
  void submit(Request request);
  // Into the queue; answers the batch to run at once on this thread, or null.
  Result<std::shared_ptr<BatchRun>> enter(const std::shared_ptr<Record>& record, const TenantSettings& tenant);
  void cancel(RequestKey key);
  void complete(std::shared_ptr<Record> record, Result<Response> result);
  void worker();
  void timer();
  void run(BatchRun& run);
  void run_inline(std::shared_ptr<BatchRun> batch);
  bool wait_until(std::unique_lock<std::mutex>& lock, TimePoint until, const std::function<bool()>& condition);

  // --- server_run.cc, with the lock held
  // ------------------------------------------------------------------------------------------
  std::shared_ptr<BatchRun> pick(TimePoint now, bool quick_only = false);
  bool quick(const Version& version) const;
  // What a thread that isn't a worker should run now, or null.
  std::shared_ptr<BatchRun> pick_inline(TimePoint now);
  void settle(Record& record, bool ok, const Timings& timings);  // takes it off all accounts
  // A retired version without requests left is taken out, for let_go(); else null.
  std::shared_ptr<Version> take_if_done(const std::shared_ptr<Version>& version);
  TimePoint next_event(TimePoint now) const;
  void note_event_at(TimePoint when);

  const ServerSettings settings;
  Clock& clock;
  TenantTable& tenants;
  EventBus& events;

  std::atomic<RequestKey> next_key{1};

  mutable std::mutex mutex;             // all below
  std::condition_variable_any work;     // workers
  std::condition_variable_any ticking;  // the timer
  std::condition_variable_any changed;  // drains, the destructor
  std::map<std::string, Model> models;
  std::vector<std::shared_ptr<Version>> retired;  // with requests left
  std::unordered_map<RequestKey, std::shared_ptr<Record>> records;
  std::map<TenantId, Account> accounts;
  std::vector<std::shared_ptr<BatchRun>> running;
  std::uint64_t in_flight = 0, payload_bytes = 0, queued = 0;
  std::uint64_t outstanding = 0;   // submitted, `done` not returned yet
  std::uint32_t workers_busy = 0;  // batches that run, inline ones too
  std::uint32_t long_busy = 0;     // of these, not quick
  bool draining = false, stopping = false;
  TimePoint timer_target = TimePoint::never();
  bool timer_look_again = false;

  std::vector<std::jthread> threads;
};

}  // namespace npud
