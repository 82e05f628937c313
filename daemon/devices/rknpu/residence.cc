// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <format>
#include <map>
#include <tuple>

#include "devices/rknpu/device.h"
#include "devices/rknpu/emit/chain.h"
#include "devices/rknpu/emit/pack.h"
#include "devices/rknpu/emit/words.h"
#include "devices/rknpu/verify.h"

namespace npud::rknpu {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLeastWords = 1 << 16;
constexpr uint64_t kSampling = 16;
constexpr std::size_t kMostStrips = 1024;

uint64_t page_up(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Where an fp16 result is infinite, not a number, or the largest there is, fp32 would have had another.
bool reaches_fp16_limit(const ConvPlan& plan, std::span<const std::byte> cube) {
  const uint32_t c2 = atom_channels(Precision::kFp16);
  const std::size_t pixels = std::size_t{plan.out_height} * plan.out_width;
  bool reached = false;
  for (uint32_t base = 0; base < plan.op.kernels; base += c2) {
    const uint32_t count = std::min(c2, plan.op.kernels - base);
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      for (uint32_t c = 0; c < count; ++c) {
        uint16_t bits;
        std::memcpy(&bits, cube.data() + (base * pixels + pixel * c2 + c) * 2, 2);
        reached |= (bits & 0x7fff) >= 0x7bff;
      }
    }
  }
  return reached;
}

uint64_t ns_since(TimePoint start, Clock& clock) { return static_cast<uint64_t>((clock.now() - start).count()) * 1000; }

}  // namespace

// Command words and task arrays of one node for one size of input.
struct Residence::Prepared {
  std::size_t node = 0;
  ConvPlan plan;        // its operation's size and padding are what it was prepared for
  Memory words, tasks;  // behind the tasks: the bias, as this size's runs last had it
  uint64_t bias_offset = 0;
  std::optional<int> bias_exponent;
  std::vector<std::vector<CoreTasks>> jobs;  // one after the other; each a gang of one or more cores
  std::size_t gang = 1;                      // the largest of them
};

// One run at a time.
struct Residence::Lane {
  std::mutex mutex;  // all below
  Memory features, output;
  std::list<Prepared> prepared;  // newest first
  std::vector<float> scales;     // of the run under way: one a row, or one
  std::vector<int8_t> quantised;
  // Images too wide for the convolution buffer: columns of a strip's result that fit, by node, height and width.
  std::map<std::tuple<std::size_t, uint32_t, uint32_t>, uint32_t> strips;
  std::vector<float> strip_in, strip_out;
};

Residence::Residence(RknpuDevice& device, uint32_t space, std::span<const PackedNode> nodes, uint64_t activations)
    : device_(device), space_(space), verify_(device.settings_.verify), nodes_(nodes), promised_(activations) {
  const std::lock_guard lock(device_.mutex_);
  device_.kept_bytes_[space_] += promised_;
}

Residence::~Residence() {
  for (Lane& lane : lanes_) empty(lane);
  release(weights_);
  const std::lock_guard lock(device_.mutex_);
  device_.kept_bytes_[space_] -= promised_;
}

void Residence::empty(Lane& lane) noexcept {
  for (Prepared& p : lane.prepared) drop(p);
  lane.prepared.clear();
  release(lane.features);
  release(lane.output);
}

Result<Memory> Residence::allocate(uint64_t bytes, Caching caching) {
  auto memory = device_.port_->allocate(space_, bytes, caching);
  if (memory) hold(static_cast<int64_t>(memory->bytes.size()));
  return memory;
}

void Residence::release(Memory& memory) noexcept {
  hold(-static_cast<int64_t>(memory.bytes.size()));
  device_.port_->release(memory);
}

// Weights come first and go last; what is held beyond them fills what was promised.
void Residence::hold(int64_t bytes) noexcept {
  const auto unfilled = [&] {
    const uint64_t activations = bytes_ - std::min<uint64_t>(bytes_, weight_bytes_);
    return static_cast<int64_t>(promised_ - std::min(promised_, activations));
  };
  const std::lock_guard lock(device_.mutex_);
  const int64_t before = unfilled();
  bytes_ += static_cast<uint64_t>(bytes);
  device_.used_bytes_[space_] += static_cast<uint64_t>(bytes);
  device_.kept_bytes_[space_] += static_cast<uint64_t>(bytes + unfilled() - before);
}

void Residence::drop(Prepared& prepared) noexcept {
  release(prepared.words);
  release(prepared.tasks);
}

Residence::Lane& Residence::take_lane(std::unique_lock<std::mutex>& lock) {
  const std::lock_guard all(lanes_mutex_);
  for (Lane& lane : lanes_) {
    lock = std::unique_lock(lane.mutex, std::try_to_lock);
    if (lock) return lane;
  }
  if (lanes_.size() < std::max(1u, device_.port_->info().cores)) {
    Lane& lane = lanes_.emplace_back();
    lock = std::unique_lock(lane.mutex);
    return lane;
  }
  lock = {};
  return lanes_.front();  // to be waited for without this mutex
}

Result<> Residence::place() {
  uint64_t bytes = 0;
  auto take = [&](uint64_t size) { return std::exchange(bytes, page_up(bytes + size)); };
  for (const PackedNode& node : nodes_) {
    weight_offsets_.push_back(take(node.weights.size()));
    reaches_.push_back(kernel_reach(node));
  }
  weight_bytes_ = page_up(std::max(bytes, kPage));
  auto memory = allocate(weight_bytes_, Caching::write_combined);
  if (!memory) return std::unexpected(memory.error());
  weights_ = *memory;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    std::memcpy(weights_.bytes.data() + weight_offsets_[i], nodes_[i].weights.data(), nodes_[i].weights.size());
  }
  runs_.reset(new std::atomic<uint64_t>[nodes_.size()]());
  return device_.port_->to_device(weights_, 0, weights_.bytes.size());
}

Result<> Residence::ensure(Lane& lane, Memory& memory, uint64_t bytes) {
  if (memory.bytes.size() >= bytes) return {};
  // Every prepared command refers to the old address.
  for (Prepared& p : lane.prepared) drop(p);
  lane.prepared.clear();
  release(memory);
  auto grown = allocate(page_up(bytes), &memory == &lane.output ? Caching::cached : Caching::write_combined);
  if (!grown) return std::unexpected(grown.error());
  memory = *grown;
  return {};
}

Result<Residence::Prepared*> Residence::prepare(Lane& lane, std::size_t index, const Conv2d& op) {
  auto& known = lane.prepared;
  for (auto it = known.begin(); it != known.end(); ++it) {
    const Conv2d& other = it->plan.op;
    if (it->node == index && other.height == op.height && other.width == op.width && other.pad_left == op.pad_left &&
        other.pad_right == op.pad_right) {
      if (it->gang > device_.gang_ && !forced_) {  // made before a core was lost
        drop(*it);
        known.erase(it);
        break;
      }
      known.splice(known.begin(), known, it);
      return &known.front();
    }
  }
  const PackedNode& node = nodes_[index];
  auto plan = plan_conv(op, 1, device_.short_rows_);
  if (!plan) return std::unexpected(plan.error());
  uint32_t cores = 1, parts = 1;
  if (forced_) {
    std::tie(parts, cores) = *forced_;
  } else if (const uint32_t gang = device_.gang_; gang > 1 && plan->macs() >= device_.split_macs_) {
    parts = cores = gang;
  }
  if (parts > 1) {
    plan = plan_conv(op, parts, device_.short_rows_);
    if (!plan) return std::unexpected(plan.error());
  }
  // Words and task lists are small beside the cubes.
  const uint64_t wanted = page_up(std::max(plan->feature_bytes, lane.features.bytes.size())) +
                          page_up(std::max(plan->output_bytes, lane.output.bytes.size()));
  if (const uint64_t most = wanted + wanted / 16 + kLeastWords; most > activations_wanted_) activations_wanted_ = most;
  if (auto ready = ensure(lane, lane.features, plan->feature_bytes); !ready) return std::unexpected(ready.error());
  if (auto ready = ensure(lane, lane.output, plan->output_bytes); !ready) return std::unexpected(ready.error());
  ConvAddresses at{.features = lane.features.address,
                   .weights = weights_.address + static_cast<uint32_t>(weight_offsets_[index]),
                   .output = lane.output.address};
  const uint32_t tasks = static_cast<uint32_t>(plan->bands.size());
  Prepared prepared{.node = index, .plan = std::move(*plan), .words = {}, .tasks = {}, .jobs = {}};
  struct Undo {
    Residence& self;
    Prepared& prepared;
    bool wanted = true;
    ~Undo() {
      if (wanted) self.drop(prepared);
    }
  } undo{*this, prepared};
  // int32 sums get their bias on the host, after they were scaled.
  const bool biased = !node.bias.empty() && node.precision == NodePrecision::fp16;
  prepared.bias_offset = (uint64_t{tasks} * Port::kTaskEntryBytes + 63) / 64 * 64;
  auto array = allocate(prepared.bias_offset + (biased ? prepared.plan.bias_bytes : 0), Caching::cached);
  if (!array) return std::unexpected(array.error());
  prepared.tasks = *array;
  if (biased) at.bias = prepared.tasks.address + static_cast<uint32_t>(prepared.bias_offset);

  // Chains: fp16 tasks as one a core; integer tasks alone unless this device was seen to do them right.
  cores = std::min(cores, tasks);
  const uint32_t longest = node.precision == NodePrecision::int8 && !device_.chain_int8_ ? 1 : kMaxTasksPerJob;
  std::vector<Chain> chains;
  for (uint32_t next = 0; next < tasks;) {
    const uint32_t in_job = std::min(tasks - next, longest * cores);
    const uint32_t gang = std::min(cores, in_job);
    std::vector<CoreTasks> job;
    for (uint32_t core = 0; core < gang; ++core) {
      const uint32_t first = next + in_job * core / gang, end = next + in_job * (core + 1) / gang;
      Chain chain;
      for (uint32_t i = first; i < end; ++i) {
        auto words = emit_band(prepared.plan, prepared.plan.bands[i], at);
        if (!words) return std::unexpected(words.error());
        chain.add(std::move(*words));
      }
      job.push_back({first, end - first});
      chains.push_back(std::move(chain));
    }
    prepared.gang = std::max(prepared.gang, job.size());
    prepared.jobs.push_back(std::move(job));
    next += in_job;
  }
  uint64_t words_bytes = 0;
  for (const Chain& chain : chains) words_bytes += chain.size_bytes();
  auto words = allocate(words_bytes, Caching::write_combined);
  if (!words) return std::unexpected(words.error());
  prepared.words = *words;
  std::vector<TaskEntry> entries;
  uint64_t offset = 0;
  for (const Chain& chain : chains) {
    const auto linked = chain.link(prepared.words.address + static_cast<uint32_t>(offset));
    if (!linked) return std::unexpected(linked.error());
    std::memcpy(prepared.words.bytes.data() + offset, linked->words.data(), linked->words.size() * 8);
    for (const ChainedTask& task : linked->tasks) {
      entries.push_back({kDpuInterrupts, task.amount_words,
                         prepared.words.address + static_cast<uint32_t>(offset) + task.word_offset * 8});
    }
    offset += chain.size_bytes();
  }
  device_.port_->write_tasks(prepared.tasks, entries);
  if (auto handed = device_.port_->to_device(prepared.words, 0, words_bytes); !handed)
    return std::unexpected(handed.error());
  if (auto handed = device_.port_->to_device(prepared.tasks, 0, entries.size() * Port::kTaskEntryBytes); !handed)
    return std::unexpected(handed.error());
  undo.wanted = false;
  known.push_front(std::move(prepared));
  while (known.size() > std::size_t{device_.settings_.max_sizes} * nodes_.size()) {
    drop(known.back());
    known.pop_back();
  }
  return &known.front();
}

Result<> Residence::run_matrix(std::size_t node, uint32_t rows, std::span<const float> in, std::span<float> out) {
  return run(node, rows, 1, in, out);
}

Result<> Residence::run_convolution(std::size_t node, uint32_t height, uint32_t width, std::span<const float> in,
                                    std::span<float> out) {
  return run(node, height, width, in, out);
}

Result<> Residence::run(std::size_t index, uint32_t height, uint32_t width, std::span<const float> in,
                        std::span<float> out) {
  if (index >= nodes_.size()) return fail(ErrorCode::internal, "a node that isn't on the device was run");
  const PackedNode& node = nodes_[index];
  Conv2d op = node.op;
  op.height = height;
  op.width = width;
  if (in.size() != std::size_t{op.channels} * height * width) {
    return fail(ErrorCode::invalid_argument, std::format("node '{}' got {} values for an input of {}x{}x{}", node.name,
                                                         in.size(), op.channels, height, width));
  }
  if (height + op.pad_top + op.pad_bottom < op.kernel_height || width + op.pad_left + op.pad_right < op.kernel_width) {
    return fail(ErrorCode::invalid_argument, std::format("node '{}' got an image smaller than its kernel", node.name));
  }
  if (const std::size_t made = std::size_t{op.out_height()} * op.out_width() * op.kernels; out.size() != made) {
    return fail(ErrorCode::invalid_argument,
                std::format("node '{}' makes {} values, and got room for {}", node.name, made, out.size()));
  }
  std::unique_lock<std::mutex> lock;
  Lane& lane = take_lane(lock);
  if (!lock) lock = std::unique_lock(lane.mutex);
  auto ran = run_in(lane, index, op, in, out);
  if (ran || ran.error().code != ErrorCode::resource_exhausted || &lane == &lanes_.front()) return ran;
  // No room for two side by side: one after the other.
  empty(lane);
  lock = std::unique_lock(lanes_.front().mutex);
  return run_in(lanes_.front(), index, op, in, out);
}

Result<> Residence::run_in(Lane& lane, std::size_t index, const Conv2d& op, std::span<const float> in,
                           std::span<float> out) {
  const std::tuple size{index, op.height, op.width};
  if (lane.strips.contains(size)) return run_strips(lane, index, op, in, out);
  auto prepared = prepare(lane, index, op);
  if (prepared) return run_prepared(lane, index, **prepared, in, out);
  const bool may_be_too_wide =
      prepared.error().code == ErrorCode::invalid_argument && nodes_[index].kind == NodeKind::convolution;
  if (!may_be_too_wide || op.out_width() < 2) return std::unexpected(prepared.error());
  Conv2d strip = op;
  strip.pad_left = strip.pad_right = 0;
  for (uint32_t columns = op.out_width() / 2; columns > 0; columns /= 2) {
    strip.width = (columns - 1) * op.stride_x + op.kernel_width;
    if (!plan_conv(strip, 1, device_.short_rows_)) continue;
    if (lane.strips.size() >= kMostStrips) lane.strips.clear();
    lane.strips[size] = columns;
    return run_strips(lane, index, op, in, out);
  }
  return std::unexpected(prepared.error());
}

// Strips of equal width, side by side, with the columns that they share and the padding laid out in them; the last one
// may do some columns again. int8 values then have one scale a strip.
Result<> Residence::run_strips(Lane& lane, std::size_t index, const Conv2d& op, std::span<const float> in,
                               std::span<float> out) {
  const uint32_t columns = lane.strips.at({index, op.height, op.width}), out_width = op.out_width();
  const std::size_t out_rows = std::size_t{op.kernels} * op.out_height(),
                    in_rows = std::size_t{op.channels} * op.height;
  Conv2d strip = op;
  strip.pad_left = strip.pad_right = 0;
  strip.width = (columns - 1) * op.stride_x + op.kernel_width;
  lane.strip_in.resize(in_rows * strip.width);
  lane.strip_out.resize(out_rows * columns);
  for (uint32_t next = 0; next < out_width; next += columns) {
    const uint32_t first = std::min(next, out_width - columns);
    const int64_t left = int64_t{first} * op.stride_x - op.pad_left;
    for (std::size_t row = 0; row < in_rows; ++row) {
      for (uint32_t x = 0; x < strip.width; ++x) {
        const int64_t from = left + x;
        lane.strip_in[row * strip.width + x] =
            from < 0 || from >= op.width ? 0.0f : in[row * op.width + static_cast<std::size_t>(from)];
      }
    }
    auto prepared = prepare(lane, index, strip);
    if (!prepared) return std::unexpected(prepared.error());
    if (auto ran = run_prepared(lane, index, **prepared, lane.strip_in, lane.strip_out); !ran) return ran;
    for (std::size_t row = 0; row < out_rows; ++row)
      std::copy_n(lane.strip_out.begin() + static_cast<std::ptrdiff_t>(row * columns), columns,
                  out.begin() + static_cast<std::ptrdiff_t>(row * out_width + first));
  }
  return {};
}

Result<> Residence::run_prepared(Lane& lane, std::size_t index, Prepared& prepared, std::span<const float> in,
                                 std::span<float> out) {
  auto done = attempt(lane, index, prepared, in, out);
  if (!done && done.error().code != ErrorCode::invalid_argument) {
    // The driver has stopped and reset what failed; a fault of the moment doesn't come again.
    ++device_.counters_.retries;
    device_.suspect(done.error().message);
    done = attempt(lane, index, prepared, in, out);
    if (!done) ++device_.counters_.failures;
  }
  return done;
}

Result<> Residence::attempt(Lane& lane, std::size_t index, Prepared& prepared, std::span<const float> in,
                            std::span<float> out) {
  const PackedNode& node = nodes_[index];
  const ConvPlan& plan = prepared.plan;
  DeviceCounters& counters = device_.counters_;
  Port& port = *device_.port_;
  const bool matrix = node.kind == NodeKind::matrix;
  int exponent = 0;  // of the input
  TimePoint mark = device_.clock_.now();
  if (node.precision == NodePrecision::fp16) {
    const auto chosen = input_exponent(node, reaches_[index], in);
    if (!chosen) return std::unexpected(chosen.error());
    exponent = *chosen;
    const float factor = std::ldexp(1.0f, exponent);
    const bool fits = matrix ? pack_rows(plan, in, lane.features.bytes, factor)
                             : pack_features(plan, in, lane.features.bytes, factor);
    if (!fits)
      return fail(ErrorCode::invalid_argument, std::format("node '{}' got a value beyond fp16's ±65504", node.name));
    if (auto handed = hand_bias(index, prepared, exponent); !handed) return handed;
  } else {
    const std::size_t per_scale = matrix ? node.op.channels : in.size();
    lane.scales.resize(in.size() / per_scale);
    lane.quantised.resize(in.size());
    for (std::size_t s = 0; s < lane.scales.size(); ++s) {
      const auto part = in.subspan(s * per_scale, per_scale);
      float largest = 0;
      for (float v : part) {
        if (!std::isfinite(v))
          return fail(ErrorCode::invalid_argument, std::format("node '{}' got a value that is not finite", node.name));
        largest = std::max(largest, std::fabs(v));
      }
      lane.scales[s] = largest > 1e-36f ? largest / 127.0f : 1.0f;
      const float inverse = 1.0f / lane.scales[s];
      for (std::size_t i = 0; i < part.size(); ++i) {
        lane.quantised[s * per_scale + i] =
            static_cast<int8_t>(std::clamp(std::nearbyint(part[i] * inverse), -127.0f, 127.0f));
      }
    }
    const std::span<const int8_t> values(lane.quantised);
    matrix ? pack_rows(plan, values, lane.features.bytes) : pack_features(plan, values, lane.features.bytes);
  }
  if (auto handed = port.to_device(lane.features, 0, plan.feature_bytes); !handed) return handed;
  if (auto handed = port.to_device(lane.output, 0, plan.output_bytes); !handed) return handed;
  counters.host_ns += ns_since(mark, device_.clock_);

  mark = device_.clock_.now();
  if (auto ran = submit(prepared); !ran) return ran;
  counters.wait_ns += ns_since(mark, device_.clock_);

  mark = device_.clock_.now();
  if (auto back = port.from_device(lane.output, 0, plan.output_bytes); !back) return back;
  const std::span<const std::byte> cube = lane.output.bytes.first(plan.output_bytes);
  if (plan.op.out == Precision::kFp16 && reaches_fp16_limit(plan, cube)) {
    return fail(ErrorCode::invalid_argument, std::format("node '{}' has a result beyond fp16's ±65504", node.name));
  }
  if (verify_ == Verify::always || device_.suspected_ ||
      (verify_ == Verify::sampled && runs_[index] % kSampling == 0)) {
    ++counters.checked;
    if (node.precision == NodePrecision::fp16 && !fp16_holds(node, in, exponent))
      return fail(ErrorCode::invalid_argument, std::format("node '{}' got values too small for fp16", node.name));
    const bool right = node.precision == NodePrecision::fp16 ? fp16_result_is_right(node, plan, in, exponent, cube)
                                                             : int8_result_is_right(node, plan, lane.quantised, cube);
    if (!right) {
      ++counters.wrong_results;
      return fail(ErrorCode::data_loss, std::format("the NPU's result of node '{}' failed its check", node.name));
    }
  }
  ++runs_[index];
  if (node.precision == NodePrecision::fp16) {
    matrix ? unpack_rows(plan, cube, out) : unpack_image(plan, cube, out);
    if (exponent != 0 || node.exponent != 0) {
      // One after the other: both together may be beyond fp32.
      const float input = std::ldexp(1.0f, -exponent), weights = std::ldexp(1.0f, -node.exponent);
      for (float& v : out) v = v * input * weights;
    }
  } else {
    // The sums are read in place: fp32 and int32 have the same size.
    const std::span<int32_t> sums(reinterpret_cast<int32_t*>(out.data()), out.size());
    matrix ? unpack_rows(plan, cube, sums) : unpack_image(plan, cube, sums);
    const std::size_t n = node.op.kernels, pixels = out.size() / n;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t kernel = matrix ? i % n : i / pixels;
      int32_t sum;
      std::memcpy(&sum, &out[i], 4);
      out[i] = static_cast<float>(sum) * node.scales[kernel] * lane.scales[matrix ? i / n : 0] +
               (node.bias.empty() ? 0.0f : node.bias[kernel]);
    }
  }
  if (node.relu) {
    for (float& v : out) v = std::max(v, 0.0f);
  }
  counters.macs += plan.macs();
  counters.bytes_in += plan.feature_bytes;
  counters.bytes_out += plan.output_bytes;
  counters.host_ns += ns_since(mark, device_.clock_);
  return {};
}

// The bias is added to sums of scaled products, so it has their factor.
Result<> Residence::hand_bias(std::size_t index, Prepared& prepared, int exponent) {
  const PackedNode& node = nodes_[index];
  if (node.bias.empty() || prepared.bias_exponent == exponent) return {};
  const float input = std::ldexp(1.0f, exponent), weights = std::ldexp(1.0f, node.exponent);
  std::byte* to = prepared.tasks.bytes.data() + prepared.bias_offset;
  for (std::size_t n = 0; n < node.bias.size(); ++n) {
    const float value = node.bias[n] * weights * input;
    std::memcpy(to + n * sizeof value, &value, sizeof value);
  }
  if (auto handed = device_.port_->to_device(prepared.tasks, prepared.bias_offset, prepared.plan.bias_bytes); !handed)
    return handed;
  prepared.bias_exponent = exponent;
  return {};
}

Result<> Residence::submit(const Prepared& prepared) {
  auto run = [&](std::vector<CoreTasks> cores) {
    ++device_.counters_.jobs;
    for (const CoreTasks& core : cores) device_.counters_.tasks += core.count;
    return device_.port_->run(
        {.space = space_, .tasks = &prepared.tasks, .cores = std::move(cores), .timeout = device_.settings_.timeout});
  };
  struct Counted {
    explicit Counted(std::atomic<uint32_t>& count_in) : count(count_in), alone(++count == 1) {}
    ~Counted() { --count; }
    std::atomic<uint32_t>& count;
    const bool alone;
  } here(device_.submits_);
  for (const auto& job : prepared.jobs) {
    if (job.size() == 1 || here.alone || forced_) {
      if (auto ran = run(job); !ran) return ran;
      continue;
    }
    // Each run was given one core. A gang would wait for, and take, the cores that others pay for.
    for (const CoreTasks& core : job) {
      if (auto ran = run({core}); !ran) return ran;
    }
  }
  return {};
}

}  // namespace npud::rknpu
