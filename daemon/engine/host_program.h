// SPDX-License-Identifier: Apache-2.0
// A session as a program of the host device: made when it is to be resident, destroyed when it has to leave.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "core/clock.h"
#include "core/program.h"
#include "engine/model_source.h"
#include "engine/session.h"

namespace npud {

// Driven by the arbiter; run() is for jobs of the program. footprint() and the like: any thread.
//
// What it takes: before the first time, the bytes of its weights as the file has them; then what the session's
// allocator counted. The graph itself (nodes, names, kernels; some KiB a node) is not counted.
class HostProgram final : public Program {
 public:
  HostProgram(std::string name, std::shared_ptr<const ModelSource> source, SessionSettings settings, bool pinned,
              std::uint64_t weight_bytes, Runtime& runtime, HostDevice& device, Clock& clock);

  const std::string& name() const override { return name_; }
  Footprint footprint() const override;
  bool pinned() const override { return pinned_; }
  Duration bring_back_estimate() const override { return Duration{bring_back_us_.load()}; }
  Result<> make_resident() override;
  void evict() noexcept override;

  // Precondition: called from a job of this program. See Session::run().
  Result<std::vector<Tensor>> run(std::span<const Tensor> inputs, std::span<const OutputRequest> outputs,
                                  std::stop_token cancelled);

 private:
  const std::string name_;
  const std::shared_ptr<const ModelSource> source_;
  const SessionSettings settings_;
  const bool pinned_;
  Runtime& runtime_;
  HostDevice& device_;
  Clock& clock_;
  std::unique_ptr<Session> session_;          // the arbiter orders all access
  std::atomic<std::uint64_t> cold_bytes_;     // what bringing it in will take
  std::atomic<std::uint64_t> held_bytes_{0};  // while resident
  std::atomic<bool> resident_{false};
  std::atomic<std::int64_t> bring_back_us_{0};
};

}  // namespace npud
