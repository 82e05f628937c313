// SPDX-License-Identifier: Apache-2.0
// What administrators and monitors ask of npud (npud.v1.Control). The answers are the protocol's own messages:
// "npud/v1/control.pb.h".
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "npud/client.h"
#include "npud/v1/control.pb.h"

namespace npud::client {

// Thread-safe; shares the connection of the Client that it is made from.
class Control {
 public:
  explicit Control(Client client) : client_(std::move(client)) {}

  Result<v1::StatusResponse> status() const;
  Result<v1::ListDevicesResponse> devices() const;
  Result<v1::ListProgramsResponse> programs(const std::string& device = "") const;
  Result<v1::ListTenantsResponse> tenants() const;
  Result<v1::ListRunningResponse> running() const;
  Result<v1::ExplainResponse> explain(const std::string& model, const std::string& version = "") const;

  // For administrators. A drain waits until nothing runs there, at most `timeout`; past that it stays in force.
  Result<> drain_device(const std::string& device, std::chrono::milliseconds timeout) const;
  Result<> drain_model(const std::string& model, std::chrono::milliseconds timeout) const;
  Result<> resume_device(const std::string& device) const;
  Result<> resume_model(const std::string& model) const;
  Result<v1::ResetDeviceResponse> reset_device(const std::string& device, std::chrono::milliseconds timeout) const;

  // Calls `seen` for each event until it returns false (success) or the stream breaks (its error).
  Result<> watch_events(const std::function<bool(const v1::Event&)>& seen) const;

 private:
  Client client_;
};

}  // namespace npud::client
