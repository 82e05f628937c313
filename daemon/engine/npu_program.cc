// SPDX-License-Identifier: Apache-2.0
#include "engine/npu_program.h"

#include <algorithm>
#include <format>

namespace npud {

NpuProgram::NpuProgram(std::string name, std::vector<NpuNode> nodes, std::optional<rknpu::Verify> verify, bool pinned,
                       rknpu::RknpuDevice& device, Clock& clock)
    : name_(std::move(name)),
      verify_(verify),
      pinned_(pinned),
      device_(device),
      clock_(clock),
      counters_(new Counters[nodes.size()]) {
  constexpr std::uint64_t page = 4096;
  for (NpuNode& made : nodes) {
    nodes_.push_back(std::move(made.packed));
    windows_.push_back(made.window);
    const rknpu::PackedNode& node = nodes_.back();
    packed_bytes_ += (node.weights.size() + page - 1) / page * page;
  }
}

Footprint NpuProgram::footprint() const {
  return {.slots = 1, .bytes = std::max(held_bytes_.load(), packed_bytes_ + activations_.load())};
}

bool NpuProgram::wants_more_room() {
  const std::uint64_t wanted = activations_wanted_.load();
  if (packed_bytes_ + wanted > device_.space_bytes()) return false;
  activations_ = wanted;
  return true;
}

Result<> NpuProgram::make_resident() {
  const TimePoint begin = clock_.now();
  auto residence = device_.upload(nodes_, verify_, activations_);
  lacked_room_ = !residence && residence.error().code == ErrorCode::resource_exhausted;
  if (!residence) {
    Error error = residence.error();
    error.message = std::format("model '{}': {}", name_, error.message);
    // A driver's time-out is not the request's.
    if (error.code == ErrorCode::deadline_exceeded || error.code == ErrorCode::cancelled)
      error.code = ErrorCode::unavailable;
    return std::unexpected(std::move(error));
  }
  residence_ = std::move(*residence);
  held_bytes_ = residence_->bytes();
  bring_back_us_ = (clock_.now() - begin).count();
  return {};
}

void NpuProgram::evict() noexcept {
  residence_.reset();
  held_bytes_ = 0;
}

Result<> NpuProgram::run(std::size_t index, std::uint32_t height, std::uint32_t width, std::span<const float> in,
                         std::span<float> out) {
  auto ran = nodes_[index].kind == rknpu::NodeKind::matrix ? residence_->run_matrix(index, height, in, out)
                                                           : residence_->run_convolution(index, height, width, in, out);
  held_bytes_ = residence_->bytes();
  activations_wanted_ = residence_->activations_wanted();
  return ran;
}

void NpuProgram::count(std::size_t index, std::uint64_t macs, Duration took) {
  ++counters_[index].runs;
  counters_[index].macs += macs;
  counters_[index].us += took.count();
}

void NpuProgram::tell(std::size_t index, NodePlacement& placement) const {
  placement.runs = counters_[index].runs;
  placement.macs = counters_[index].macs;
  placement.total = Duration{counters_[index].us.load()};
}

}  // namespace npud
