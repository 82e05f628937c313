// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/emit/chain.h"

#include "devices/rknpu/hw/registers.h"

namespace npud::rknpu {
namespace {

constexpr std::size_t kAlignWords = 8;

std::size_t slot_words(const TaskWords& task) {
  // Padded to whole fetch units, so that the trailer is where the amount ends.
  const std::size_t body = (task.words.size() + kAmountScale - 1) / kAmountScale * kAmountScale;
  return (body + kTrailerWords + kAlignWords - 1) / kAlignWords * kAlignWords;
}

}  // namespace

std::size_t Chain::size_bytes() const {
  std::size_t words = 0;
  for (const TaskWords& task : tasks_) words += slot_words(task);
  return words * 8;
}

Result<Chain::Linked> Chain::link(uint32_t base) const {
  if (base % kAtomBytes != 0 || uint64_t{base} + size_bytes() > uint64_t{1} << 32) {
    return fail(ErrorCode::invalid_argument, "command words must lie at a multiple of 16 below 4 GiB");
  }
  Linked linked;
  linked.words.reserve(size_bytes() / 8);
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const TaskWords& task = tasks_[i];
    const std::size_t start = linked.words.size();
    linked.words.insert(linked.words.end(), task.words.begin(), task.words.end());
    while ((linked.words.size() - start) % kAmountScale != 0) linked.words.push_back(0);
    const uint32_t body = static_cast<uint32_t>(linked.words.size() - start);
    linked.tasks.push_back({static_cast<uint32_t>(start), body});
    uint64_t next = 0, amount = encode({Target::kPc, reg::kPcRegisterAmounts, 0});
    if (i + 1 < tasks_.size()) {
      const uint32_t address = base + static_cast<uint32_t>((start + slot_words(task)) * 8);
      const std::size_t next_body = (tasks_[i + 1].words.size() + kAmountScale - 1) / kAmountScale * kAmountScale;
      next = encode({Target::kPc, reg::kPcBaseAddress, address});
      amount = encode(
          {Target::kPc, reg::kPcRegisterAmounts, amount_for_words(static_cast<uint32_t>(next_body) + kTrailerWords)});
    }
    linked.words.push_back(next);
    linked.words.push_back(amount);
    linked.words.push_back(encode({Target::kBarrier, 0, 0}));
    linked.words.push_back(encode({Target::kEnable, reg::kPcOperationEnable, task.enable}));
    linked.words.resize(start + slot_words(task), 0);
  }
  return linked;
}

}  // namespace npud::rknpu
