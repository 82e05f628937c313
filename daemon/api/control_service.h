// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/backend.h"
#include "api/caller.h"
#include "npud/v1/control.grpc.pb.h"

namespace npud::api {

// npud.v1.Control. Reading is open: numbers of all tenants, request ids and data of none. Drain, resume and reset are
// for administrators.
class ControlService final : public v1::Control::CallbackService {
 public:
  ControlService(Backend& backend, CallerResolver& callers) : backend_(backend), callers_(callers) {}

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* Status(Context*, const v1::StatusRequest*, v1::StatusResponse*) override;
  Reactor* ListDevices(Context*, const v1::ListDevicesRequest*, v1::ListDevicesResponse*) override;
  Reactor* ListPrograms(Context*, const v1::ListProgramsRequest*, v1::ListProgramsResponse*) override;
  Reactor* ListTenants(Context*, const v1::ListTenantsRequest*, v1::ListTenantsResponse*) override;
  Reactor* ListRunning(Context*, const v1::ListRunningRequest*, v1::ListRunningResponse*) override;
  Reactor* Drain(Context*, const v1::DrainRequest*, v1::DrainResponse*) override;
  Reactor* Resume(Context*, const v1::ResumeRequest*, v1::ResumeResponse*) override;
  Reactor* ResetDevice(Context*, const v1::ResetDeviceRequest*, v1::ResetDeviceResponse*) override;
  Reactor* Explain(Context*, const v1::ExplainRequest*, v1::ExplainResponse*) override;
  grpc::ServerWriteReactor<v1::Event>* WatchEvents(Context*, const v1::WatchEventsRequest*) override;

 private:
  Result<DeviceHandle*> device(const std::string& name);
  void set_tenant(v1::TenantId* out, TenantId tenant) const;

  Backend& backend_;
  CallerResolver& callers_;
};

}  // namespace npud::api
