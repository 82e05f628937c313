// SPDX-License-Identifier: Apache-2.0
#include "api/event_stream.h"

namespace npud::api {
namespace {

v1::EventKind kind_of(EventKind kind) {
  switch (kind) {
    case EventKind::loaded:
      return v1::EVENT_LOADED;
    case EventKind::unloaded:
      return v1::EVENT_UNLOADED;
    case EventKind::load_failed:
      return v1::EVENT_LOAD_FAILED;
    case EventKind::evicted:
      return v1::EVENT_EVICTED;
    case EventKind::brought_in:
      return v1::EVENT_BROUGHT_IN;
    case EventKind::device_health:
      return v1::EVENT_DEVICE_HEALTH;
    case EventKind::tenant_throttled:
      return v1::EVENT_TENANT_THROTTLED;
    case EventKind::fault:
      return v1::EVENT_FAULT;
    case EventKind::drained:
      return v1::EVENT_DRAINED;
    case EventKind::resumed:
      return v1::EVENT_RESUMED;
    case EventKind::missed:
      return v1::EVENT_MISSED;
  }
  return v1::EVENT_UNKNOWN;
}

}  // namespace

EventStream::EventStream(Backend& backend, const v1::WatchEventsRequest& request)
    : backend_(backend), kinds_(request.kinds().begin(), request.kinds().end()) {
  // An event that comes before the assignment below finds writing_ set and waits for the end of the first write.
  writing_ = true;
  auto subscription = backend_.events.subscribe([this] { go_on(std::unique_lock(mutex_)); });
  {
    const std::lock_guard lock(mutex_);
    subscription_ = std::move(subscription);
  }
  outgoing_.set_kind(v1::EVENT_CAUGHT_UP);
  outgoing_.set_message("Events follow as they happen.");
  StartWrite(&outgoing_);
}

void EventStream::OnWriteDone(bool ok) {
  std::unique_lock lock(mutex_);
  writing_ = false;
  gone_ = gone_ || !ok;
  go_on(std::move(lock));
}

void EventStream::OnCancel() {
  std::unique_lock lock(mutex_);
  gone_ = true;
  go_on(std::move(lock));
}

void EventStream::go_on(std::unique_lock<std::mutex> lock) {
  if (finished_ || writing_) {
    return;
  }
  if (gone_) {
    finished_ = true;
    lock.unlock();
    return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the client went away"));
  }
  while (auto event = subscription_->try_next()) {
    outgoing_.Clear();
    fill(outgoing_, *event);
    if (kinds_.empty() || event->kind == EventKind::missed || kinds_.contains(outgoing_.kind())) {
      writing_ = true;
      lock.unlock();
      return StartWrite(&outgoing_);
    }
  }
}

void EventStream::fill(v1::Event& out, const Event& event) const {
  out.set_sequence(event.sequence);
  out.set_age_us(static_cast<std::uint64_t>(std::max<std::int64_t>(0, (backend_.clock.now() - event.at).count())));
  out.set_kind(kind_of(event.kind));
  out.set_device(event.device);
  out.set_model(event.model);
  out.set_version(event.version);
  out.set_program(event.program);
  if (event.tenant) {
    out.mutable_tenant()->set_id(event.tenant->value);
    out.mutable_tenant()->set_name(backend_.tenants.name(*event.tenant));
  }
  out.set_message(event.message);
  out.set_bytes(event.bytes);
  out.set_took_us(static_cast<std::uint64_t>(event.took.count()));
  out.set_count(event.count);
}

}  // namespace npud::api
