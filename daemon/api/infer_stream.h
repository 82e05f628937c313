// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <mutex>
#include <optional>

#include "api/infer_call.h"

namespace npud::api {

// One ModelStreamInfer. Answers come in the order of the requests; at most max_requests_per_stream are taken from the
// wire and not yet written back, then reading waits, and so does the client by HTTP/2's flow control. A request that
// fails is an answer with error_message; the stream goes on. When the client goes away every request of the stream is
// cancelled, and the call ends when the last of them has. Deletes itself.
class InferStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  InferStream(Backend& backend, CallerResolver& callers, grpc::CallbackServerContext* context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  // A request's place in the order; filled when its answer is there.
  struct Place {
    std::optional<grpc::ByteBuffer> answer;
  };
  void answered(Place& place, grpc::ByteBuffer answer);
  void go_on(std::unique_lock<std::mutex> lock);  // starts what can be started: a read, a write, the end

  Backend& backend_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<const Caller> caller_;
  std::stop_source stop_;
  grpc::ByteBuffer incoming_;  // of the one read in progress
  grpc::ByteBuffer outgoing_;  // of the one write in progress

  std::mutex mutex_;          // all below
  std::deque<Place> places_;  // references stay valid: only pushed at the back, popped at the front
  bool reading_ = false, writing_ = false, no_more_requests_ = false, gone_ = false, finished_ = false;
};

}  // namespace npud::api
