// SPDX-License-Identifier: Apache-2.0
#include "engine/rknn_program.h"

#include <algorithm>
#include <chrono>
#include <format>
#include <fstream>

#include "devices/rknn/model_file.h"

namespace npud {

Result<std::shared_ptr<const std::vector<std::byte>>> read_rknn_file(const ModelSource& source) {
  if (auto same = source.check_unchanged(); !same) return std::unexpected(same.error());
  const auto& path = source.model_file();
  std::error_code failed;
  const std::uintmax_t size = std::filesystem::file_size(path, failed);
  auto bytes = std::make_shared<std::vector<std::byte>>(failed ? 0 : size);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
  if (failed || static_cast<std::uint64_t>(file.gcount()) != bytes->size())
    return fail(ErrorCode::data_loss, std::format("{} can't be read whole", path.string()));
  if (auto whole = rknn::inspect_model_file(*bytes); !whole) {
    Error error = whole.error();
    error.message = std::format("{}: {}", path.filename().string(), error.message);
    return std::unexpected(std::move(error));
  }
  return bytes;
}

RknnProgram::RknnProgram(std::string name, std::shared_ptr<const ModelSource> source, std::uint32_t contexts,
                         bool pinned, std::uint64_t expected_bytes, rknn::RknnDevice& device, Clock& clock)
    : name_(std::move(name)),
      source_(std::move(source)),
      contexts_(std::max(contexts, 1u)),
      pinned_(pinned),
      device_(device),
      clock_(clock),
      bytes_(expected_bytes) {}

bool RknnProgram::pinned() const {
  const std::lock_guard lock(mutex_);
  return pinned_ || overdue();
}

bool RknnProgram::overdue() const {
  return std::ranges::any_of(given_up_, [](const auto& context) { return !context->gone(); });
}

void RknnProgram::count_bytes() {
  std::uint64_t bytes = given_up_bytes_;
  for (const auto& lane : lanes_) bytes += lane->context->weight_bytes() + lane->context->own_bytes();
  bytes_ = bytes;
}

Result<> RknnProgram::open_lanes() {
  auto file = read_rknn_file(*source_);
  if (!file) return std::unexpected(file.error());
  auto first = rknn::Context::open(device_.library(), std::move(*file), device_.context_options(name_));
  if (!first) return std::unexpected(first.error());
  if (inputs_.empty()) {
    inputs_ = (*first)->inputs();
    outputs_ = (*first)->outputs();
  } else if (inputs_ != (*first)->inputs() || outputs_ != (*first)->outputs()) {
    return fail(ErrorCode::data_loss, "the runtime tells of other inputs or outputs than when the model was loaded");
  }
  std::vector<std::unique_ptr<Lane>> lanes;
  lanes.push_back(std::make_unique<Lane>(std::move(*first)));
  while (lanes.size() < contexts_) {
    auto copy = lanes.front()->context->duplicate();
    if (!copy) {
      // Those that share its weights go first.
      while (!lanes.empty()) lanes.pop_back();
      return std::unexpected(copy.error());
    }
    if (*copy == nullptr) {
      while (!lanes.empty()) lanes.pop_back();
      return fail(ErrorCode::unimplemented,
                  std::format("the runtime has no rknn_dup_context: write instance_group {{ count: 1 }} [{}]",
                              device_.library()->versions()));
    }
    lanes.push_back(std::make_unique<Lane>(std::move(*copy)));
  }
  lanes_ = std::move(lanes);
  given_up_.clear();
  given_up_bytes_ = 0;
  count_bytes();
  return {};
}

Result<> RknnProgram::make_resident() {
  const TimePoint begin = clock_.now();
  const std::lock_guard lock(mutex_);
  if (auto opened = open_lanes(); !opened) {
    Error error = opened.error();
    error.message = std::format("model '{}': {}", name_, error.message);
    return std::unexpected(std::move(error));
  }
  bring_back_us_ = (clock_.now() - begin).count();
  return {};
}

void RknnProgram::evict() noexcept {
  const std::lock_guard lock(mutex_);
  while (!lanes_.empty()) lanes_.pop_back();
  given_up_.clear();
  given_up_bytes_ = 0;
}

// A free context; where none is whole any more, they are made anew.
Result<RknnProgram::Lane*> RknnProgram::take_lane(std::unique_lock<std::mutex>& lock) {
  auto unbusy = [&] { return std::ranges::find(lanes_, false, [](const auto& lane) { return lane->busy; }); };
  if (lanes_.size() < contexts_ && !overdue() &&
      std::ranges::none_of(lanes_, [](const auto& lane) { return lane->busy; })) {
    while (!lanes_.empty()) lanes_.pop_back();
    if (auto opened = open_lanes(); !opened) return std::unexpected(opened.error());
  }
  const auto bound = device_.context_options(name_).run_timeout;
  if (!free_.wait_for(lock, bound, [&] { return lanes_.empty() || unbusy() != lanes_.end(); }))
    return fail(ErrorCode::unavailable, "no context of it came free in time");
  if (lanes_.empty()) {
    Error error{
        ErrorCode::unavailable,
        std::format("its contexts are given up, and their calls haven't come back [{}]", device_.library()->versions()),
        std::chrono::seconds(1),
        {},
        {}};
    return std::unexpected(std::move(error));
  }
  Lane* lane = unbusy()->get();
  lane->busy = true;
  return lane;
}

Result<std::vector<Buffer>> RknnProgram::run(std::uint32_t core, std::vector<rknn::Context::Input> inputs,
                                             std::vector<rknn::Context::OutputWanted> outputs) {
  std::unique_lock lock(mutex_);
  auto lane = take_lane(lock);
  if (!lane) return std::unexpected(lane.error());
  rknn::Context& context = *(*lane)->context;
  lock.unlock();
  const std::optional<std::uint32_t> chosen = device_.cores() > 1 ? std::optional(core) : std::nullopt;
  auto result = context.run(chosen, std::move(inputs), std::move(outputs));
  lock.lock();
  (*lane)->busy = false;
  // After an error of the device's the context isn't trusted again.
  std::unique_ptr<rknn::Context> dropped;
  if (!result && (result.error().code == ErrorCode::unavailable || result.error().code == ErrorCode::data_loss)) {
    const auto at = std::ranges::find(lanes_, *lane, [](const auto& entry) { return entry.get(); });
    dropped = std::move((*at)->context);
    lanes_.erase(at);
    if (dropped->condemned()) {
      given_up_bytes_ += dropped->weight_bytes() + dropped->own_bytes();
      given_up_.push_back(std::move(dropped));
    }
    count_bytes();
  }
  lock.unlock();
  free_.notify_all();
  return result;
}

}  // namespace npud
