// SPDX-License-Identifier: Apache-2.0
// Loads ONNX models: inspects, checks against the configuration, makes a program for the device, warms up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/arbiter.h"
#include "core/clock.h"
#include "core/tenants.h"
#include "devices/host/host_device.h"
#include "engine/loader.h"
#include "engine/npu_target.h"
#include "engine/runtime.h"

namespace npud {

struct OnnxLoaderOptions {
  QueueSettings queue_defaults;                // for what config.pbtxt leaves open
  TenantId load_tenant;                        // pays for bringing in and warming up
  std::uint64_t max_model_bytes = 2ull << 30;  // of the file and its external data together
  // Loaded files are copied here, so that a model that left its device comes back the same whatever happens to the
  // repository meanwhile. Empty: not copied; an ONNX file that was overwritten in place then can't be brought back (an
  // error says so).
  std::filesystem::path snapshot_directory;
};

// Thread-safe. Everything handed in must outlive it and the models it loaded.
class OnnxLoader final : public Loader {
 public:
  // Fails if the snapshot directory can't be made or used. `npu` is where heavy nodes go whose models ask for it; null:
  // there is none.
  static Result<std::unique_ptr<OnnxLoader>> create(OnnxLoaderOptions options, Runtime& runtime, HostDevice& host,
                                                    Arbiter& host_arbiter, Clock& clock, NpuTarget* npu = nullptr);
  ~OnnxLoader() override;
  Result<LoadedModel> load(const LoadRequest& request) override;

 private:
  OnnxLoader(OnnxLoaderOptions options, Runtime& runtime, HostDevice& host, Arbiter& host_arbiter, Clock& clock,
             NpuTarget* npu);

  const OnnxLoaderOptions options_;
  Runtime& runtime_;
  HostDevice& host_;
  Arbiter& arbiter_;
  Clock& clock_;
  NpuTarget* const npu_;
  int claim_ = -1;  // the snapshot directory's lock
};

}  // namespace npud
