// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/device.h"

#include <algorithm>
#include <format>

namespace npud::rknpu {
namespace {

// A known product: small integers, so that fp16 and int8 must both give exactly the same numbers.
constexpr uint32_t kCanaryK = 96, kCanaryN = 64;

NodeSpec canary_spec(NodePrecision precision) {
  NodeSpec spec{.name = "canary",
                .kind = NodeKind::matrix,
                .precision = precision,
                .op = {.channels = kCanaryK, .kernels = kCanaryN}};
  spec.weights.resize(kCanaryK * kCanaryN);
  for (uint32_t k = 0; k < kCanaryK; ++k) {
    for (uint32_t n = 0; n < kCanaryN; ++n)
      spec.weights[k * kCanaryN + n] = static_cast<float>(static_cast<int>((k * 7 + n * 13) % 11) - 5);
  }
  // int8 quantises by the largest magnitude of a column: make it 127, so that the scale is 1 and nothing is rounded.
  for (uint32_t n = 0; n < kCanaryN; ++n) spec.weights[n] = 127;
  return spec;
}

std::vector<float> canary_rows(uint32_t rows) {
  std::vector<float> in(std::size_t{rows} * kCanaryK);
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<float>(static_cast<int>((i * 5 + i / kCanaryK) % 9) - 4);
  for (uint32_t row = 0; row < rows; ++row) in[std::size_t{row} * kCanaryK + 1] = 127;  // likewise
  return in;
}

bool canary_is_right(const NodeSpec& spec, std::span<const float> in, std::span<const float> out, uint32_t rows) {
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t n = 0; n < kCanaryN; ++n) {
      float sum = 0;
      for (uint32_t k = 0; k < kCanaryK; ++k)
        sum += in[std::size_t{row} * kCanaryK + k] * spec.weights[k * kCanaryN + n];
      if (out[std::size_t{row} * kCanaryN + n] != sum) return false;
    }
  }
  return true;
}

}  // namespace

RknpuDevice::RknpuDevice(std::unique_ptr<Port> port, DeviceSettings settings, Clock& clock)
    : port_(std::move(port)),
      settings_(std::move(settings)),
      clock_(clock),
      used_bytes_(port_->info().spaces, 0),
      kept_bytes_(port_->info().spaces, 0) {
  gang_ = std::max(1u, port_->info().cores);
}

RknpuDevice::~RknpuDevice() = default;

Result<std::unique_ptr<RknpuDevice>> RknpuDevice::open(std::unique_ptr<Port> port, DeviceSettings settings,
                                                       Clock& clock) {
  std::unique_ptr<RknpuDevice> device(new RknpuDevice(std::move(port), std::move(settings), clock));
  const PortInfo& info = device->port_->info();
  if (!info.isolated) {
    device->notes_.push_back(
        "the driver gives all processes one address space: any of them can read npud's memory; npud_rknpu doesn't");
  }
  if (!info.fences)
    device->notes_.push_back("the driver gives no fences: npud waits in the kernel, where a job can't be cancelled");
  if (auto calibrated = device->calibrate(); !calibrated) {
    if (calibrated.error().code == ErrorCode::resource_exhausted) return std::unexpected(calibrated.error());
    device->condemn(calibrated.error().message);
  }
  return device;
}

Result<> RknpuDevice::calibrate() {
  const uint32_t cores = port_->info().cores;
  split_macs_ = settings_.split_macs;
  for (const auto& [tasks, on] : {std::pair{1u, 1u}, {4u, 1u}, {2 * cores, cores}}) {
    if (auto ran = canary_on(NodePrecision::fp16, 16 * tasks, tasks, on); !ran) return std::unexpected(ran.error());
  }
  if (auto ran = canary_on(NodePrecision::int8, 16, 1, 1); !ran) return std::unexpected(ran.error());
  // Reports disagree about integer tasks behind others in one job, and about few rows: this device is asked.
  chain_int8_ = true;
  chain_int8_ = probe(NodePrecision::int8, 64, 4);
  if (!chain_int8_)
    notes_.push_back("integer tasks in one job come out wrong on this NPU: each runs as a job of its own");
  short_rows_ = true;
  for (const NodePrecision precision : {NodePrecision::fp16, NodePrecision::int8}) {
    for (uint32_t rows = 1; rows < kMinRows && short_rows_; ++rows) short_rows_ = probe(precision, rows, 1);
  }
  if (!short_rows_)
    notes_.push_back(std::format("fewer than {} rows come out wrong on this NPU: they are padded", kMinRows));
  if (split_macs_ == 0 && cores > 1) {
    // What a gang costs more than one core, and what a core gets done meanwhile.
    constexpr uint32_t kFew = 16, kMany = 1024;
    const auto few = canary_on(NodePrecision::fp16, kFew, 1, 1),
               few_gang = canary_on(NodePrecision::fp16, 4 * cores, cores, cores),
               many = canary_on(NodePrecision::fp16, kMany, 1, 1);
    if (!few || !few_gang || !many) return fail(ErrorCode::internal, "the NPU failed a job while it was measured");
    const double extra_us = std::max<double>(1, (few_gang->run - few->run).count());
    const double macs_a_us =
        double(kMany - kFew) * kCanaryK * kCanaryN / std::max<double>(1, (many->run - few->run).count());
    split_macs_ = static_cast<uint64_t>(extra_us * macs_a_us * cores / (cores - 1));
  }
  counters_.jobs = counters_.tasks = counters_.macs = counters_.bytes_in = counters_.bytes_out = 0;
  counters_.host_ns = counters_.wait_ns = counters_.checked = counters_.wrong_results = counters_.retries =
      counters_.failures = 0;
  // What a probe provoked says nothing against the device.
  suspected_ = false;
  const std::lock_guard lock(mutex_);
  health_ = DeviceHealth::ok;
  health_reason_.clear();
  return {};
}

bool RknpuDevice::probe(NodePrecision precision, uint32_t rows, uint32_t tasks) {
  const bool right = canary_on(precision, rows, tasks, 1).has_value();
  suspected_ = false;
  return right;
}

Result<RknpuDevice::CanaryTimes> RknpuDevice::canary_on(NodePrecision precision, uint32_t rows, uint32_t tasks,
                                                        uint32_t cores) {
  const NodeSpec spec = canary_spec(precision);
  const auto packed = pack_node(spec);
  if (!packed) return std::unexpected(packed.error());
  auto residence = upload_to_best_space(std::span(&*packed, 1));
  if (!residence) return std::unexpected(residence.error());
  (*residence)->forced_ = {tasks, cores};
  const auto in = canary_rows(rows);
  std::vector<float> out(std::size_t{rows} * kCanaryN);
  ++counters_.canaries;
  // Once to prepare, once to time.
  if (auto ran = (*residence)->run_matrix(0, rows, in, out); !ran) return std::unexpected(ran.error());
  const TimePoint started = clock_.now();
  if (auto ran = (*residence)->run_matrix(0, rows, in, out); !ran) return std::unexpected(ran.error());
  const CanaryTimes times{clock_.now() - started};
  if (!canary_is_right(spec, in, out, rows)) {
    return fail(ErrorCode::data_loss,
                std::format("the NPU computed a known product wrong ({} task(s) on {} core(s))", tasks, cores));
  }
  return times;
}

Result<> RknpuDevice::canary_with(uint32_t cores) {
  for (NodePrecision precision : {NodePrecision::fp16, NodePrecision::int8}) {
    const uint32_t tasks = precision == NodePrecision::int8 && !chain_int8_ ? cores : 2 * cores;
    if (auto ran = canary_on(precision, 16 * tasks, tasks, cores); !ran) return std::unexpected(ran.error());
  }
  return {};
}

Result<> RknpuDevice::canary() {
  const uint32_t cores = std::max(1u, port_->info().cores);
  Result<> verdict = canary_with(cores);
  std::string degraded;
  // A refusal is no wrong result: the cores that are left may be good.
  if (!verdict && cores > 1 && verdict.error().code == ErrorCode::internal) {
    degraded = std::format("jobs run on single cores: a job of {} failed with: {}", cores, verdict.error().message);
    verdict = canary_with(1);
  }
  if (!verdict) {
    suspect(verdict.error().message);
    return fail(ErrorCode::unavailable, "the NPU failed its canary: " + verdict.error().message);
  }
  gang_ = degraded.empty() ? cores : 1;
  suspected_ = false;
  const std::lock_guard lock(mutex_);
  health_ = degraded.empty() ? DeviceHealth::ok : DeviceHealth::degraded;
  health_reason_ = degraded;
  return {};
}

DeviceInfo RknpuDevice::info() const {
  const PortInfo& port = port_->info();
  const std::lock_guard lock(mutex_);
  DeviceInfo info{.name = settings_.name,
                  .kind = "rknpu",
                  .driver = port.driver + " at " + port.node,
                  .cores = port.cores,
                  .slots = 0,
                  .counts_apertures = true};
  for (std::size_t space = 0; space < used_bytes_.size(); ++space) {
    if (space > 0 && used_bytes_[space] == 0) continue;
    info.apertures.push_back({std::format("space {}", space), port.space_bytes, used_bytes_[space]});
  }
  info.health = health_;
  info.health_reason = health_reason_;
  info.notes = notes_;
  return info;
}

void RknpuDevice::suspect(const std::string& why) {
  suspected_ = true;
  const std::lock_guard lock(mutex_);
  if (health_ == DeviceHealth::dead) return;
  health_ = DeviceHealth::degraded;
  health_reason_ = why;
}

void RknpuDevice::condemn(const std::string& why) {
  suspected_ = true;
  const std::lock_guard lock(mutex_);
  health_ = DeviceHealth::dead;
  health_reason_ = why + "; models run on the host until a canary comes out right";
}

Result<std::unique_ptr<Residence>> RknpuDevice::upload(std::span<const PackedNode> nodes, std::optional<Verify> verify,
                                                       uint64_t activations) {
  if (suspected_) {
    if (auto alive = canary(); !alive) return std::unexpected(alive.error());
  }
  auto residence = upload_to_best_space(nodes, activations);
  if (residence && verify) (*residence)->verify_ = *verify;
  return residence;
}

Result<std::unique_ptr<Residence>> RknpuDevice::upload_to_best_space(std::span<const PackedNode> nodes,
                                                                     uint64_t activations) {
  std::vector<uint32_t> spaces;
  uint64_t bytes = activations, most_free = 0;
  for (const PackedNode& node : nodes) bytes += node.weights.size();
  {
    const std::lock_guard lock(mutex_);
    // Fill a space before the next is opened, so that fewer switches are needed; but leave room for activations.
    const uint64_t all = port_->info().space_bytes, most = activations > 0 ? all : all / 4 * 3;
    for (uint32_t space = 0; space < kept_bytes_.size(); ++space) {
      const uint64_t kept = kept_bytes_[space];
      most_free = std::max(most_free, all - std::min(kept, all));
      if (kept + bytes <= most) spaces.push_back(space);
    }
    if (activations == 0) {
      std::vector<uint32_t> fuller;
      for (uint32_t space = 0; space < kept_bytes_.size(); ++space)
        if (kept_bytes_[space] + bytes > most) fuller.push_back(space);
      std::ranges::stable_sort(fuller, {}, [&](uint32_t space) { return kept_bytes_[space]; });
      spaces.insert(spaces.end(), fuller.begin(), fuller.end());
    }
  }
  Error last{ErrorCode::resource_exhausted,
             "no address space of the NPU has room for it and its activations",
             {},
             bytes,
             most_free};
  for (uint32_t space : spaces) {
    std::unique_ptr<Residence> residence(new Residence(*this, space, nodes, activations));
    auto placed = residence->place();
    if (placed) return residence;
    last = placed.error();
    if (last.code != ErrorCode::resource_exhausted) break;
  }
  return std::unexpected(std::move(last));
}

}  // namespace npud::rknpu
