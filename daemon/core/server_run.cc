// SPDX-License-Identifier: Apache-2.0
// What happens to a request once it is queued.
#include <algorithm>
#include <exception>
#include <format>
#include <utility>

#include "core/server_impl.h"
#include "core/validate.h"

namespace npud {
namespace {

// Batches that a submitting thread runs one after the other before it leaves the rest to the workers.
constexpr int max_inline_runs = 16;

}  // namespace

// The next batch of all models: class first, then the tenant that has fewest batches running for its weight, then age.
std::shared_ptr<Server::Impl::BatchRun> Server::Impl::pick(TimePoint now, bool quick_only) {
  const std::uint32_t free = settings.workers - workers_busy;
  if (queued == 0 || free == 0) return nullptr;
  const PriorityClass at_least = free <= settings.realtime_workers ? PriorityClass::realtime : PriorityClass::batch;

  std::shared_ptr<Version> best;
  RequestQueue::Batch batch;
  std::tuple<PriorityClass, double, TimePoint> order;
  std::size_t ready = 0;
  const auto consider = [&](const std::shared_ptr<Version>& version) {
    if (version->queue.size() == 0 || version->running_batches >= version->instances()) return;
    if (quick_only && !quick(*version)) return;
    auto next = version->queue.peek(now, at_least);
    if (!next) return;
    ++ready;
    const double load = accounts[next->tenant].running_batches / tenants.settings(next->tenant).weight;
    const std::tuple next_order(next->priority_class, load, next->oldest);
    if (best != nullptr && order <= next_order) return;
    best = version;
    batch = std::move(*next);
    order = next_order;
  };
  for (const auto& [name, model] : models) {
    for (const auto& [number, version] : model.versions) consider(version);
  }
  for (const auto& version : retired) consider(version);
  if (best == nullptr) return nullptr;

  best->queue.take(batch);
  auto run = std::make_shared<BatchRun>();
  run->version = best;
  run->tenant = batch.tenant;
  run->priority_class = batch.priority_class;
  run->deadline = TimePoint{};
  run->started = now;
  run->quick = quick(*best);
  for (const RequestKey key : batch.requests) {
    const std::shared_ptr<Record>& record = records.at(key);
    record->batch = run;
    record->request.timings.started = now;
    run->deadline = std::max(run->deadline, record->request.deadline);
    run->records.push_back(record);
  }
  run->live = run->records.size();
  queued -= run->records.size();
  ++best->running_batches;
  best->running_requests += static_cast<std::uint32_t>(run->records.size());
  ++accounts[batch.tenant].running_batches;
  running.push_back(run);

  // Another worker is woken only if there is something for it, so that a busy single model doesn't wake threads for
  // nothing.
  const bool more = ready > 1 || (best->queue.size() > 0 && best->running_batches < best->instances());
  if (more && free > 1 && !quick_only) work.notify_one();
  ++workers_busy;
  return run;
}

// Whether handing a run of it to a worker costs more than the run.
bool Server::Impl::quick(const Version& version) const {
  return version.may_inline && !version.on_probation() && version.mean_run.count() > 0 &&
         version.mean_run < settings.inline_below;
}

std::shared_ptr<Server::Impl::BatchRun> Server::Impl::pick_inline(TimePoint now) {
  // Beside longer runs it might have to wait for a device.
  return long_busy == 0 ? pick(now, true) : nullptr;
}

void Server::Impl::run_inline(std::shared_ptr<BatchRun> batch) {
  for (int runs = 1; batch != nullptr; ++runs) {
    const std::shared_ptr<Version> version = batch->version;
    run(*batch);
    const TimePoint started = batch->started;
    batch.reset();
    const std::lock_guard lock(mutex);
    --workers_busy;
    const TimePoint now = clock.now();
    if (now - started > settings.inline_below * inline_surprise) {
      version->probation_left = version->next_probation;
      version->next_probation = std::min(2 * version->next_probation, max_inline_probation);
    }
    if (queued == 0) break;
    // What came meanwhile found its model busy and told nobody. The thread has other things to do than this, too.
    if (runs < max_inline_runs) batch = pick_inline(now);
    if (batch == nullptr) work.notify_one();
  }
}

void Server::Impl::worker() {
  std::unique_lock lock(mutex);
  while (true) {
    std::shared_ptr<BatchRun> next;
    work.wait(lock, [&] {
      if (stopping) return true;
      next = pick(clock.now());
      return next != nullptr;
    });
    if (next == nullptr) return;
    const bool is_long = !next->quick;
    long_busy += is_long;
    lock.unlock();
    run(*next);
    next.reset();
    lock.lock();
    --workers_busy;
    long_busy -= is_long;
  }
}

namespace {

class RunContext final : public ExecutionContext {
 public:
  RunContext(TenantId tenant, PriorityClass priority_class, TimePoint deadline, std::stop_token cancelled, Clock& clock)
      : tenant_(tenant),
        priority_class_(priority_class),
        deadline_(deadline),
        cancelled_(std::move(cancelled)),
        clock_(clock) {}
  TenantId tenant() const override { return tenant_; }
  PriorityClass priority_class() const override { return priority_class_; }
  TimePoint deadline() const override { return deadline_; }
  std::stop_token cancelled() const override { return cancelled_; }
  Clock& clock() const override { return clock_; }

 private:
  TenantId tenant_;
  PriorityClass priority_class_;
  TimePoint deadline_;
  std::stop_token cancelled_;
  Clock& clock_;
};

Result<std::vector<Response>> run_guarded(Servable& servable, ExecutionContext& context,
                                          std::span<const Request* const> batch) {
  try {
    auto responses = servable.run(context, batch);
    if (responses && responses->size() != batch.size()) {
      return fail(ErrorCode::internal, std::format("model '{}' answered {} of {} requests of a batch", servable.model(),
                                                   responses->size(), batch.size()));
    }
    return responses;
  } catch (const std::exception& e) {
    return fail(ErrorCode::internal, std::format("model '{}' threw an exception: {}", servable.model(), e.what()));
  }
}

}  // namespace

void Server::Impl::run(BatchRun& run) {
  Servable& servable = *run.version->servable;
  std::vector<const Request*> batch;
  std::int64_t elements = 0;
  for (const auto& record : run.records) {
    batch.push_back(&record->request);
    elements += record->elements;
  }
  RunContext context(run.tenant, run.priority_class, run.deadline, run.stop.get_token(), clock);
  auto responses = run_guarded(servable, context, batch);

  // Outputs are put in order (and copied to the client's memory) before the lock is taken again.
  std::vector<Result<Response>> results;
  for (std::size_t i = 0; i < run.records.size(); ++i) {
    if (!responses) {
      results.push_back(std::unexpected(responses.error()));
      continue;
    }
    Response& response = (*responses)[i];
    response.model = servable.model();
    response.version = servable.version();
    if (auto finished = finish_outputs(run.records[i]->request, response); finished) {
      results.push_back(std::move(response));
    } else {
      results.push_back(std::unexpected(finished.error()));
    }
  }

  std::shared_ptr<Version> gone;
  {
    const std::lock_guard lock(mutex);
    const TimePoint now = clock.now();
    Version& version = *run.version;
    bool counted = false;
    for (std::size_t i = 0; i < run.records.size(); ++i) {
      Record& record = *run.records[i];
      Result<Response>& result = results[i];
      Timings timings = record.request.timings;
      timings.finished = now;
      timings.batch_size = static_cast<std::uint32_t>(elements);
      // Whoever cancelled or ran out of time gets that answer, whatever came of the run.
      if (record.cancelled) {
        result = fail(ErrorCode::cancelled, "the request was cancelled while it ran");
      } else if (record.request.deadline <= now && (result || result.error().code == ErrorCode::cancelled)) {
        result = fail(ErrorCode::deadline_exceeded,
                      std::format("its time was over {} ms before it was done; give it more time",
                                  (now - record.request.deadline).count() / 1000));
      }
      if (result) {
        timings.compute_input = result->timings.compute_input;
        timings.compute = result->timings.compute;
        timings.compute_output = result->timings.compute_output;
        result->timings = timings;
        if (!std::exchange(counted, true)) version.statistics.add_run(static_cast<std::uint64_t>(elements), timings);
      }
      settle(record, result.has_value(), timings);
    }
    if (!counted) version.statistics.add_failed_run();
    const Duration took = now - run.started;
    version.mean_run = std::max(version.mean_run.count() == 0 ? took : (version.mean_run * 7 + took) / 8, Duration{1});
    if (took < settings.inline_below && version.probation_left > 0) --version.probation_left;
    --version.running_batches;
    version.running_requests -= static_cast<std::uint32_t>(run.records.size());
    --accounts[run.tenant].running_batches;
    std::erase_if(running, [&](const auto& other) { return other.get() == &run; });
    gone = take_if_done(run.version);
    changed.notify_all();
  }
  for (std::size_t i = 0; i < run.records.size(); ++i) complete(std::move(run.records[i]), std::move(results[i]));
  run.records.clear();
  run.version.reset();
  let_go(std::move(gone));
}

void Server::Impl::settle(Record& record, bool ok, const Timings& timings) {
  Account& account = accounts[record.request.tenant];
  --account.in_flight;
  account.bytes -= record.payload_bytes;
  payload_bytes -= record.payload_bytes;
  --in_flight;
  records.erase(record.key);
  if (ok) {
    ++account.succeeded;
    account.latency.add(timings.finished - timings.received);
    record.version->statistics.add_success(static_cast<std::uint64_t>(record.elements), timings);
  } else {
    ++account.failed;
    record.version->statistics.add_failure(timings);
  }
}

std::shared_ptr<Server::Impl::Version> Server::Impl::take_if_done(const std::shared_ptr<Version>& version) {
  if (!version->retired || !version->idle()) return nullptr;
  const auto at = std::ranges::find(retired, version);
  if (at == retired.end()) return nullptr;
  std::shared_ptr<Version> taken = std::move(*at);
  retired.erase(at);
  return taken;
}

// Tells the caller. Nothing of the request is left by then: neither its inputs, nor its place in a queue, nor a count.
void Server::Impl::complete(std::shared_ptr<Record> record, Result<Response> result) {
  record->on_cancel.reset();  // waits for a cancellation under way, which finds nothing any more
  auto done = std::move(record->request.done);
  record.reset();
  done(std::move(result));
  done = nullptr;  // with all that it holds, before anybody is told that it is over
  const std::lock_guard lock(mutex);
  --outstanding;
  changed.notify_all();
}

void Server::Impl::cancel(RequestKey key) {
  std::shared_ptr<Record> record;
  std::shared_ptr<BatchRun> stop;
  std::shared_ptr<Version> gone;
  {
    const std::lock_guard lock(mutex);
    const auto at = records.find(key);
    if (at == records.end() || at->second->cancelled) return;
    Record& found = *at->second;
    found.cancelled = true;
    if (found.batch != nullptr) {
      if (--found.batch->live == 0) stop = found.batch;
    } else {
      record = at->second;
      record->version->queue.remove(key);
      --queued;
      Timings timings = record->request.timings;
      timings.finished = clock.now();
      settle(*record, false, timings);
      gone = take_if_done(record->version);
      changed.notify_all();
    }
  }
  if (stop != nullptr) stop->stop.request_stop();
  if (record != nullptr)
    complete(std::move(record), fail(ErrorCode::cancelled, "the request was cancelled while it was queued"));
  let_go(std::move(gone));
}

TimePoint Server::Impl::next_event(TimePoint now) const {
  TimePoint next = TimePoint::never();
  for (const auto& [name, model] : models) {
    for (const auto& [number, version] : model.versions) next = std::min(next, version->queue.next_event(now));
  }
  for (const auto& version : retired) next = std::min(next, version->queue.next_event(now));
  return next;
}

void Server::Impl::note_event_at(TimePoint when) {
  if (when >= timer_target) return;
  timer_look_again = true;
  ticking.notify_one();
}

// Ends what waited too long, and wakes a worker when a batch has waited long enough to fill up.
void Server::Impl::timer() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    const TimePoint now = clock.now();
    std::vector<std::shared_ptr<Record>> expired;
    std::vector<std::shared_ptr<Version>> gone;
    const auto expire = [&](const std::shared_ptr<Version>& version) {
      for (const RequestKey key : version->queue.expire(now)) {
        std::shared_ptr<Record> record = records.at(key);
        --queued;
        Timings timings = record->request.timings;
        timings.finished = now;
        settle(*record, false, timings);
        expired.push_back(std::move(record));
      }
    };
    for (const auto& [name, model] : models) {
      for (const auto& [number, version] : model.versions) expire(version);
    }
    for (std::size_t i = retired.size(); i-- > 0;) {
      const std::shared_ptr<Version> version =
          retired[i];  // in `gone` too once it isn't in `retired`: never destroyed under the lock
      expire(version);
      if (auto done = take_if_done(version)) gone.push_back(std::move(done));
    }
    if (!expired.empty() || !gone.empty()) {
      changed.notify_all();
      lock.unlock();
      for (auto& record : expired) {
        const Timings& timings = record->request.timings;
        auto error = fail(ErrorCode::deadline_exceeded,
                          std::format("its time was over after {} ms in the queue of model '{}'; it didn't run",
                                      (now - timings.received).count() / 1000, record->request.model));
        complete(std::move(record), std::move(error));
      }
      for (auto& version : gone) let_go(std::move(version));
      lock.lock();
      continue;
    }
    timer_target = next_event(now);
    timer_look_again = false;
    const Duration left =
        timer_target.is_never() ? longest_wait : std::clamp(timer_target - now, Duration{1}, longest_wait);
    ticking.wait_for(lock, left, [&] { return stopping || timer_look_again; });
    timer_target = TimePoint::never();
    if (queued > 0) work.notify_one();
  }
}

}  // namespace npud
