// SPDX-License-Identifier: Apache-2.0
// What happens in the daemon, for whoever watches: npuctl, the log, the metrics. Publishing never waits for a reader.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/request.h"

namespace npud {

enum class EventKind : std::uint8_t {
  loaded,            // a version of a model serves
  unloaded,          // and no longer
  load_failed,       // `message` says why
  evicted,           // a program left its device
  brought_in,        // a program was made resident; `took`
  device_health,     // `message`: "ok", or why not and what to do
  tenant_throttled,  // `count` requests were refused for the tenant's caps since the last such event
  fault,             // a job failed for the device's sake
  drained,           // a device or a model takes no new work and nothing runs any more
  resumed,
  missed,  // the reader was too slow for `count` events
};

[[nodiscard]] const char* event_kind_name(EventKind kind);

// Fields that mean nothing for the kind are empty.
struct Event {
  EventKind kind = EventKind::fault;
  std::string device;
  std::string model;
  std::int64_t version = 0;
  std::string program;
  std::optional<TenantId> tenant;
  std::string message;  // one sentence
  std::uint64_t bytes = 0;
  Duration took{0};
  std::uint64_t count = 0;
  // Filled in by publish().
  std::uint64_t sequence = 0;
  TimePoint at;
};

// Thread-safe. Each subscription has a bounded queue of its own; when it is full the oldest events are dropped and the
// reader's next event is `missed` with their number.
class EventBus {
 public:
  class Subscription;

  explicit EventBus(Clock& clock, std::size_t capacity = 256);
  ~EventBus();

  void publish(Event event);  // never blocks on a reader

  // From now on. `on_ready` (may be empty) is called on the publisher's thread after an event was queued, with no lock
  // of the bus held; it must not block and must not destroy the subscription. The bus must outlive its subscriptions.
  std::unique_ptr<Subscription> subscribe(std::function<void()> on_ready = {});

 private:
  struct Reader;
  Clock& clock_;
  const std::size_t capacity_;
  std::mutex mutex_;  // below
  std::uint64_t next_sequence_ = 1;
  std::vector<std::shared_ptr<Reader>> readers_;
};

// One reader. Once destroyed, its on_ready isn't running and won't be called again.
class EventBus::Subscription {
 public:
  ~Subscription();
  std::optional<Event> try_next();
  // Waits for an event; nullopt when `stop` was requested.
  std::optional<Event> next(std::stop_token stop);

 private:
  friend class EventBus;
  Subscription(EventBus& bus, std::shared_ptr<Reader> reader) : bus_(bus), reader_(std::move(reader)) {}
  EventBus& bus_;
  std::shared_ptr<Reader> reader_;
};

}  // namespace npud
