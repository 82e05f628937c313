// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <set>

#include "api/backend.h"
#include "npud/v1/control.grpc.pb.h"

namespace npud::api {

// One WatchEvents: first caught_up, then what the bus brings, at the reader's pace. Deletes itself.
class EventStream final : public grpc::ServerWriteReactor<v1::Event> {
 public:
  EventStream(Backend& backend, const v1::WatchEventsRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  void go_on(std::unique_lock<std::mutex> lock);
  void fill(v1::Event& out, const Event& event) const;

  Backend& backend_;
  std::set<int> kinds_;  // empty: all
  v1::Event outgoing_;   // of the one write in progress
  std::mutex mutex_;     // below
  bool writing_ = false, gone_ = false, finished_ = false;
  // Last: destroyed first, and once destroyed it calls no more.
  std::unique_ptr<EventBus::Subscription> subscription_;
};

}  // namespace npud::api
