// SPDX-License-Identifier: Apache-2.0
// What a core does for one task: decode, read, compute, write. All reads come before all arithmetic, so that a task
// which has to wait for the driver in the middle of its reads simply begins again.
#include <algorithm>
#include <format>

#include "core.h"
#include "ppu.h"

namespace npud::rk3588 {
namespace {

using namespace rknpu;

// More than any sensible task has; keeps a guest from exhausting the host.
constexpr uint64_t kMaxBufferBytes = 256u << 20;

// The board's own clock, a plausible figure and no more: 1024 int8 or 512 fp16 multiply-accumulates a cycle (6 TOPS
// over three cores at 1 GHz, RK3588 datasheet), 16 bytes a cycle to memory, a fixed cost a task.
constexpr uint64_t kInt8MacsPerCycle = 1024, kFp16MacsPerCycle = 512, kBytesPerCycle = 16, kTaskCycles = 100;

// A value that has nothing to do with the right one, the same in every run.
int32_t garble(int32_t value) { return static_cast<int32_t>(static_cast<uint32_t>(value) * 0x9e3779b1u ^ 0x5bd1e995u); }
float garble(float value) { return -value * 3.0f - 17.0f; }

void garble_rows(Accumulators& sums, uint32_t first_position) {
  const size_t first = static_cast<size_t>(first_position) * sums.channels;
  for (size_t i = first; i < sums.integers.size(); ++i) sums.integers[i] = garble(sums.integers[i]);
  for (size_t i = first; i < sums.floats.size(); ++i) sums.floats[i] = garble(sums.floats[i]);
}

}  // namespace

Access Core::read_all(const Job& job, MmuBank& bank, uint32_t address, std::span<std::byte> to) {
  size_t done = 0;
  return bank.read_memory(address, to, done, token(job));
}

Access Core::fetch(const Job& job, uint32_t address, std::vector<uint64_t>& words) {
  return read_all(job, *wiring_.read_bank, address, std::as_writable_bytes(std::span(words)));
}

Access Core::load_cube(const Job& job, MmuBank& bank, const CubeSource& from, std::vector<std::byte>& to) {
  const size_t surface_bytes = static_cast<size_t>(from.lines) * from.line_bytes;
  to.resize(from.surfaces * surface_bytes);
  const bool whole_surfaces = from.line_pitch == from.line_bytes || from.lines == 1;
  if (whole_surfaces && (from.surface_pitch == surface_bytes || from.surfaces == 1))
    return read_all(job, bank, from.address, to);
  if (!whole_surfaces && from.surface_pitch == from.line_bytes) {
    // Rows: a line of all surfaces is contiguous.
    std::vector<std::byte> row(static_cast<size_t>(from.surfaces) * from.line_bytes);
    for (uint32_t line = 0; line < from.lines; ++line) {
      if (const Access access = read_all(job, bank, from.address + line * from.line_pitch, row);
          access != Access::kDone)
        return access;
      for (uint32_t s = 0; s < from.surfaces; ++s) {
        std::copy_n(row.data() + static_cast<size_t>(s) * from.line_bytes, from.line_bytes,
                    to.data() + s * surface_bytes + static_cast<size_t>(line) * from.line_bytes);
      }
    }
    return Access::kDone;
  }
  for (uint32_t s = 0; s < from.surfaces; ++s) {
    const uint32_t address = from.address + s * from.surface_pitch;
    const std::span surface(to.data() + s * surface_bytes, surface_bytes);
    if (whole_surfaces) {
      if (const Access access = read_all(job, bank, address, surface); access != Access::kDone) return access;
      continue;
    }
    for (uint32_t line = 0; line < from.lines; ++line) {
      const Access access = read_all(job, bank, address + line * from.line_pitch,
                                     surface.subspan(static_cast<size_t>(line) * from.line_bytes, from.line_bytes));
      if (access != Access::kDone) return access;
    }
  }
  return Access::kDone;
}

Access Core::load_conv(const Job& job, const ConvTask& conv) {
  const ConvShape& s = conv.shape;
  const uint32_t surfaces = (s.channels + atom_channels(s.in) - 1) / atom_channels(s.in);
  const size_t feature_bytes = static_cast<size_t>(surfaces) * s.width * s.height * kAtomBytes;
  if (operands_of_ != job.cbuf) {
    features_.clear();
    weights_.clear();
    operands_of_ = job.cbuf;
  }
  if (job.stale_operands && job.done == 0) {
    features_.resize(feature_bytes);
    weights_.resize(conv.weight_bytes);
    return Access::kDone;
  }
  if (conv.data_reuse) {
    if (features_.size() != feature_bytes) {
      violations_.push_back("CNA.CBUF_CON0.DATA_REUSE is 1, but the task before left features of another size");
    }
  } else if (conv.pixel_channels != 0) {
    features_.resize(feature_bytes);
    if (const Access access = load_pixels(job, conv); access != Access::kDone) return access;
  } else {
    const Access access = load_cube(job, *wiring_.read_bank,
                                    {.address = conv.feature_address,
                                     .surfaces = surfaces,
                                     .lines = s.height,
                                     .line_bytes = s.width * kAtomBytes,
                                     .line_pitch = conv.line_pitch_atoms * kAtomBytes,
                                     .surface_pitch = static_cast<uint32_t>(conv.surface_pitch_atoms) * kAtomBytes},
                                    features_);
    if (access != Access::kDone) return access;
  }
  if (conv.weight_reuse) {
    if (weights_.size() != conv.weight_bytes) {
      violations_.push_back("CNA.CBUF_CON0.WEIGHT_REUSE is 1, but the task before left weights of another size");
    }
    return Access::kDone;
  }
  weights_.resize(conv.weight_bytes);
  return read_all(job, *wiring_.read_bank, conv.weight_address, weights_);
}

// Pixels of a few channels become the first lanes of atoms; what the other lanes hold is 0.
Access Core::load_pixels(const Job& job, const ConvTask& conv) {
  const ConvShape& s = conv.shape;
  const size_t size = element_bytes(s.in), pixel_bytes = size * conv.pixel_channels;
  std::vector<std::byte> line(s.width * pixel_bytes);
  std::ranges::fill(features_, std::byte{0});
  for (uint32_t y = 0; y < s.height; ++y) {
    const uint32_t address = conv.feature_address + y * conv.line_pitch_atoms * static_cast<uint32_t>(pixel_bytes);
    if (const Access access = read_all(job, *wiring_.read_bank, address, line); access != Access::kDone) return access;
    for (uint32_t x = 0; x < s.width; ++x) {
      std::byte* to = features_.data() + (static_cast<size_t>(y) * s.width + x) * kAtomBytes;
      std::copy_n(line.data() + x * pixel_bytes, pixel_bytes, to);
      if (conv.pixel_offset == 0 && conv.pixel_scale == 1) continue;
      const int64_t scaled = (std::to_integer<int64_t>(*to) + conv.pixel_offset) * conv.pixel_scale;
      *to = static_cast<std::byte>(std::clamp<int64_t>(shift_half_even(scaled, conv.pixel_shift), -128, 127));
    }
  }
  return Access::kDone;
}

Access Core::load_operands(const Job& job, const DpuTask& dpu, DpuOperands& operands) {
  MmuBank& bank = *wiring_.write_bank;
  const uint32_t line_bytes = dpu.width * kAtomBytes;
  if (dpu.from_memory) {
    const uint32_t line_pitch = line_bytes + dpu.source_line_notch_atoms * kAtomBytes;
    const Access access = load_cube(job, bank,
                                    {.address = dpu.source_address,
                                     .surfaces = (dpu.channels + atom_channels(dpu.in) - 1) / atom_channels(dpu.in),
                                     .lines = dpu.height,
                                     .line_bytes = line_bytes,
                                     .line_pitch = line_pitch,
                                     .surface_pitch = dpu.height * line_pitch + dpu.source_surface_notch_bytes},
                                    operands.source);
    if (access != Access::kDone) return access;
  }
  for (auto [stage, to] : {std::pair{&dpu.bs, &operands.bs}, {&dpu.bn, &operands.bn}}) {
    if (!stage->operand_from_memory) continue;
    to->resize(static_cast<size_t>(dpu.channels) * sizeof(uint32_t));
    if (const Access access = read_all(job, bank, stage->memory_address, *to); access != Access::kDone) return access;
  }
  return dpu.ew.active ? load_elementwise(job, dpu, operands.elementwise) : Access::kDone;
}

Access Core::load_elementwise(const Job& job, const DpuTask& dpu, std::vector<std::byte>& to) {
  const DpuElementwise& ew = dpu.ew;
  const uint32_t atom = kAtomBytes / ew.operand_bytes, line_bytes = dpu.width * kAtomBytes;
  const uint32_t surfaces = (dpu.channels + atom - 1) / atom;
  CubeSource cube{.address = ew.memory_address,
                  .surfaces = surfaces,
                  .lines = dpu.height,
                  .line_bytes = line_bytes,
                  .line_pitch = line_bytes,
                  .surface_pitch = ew.surface_stride_bytes};
  if (!ew.odd_address) return load_cube(job, *wiring_.write_bank, cube, to);
  const size_t surface_bytes = static_cast<size_t>(dpu.height) * line_bytes;
  to.resize(surfaces * surface_bytes);
  std::vector<std::byte> half;
  for (const uint32_t first : {0u, 1u}) {
    if (first == 1) {
      cube.address = *ew.odd_address;
      cube.surface_pitch = ew.odd_stride_bytes;
    }
    cube.surfaces = (surfaces - first + 1) / 2;
    if (cube.surfaces == 0) continue;
    if (const Access access = load_cube(job, *wiring_.write_bank, cube, half); access != Access::kDone) return access;
    for (uint32_t s = 0; s < cube.surfaces; ++s)
      std::copy_n(half.data() + s * surface_bytes, surface_bytes, to.data() + (2 * s + first) * surface_bytes);
  }
  return Access::kDone;
}

bool Core::check_sizes(const Task& task) {
  auto check = [&](const char* what, uint64_t bytes) {
    if (bytes <= kMaxBufferBytes) return;
    violations_.push_back(
        std::format("{} of the task have {} bytes: the board takes {}", what, bytes, kMaxBufferBytes));
  };
  if (task.ppu) {
    check("the features", static_cast<uint64_t>(task.ppu->width) * task.ppu->height * (task.ppu->channels + 7) * 2);
    check("the results",
          static_cast<uint64_t>(task.ppu->out_width) * task.ppu->out_height * (task.ppu->channels + 7) * 2);
    return violations_.empty();
  }
  const DpuTask& dpu = task.dpu;
  check("the results", static_cast<uint64_t>(dpu.width) * dpu.height * (dpu.channels + 15) * 4);
  if (task.conv) {
    const ConvShape& s = task.conv->shape;
    check("the features", static_cast<uint64_t>(s.width) * s.height * s.channels * element_bytes(s.in));
    check("the weights", static_cast<uint64_t>(task.conv->weight_bytes) * 4 / element_bytes(s.in));
  }
  return violations_.empty();
}

void Core::accumulate(const Job& job, const ConvTask& conv, Accumulators& sums) {
  const ConvShape& s = conv.shape;
  const Options& options = job.options;
  sums = convolve(conv, features_, weights_);
  const bool is_matmul = !s.depthwise && s.kernel_width == 1 && s.kernel_height == 1;
  if (options.short_height_wrong && is_matmul && s.height < kMinRows) {
    wiring_.log(std::format("core {}: task {} has {} feature rows: fewer than {} compute garbage (short-height=wrong)",
                            wiring_.core, job.done, s.height, kMinRows));
    garble_rows(sums, 0);
  }
  const uint32_t lines = lines_in_banks(conv.data_banks, s.width, s.channels, s.in);
  if (options.cbuf == Cbuf::kGarbage && conv.pixel_channels == 0 && s.height > lines) {
    wiring_.log(
        std::format("core {}: task {} has {} lines of features for {} CBUF banks, which hold {}: what comes of the "
                    "others is garbage (cbuf=garbage)",
                    wiring_.core, job.done, s.height, conv.data_banks, lines));
    // Output rows that need no line beyond those.
    const uint32_t reach = lines + s.pad_top;
    const uint32_t rows = reach < s.reach_y() ? 0 : (reach - s.reach_y()) / s.stride_y + 1;
    garble_rows(sums, std::min(rows, s.out_height) * s.out_width);
  }
  if (options.depthwise_form_required && conv.unmeasured_depthwise) {
    wiring_.log(std::format(
        "core {}: task {} is depthwise with BS_OW_CFG.OD_BYPASS or BS_OW_OP of a direct convolution: garbage "
        "(depthwise-form=required)",
        wiring_.core, job.done));
    garble_rows(sums, 0);
  }
  if (options.int8_out_k512 && is_matmul && s.width == 1 && s.out == Precision::kInt8 && s.channels < 512) {
    wiring_.log(
        std::format("core {}: task {} is a GEMM with int8 results and K = {}: garbage below 512 (int8-out=k512)",
                    wiring_.core, job.done, s.channels));
    garble_rows(sums, 0);
  }
  if (sums.floating) return;
  if (options.chained_int_accumulates && job.done > 0) {
    wiring_.log(std::format("core {}: integer task {} of a chained job adds to the one before (chained-int=accumulate)",
                            wiring_.core, job.done));
    const size_t both = std::min(sums.integers.size(), residue_.integers.size());
    for (size_t i = 0; i < both; ++i) {
      sums.integers[i] =
          static_cast<int32_t>(static_cast<uint32_t>(sums.integers[i]) + static_cast<uint32_t>(residue_.integers[i]));
    }
  }
  residue_ = sums;
  if (conv.truncate == 0) return;
  for (int32_t& sum : sums.integers) sum = static_cast<int32_t>(shift_half_away(sum, conv.truncate));
}

void Core::charge(const Task& task, size_t result_bytes) {
  const uint64_t macs = task_macs(task);
  uint64_t bytes = result_bytes;
  if (task.conv) bytes += features_.size() + weights_.size();
  const uint64_t rate = task.dpu.in == Precision::kInt8 ? kInt8MacsPerCycle : kFp16MacsPerCycle;
  wiring_.counters->add(VBOARD_COUNT_MACS, macs);
  wiring_.counters->add(VBOARD_COUNT_CYCLES, std::max(macs / rate, bytes / kBytesPerCycle) + kTaskCycles);
}

Access Core::pool(Job& job, const PpuTask& ppu) {
  std::vector<std::byte> source;
  const uint32_t surfaces = (ppu.channels + 7) / 8;
  const Access access = load_cube(job, *wiring_.write_bank,
                                  {.address = ppu.source_address,
                                   .surfaces = surfaces,
                                   .lines = ppu.height,
                                   .line_bytes = ppu.width * kAtomBytes,
                                   .line_pitch = ppu.source_line_stride_bytes,
                                   .surface_pitch = ppu.source_surface_stride_bytes},
                                  source);
  if (access != Access::kDone) return access;
  if (job.options.ppu_narrow_misread && narrow_cube_ == ppu.source_address) {
    wiring_.log(
        std::format("core {}: task {} pools a cube of less than 4 that the PPU wrote: half of its channels read 0 "
                    "(ppu-narrow=misread)",
                    wiring_.core, job.done));
    for (size_t atom = 0; atom < source.size(); atom += kAtomBytes)
      std::fill_n(source.data() + atom + kAtomBytes / 2, kAtomBytes / 2, std::byte{0});
  }
  job.result = run_ppu(ppu, source);
  narrow_cube_.reset();
  if (std::min(ppu.out_width, ppu.out_height) < 4) narrow_cube_ = ppu.destination;
  wiring_.counters->add(VBOARD_COUNT_CYCLES, (source.size() + job.result.bytes.size()) / kBytesPerCycle + kTaskCycles);
  return Access::kDone;
}

Access Core::compute(Job& job) {
  RegisterFile file;
  DpuOperands operands;
  {
    std::lock_guard lock(mutex_);
    file = merged_registers();
    operands.lut = lut_;
  }
  const TaskRules rules{.fp16_k128 = job.options.fp16_k128_refused,
                        .cbuf = job.options.cbuf == Cbuf::kStrict,
                        .wide_cubes = false,
                        .whole_groups = job.options.int8_groups_whole};
  job.task = decode_task(file, job.enable, violations_, rules);
  if (!violations_.empty() || !check_sizes(job.task)) return Access::kDone;
  if (job.task.ppu) return pool(job, *job.task.ppu);
  narrow_cube_.reset();
  if (job.task.conv && job.done == 0 && !job.stale_operands &&
      wiring_.faults->strike(VBOARD_FAULT_STALE_OPERANDS, wiring_.core)) {
    job.stale_operands = true;
    wiring_.log(std::format("core {}: a job takes its operands from the CBUF as it is", wiring_.core));
  }
  if (job.task.conv) {
    if (const Access access = load_conv(job, *job.task.conv); access != Access::kDone) return access;
  }
  if (const Access access = load_operands(job, job.task.dpu, operands); access != Access::kDone) return access;
  if (!violations_.empty()) return Access::kDone;
  Accumulators sums;
  if (job.task.conv) {
    accumulate(job, *job.task.conv, sums);
  } else {
    sums = widen_source(job.task.dpu, operands.source);
  }
  job.result = run_dpu(job.task.dpu, sums, operands,
                       {.signed_scale = !job.options.unsigned_out_scale,
                        .nearest_shift = !job.options.floor_out_shift,
                        .lut_zero_wrong = job.options.lut_zero_wrong});
  if (job.options.wide_cubes_wrong && job.task.dpu.width >= kMaxCubeExtent - 1) {
    wiring_.log(std::format("core {}: task {} has a cube {} wide: its end is garbage (wide-cubes=wrong)", wiring_.core,
                            job.done, job.task.dpu.width));
    // 54 elements, whatever they hold.
    const size_t bytes = std::min<size_t>(54 * element_bytes(job.task.dpu.out), job.result.bytes.size());
    for (std::byte& b : std::span(job.result.bytes).last(bytes)) b ^= std::byte{0x5a};
  }
  charge(job.task, job.result.bytes.size());
  return Access::kDone;
}

Access Core::write_back(Job& job) {
  while (job.written_runs < job.result.runs.size()) {
    const Surfaces::Run& run = job.result.runs[job.written_runs];
    const std::span<const std::byte> bytes(job.result.bytes.data() + run.offset, run.size);
    const Access access = wiring_.write_bank->write_memory(run.address, bytes, job.written_bytes, token(job));
    if (access != Access::kDone) return access;
    job.written_bytes = 0;
    ++job.written_runs;
  }
  return Access::kDone;
}

}  // namespace npud::rk3588
