// SPDX-License-Identifier: Apache-2.0
// One loaded version of a compiled .rknn model: each request is one job of the NPU's arbiter.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/arbiter.h"
#include "core/servable.h"
#include "engine/rknn_plan.h"
#include "engine/rknn_program.h"

namespace npud {

class RknnServable final : public Servable {
 public:
  RknnServable(std::string model, std::int64_t version, RknnPlacement placement, RknnTensors tensors,
               std::shared_ptr<RknnProgram> program, Arbiter& arbiter);
  // Evicts the program.
  ~RknnServable() override;

  const std::string& model() const override { return model_; }
  std::int64_t version() const override { return version_; }
  const Signature& signature() const override { return tensors_.signature; }
  const QueueSettings& queue_settings() const override { return placement_.queue; }
  bool waits_for_device() const override { return true; }
  std::vector<NodePlacement> placements() const override;
  Result<std::vector<Response>> run(ExecutionContext& context, std::span<const Request* const> batch) override;

 private:
  Result<std::vector<rknn::Context::Input>> inputs_of(const Request& request) const;
  std::vector<Tensor> outputs_of(std::vector<Buffer> results) const;

  const std::string model_;
  const std::int64_t version_;
  const RknnPlacement placement_;
  const RknnTensors tensors_;
  const std::shared_ptr<RknnProgram> program_;
  Arbiter& arbiter_;
  std::atomic<std::uint64_t> runs_{0};
  std::atomic<std::int64_t> total_us_{0};
};

}  // namespace npud
