// SPDX-License-Identifier: Apache-2.0
// All nodes of one model version that run on the NPU, as one program of its arbiter: resident together, gone together.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/program.h"
#include "core/servable.h"
#include "devices/rknpu/device.h"
#include "engine/offload_nodes.h"

namespace npud {

// Driven by the arbiter; run() is for jobs of the program. footprint() and count(): any thread.
// The packed weights stay in host memory, so that the program can come back the same.
class NpuProgram final : public Program {
 public:
  NpuProgram(std::string name, std::vector<NpuNode> nodes, std::optional<rknpu::Verify> verify, bool pinned,
             rknpu::RknpuDevice& device, Clock& clock);

  const std::string& name() const override { return name_; }
  Footprint footprint() const override;
  bool pinned() const override { return pinned_; }
  Duration bring_back_estimate() const override { return Duration{bring_back_us_.load()}; }
  // resource_exhausted, and lacked_room() is true, when no address space has room for it now.
  Result<> make_resident() override;
  void evict() noexcept override;

  const rknpu::PackedNode& node(std::size_t index) const { return nodes_[index]; }
  const NodeWindow& window(std::size_t index) const { return windows_[index]; }
  std::size_t size() const { return nodes_.size(); }

  std::uint64_t packed_bytes() const { return packed_bytes_; }
  bool lacked_room() const { return lacked_room_; }
  // A run found no room for its activations. True: the program fits an address space with them; once it comes in anew
  // (Arbiter::vacate) it asks for that much.
  bool wants_more_room();

  // Precondition: called from a job of this program. See rknpu::Residence. Convolution: one image; matrix: width 1, one
  // row for each of `height`.
  Result<> run(std::size_t index, std::uint32_t height, std::uint32_t width, std::span<const float> in,
               std::span<float> out);

  // Adds to what is told of a node.
  void count(std::size_t index, std::uint64_t macs, Duration took);
  void tell(std::size_t index, NodePlacement& placement) const;

 private:
  struct Counters {
    std::atomic<std::uint64_t> runs{0}, macs{0};
    std::atomic<std::int64_t> us{0};
  };
  const std::string name_;
  std::vector<rknpu::PackedNode> nodes_;  // as are the windows: never changed
  std::vector<NodeWindow> windows_;
  const std::optional<rknpu::Verify> verify_;
  const bool pinned_;
  rknpu::RknpuDevice& device_;
  Clock& clock_;
  std::uint64_t packed_bytes_ = 0;
  std::unique_ptr<Counters[]> counters_;
  std::unique_ptr<rknpu::Residence> residence_;  // the arbiter orders all access
  std::atomic<std::uint64_t> held_bytes_{0};     // 0: not resident
  std::atomic<std::uint64_t> activations_{0};    // for which it wants room when it comes in
  std::atomic<std::uint64_t> activations_wanted_{0};
  std::atomic<bool> lacked_room_{false};
  std::atomic<std::int64_t> bring_back_us_{0};
};

}  // namespace npud
