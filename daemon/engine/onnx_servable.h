// SPDX-License-Identifier: Apache-2.0
// One loaded version of an ONNX model: joins the requests of a batch, has its program run as one job of the host, or
// its heavy nodes as jobs of an NPU, takes the answers apart.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/arbiter.h"
#include "core/servable.h"
#include "engine/host_program.h"
#include "engine/model_config.h"
#include "engine/offload.h"

namespace npud {

class OnnxServable final : public Servable {
 public:
  // With `offload` the program is what stands in for the NPU, and is made resident when it first has to.
  OnnxServable(std::string model, std::int64_t version, ModelPlan plan, std::shared_ptr<HostProgram> program,
               Arbiter& arbiter, std::unique_ptr<Offload> offload = nullptr);
  // Evicts the programs: waits until the devices have let them go.
  ~OnnxServable() override;

  const std::string& model() const override { return model_; }
  std::int64_t version() const override { return version_; }
  const Signature& signature() const override { return plan_.signature; }
  const QueueSettings& queue_settings() const override { return plan_.queue; }
  Result<std::vector<Response>> run(ExecutionContext& context, std::span<const Request* const> batch) override;

  bool waits_for_device() const override { return offload_ != nullptr; }
  std::vector<NodePlacement> placements() const override;

  // Makes the program resident without running it.
  Result<> bring_in(TenantId tenant);

 private:
  struct Part {  // what one request has of the batch
    std::int64_t first_row = 0, rows = 1;
  };
  Result<std::vector<Tensor>> run_on_host(ExecutionContext& context, std::span<const Tensor> inputs,
                                          std::span<const OutputRequest> wanted, Duration& compute);
  // The inputs of the whole batch: those of its only request, or joined in `joined`.
  Result<std::span<const Tensor>> join_inputs(std::span<const Request* const> batch, std::vector<Part>& parts,
                                              std::vector<Tensor>& joined) const;
  std::vector<OutputRequest> wanted_outputs(std::span<const Request* const> batch, std::int64_t rows) const;
  Result<std::vector<Tensor>> outputs_of(const Request& request, const Part& part, std::int64_t rows,
                                         std::span<const Tensor> computed) const;

  const std::string model_;
  const std::int64_t version_;
  const ModelPlan plan_;
  const std::shared_ptr<HostProgram> program_;
  Arbiter& arbiter_;
  const std::unique_ptr<Offload> offload_;  // null: the whole graph runs on the host
};

}  // namespace npud
