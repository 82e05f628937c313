// SPDX-License-Identifier: Apache-2.0
// An engine with a host device, as the daemon makes it, and shortcuts to run what it loaded. At the end of each test no
// byte of the device is in use any more.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "core/device_arbiter.h"
#include "core/events.h"
#include "core/servable.h"
#include "core/tenants.h"
#include "devices/host/host_device.h"
#include "engine/onnx_loader.h"
#include "engine/runtime.h"
#include "onnx_models.h"

namespace npud::test {

// Once for the process.
Runtime& shared_runtime();

Tensor float_tensor(const std::string& name, const Dims& shape, const std::vector<float>& values);
Tensor int64_tensor(const std::string& name, const Dims& shape, const std::vector<std::int64_t>& values);
Tensor string_tensor(const std::string& name, const Dims& shape, const std::vector<std::string>& values);
std::vector<float> floats(const Tensor& tensor);
std::vector<std::string> strings(const Tensor& tensor);

class TestContext final : public ExecutionContext {
 public:
  explicit TestContext(Clock& clock, std::stop_token cancelled = {}, TenantId tenant = TenantId{1})
      : clock_(clock), cancelled_(std::move(cancelled)), tenant_(tenant) {}
  TenantId tenant() const override { return tenant_; }
  PriorityClass priority_class() const override { return PriorityClass::interactive; }
  TimePoint deadline() const override { return TimePoint::never(); }
  std::stop_token cancelled() const override { return cancelled_; }
  Clock& clock() const override { return clock_; }

 private:
  Clock& clock_;
  std::stop_token cancelled_;
  const TenantId tenant_;
};

struct EngineParts {
  explicit EngineParts(std::uint32_t slots = 4, std::uint64_t aperture_bytes = 256 << 20, bool snapshots = true);

  // Writes the files of a model's version and loads it.
  Result<LoadedModel> load(const std::string& model, const onnx::ModelProto& onnx,
                           const inference::ModelConfig& config = {});
  Result<LoadedModel> load_file(const std::string& model, const std::filesystem::path& version_directory,
                                const inference::ModelConfig& config = {});
  Result<std::vector<Response>> run(Servable& servable, std::vector<std::vector<Tensor>> batch);
  Result<std::vector<Tensor>> run_one(Servable& servable, std::vector<Tensor> inputs);

  TempDirectory directory;
  SteadyClock clock;
  TenantTable tenants;
  EventBus events{clock};
  HostDevice host;
  DeviceArbiter arbiter;
  std::unique_ptr<OnnxLoader> loader;
};

class EngineTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(engine.host.used_bytes(), 0u) << "a session's memory is still there"; }
  EngineParts engine;
};

}  // namespace npud::test
