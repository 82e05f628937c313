// SPDX-License-Identifier: Apache-2.0
#include "api/infer_call.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <format>
#include <limits>

#include "api/arena_message.h"
#include "api/deadline.h"
#include "api/encode.h"
#include "api/status.h"

namespace npud::api {
namespace {

bool parse(const grpc::ByteBuffer& bytes, inference::ModelInferRequest& message) {
  // Short messages come in one piece.
  if (grpc::Slice whole; bytes.TrySingleSlice(&whole).ok() && whole.size() <= std::numeric_limits<int>::max()) {
    return message.ParseFromArray(whole.begin(), static_cast<int>(whole.size()));
  }
  grpc::ByteBuffer copy(bytes);  // references the slices; the reader wants a mutable one
  grpc::ProtoBufferReader reader(&copy);
  return reader.status().ok() && message.ParseFromZeroCopyStream(&reader);
}

// Outputs that the client wants in its memory. The first failure is the request's.
Result<> write_regions(Backend& backend, const RegionOwner& owner, const Answer& answer, const Response& response) {
  for (const RegionOutput& wanted : answer.region_outputs) {
    for (const Tensor& tensor : response.outputs) {
      if (tensor.name != wanted.output) {
        continue;
      }
      if (auto written = backend.regions->write(owner, wanted.part, tensor.data.bytes()); !written) {
        written.error().message = std::format("output '{}': {}", tensor.name, written.error().message);
        return written;
      }
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<inference::ModelInferRequest>> parse_infer(const grpc::ByteBuffer& bytes) {
  auto holder = std::make_shared_for_overwrite<ArenaMessage<inference::ModelInferRequest>>();
  if (!parse(bytes, *holder->message)) {
    return fail(ErrorCode::invalid_argument, "the message is no inference.ModelInferRequest: its encoding is broken");
  }
  return std::shared_ptr<inference::ModelInferRequest>(holder, holder->message);
}

void submit_infer(Backend& backend, const std::shared_ptr<const Caller>& caller,
                  std::shared_ptr<inference::ModelInferRequest> message, TimePoint grpc_deadline,
                  std::stop_token cancelled, AnswerFunction done) {
  const DecodeContext context{.tenant = caller->tenant,
                              .highest_class = caller->highest_class,
                              .region_owner = caller->key,
                              .regions = caller->uid ? backend.regions : nullptr,
                              .now = backend.clock.now(),
                              .deadline = grpc_deadline};
  Answer answer{message->id(), message->model_name(), {}};
  auto decoded = decode_infer(std::move(message), context);
  if (!decoded) {
    return done(answer, std::unexpected(std::move(decoded.error())));
  }
  answer.region_outputs = std::move(decoded->region_outputs);
  Request& request = decoded->request;
  request.cancelled = std::move(cancelled);
  request.done = [&backend, caller, answer = std::move(answer),
                  done = std::move(done)](Result<Response> result) mutable {
    if (result && !answer.region_outputs.empty()) {
      if (auto written = write_regions(backend, caller->key, answer, *result); !written) {
        result = std::unexpected(std::move(written.error()));
      }
    }
    done(answer, std::move(result));
  };
  backend.server.submit(std::move(request));
}

namespace {

grpc::ServerUnaryReactor* finished(grpc::CallbackServerContext* context, const grpc::Status& status) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

grpc::Status encode_answer(grpc::CallbackServerContext* context, grpc::ByteBuffer* response, const Answer& answer,
                           const Result<Response>& result) {
  if (!result) {
    return to_status(result.error());
  }
  auto bytes = encode_response(answer.id, *result, answer.region_outputs);
  if (!bytes) {
    return to_status(bytes.error());
  }
  context->AddTrailingMetadata("npud-path", path_metadata(result->path));
  response->Swap(&*bytes);
  return grpc::Status::OK;
}

}  // namespace

grpc::ServerUnaryReactor* InferCall::start(Backend& backend, CallerResolver& callers,
                                           grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) {
  auto caller = callers.resolve(*context);
  if (!caller) {
    return finished(context, to_status(caller.error()));
  }
  auto message = parse_infer(*request);
  if (!message) {
    return finished(context, to_status(message.error()));
  }
  auto* call = new InferCall;
  submit_infer(backend, *caller, std::move(*message), deadline_of(*context, backend.clock), call->stop_.get_token(),
               [call, context, response](const Answer& answer, Result<Response> result) {
                 call->end(encode_answer(context, response, answer, result));
               });
  std::unique_lock lock(call->mutex_);
  if (!call->status_) {
    call->started_ = true;
    return call;
  }
  const grpc::Status status = *std::move(call->status_);
  lock.unlock();
  delete call;
  return finished(context, status);
}

void InferCall::end(grpc::Status status) {
  {
    const std::lock_guard lock(mutex_);
    if (!started_) {
      status_ = std::move(status);
      return;
    }
  }
  Finish(std::move(status));
}

}  // namespace npud::api
