// SPDX-License-Identifier: Apache-2.0
// A compiled .rknn model as a program: one context of the runtime for each run at once, resident together.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/program.h"
#include "devices/rknn/context.h"
#include "devices/rknn/rknn_device.h"
#include "engine/model_source.h"

namespace npud {

// Driven by the arbiter; run() is for jobs of the program, any number at once. A context whose call is overdue is given
// up: the others go on, and when none is left and all overdue calls have come back, the next run makes them anew. Until
// then the program is pinned where it is, for its memory isn't provably free; forgetting it leaves that to the device's
// notes.
class RknnProgram final : public Program {
 public:
  RknnProgram(std::string name, std::shared_ptr<const ModelSource> source, std::uint32_t contexts, bool pinned,
              std::uint64_t expected_bytes, rknn::RknnDevice& device, Clock& clock);

  const std::string& name() const override { return name_; }
  Footprint footprint() const override { return {.slots = 1, .bytes = bytes_.load()}; }
  bool pinned() const override;
  Duration bring_back_estimate() const override { return Duration{bring_back_us_.load()}; }
  Result<> make_resident() override;
  void evict() noexcept override;

  // Precondition: called from a job of this program. As Context::run().
  Result<std::vector<Buffer>> run(std::uint32_t core, std::vector<rknn::Context::Input> inputs,
                                  std::vector<rknn::Context::OutputWanted> outputs);

  // What the model has; empty until it was resident once, and then always the same.
  const std::vector<rknn::TensorAttributes>& inputs() const { return inputs_; }
  const std::vector<rknn::TensorAttributes>& outputs() const { return outputs_; }

 private:
  struct Lane {
    std::unique_ptr<rknn::Context> context;
    bool busy = false;
  };
  Result<> open_lanes();  // mutex_ held by nobody else that runs
  bool overdue() const;   // mutex_ held
  void count_bytes();     // mutex_ held
  Result<Lane*> take_lane(std::unique_lock<std::mutex>& lock);

  const std::string name_;
  const std::shared_ptr<const ModelSource> source_;
  const std::uint32_t contexts_;
  const bool pinned_;
  rknn::RknnDevice& device_;
  Clock& clock_;
  std::vector<rknn::TensorAttributes> inputs_, outputs_;
  std::atomic<std::uint64_t> bytes_;  // resident: held; else expected
  std::atomic<std::int64_t> bring_back_us_{0};

  mutable std::mutex mutex_;  // below
  std::condition_variable free_;
  std::vector<std::unique_ptr<Lane>> lanes_;              // in order of making; the first owns the weights
  std::vector<std::unique_ptr<rknn::Context>> given_up_;  // condemned, until they are gone
  std::uint64_t given_up_bytes_ = 0;
};

// A whole file, checked. data_loss: it is no whole .rknn file.
Result<std::shared_ptr<const std::vector<std::byte>>> read_rknn_file(const ModelSource& source);

}  // namespace npud
