// SPDX-License-Identifier: Apache-2.0
// An NPU with the RKNPU interface as npud's engine sees it: weights that are resident in an address space, and runs of
// one node.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "devices/device.h"
#include "devices/rknpu/driver/port.h"
#include "devices/rknpu/operation.h"
#include "devices/rknpu/scaling.h"

namespace npud::rknpu {

enum class Verify : uint8_t {
  off,      // results are believed, but for canaries, and while the device is under suspicion
  sampled,  // one run in sixteen of each node is checked, and every run while the device is under suspicion
  always,
};

struct DeviceSettings {
  std::string name = "rknpu0";
  std::chrono::milliseconds timeout{2000};  // of one job's execution
  Verify verify = Verify::sampled;
  uint64_t split_macs =
      0;  // least multiply-accumulates for which a job is spread over the cores; 0: calibrated at start
  uint32_t max_sizes = 8;  // input sizes of a model whose command words are kept
};

// Counters since the device was opened.
struct DeviceCounters {
  std::atomic<uint64_t> jobs{0}, tasks{0}, macs{0}, bytes_in{0}, bytes_out{0};
  std::atomic<uint64_t> retries{0}, failures{0}, wrong_results{0}, canaries{0}, checked{0};
  std::atomic<uint64_t> host_ns{0}, wait_ns{0};  // npud's own work a job; waiting for the NPU
};

class Residence;

// Thread-safe. Residences must be gone before it.
class RknpuDevice final : public Device {
 public:
  // Calibrates: runs canaries of both precisions, alone, chained and over all cores, and times them; canaries decide
  // too whether integer tasks may be chained and matrices may have fewer than four rows. A device that gets
  // these wrong is opened all the same, with health `dead` and the reason. Fails when not even memory can be had.
  static Result<std::unique_ptr<RknpuDevice>> open(std::unique_ptr<Port> port, DeviceSettings settings, Clock& clock);
  ~RknpuDevice() override;

  DeviceInfo info() const override;
  const DeviceCounters& counters() const { return counters_; }

  // Uploads a model's nodes into the first address space with room for them and for `activations` bytes that their runs
  // will want; 0: not known yet, then a quarter of the space is left free where that is possible. resource_exhausted
  // with bytes needed and free when none has enough. When the device is under suspicion, a canary runs first, and a
  // wrong one is `unavailable`. `verify`: none as the device is set. The nodes must outlive the residence, which checks
  // results against them.
  Result<std::unique_ptr<Residence>> upload(std::span<const PackedNode> nodes, std::optional<Verify> verify = {},
                                            uint64_t activations = 0);
  uint64_t space_bytes() const { return port_->info().space_bytes; }  // the most that one program can have

  // Runs a known product on every core and compares. Clears suspicion when right. unavailable: wrong again, or failed.
  // Where the driver refuses jobs of all cores, since one is dead, and the others compute right, jobs run on single
  // cores from then on.
  Result<> canary();
  bool suspected() const { return suspected_; }

 private:
  friend class Residence;
  RknpuDevice(std::unique_ptr<Port> port, DeviceSettings settings, Clock& clock);
  Result<> calibrate();
  Result<std::unique_ptr<Residence>> upload_to_best_space(std::span<const PackedNode> nodes, uint64_t activations = 0);
  struct CanaryTimes {
    Duration run{0};
  };
  Result<> canary_with(uint32_t cores);
  Result<CanaryTimes> canary_on(NodePrecision precision, uint32_t rows, uint32_t tasks, uint32_t cores);
  // Whether something that reports disagree about comes out right here. A wrong answer says nothing against the device.
  bool probe(NodePrecision precision, uint32_t rows, uint32_t tasks);
  void suspect(const std::string& why);
  void condemn(const std::string& why);

  std::unique_ptr<Port> port_;
  DeviceSettings settings_;
  Clock& clock_;
  DeviceCounters counters_;
  bool chain_int8_ = false;  // several integer tasks in one job came out right
  bool short_rows_ = false;  // fewer than kMinRows rows came out right
  uint64_t split_macs_ = 0;
  std::atomic<uint32_t> gang_{1};     // cores that one job may have
  std::atomic<uint32_t> submits_{0};  // runs whose jobs are with the driver
  std::atomic<bool> suspected_{false};
  mutable std::mutex mutex_;  // health, spaces
  DeviceHealth health_ = DeviceHealth::ok;
  std::string health_reason_;
  std::vector<std::string> notes_;
  // By space: what is allocated, and that or what was promised to residences, if that is more.
  std::vector<uint64_t> used_bytes_, kept_bytes_;
};

// A model's weights on the device with what its runs need: in each lane, buffers for features and results, and command
// words for each size of input seen. Runs are thread-safe; as many as the NPU has cores go side by side, each in a lane
// of its own, which is made when it is first needed. Destroying it gives every byte back.
class Residence {
 public:
  ~Residence();
  Residence(const Residence&) = delete;
  Residence& operator=(const Residence&) = delete;

  // Matrix: rows [M][K] to [M][N]. The bias and ReLU of the node are applied. Errors as Port::run() after one retry;
  // data_loss when a result failed its check twice; invalid_argument when fp16 can't hold the input (too large, or too
  // far apart: scaling.h) or it has no plan: run that one on the host.
  Result<> run_matrix(std::size_t node, uint32_t rows, std::span<const float> in, std::span<float> out);
  // Convolution: one image [C][H][W] to [N][OH][OW].
  Result<> run_convolution(std::size_t node, uint32_t height, uint32_t width, std::span<const float> in,
                           std::span<float> out);

  uint64_t bytes() const { return bytes_; }  // of NPU address space held now
  // The most beside the weights that a run wanted so far, whether it got that or not.
  uint64_t activations_wanted() const { return activations_wanted_; }

 private:
  friend class RknpuDevice;
  struct Prepared;
  struct Lane;
  Residence(RknpuDevice& device, uint32_t space, std::span<const PackedNode> nodes, uint64_t activations);
  Result<> place();
  Lane& take_lane(std::unique_lock<std::mutex>& lock);
  void empty(Lane& lane) noexcept;
  Result<Memory> allocate(uint64_t bytes, Caching caching);
  void release(Memory& memory) noexcept;
  void hold(int64_t bytes) noexcept;
  void drop(Prepared& prepared) noexcept;
  Result<Prepared*> prepare(Lane& lane, std::size_t node, const Conv2d& op);
  Result<> ensure(Lane& lane, Memory& memory, uint64_t bytes);
  Result<> run(std::size_t node, uint32_t height, uint32_t width, std::span<const float> in, std::span<float> out);
  Result<> run_in(Lane& lane, std::size_t node, const Conv2d& op, std::span<const float> in, std::span<float> out);
  Result<> run_strips(Lane& lane, std::size_t node, const Conv2d& op, std::span<const float> in, std::span<float> out);
  Result<> run_prepared(Lane& lane, std::size_t node, Prepared& prepared, std::span<const float> in,
                        std::span<float> out);
  Result<> attempt(Lane& lane, std::size_t node, Prepared& prepared, std::span<const float> in, std::span<float> out);
  Result<> hand_bias(std::size_t node, Prepared& prepared, int exponent);
  Result<> submit(const Prepared& prepared);

  RknpuDevice& device_;
  uint32_t space_;
  Verify verify_;
  std::span<const PackedNode> nodes_;  // the caller's
  std::vector<uint64_t> weight_offsets_;
  std::vector<std::vector<float>> reaches_;
  std::unique_ptr<std::atomic<uint64_t>[]> runs_;  // of each node
  Memory weights_;
  std::mutex lanes_mutex_;
  std::list<Lane> lanes_;
  const uint64_t promised_;  // of activations
  uint64_t weight_bytes_ = 0;
  std::atomic<uint64_t> bytes_{0}, activations_wanted_{0};
  std::optional<std::pair<uint32_t, uint32_t>> forced_;  // tasks and cores, in canaries
};

}  // namespace npud::rknpu
