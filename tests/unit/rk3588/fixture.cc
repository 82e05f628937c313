// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace npud::rk3588::test {
namespace {

using rknpu::Precision;
using rknpu::Target;

Options make_options(const std::vector<const char*>& assignments) {
  Options options;
  for (const char* assignment : assignments) {
    if (const auto set = options.set(assignment); !set) throw std::invalid_argument(set.error());
  }
  return options;
}

uint32_t bytes_of(Precision p) {
  return p == Precision::kInt8 ? 1 : p == Precision::kFp16 || p == Precision::kBf16 ? 2 : 4;
}
uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

Target target_of(uint16_t reg) {
  switch (reg >> 12) {
    case 0:
      return Target::kPc;
    case 1:
      return Target::kCna;
    case 3:
      return Target::kCore;
    case 4:
      return Target::kDpu;
    case 6:
      return Target::kPpu;
    case 7:
      return Target::kPpuRdma;
    default:
      return Target::kRdma;
  }
}

constexpr uint32_t kBankOffsets[] = {0x9000, 0xa000, 0x1a000, 0x2a000};

}  // namespace

Memory::Memory(size_t size_bytes)
    : size_bytes_(size_bytes), bytes_(static_cast<std::byte*>(std::calloc(size_bytes, 1)), std::free) {}

bool Memory::read(uint64_t address, std::span<std::byte> to) {
  if (!holds(address, to.size())) return false;
  std::memcpy(to.data(), bytes_.get() + (address - kBase), to.size());
  return true;
}

bool Memory::write(uint64_t address, std::span<const std::byte> from) {
  if (!holds(address, from.size())) return false;
  std::memcpy(bytes_.get() + (address - kBase), from.data(), from.size());
  return true;
}

std::byte* Memory::at(uint64_t address, size_t size) {
  if (!holds(address, size)) throw std::out_of_range("the test's memory ends here");
  return bytes_.get() + (address - kBase);
}

uint32_t TaskSpec::enable() const { return conv ? 0x1d : 0x18; }

// Values as mtx512's npu_matmul.c and Mesa's rkt_regcmd.c put them there.
std::vector<uint64_t> task_words(const TaskSpec& s) {
  std::vector<uint64_t> words;
  auto emit = [&](uint16_t reg, uint32_t value) { words.push_back(rknpu::encode({target_of(reg), reg, value})); };
  const uint32_t precision = static_cast<uint32_t>(s.in), out = static_cast<uint32_t>(s.out), size = bytes_of(s.in);
  const uint32_t mode = s.depthwise ? 3 : 0;
  const uint32_t channels = s.dpu_channels();
  const uint32_t out_atoms = s.out_width * s.out_height;
  emit(0x4004, 0xe);
  if (s.conv) {
    const uint32_t kernel_bytes = s.kernel_width * s.kernel_height * s.channels * size;
    const uint32_t surfaces = ceil_div(s.channels * size, 16);
    const uint32_t banks =
        s.data_banks != 0 ? s.data_banks : std::max(1u, ceil_div(s.width * s.height * surfaces * 16, 32768));
    emit(0x1004, 0xe);
    emit(0x3004, 0xe);
    emit(0x100c, precision << 7 | precision << 4 | mode | (s.rows ? 1u << 29 : 0));
    emit(0x1010, (s.height + 1) << 4);
    emit(0x1014, (s.dilation_y - 1) << 21 | (s.dilation_x - 1) << 16 | s.stride_y << 3 | s.stride_x);
    emit(0x1020, s.width << 16 | s.height);
    emit(0x1024, (s.channels - 1) << 16 | s.channels);
    emit(0x1028, s.out_width);
    emit(0x102c, out_atoms);
    emit(0x1030, kernel_bytes * (s.depthwise ? 1 : s.kernels));
    emit(0x1034, kernel_bytes);
    emit(0x1038, s.kernel_width << 24 | s.kernel_height << 16 | (s.depthwise ? 1 : s.kernels));
    emit(0x1040, (12 - banks) << 4 | banks | (s.weight_reuse ? 1u << 13 : 0) | (s.data_reuse ? 1u << 12 : 0));
    emit(0x1044, std::max(1u, ceil_div(s.width * s.channels * size, 64)));
    emit(0x104c, 0xb);
    for (uint16_t reg = 0x1050; reg <= 0x105c; reg += 4) emit(reg, 1u << 16);
    emit(0x1060, 0);
    emit(0x1064, 0);
    emit(0x1068, s.pad_left << 4 | s.pad_top);
    emit(0x1070, s.features);
    emit(0x1074, 0);
    emit(0x1078, 0xf000f);
    if (s.rows) {
      emit(0x107c, s.width * surfaces);
      emit(0x1080, 0);
    } else {
      emit(0x107c, s.width * 4);
      emit(0x1080, (s.width * s.height - s.width * 4) & 0xfffffff);
    }
    emit(0x1084, s.width << 16 | s.height);
    emit(0x1088, s.channels);
    emit(0x1100, 0);
    emit(0x1104, 0);
    emit(0x1110, s.weights);
    for (uint16_t reg = 0x1140; reg <= 0x117c; reg += 4) emit(reg, 0);
    emit(0x1180, 0);
    const uint32_t pad = static_cast<uint32_t>(s.pad_value);
    emit(0x1184, s.in == Precision::kInt8 ? (pad & 0xff) * 0x01010101u : pad);
    emit(0x3010, precision << 8 | (s.depthwise ? 2 : 0) | (s.out == Precision::kInt8 ? 1 : 0));
    emit(0x3014, (s.out_height - 1) << 16 | (s.out_width - 1));
    emit(0x3018, channels - 1);
    emit(0x301c, 0);
    emit(0x3030, 0);
  }
  emit(0x400c, 15u << 5 | mode << 3 | 2u << 1 | (s.conv ? 0 : 1));
  emit(0x4010, out << 29 | precision << 26 | precision);
  emit(0x4014, 0);
  emit(0x4020, s.output);
  const uint32_t group = s.in == Precision::kInt8 ? (s.depthwise ? 64 : 32) : (s.depthwise ? 32 : 16);
  const uint32_t per_group = group * bytes_of(s.out) / 16;
  const uint32_t out_surfaces = ceil_div(channels * bytes_of(s.out), 16);
  const uint32_t surface_stride = s.rows ? 16 : out_atoms * 16;
  emit(0x4024, surface_stride);
  emit(0x4030, s.out_width - 1);
  emit(0x4034, s.out_height - 1);
  const uint32_t notch = s.rows ? out_surfaces - 1 : 0;
  emit(0x4038, notch << 16 | notch);
  emit(0x403c, (channels - 1) << 16 | (channels - 1));
  if (s.bias != 0) {
    emit(0x4040, 2u << 16 | 1u << 8 | 1u << 4 | (s.relu ? 0 : 1u << 6) | (s.relu_limit != 0 ? 1u << 7 : 0));
  } else if (s.relu) {
    emit(0x4040, 1u << 4 | 1u << 1 | (s.relu_limit != 0 ? 1u << 7 : 0));
  } else {
    emit(0x4040, 0x53);
  }
  emit(0x404c, s.relu_limit);
  const bool zero_points = s.conv && (s.depthwise || s.out == Precision::kInt8);
  emit(0x4050, (per_group - 1) << 8 | (per_group - 1) << 5 | (per_group - 1) << 2 | (zero_points ? 0 : 2));
  emit(0x4054, s.depthwise && s.in == Precision::kFp16 ? 128 : static_cast<uint16_t>(s.input_sum_factor));
  emit(0x4058, channels - 1);
  emit(0x405c, (s.out_height - 1) << 16 | (s.out_width - 1));
  emit(0x4060, 0x53);
  const uint32_t ew_bytes = s.ew_bytes != 0 ? s.ew_bytes : size;
  const uint32_t ew_size = ew_bytes == 1 ? 1 : ew_bytes == 2 ? 2 : 3;
  if (s.ew != 0) {
    const bool convert = s.ew_offset != 0 || s.ew_scale != 1 || s.ew_shift != 0;
    const bool bypass = s.in == Precision::kInt8 ? !convert : s.ew_multiply;
    emit(0x4070, 1u << 28 | ew_size << 22 | s.ew_algo << 16 | 1u << 9 | (bypass ? 1u << 8 : 0) | 1u << 7 | 1u << 6 |
                     (s.ew_multiply ? 4 : 0));
    emit(0x4074, static_cast<uint32_t>(s.ew_offset));
    emit(0x4078, s.ew_shift << 16 | (s.ew_scale & 0xffff));
  } else {
    emit(0x4070, 0x383);
  }
  emit(0x4080, static_cast<uint32_t>(s.out_offset));
  emit(0x4084, (s.out == Precision::kFp16 ? 1u << 16 : 0) | (s.out_scale & 0xffff));
  emit(0x4088, s.out_shift);
  emit(0x40c0, per_group * surface_stride);
  emit(0x40c4, 0);
  if (s.enable() & 0x10) {
    emit(0x5004, 0xe);
    emit(0x500c, s.out_width - 1);
    emit(0x5010, s.out_height - 1);
    emit(0x5014, channels - 1);
    // A residual beside a convolution, as Mesa programs it: one reader takes every other surface.
    const uint32_t notch = s.ew_both_readers ? std::max(out_atoms, 12u) * 16 : 0;
    emit(0x5018, !s.conv ? s.features : s.ew_both_readers ? s.ew : 0);
    emit(0x501c, s.bias != 0 ? 1u << 1 : 0);
    emit(0x5020, s.bias);
    emit(0x5034, s.ew != 0 ? 1u << 30 | ew_size << 2 : 1);
    emit(0x5038, s.ew + (s.ew_both_readers ? out_atoms * 16 : 0));
    emit(0x5040, out_atoms * 16);
    emit(0x5044, precision << 15 | 15u << 11 | precision << 5 | (s.ew_both_readers ? 5u << 8 : s.conv ? 1u << 4 : 1));
    emit(0x5048, 0);
    emit(0x504c, notch);
    emit(0x5068, 0x01010101);
    emit(0x506c, notch);
  }
  return words;
}

void patch(std::vector<uint64_t>& words, uint16_t reg, uint32_t value) {
  for (uint64_t& word : words) {
    if (static_cast<uint16_t>(word) == reg && rknpu::decode(word).target == target_of(reg)) {
      word = rknpu::encode({target_of(reg), reg, value});
      return;
    }
  }
  words.push_back(rknpu::encode({target_of(reg), reg, value}));
}

TestBoard::TestBoard(const std::vector<const char*>& options, size_t memory_bytes)
    : memory(memory_bytes),
      board(make_options(options), Environment{.dma = &memory,
                                               .interrupt =
                                                   [this](uint32_t now) {
                                                     sources = now;
                                                     ++source_changes;
                                                   },
                                               .now_us = [this] { return now_us; },
                                               .log = [this](std::string_view line) { log.emplace_back(line); }}) {}

uint32_t TestBoard::allocate(size_t bytes, size_t alignment) {
  next_ = static_cast<uint32_t>((next_ + alignment - 1) / alignment * alignment);
  const uint32_t address = next_;
  next_ += static_cast<uint32_t>(std::max<size_t>(bytes, 1));
  memory.at(address, bytes);
  return address;
}

uint32_t TestBoard::bank_read(unsigned bank, uint32_t offset) {
  return board.read32(VBOARD_BAR_REGS, kBankOffsets[bank] + offset);
}

void TestBoard::bank_write(unsigned bank, uint32_t offset, uint32_t value) {
  board.write32(VBOARD_BAR_REGS, kBankOffsets[bank] + offset, value);
}

bool TestBoard::set_option(std::string_view assignment) {
  // The text with its zero byte, in words.
  for (size_t at = 0; at <= assignment.size(); at += 4) {
    uint32_t word = 0;
    for (size_t i = 0; i < 4 && at + i < assignment.size(); ++i)
      word |= uint32_t{static_cast<uint8_t>(assignment[at + i])} << 8 * i;
    control(VBOARD_OPTION, word);
  }
  return control(VBOARD_OPTION) == 0;
}

void TestBoard::arm(vboard_fault kind, uint32_t core, uint32_t arg, uint32_t count) {
  control(VBOARD_FAULT_KIND, kind);
  control(VBOARD_FAULT_CORE, core);
  control(VBOARD_FAULT_ARG, arg);
  control(VBOARD_FAULT_COUNT, count);
  control(VBOARD_FAULT_ARM, 1);
}

TestBoard::Chain TestBoard::chain(const std::vector<TaskSpec>& tasks) {
  std::vector<std::vector<uint64_t>> words;
  for (const TaskSpec& task : tasks) words.push_back(task_words(task));
  return chain_words(words, tasks.front().enable());
}

TestBoard::Chain TestBoard::chain_words(const std::vector<std::vector<uint64_t>>& tasks, uint32_t enable) {
  Chain result{.tasks = static_cast<uint32_t>(tasks.size())};
  std::vector<uint32_t> addresses, lengths;
  for (const auto& words : tasks) {
    lengths.push_back(static_cast<uint32_t>(words.size() + rknpu::kTrailerWords + 1) & ~1u);
    addresses.push_back(allocate(lengths.back() * sizeof(uint64_t)));
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    std::vector<uint64_t> words = tasks[i];
    if (words.size() % 2 != 0) words.push_back(0);
    const bool last = i + 1 == tasks.size();
    words.push_back(last ? 0 : rknpu::encode({Target::kPc, 0x10, addresses[i + 1]}));
    words.push_back(rknpu::encode({Target::kPc, 0x14, last ? 0 : rknpu::amount_for_words(lengths[i + 1])}));
    words.push_back(rknpu::encode({Target::kBarrier, 0, 0}));
    words.push_back(rknpu::encode({Target::kEnable, 8, enable}));
    std::memcpy(memory.at(addresses[i], words.size() * sizeof(uint64_t)), words.data(),
                words.size() * sizeof(uint64_t));
    if (i == 0) result.words = static_cast<uint32_t>(words.size());
  }
  result.address = addresses.front();
  return result;
}

void TestBoard::submit(const Chain& chain, unsigned core, bool ping_pong) {
  core_write(core, 0x10, 1);
  core_write(core, 0x1004, 0xe + 0x10000000 * core);
  core_write(core, 0x3004, 0xe + 0x10000000 * core);
  core_write(core, 0x10, chain.address);
  core_write(core, 0x14, rknpu::amount_for_words(chain.words));
  core_write(core, 0x20, interrupts);
  core_write(core, 0x24, interrupts);
  core_write(core, 0x30, (6u | (ping_pong ? 1 : 0)) << 12 | chain.tasks);
  core_write(core, 0x34, 0);
  core_write(core, 0x08, 1);
  core_write(core, 0x08, 0);
}

void TestBoard::run(const Chain& chain, unsigned core, bool ping_pong) {
  submit(chain, core, ping_pong);
  board.run_until_idle();
}

bool TestBoard::completed(unsigned core) {
  const bool raised = core_read(core, 0x28) & interrupts;
  core_write(core, 0x24, 0x1ffff);
  return raised && !(sources >> core & 1);
}

bool TestBoard::logged(std::string_view part) const {
  return std::ranges::any_of(log, [&](const std::string& line) { return line.contains(part); });
}

TestBoard::Table TestBoard::make_table() {
  Table table{.directory = allocate(4096, 4096)};
  std::memset(memory.at(table.directory, 4096), 0, 4096);
  return table;
}

void TestBoard::map(const Table& table, uint32_t device, uint64_t physical, uint32_t pages, uint32_t flags) {
  for (uint32_t i = 0; i < pages; ++i, device += 4096, physical += 4096) {
    const uint32_t slot = table.directory + (device >> 22) * 4;
    uint32_t entry = memory.get<uint32_t>(slot);
    if (!(entry & 1)) {
      entry = allocate(4096, 4096) | 1;
      std::memset(memory.at(entry & ~1u, 4096), 0, 4096);
      memory.put(slot, entry);
    }
    memory.put((entry & ~0xfffu) + (device >> 12) % 1024 * 4, static_cast<uint32_t>(physical) | flags);
  }
}

void TestBoard::unmap(const Table& table, uint32_t device) {
  const uint32_t entry = memory.get<uint32_t>(table.directory + (device >> 22) * 4);
  memory.put((entry & ~0xfffu) + (device >> 12) % 1024 * 4, 0u);
}

void TestBoard::enable_paging(unsigned bank, const Table& table) {
  bank_write(bank, 0x00, table.directory);
  bank_write(bank, 0x08, 4);
  bank_write(bank, 0x1c, 3);
  bank_write(bank, 0x08, 0);
}

}  // namespace npud::rk3588::test
