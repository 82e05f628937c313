// SPDX-License-Identifier: Apache-2.0
#include "npud/control.h"

#include <grpcpp/client_context.h>

#include "codec.h"
#include "state.h"

namespace npud::client {
namespace {

template <class Response, class Method>
Result<Response> call(std::chrono::milliseconds timeout, Method method) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  Response response;
  grpc::Status status = method(&context, &response);
  if (!status.ok()) return std::unexpected(error_of(status, &context));
  return response;
}

constexpr auto nothing = [](const auto&) {};

}  // namespace

Result<v1::StatusResponse> Control::status() const {
  const auto& state = *client_.state_;
  return call<v1::StatusResponse>(state.timeout,
                                  [&](auto* context, auto* out) { return state.control->Status(context, {}, out); });
}

Result<v1::ListDevicesResponse> Control::devices() const {
  const auto& state = *client_.state_;
  return call<v1::ListDevicesResponse>(
      state.timeout, [&](auto* context, auto* out) { return state.control->ListDevices(context, {}, out); });
}

Result<v1::ListProgramsResponse> Control::programs(const std::string& device) const {
  const auto& state = *client_.state_;
  v1::ListProgramsRequest request;
  request.set_device(device);
  return call<v1::ListProgramsResponse>(
      state.timeout, [&](auto* context, auto* out) { return state.control->ListPrograms(context, request, out); });
}

Result<v1::ListTenantsResponse> Control::tenants() const {
  const auto& state = *client_.state_;
  return call<v1::ListTenantsResponse>(
      state.timeout, [&](auto* context, auto* out) { return state.control->ListTenants(context, {}, out); });
}

Result<v1::ListRunningResponse> Control::running() const {
  const auto& state = *client_.state_;
  return call<v1::ListRunningResponse>(
      state.timeout, [&](auto* context, auto* out) { return state.control->ListRunning(context, {}, out); });
}

Result<v1::ExplainResponse> Control::explain(const std::string& model, const std::string& version) const {
  const auto& state = *client_.state_;
  v1::ExplainRequest request;
  request.set_model(model);
  request.set_version(version);
  return call<v1::ExplainResponse>(
      state.timeout, [&](auto* context, auto* out) { return state.control->Explain(context, request, out); });
}

Result<> Control::drain_device(const std::string& device, std::chrono::milliseconds timeout) const {
  const auto& state = *client_.state_;
  v1::DrainRequest request;
  request.set_device(device);
  return call<v1::DrainResponse>(timeout,
                                 [&](auto* context, auto* out) { return state.control->Drain(context, request, out); })
      .transform(nothing);
}

Result<> Control::drain_model(const std::string& model, std::chrono::milliseconds timeout) const {
  const auto& state = *client_.state_;
  v1::DrainRequest request;
  request.set_model(model);
  return call<v1::DrainResponse>(timeout,
                                 [&](auto* context, auto* out) { return state.control->Drain(context, request, out); })
      .transform(nothing);
}

Result<> Control::resume_device(const std::string& device) const {
  const auto& state = *client_.state_;
  v1::ResumeRequest request;
  request.set_device(device);
  return call<v1::ResumeResponse>(
             state.timeout, [&](auto* context, auto* out) { return state.control->Resume(context, request, out); })
      .transform(nothing);
}

Result<> Control::resume_model(const std::string& model) const {
  const auto& state = *client_.state_;
  v1::ResumeRequest request;
  request.set_model(model);
  return call<v1::ResumeResponse>(
             state.timeout, [&](auto* context, auto* out) { return state.control->Resume(context, request, out); })
      .transform(nothing);
}

Result<v1::ResetDeviceResponse> Control::reset_device(const std::string& device,
                                                      std::chrono::milliseconds timeout) const {
  const auto& state = *client_.state_;
  v1::ResetDeviceRequest request;
  request.set_device(device);
  return call<v1::ResetDeviceResponse>(
      timeout, [&](auto* context, auto* out) { return state.control->ResetDevice(context, request, out); });
}

Result<> Control::watch_events(const std::function<bool(const v1::Event&)>& seen) const {
  grpc::ClientContext context;
  auto reader = client_.state_->control->WatchEvents(&context, {});
  v1::Event event;
  bool enough = false;
  while (reader->Read(&event)) {
    if (!seen(event)) {
      enough = true;
      context.TryCancel();
      break;
    }
  }
  while (reader->Read(&event)) {
  }
  grpc::Status status = reader->Finish();
  if (enough || status.ok()) return {};
  return std::unexpected(error_of(status, &context));
}

}  // namespace npud::client
