// SPDX-License-Identifier: Apache-2.0
#include "core/server.h"

#include <algorithm>
#include <format>
#include <utility>

#include "core/priority_class.h"
#include "core/server_impl.h"
#include "core/utf8.h"
#include "core/validate.h"

namespace npud {
namespace {

constexpr Duration throttle_event_interval{1'000'000};
constexpr std::size_t names_in_errors = 8;

Event model_event(EventKind kind, const Servable& servable, std::string message) {
  Event event;
  event.kind = kind;
  event.model = servable.model();
  event.version = servable.version();
  event.message = std::move(message);
  return event;
}

}  // namespace

Server::Impl::Impl(ServerSettings settings_in, Clock& clock_in, TenantTable& tenants_in, EventBus& events_in)
    : settings([&] {
        settings_in.workers = std::max(settings_in.workers, 1u);
        settings_in.realtime_workers = std::min(settings_in.realtime_workers, settings_in.workers - 1);
        return settings_in;
      }()),
      clock(clock_in),
      tenants(tenants_in),
      events(events_in) {
  for (std::uint32_t i = 0; i < settings.workers; ++i) threads.emplace_back([this] { worker(); });
  threads.emplace_back([this] { timer(); });
}

Server::Impl::~Impl() {
  std::vector<std::shared_ptr<Record>> waiting;
  std::vector<std::stop_source> stops;
  {
    const std::lock_guard lock(mutex);
    stopping = true;
    for (const auto& [key, record] : records) {
      if (record->batch == nullptr) waiting.push_back(record);
    }
    for (const auto& record : waiting) {
      record->version->queue.remove(record->key);
      --queued;
      Timings timings = record->request.timings;
      timings.finished = clock.now();
      settle(*record, false, timings);
    }
    for (const auto& run : running) stops.push_back(run->stop);
    work.notify_all();
    ticking.notify_all();
  }
  for (std::stop_source& stop : stops) stop.request_stop();
  for (auto& record : waiting)
    complete(std::move(record), fail(ErrorCode::unavailable, "npud is shutting down; try again later"));
  threads.clear();  // joins
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return outstanding == 0; });
  lock.unlock();
  models.clear();
  retired.clear();
}

Result<std::shared_ptr<Server::Impl::Version>> Server::Impl::find(const std::string& model,
                                                                  std::optional<std::int64_t> version) const {
  const auto at = models.find(model);
  if (at == models.end() || at->second.versions.empty()) {
    std::string names;
    std::size_t count = 0;
    for (const auto& [name, other] : models) {
      if (other.versions.empty() || ++count > names_in_errors) continue;
      names += (names.empty() ? "'" : ", '") + name + "'";
    }
    if (count > names_in_errors) names += std::format(" and {} more", count - names_in_errors);
    return fail(ErrorCode::not_found, std::format("model '{}' isn't loaded; loaded are {}", printable(model),
                                                  names.empty() ? "none" : names));
  }
  const auto& versions = at->second.versions;
  if (!version) return versions.rbegin()->second;
  const auto found = versions.find(*version);
  if (found == versions.end()) {
    std::string numbers;
    for (const auto& [number, other] : versions) numbers += (numbers.empty() ? "" : ", ") + std::to_string(number);
    return fail(ErrorCode::not_found,
                std::format("model '{}' has no version {} loaded; loaded are {}", printable(model), *version, numbers));
  }
  return found->second;
}

bool Server::Impl::idle(const std::string& model) const {
  const auto at = models.find(model);
  if (at != models.end() && !std::ranges::all_of(at->second.versions, [](const auto& v) { return v.second->idle(); }))
    return false;
  return std::ranges::none_of(retired, [&](const auto& v) { return v->servable->model() == model; });
}

std::shared_ptr<Server::Impl::Version> Server::Impl::retire(Model& model, std::int64_t number) {
  const auto at = model.versions.find(number);
  if (at == model.versions.end()) return nullptr;
  std::shared_ptr<Version> version = std::move(at->second);
  model.versions.erase(at);
  version->retired = true;
  ++model.letting_go;
  if (version->idle()) return version;
  retired.push_back(std::move(version));
  return nullptr;
}

void Server::Impl::let_go(std::shared_ptr<Version> version) {
  if (version == nullptr) return;
  Event event = model_event(
      EventKind::unloaded, *version->servable,
      std::format("Version {} of model '{}' was unloaded.", version->servable->version(), version->servable->model()));
  version.reset();
  {
    const std::lock_guard lock(mutex);
    const auto at = models.find(event.model);
    if (at != models.end()) {
      --at->second.letting_go;
      if (at->second.versions.empty() && at->second.letting_go == 0) models.erase(at);
    }
    changed.notify_all();
  }
  events.publish(std::move(event));
}

bool Server::Impl::wait_until(std::unique_lock<std::mutex>& lock, TimePoint until,
                              const std::function<bool()>& condition) {
  while (!condition()) {
    const TimePoint now = clock.now();
    if (until <= now) return false;
    changed.wait_for(lock, until.is_never() ? longest_wait : std::min(until - now, longest_wait));
  }
  return true;
}

// --- models
// -------------------------------------------------------------------------------------------------------------------

Server::Server(ServerSettings settings, Clock& clock, TenantTable& tenants, EventBus& events)
    : impl_(std::make_unique<Impl>(settings, clock, tenants, events)) {}

Server::~Server() = default;

void Server::add(std::shared_ptr<Servable> servable) {
  const std::string model = servable->model();
  const std::int64_t number = servable->version();
  Event event =
      model_event(EventKind::loaded, *servable, std::format("Version {} of model '{}' serves.", number, model));
  std::shared_ptr<Impl::Version> gone;
  {
    auto version = std::make_shared<Impl::Version>(std::move(servable));
    const std::lock_guard lock(impl_->mutex);
    Impl::Model& entry = impl_->models[model];
    gone = impl_->retire(entry, number);
    entry.versions.emplace(number, std::move(version));
  }
  impl_->events.publish(std::move(event));
  impl_->let_go(std::move(gone));
}

void Server::replace(const std::string& model, std::vector<std::shared_ptr<Servable>> versions) {
  std::vector<std::shared_ptr<Impl::Version>> gone;
  std::vector<Event> loaded;
  {
    const std::lock_guard lock(impl_->mutex);
    Impl::Model& entry = impl_->models[model];
    std::vector<std::int64_t> leaving;
    for (const auto& [number, version] : entry.versions) {
      if (std::ranges::find(versions, version->servable) == versions.end()) leaving.push_back(number);
    }
    for (const std::int64_t number : leaving) gone.push_back(impl_->retire(entry, number));
    for (auto& servable : versions) {
      const std::int64_t number = servable->version();
      if (entry.versions.contains(number)) continue;
      loaded.push_back(
          model_event(EventKind::loaded, *servable, std::format("Version {} of model '{}' serves.", number, model)));
      entry.versions.emplace(number, std::make_shared<Impl::Version>(std::move(servable)));
    }
    if (entry.versions.empty() && entry.letting_go == 0) impl_->models.erase(model);
  }
  versions.clear();
  for (Event& event : loaded) impl_->events.publish(std::move(event));
  for (auto& version : gone) impl_->let_go(std::move(version));
}

Result<> Server::remove(const std::string& model, std::int64_t version) {
  std::shared_ptr<Impl::Version> gone;
  {
    const std::lock_guard lock(impl_->mutex);
    if (auto found = impl_->find(model, version); !found) return std::unexpected(found.error());
    gone = impl_->retire(impl_->models.at(model), version);
  }
  impl_->let_go(std::move(gone));
  return {};
}

Result<> Server::wait_retired(const std::string& model, TimePoint until) {
  std::unique_lock lock(impl_->mutex);
  const bool done = impl_->wait_until(lock, until, [&] {
    const auto at = impl_->models.find(model);
    return at == impl_->models.end() || at->second.letting_go == 0;
  });
  if (done) return {};
  return fail(ErrorCode::deadline_exceeded,
              std::format("model '{}' still runs requests in a version that was unloaded", printable(model)));
}

Result<std::shared_ptr<Servable>> Server::find(const std::string& model, std::optional<std::int64_t> version) const {
  const std::lock_guard lock(impl_->mutex);
  auto found = impl_->find(model, version);
  if (!found) return std::unexpected(found.error());
  return (*found)->servable;
}

std::vector<std::shared_ptr<Servable>> Server::all() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::shared_ptr<Servable>> servables;
  for (const auto& [name, model] : impl_->models) {
    for (const auto& [number, version] : model.versions) servables.push_back(version->servable);
  }
  return servables;
}

// --- requests
// -----------------------------------------------------------------------------------------------------------------

Duration Server::Impl::retry_after(const Version& version) const {
  const auto batches = static_cast<Duration::rep>(version.queue.size() / version.instances() + 1);
  return std::clamp(version.mean_run * batches, Duration{1'000}, Duration{10'000'000});
}

Result<> Server::Impl::admit(Record& record, const TenantSettings& tenant, std::uint64_t shape, TimePoint now) {
  const Request& request = record.request;
  Version& version = *record.version;
  if (stopping || draining) return fail(ErrorCode::unavailable, "npud is shutting down; try again later");
  if (models.at(request.model).draining) {
    return fail(ErrorCode::failed_precondition,
                std::format("model '{}' is drained; an administrator has to resume it", request.model));
  }
  Account& account = accounts[request.tenant];
  const auto full = [&](std::string message) {
    auto error = fail(ErrorCode::resource_exhausted, std::move(message));
    error.error().retry_after = retry_after(version);
    return error;
  };
  if (tenant.max_in_flight != 0 && account.in_flight >= tenant.max_in_flight) {
    return full(std::format("tenant '{}' has {} requests in flight, which is its cap; wait for one to end",
                            tenants.name(request.tenant), account.in_flight));
  }
  const auto no_bytes = [&](std::string message, std::uint64_t used, std::uint64_t limit) {
    auto error = full(std::move(message));
    error.error().bytes_needed = record.payload_bytes;
    error.error().bytes_free = limit > used ? limit - used : 0;
    if (record.payload_bytes > limit) error.error().retry_after.reset();  // never
    return error;
  };
  if (tenant.max_bytes != 0 && account.bytes + record.payload_bytes > tenant.max_bytes) {
    return no_bytes(std::format("tenant '{}' has {} bytes in flight and may have {}; this request has {}",
                                tenants.name(request.tenant), account.bytes, tenant.max_bytes, record.payload_bytes),
                    account.bytes, tenant.max_bytes);
  }
  if (settings.max_payload_bytes != 0 && payload_bytes + record.payload_bytes > settings.max_payload_bytes) {
    return no_bytes(std::format("requests of {} bytes are in flight and npud holds at most {}; this one has {}",
                                payload_bytes, settings.max_payload_bytes, record.payload_bytes),
                    payload_bytes, settings.max_payload_bytes);
  }
  QueuedRequest entry;
  entry.key = record.key;
  entry.tenant = request.tenant;
  entry.weight = tenant.weight;
  entry.priority_class = request.priority_class;
  entry.priority = request.priority;
  entry.deadline = request.deadline;
  entry.shape = shape;
  entry.elements = record.elements;
  if (auto pushed = version.queue.push(entry, now); !pushed) {
    const Duration wait = retry_after(version);
    return full(std::format("model '{}' can't take the request: {}; retry in {} ms or raise queue.max_requests",
                            request.model, pushed.error().message, std::max<Duration::rep>(wait.count() / 1000, 1)));
  }
  ++account.in_flight;
  account.bytes += record.payload_bytes;
  payload_bytes += record.payload_bytes;
  ++in_flight;
  ++queued;
  return {};
}

void Server::Impl::refused(TenantId tenant, const Error& error, TimePoint now, std::optional<Event>& event) {
  Account& account = accounts[tenant];
  if (error.code != ErrorCode::resource_exhausted) {
    ++account.failed;
    return;
  }
  ++account.rejected;
  ++account.throttled_unsaid;
  if (account.throttled_said && now - *account.throttled_said < throttle_event_interval) return;
  account.throttled_said = now;
  event.emplace();
  event->kind = EventKind::tenant_throttled;
  event->tenant = tenant;
  event->count = std::exchange(account.throttled_unsaid, 0);
  event->message =
      std::format("{} requests of tenant '{}' were refused: {}.", event->count, tenants.name(tenant), error.message);
}

void Server::submit(Request request) { impl_->submit(std::move(request)); }

void Server::Impl::submit(Request request) {
  const TimePoint received = clock.now();
  if (request.timings.received == TimePoint{}) request.timings.received = received;
  const TenantSettings tenant = tenants.settings(request.tenant);
  auto record = std::make_shared<Record>();
  record->request = std::move(request);
  Request& mine = record->request;

  const auto refuse = [&](Error error) {
    std::optional<Event> event;
    {
      const std::lock_guard lock(mutex);
      refused(mine.tenant, error, clock.now(), event);
    }
    if (event) events.publish(std::move(*event));
    auto done = std::move(mine.done);
    record.reset();
    done(std::unexpected(std::move(error)));
  };

  if (mine.priority_class < tenant.class_ceiling) {
    if (mine.priority_class == PriorityClass::realtime) {
      return refuse(
          Error{ErrorCode::permission_denied,
                std::format("tenant '{}' may use class {} at best; ask the administrator, or leave the class out",
                            tenants.name(mine.tenant), class_name(tenant.class_ceiling)),
                {},
                {},
                {}});
    }
    mine.priority_class = tenant.class_ceiling;  // what a request gets that asked for nothing
  }

  const TimePoint now = clock.now();
  if (mine.cancelled.stop_requested())
    return refuse(Error{ErrorCode::cancelled, "the request was cancelled before it was queued", {}, {}, {}});
  if (mine.deadline <= now)
    return refuse(Error{ErrorCode::deadline_exceeded, "the request's time was over when it came", {}, {}, {}});
  record->key = next_key++;
  record->payload_bytes = mine.payload_bytes;
  const std::stop_token cancelled = mine.cancelled;
  const RequestKey key = record->key;
  if (cancelled.stop_possible()) record->on_cancel.emplace(cancelled, [this, key] { cancel(key); });
  auto entered = enter(record, tenant);
  if (!entered) return refuse(std::move(entered.error()));
  record.reset();
  // A cancellation between the check above and the queue found nothing to cancel.
  if (cancelled.stop_requested()) cancel(key);
  if (*entered != nullptr) run_inline(*std::move(entered));
}

Result<std::shared_ptr<Server::Impl::BatchRun>> Server::Impl::enter(const std::shared_ptr<Record>& record,
                                                                    const TenantSettings& tenant) {
  Request& request = record->request;
  while (true) {
    std::shared_ptr<Version> version;
    {
      const std::lock_guard lock(mutex);
      auto found = find(request.model, request.version);
      if (!found) return std::unexpected(found.error());
      version = *found;
    }
    // Without the lock, since it reads every element of BYTES. The version may be replaced meanwhile: then the request
    // is checked again.
    const auto summary = check_inputs(version->servable->signature(), request);
    if (!summary) {
      Error error = summary.error();
      error.message = std::format("model '{}': {}", request.model, error.message);
      return std::unexpected(std::move(error));
    }
    const std::lock_guard lock(mutex);
    auto found = find(request.model, request.version);
    if (!found) return std::unexpected(found.error());
    if (*found != version) continue;
    const TimePoint now = clock.now();
    record->version = version;
    record->elements = summary->batch_elements;
    if (const Duration timeout = version->servable->queue_settings().default_timeout;
        request.deadline.is_never() && timeout.count() > 0) {
      request.deadline = request.timings.received + timeout;
    }
    request.timings.queued = now;
    if (auto admitted = admit(*record, tenant, summary->shape, now); !admitted) {
      return std::unexpected(std::move(admitted.error()));
    }
    records.emplace(record->key, record);
    ++outstanding;
    note_event_at(version->queue.next_event(now));
    if (quick(*version)) {
      if (auto run = pick_inline(now)) return run;
    }
    if (version->running_batches < version->instances() && workers_busy < settings.workers) work.notify_one();
    return nullptr;
  }
}

// --- control
// ------------------------------------------------------------------------------------------------------------------

Result<> Server::drain_model(const std::string& model, TimePoint until) {
  {
    std::unique_lock lock(impl_->mutex);
    if (auto found = impl_->find(model, std::nullopt); !found) return std::unexpected(found.error());
    impl_->models.at(model).draining = true;
    if (!impl_->wait_until(lock, until, [&] { return impl_->idle(model); })) {
      return fail(ErrorCode::deadline_exceeded,
                  std::format("model '{}' still has requests; it takes no new ones, ask again or resume it", model));
    }
  }
  Event event;
  event.kind = EventKind::drained;
  event.model = model;
  event.message = std::format("Model '{}' is drained.", model);
  impl_->events.publish(std::move(event));
  return {};
}

Result<> Server::resume_model(const std::string& model) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (auto found = impl_->find(model, std::nullopt); !found) return std::unexpected(found.error());
    impl_->models.at(model).draining = false;
  }
  Event event;
  event.kind = EventKind::resumed;
  event.model = model;
  event.message = std::format("Model '{}' takes requests again.", model);
  impl_->events.publish(std::move(event));
  return {};
}

Result<> Server::drain(TimePoint until) {
  std::unique_lock lock(impl_->mutex);
  impl_->draining = true;
  if (impl_->wait_until(lock, until, [&] { return impl_->outstanding == 0; })) return {};
  return fail(ErrorCode::deadline_exceeded,
              std::format("{} requests haven't ended; npud takes no new ones", impl_->outstanding));
}

ServerSnapshot Server::snapshot() const {
  const Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  const TimePoint now = impl.clock.now();
  ServerSnapshot snapshot;
  snapshot.workers = impl.settings.workers;
  snapshot.workers_busy = impl.workers_busy;
  snapshot.in_flight = impl.in_flight;
  snapshot.queued = impl.queued;
  snapshot.payload_bytes = impl.payload_bytes;
  snapshot.draining = impl.draining;
  const auto add = [&](const Impl::Version& version, bool draining) {
    QueueSnapshot queue;
    queue.model = version.servable->model();
    queue.version = version.servable->version();
    queue.queued = static_cast<std::uint32_t>(version.queue.size());
    queue.running = version.running_requests;
    queue.max_queued = version.servable->queue_settings().max_queued;
    queue.queued_peak = static_cast<std::uint32_t>(version.queue.peak());
    queue.oldest = version.queue.size() == 0 ? Duration{0} : now - version.queue.oldest();
    queue.draining = draining;
    queue.retired = version.retired;
    snapshot.queues.push_back(std::move(queue));
  };
  for (const auto& [name, model] : impl.models) {
    for (const auto& [number, version] : model.versions) add(*version, model.draining || impl.draining);
  }
  for (const auto& version : impl.retired) add(*version, true);
  for (const auto& [tenant, account] : impl.accounts) {
    snapshot.tenants.push_back({tenant, account.in_flight, account.bytes, account.succeeded, account.failed,
                                account.rejected, account.latency.quantile(0.5), account.latency.quantile(0.99)});
  }
  for (const auto& run : impl.running) {
    snapshot.running.push_back({run->version->servable->model(), run->version->servable->version(), run->tenant,
                                run->priority_class, static_cast<std::uint32_t>(run->records.size()),
                                now - run->started});
  }
  return snapshot;
}

std::vector<ModelStatisticsSnapshot> Server::statistics(const std::string& model,
                                                        std::optional<std::int64_t> version) const {
  const std::lock_guard lock(impl_->mutex);
  const TimePoint now = impl_->clock.now();
  std::vector<ModelStatisticsSnapshot> all;
  for (const auto& [name, entry] : impl_->models) {
    if (!model.empty() && name != model) continue;
    for (const auto& [number, held] : entry.versions) {
      if (version && number != *version) continue;
      ModelStatisticsSnapshot snapshot = held->statistics.snapshot(now);
      snapshot.model = name;
      snapshot.version = number;
      all.push_back(std::move(snapshot));
    }
  }
  return all;
}

void Server::wake() {
  const std::lock_guard lock(impl_->mutex);
  impl_->timer_look_again = true;
  impl_->ticking.notify_all();
  impl_->work.notify_all();
  impl_->changed.notify_all();
}

}  // namespace npud
