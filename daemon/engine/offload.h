// SPDX-License-Identifier: Apache-2.0
// One loaded version of a model whose heavy nodes run on an NPU: its rewritten graph as a session, its nodes as a
// program of the NPU's arbiter.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/servable.h"
#include "engine/model_config.h"
#include "engine/model_source.h"
#include "engine/npu_program.h"
#include "engine/npu_target.h"
#include "engine/session.h"

namespace npud {

// Thread-safe. The session stays as long as the object: without the heavy weights it is small. It runs on the thread of
// the request, outside of the host's arbiter: that would hold a core of the host while a job waits for the NPU. Each
// node is a job of the NPU's arbiter, so that tenants take turns between nodes.
class Offload {
 public:
  // Null when `plan` leaves the choice to npud and no node can go to the device. Needs a directory for files that are
  // gone when it returns. invalid_argument: nothing of the model can run there, or offload_graph() says what.
  static Result<std::unique_ptr<Offload>> create(const std::string& name, const ModelSource& source,
                                                 const ModelPlan& plan, const std::filesystem::path& scratch,
                                                 Runtime& runtime, HostDevice& host, NpuTarget& target);
  // Evicts the program.
  ~Offload();
  Offload(const Offload&) = delete;
  Offload& operator=(const Offload&) = delete;

  // Makes the program resident. A device that can't be used now, or is full, is no error when the host may stand in.
  Result<> bring_in(TenantId tenant);

  struct Attempt {
    std::optional<std::vector<Tensor>> outputs;  // none: the host has to answer this request, because of
    std::string reason;
    std::optional<Duration> rearm_after;  // … until then
  };
  // As Session::run(). An error is the request's own fault or end, or `unavailable` when the host may not stand in.
  Result<Attempt> run(ExecutionContext& context, std::span<const Tensor> inputs,
                      std::span<const OutputRequest> outputs);

  const std::string& path() const { return path_; }  // "rknpu0", or "rknpu0+host" when nodes are left to the host
  std::vector<NodePlacement> placements() const;

 private:
  Offload(std::unique_ptr<Session> session, std::shared_ptr<NpuProgram> program, std::vector<NodePlacement> placements,
          bool host_nodes, bool automatic, PriorityClass best_class, NpuTarget& target);
  Result<Attempt> on_host(std::string reason, std::optional<Duration> rearm_after) const;
  // A job failed. Disarms the device if it is the device's fault; else only this tenant's requests for this model rest.
  NpuTarget::Refusal struck(TenantId tenant, const std::string& reason);
  NpuTarget::Refusal rest(TenantId tenant, std::string reason);
  std::optional<NpuTarget::Refusal> resting(TenantId tenant);

  const std::unique_ptr<Session> session_;
  const std::shared_ptr<NpuProgram> program_;
  const std::vector<NodePlacement> placements_;
  const bool automatic_;  // the device was npud's choice
  const PriorityClass best_class_;
  NpuTarget& target_;
  const std::string path_;
  struct Rest {
    std::string reason;
    TimePoint until;
    Duration next;  // the pause after the next strike
  };
  std::mutex rests_mutex_;
  std::map<TenantId, Rest> rests_;  // of tenants whose last job here failed
};

}  // namespace npud
