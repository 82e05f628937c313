// SPDX-License-Identifier: Apache-2.0
#include "npud/client.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <tuple>

#include "codec.h"
#include "state.h"

namespace npud::client {
namespace {

using std::chrono::system_clock;

// One unary call by its stub method: `call(context, &response)`.
template <class Response, class Method>
Result<Response> call(std::chrono::milliseconds timeout, Method method) {
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + timeout);
  Response response;
  grpc::Status status = method(&context, &response);
  if (!status.ok()) return std::unexpected(error_of(status, &context));
  return response;
}

// npud answers DEADLINE_EXCEEDED itself when a request's own time is over; the call's deadline comes a little later, so
// that this word arrives rather than gRPC's.
void set_deadline(grpc::ClientContext& context, const std::optional<std::chrono::microseconds>& timeout) {
  constexpr std::chrono::microseconds kLongest = std::chrono::days(365);  // far enough, and the sum can't overflow
  if (timeout) context.set_deadline(system_clock::now() + std::min(*timeout, kLongest) + std::chrono::milliseconds(50));
}

Result<InferResult> finish(const grpc::Status& status, const grpc::ClientContext& context,
                           inference::ModelInferResponse&& response) {
  if (!status.ok()) return std::unexpected(error_of(status, &context));
  Result<InferResult> result = decode(std::move(response));
  if (result) result->path = path_of(context);
  return result;
}

}  // namespace

const Tensor* InferResult::output(std::string_view name) const {
  for (const Tensor& tensor : outputs) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

void Call::cancel() {
  if (cancel_) cancel_();
}

Client::Client(std::shared_ptr<State> state) : state_(std::move(state)) {}

const std::string& Client::address() const { return state_->address; }

Result<bool> Client::live() const {
  auto response = call<inference::ServerLiveResponse>(
      state_->timeout, [&](auto* context, auto* out) { return state_->inference->ServerLive(context, {}, out); });
  return response.transform([](const auto& r) { return r.live(); });
}

Result<bool> Client::ready() const {
  auto response = call<inference::ServerReadyResponse>(
      state_->timeout, [&](auto* context, auto* out) { return state_->inference->ServerReady(context, {}, out); });
  return response.transform([](const auto& r) { return r.ready(); });
}

Result<bool> Client::model_ready(const std::string& model, const std::string& version) const {
  inference::ModelReadyRequest request;
  request.set_name(model);
  request.set_version(version);
  auto response = call<inference::ModelReadyResponse>(
      state_->timeout, [&](auto* context, auto* out) { return state_->inference->ModelReady(context, request, out); });
  return response.transform([](const auto& r) { return r.ready(); });
}

Result<inference::ServerMetadataResponse> Client::server_metadata() const {
  return call<inference::ServerMetadataResponse>(
      state_->timeout, [&](auto* context, auto* out) { return state_->inference->ServerMetadata(context, {}, out); });
}

Result<inference::ModelMetadataResponse> Client::model_metadata(const std::string& model,
                                                                const std::string& version) const {
  inference::ModelMetadataRequest request;
  request.set_name(model);
  request.set_version(version);
  return call<inference::ModelMetadataResponse>(state_->timeout, [&](auto* context, auto* out) {
    return state_->inference->ModelMetadata(context, request, out);
  });
}

Result<inference::ModelConfigResponse> Client::model_config(const std::string& model,
                                                            const std::string& version) const {
  inference::ModelConfigRequest request;
  request.set_name(model);
  request.set_version(version);
  return call<inference::ModelConfigResponse>(
      state_->timeout, [&](auto* context, auto* out) { return state_->inference->ModelConfig(context, request, out); });
}

Result<inference::ModelStatisticsResponse> Client::model_statistics(const std::string& model,
                                                                    const std::string& version) const {
  inference::ModelStatisticsRequest request;
  request.set_name(model);
  request.set_version(version);
  return call<inference::ModelStatisticsResponse>(state_->timeout, [&](auto* context, auto* out) {
    return state_->inference->ModelStatistics(context, request, out);
  });
}

Result<inference::RepositoryIndexResponse> Client::repository_index(bool only_ready) const {
  inference::RepositoryIndexRequest request;
  request.set_ready(only_ready);
  return call<inference::RepositoryIndexResponse>(state_->timeout, [&](auto* context, auto* out) {
    return state_->inference->RepositoryIndex(context, request, out);
  });
}

Result<> Client::load(const std::string& model, std::chrono::milliseconds timeout) const {
  inference::RepositoryModelLoadRequest request;
  request.set_model_name(model);
  return call<inference::RepositoryModelLoadResponse>(
             timeout,
             [&](auto* context, auto* out) { return state_->inference->RepositoryModelLoad(context, request, out); })
      .transform([](const auto&) {});
}

Result<> Client::unload(const std::string& model, std::chrono::milliseconds timeout) const {
  inference::RepositoryModelUnloadRequest request;
  request.set_model_name(model);
  return call<inference::RepositoryModelUnloadResponse>(
             timeout,
             [&](auto* context, auto* out) { return state_->inference->RepositoryModelUnload(context, request, out); })
      .transform([](const auto&) {});
}

Result<InferResult> Client::infer(InferRequest request) const {
  grpc::ClientContext context;
  set_deadline(context, request.timeout);
  inference::ModelInferRequest message;
  encode(std::move(request), message);
  inference::ModelInferResponse response;
  grpc::Status status = state_->inference->ModelInfer(&context, message, &response);
  return finish(status, context, std::move(response));
}

Call Client::infer_async(InferRequest request, std::move_only_function<void(Result<InferResult>)> done) const {
  struct Flight {
    std::shared_ptr<State> client;  // keeps the channel until the answer is there
    grpc::ClientContext context;
    inference::ModelInferRequest request;
    inference::ModelInferResponse response;
    std::move_only_function<void(Result<InferResult>)> done;
  };
  auto flight = std::make_shared<Flight>();
  flight->client = state_;
  flight->done = std::move(done);
  set_deadline(flight->context, request.timeout);
  encode(std::move(request), flight->request);
  state_->inference->async()->ModelInfer(
      &flight->context, &flight->request, &flight->response, [flight](grpc::Status status) mutable {
        auto kept = std::move(flight);  // gRPC keeps the closure for a while; the flight ends here
        kept->done(finish(status, kept->context, std::move(kept->response)));
      });
  Call call;
  call.cancel_ = [weak = std::weak_ptr<Flight>(flight)] {
    if (auto still = weak.lock()) still->context.TryCancel();
  };
  return call;
}

std::future<Result<InferResult>> Client::infer_future(InferRequest request) const {
  std::promise<Result<InferResult>> promise;
  auto future = promise.get_future();
  infer_async(std::move(request), [promise = std::move(promise)](Result<InferResult> result) mutable {
    promise.set_value(std::move(result));
  });
  return future;
}

Result<> Client::register_region(const std::string& name, const std::string& key, std::uint64_t offset_bytes,
                                 std::uint64_t size_bytes) const {
  inference::SystemSharedMemoryRegisterRequest request;
  request.set_name(name);
  request.set_key(key);
  request.set_offset(offset_bytes);
  request.set_byte_size(size_bytes);
  return call<inference::SystemSharedMemoryRegisterResponse>(state_->timeout,
                                                             [&](auto* context, auto* out) {
                                                               return state_->inference->SystemSharedMemoryRegister(
                                                                   context, request, out);
                                                             })
      .transform([](const auto&) {});
}

Result<> Client::unregister_region(const std::string& name) const {
  inference::SystemSharedMemoryUnregisterRequest request;
  request.set_name(name);
  return call<inference::SystemSharedMemoryUnregisterResponse>(state_->timeout,
                                                               [&](auto* context, auto* out) {
                                                                 return state_->inference->SystemSharedMemoryUnregister(
                                                                     context, request, out);
                                                               })
      .transform([](const auto&) {});
}

Result<inference::SystemSharedMemoryStatusResponse> Client::regions(const std::string& name) const {
  inference::SystemSharedMemoryStatusRequest request;
  request.set_name(name);
  return call<inference::SystemSharedMemoryStatusResponse>(state_->timeout, [&](auto* context, auto* out) {
    return state_->inference->SystemSharedMemoryStatus(context, request, out);
  });
}

// --- streams
// ----------------------------------------------------------------------------------------------------------------

struct Stream::State {
  std::shared_ptr<void> client;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelStreamInferResponse>> calls;
  bool finished = false;  // Finish() was called; only the reading thread touches it
};

Stream::Stream(std::unique_ptr<State> state) : state_(std::move(state)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Stream::~Stream() {
  if (!state_ || state_->finished) return;
  state_->context.TryCancel();
  inference::ModelStreamInferResponse ignored;
  while (state_->calls->Read(&ignored)) {
  }
  std::ignore = state_->calls->Finish();  // CANCELLED, as asked
}

Result<Stream> Client::stream() const {
  auto state = std::make_unique<Stream::State>();
  state->client = state_;
  state->calls = state_->inference->ModelStreamInfer(&state->context);
  return Stream(std::move(state));
}

Result<> Stream::write(InferRequest request) {
  inference::ModelInferRequest message;
  encode(std::move(request), message);
  if (!state_->calls->Write(message)) {
    return fail(Code::unavailable, "the stream is broken; read() says why");
  }
  return {};
}

void Stream::finish_writing() { state_->calls->WritesDone(); }

Result<std::optional<Stream::Answer>> Stream::read() {
  if (state_->finished) return std::nullopt;
  inference::ModelStreamInferResponse message;
  if (!state_->calls->Read(&message)) {
    state_->finished = true;
    grpc::Status status = state_->calls->Finish();
    if (!status.ok()) return std::unexpected(error_of(status, &state_->context));
    return std::nullopt;
  }
  Answer answer{message.infer_response().id(), {}};
  if (!message.error_message().empty()) {
    answer.result = fail(Code::unknown, message.error_message());  // the protocol carries no code here
  } else {
    answer.result = decode(std::move(*message.mutable_infer_response()));
  }
  return answer;
}

}  // namespace npud::client
