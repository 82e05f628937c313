// SPDX-License-Identifier: Apache-2.0
// One ModelInfer, and one request of a stream: parse, decode, submit, write shared memory, encode.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "api/backend.h"
#include "api/caller.h"
#include "api/decode.h"

namespace npud::api {

// A parsed message in an arena of its own, whose first block comes along with it. Aliases keep both.
Result<std::shared_ptr<inference::ModelInferRequest>> parse_infer(const grpc::ByteBuffer& bytes);

// What is needed to answer a request, besides core's response.
struct Answer {
  std::string id;
  std::string model;
  std::vector<RegionOutput> region_outputs;
};

// `done` gets core's answer after outputs were written to shared memory; called exactly once, at once on refusal.
using AnswerFunction = std::move_only_function<void(const Answer&, Result<Response>)>;
void submit_infer(Backend& backend, const std::shared_ptr<const Caller>& caller,
                  std::shared_ptr<inference::ModelInferRequest> message, TimePoint grpc_deadline,
                  std::stop_token cancelled, AnswerFunction done);

// The unary call. Deletes itself. One that is answered before start() returns is handed to gRPC as its default reactor
// instead: reactions of a reactor of one's own each cost gRPC a thread's wake-up.
class InferCall final : public grpc::ServerUnaryReactor {
 public:
  static grpc::ServerUnaryReactor* start(Backend& backend, CallerResolver& callers,
                                         grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response);
  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  void end(grpc::Status status);  // may delete this
  std::stop_source stop_;
  std::mutex mutex_;
  bool started_ = false;                // gRPC has it
  std::optional<grpc::Status> status_;  // ended before that
};

}  // namespace npud::api
