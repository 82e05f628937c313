// SPDX-License-Identifier: Apache-2.0
#include "core/events.h"

#include <algorithm>
#include <format>
#include <utility>

namespace npud {

const char* event_kind_name(EventKind kind) {
  switch (kind) {
    case EventKind::loaded:
      return "loaded";
    case EventKind::unloaded:
      return "unloaded";
    case EventKind::load_failed:
      return "load_failed";
    case EventKind::evicted:
      return "evicted";
    case EventKind::brought_in:
      return "brought_in";
    case EventKind::device_health:
      return "device_health";
    case EventKind::tenant_throttled:
      return "tenant_throttled";
    case EventKind::fault:
      return "fault";
    case EventKind::drained:
      return "drained";
    case EventKind::resumed:
      return "resumed";
    case EventKind::missed:
      return "missed";
  }
  return "unknown";
}

// `calling` is held while on_ready runs, so that taking it in the subscription's destructor waits for a call under way.
struct EventBus::Reader {
  std::mutex calling;
  std::function<void()> on_ready;  // under calling; emptied when the subscription goes

  std::mutex mutex;  // below
  std::condition_variable_any ready;
  std::deque<Event> queue;
  std::uint64_t missed = 0;

  std::optional<Event> pop() {
    if (missed != 0) {
      Event event;
      event.kind = EventKind::missed;
      event.count = std::exchange(missed, 0);
      event.message = std::format("{} events were dropped, since they weren't read in time.", event.count);
      if (!queue.empty()) {
        event.sequence = queue.front().sequence - 1;
        event.at = queue.front().at;
      }
      return event;
    }
    if (queue.empty()) return std::nullopt;
    Event event = std::move(queue.front());
    queue.pop_front();
    return event;
  }
};

EventBus::EventBus(Clock& clock, std::size_t capacity) : clock_(clock), capacity_(std::max<std::size_t>(capacity, 1)) {}
EventBus::~EventBus() = default;

void EventBus::publish(Event event) {
  std::vector<std::shared_ptr<Reader>> readers;
  {
    const std::lock_guard lock(mutex_);
    event.sequence = next_sequence_++;
    event.at = clock_.now();
    readers = readers_;
    // Queued under the bus's lock: every reader sees the events in the order of their numbers.
    for (const auto& reader : readers) {
      const std::lock_guard reader_lock(reader->mutex);
      if (reader->queue.size() >= capacity_) {
        reader->queue.pop_front();
        ++reader->missed;
      }
      reader->queue.push_back(event);
      reader->ready.notify_one();
    }
  }
  for (const auto& reader : readers) {
    const std::lock_guard calling(reader->calling);
    if (reader->on_ready) reader->on_ready();
  }
}

std::unique_ptr<EventBus::Subscription> EventBus::subscribe(std::function<void()> on_ready) {
  auto reader = std::make_shared<Reader>();
  reader->on_ready = std::move(on_ready);
  const std::lock_guard lock(mutex_);
  readers_.push_back(reader);
  return std::unique_ptr<Subscription>(new Subscription(*this, std::move(reader)));
}

EventBus::Subscription::~Subscription() {
  {
    const std::lock_guard lock(bus_.mutex_);
    std::erase(bus_.readers_, reader_);
  }
  const std::lock_guard calling(reader_->calling);
  reader_->on_ready = nullptr;
}

std::optional<Event> EventBus::Subscription::try_next() {
  const std::lock_guard lock(reader_->mutex);
  return reader_->pop();
}

std::optional<Event> EventBus::Subscription::next(std::stop_token stop) {
  std::unique_lock lock(reader_->mutex);
  reader_->ready.wait(lock, std::move(stop), [this] { return !reader_->queue.empty() || reader_->missed != 0; });
  return reader_->pop();
}

}  // namespace npud
