// SPDX-License-Identifier: Apache-2.0
// The operators of domain "npud" for ONNX Runtime. Their kernels know nothing of a device: they hand their work to the
// run of the model that is under way on their thread, which ONNX Runtime keeps to in sequential execution.
#pragma once

#include <optional>
#include <string>

#include "core/arbiter.h"
#include "core/servable.h"
#include "engine/npu_program.h"
#include "engine/session.h"

namespace npud {

// One run of an offloaded graph. The kernels find the one that was made last on their thread.
class OffloadRun {
 public:
  OffloadRun(ExecutionContext& context, PriorityClass priority_class, std::shared_ptr<NpuProgram> program,
             Arbiter& arbiter);
  ~OffloadRun();
  OffloadRun(const OffloadRun&) = delete;
  OffloadRun& operator=(const OffloadRun&) = delete;
  static OffloadRun* current();

  const NpuProgram& program() const { return *program_; }
  // One node as one job of the arbiter's. What goes wrong is kept for the run's owner.
  Result<> run(std::size_t index, std::uint32_t height, std::uint32_t width, std::span<const float> in,
               std::span<float> out);

  struct Failure {
    Error error;
    bool in_job = false;  // the device's word; else the arbiter's
  };
  const std::optional<Failure>& failure() const { return failure_; }

 private:
  ExecutionContext& context_;
  const PriorityClass priority_class_;
  const std::shared_ptr<NpuProgram> program_;
  Arbiter& arbiter_;
  std::optional<Failure> failure_;
  OffloadRun* const outer_;
};

// Brings the operators into a session.
class OffloadOperators final : public SessionCustomizer {
 public:
  Result<> customize(Ort::SessionOptions& options) override;
};

// Makes ONNX Runtime write the graph to a file, optimised as far as its nodes remain ONNX's own.
class OptimizedGraphWriter final : public SessionCustomizer {
 public:
  explicit OptimizedGraphWriter(std::filesystem::path file) : file_(std::move(file)) {}
  Result<> customize(Ort::SessionOptions& options) override;

 private:
  const std::filesystem::path file_;
};

}  // namespace npud
