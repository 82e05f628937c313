// SPDX-License-Identifier: Apache-2.0
#include "api/infer_stream.h"

#include "api/deadline.h"
#include "api/encode.h"
#include "api/status.h"

namespace npud::api {

// Lifetime: gRPC calls OnDone() after Finish() and after every operation and callback in progress. Finish() is only
// called when no read, no write and no request is outstanding, so an answer that comes from a worker always finds this
// object.

InferStream::InferStream(Backend& backend, CallerResolver& callers, grpc::CallbackServerContext* context)
    : backend_(backend), context_(context) {
  auto caller = callers.resolve(*context);
  if (!caller) {
    finished_ = true;
    Finish(to_status(caller.error()));
    return;
  }
  caller_ = std::move(*caller);
  go_on(std::unique_lock(mutex_));
}

void InferStream::OnReadDone(bool ok) {
  Place* place = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (ok) {
      place = &places_.emplace_back();
    } else {
      no_more_requests_ = true;
    }
  }
  if (place != nullptr) {
    auto message = parse_infer(incoming_);
    incoming_.Clear();
    if (message) {
      submit_infer(backend_, caller_, std::move(*message), deadline_of(*context_, backend_.clock), stop_.get_token(),
                   [this, place](const Answer& answer, Result<Response> result) {
                     auto bytes = result ? encode_stream_response(answer.id, *result, answer.region_outputs)
                                         : Result<grpc::ByteBuffer>(std::unexpected(std::move(result.error())));
                     answered(*place, bytes ? *bytes : encode_stream_error(answer.id, answer.model, bytes.error()));
                   });
    } else {
      answered(*place, encode_stream_error("", "", message.error()));
    }
  }
  std::unique_lock lock(mutex_);
  reading_ = false;  // only now: until here incoming_ was in use, and the stream must not end
  go_on(std::move(lock));
}

void InferStream::OnWriteDone(bool ok) {
  if (!ok) {
    stop_.request_stop();
  }
  std::unique_lock lock(mutex_);
  writing_ = false;
  outgoing_.Clear();
  gone_ = gone_ || !ok;
  go_on(std::move(lock));
}

void InferStream::OnCancel() {
  stop_.request_stop();
  std::unique_lock lock(mutex_);
  gone_ = true;
  go_on(std::move(lock));
}

void InferStream::answered(Place& place, grpc::ByteBuffer answer) {
  // On a worker's thread: once the answer is visible and the lock is free, another thread may write it and end the
  // stream. So the lock is held until it is decided what this thread still has to do.
  std::unique_lock lock(mutex_);
  place.answer.emplace().Swap(&answer);
  go_on(std::move(lock));
}

void InferStream::go_on(std::unique_lock<std::mutex> lock) {
  bool read = false, write = false;
  if (finished_) {
    return;
  }
  while (gone_ && !places_.empty() && places_.front().answer) {
    places_.pop_front();
  }
  if (!gone_ && !writing_ && !places_.empty() && places_.front().answer) {
    outgoing_.Swap(&*places_.front().answer);
    places_.pop_front();
    write = writing_ = true;
  }
  if (!gone_ && !reading_ && !no_more_requests_ && places_.size() < backend_.max_requests_per_stream) {
    read = reading_ = true;
  }
  const bool end = finished_ = (gone_ || no_more_requests_) && !reading_ && !writing_ && places_.empty();
  const bool gone = gone_;
  lock.unlock();

  // Without the lock, since gRPC may call back at once; and what is started last may be the end of this object.
  if (end) {
    return Finish(gone ? grpc::Status(grpc::StatusCode::CANCELLED, "the client went away") : grpc::Status::OK);
  }
  if (write && read) {
    StartWrite(&outgoing_);
    StartRead(&incoming_);
  } else if (write) {
    StartWrite(&outgoing_);
  } else if (read) {
    StartRead(&incoming_);
  }
}

}  // namespace npud::api
