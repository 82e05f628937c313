// SPDX-License-Identifier: Apache-2.0
#include "engine/host_program.h"

#include <format>

namespace npud {

HostProgram::HostProgram(std::string name, std::shared_ptr<const ModelSource> source, SessionSettings settings,
                         bool pinned, std::uint64_t weight_bytes, Runtime& runtime, HostDevice& device, Clock& clock)
    : name_(std::move(name)),
      source_(std::move(source)),
      settings_(settings),
      pinned_(pinned),
      runtime_(runtime),
      device_(device),
      clock_(clock),
      cold_bytes_(weight_bytes) {}

Footprint HostProgram::footprint() const {
  return {.slots = 1, .bytes = resident_ ? held_bytes_.load() : cold_bytes_.load()};
}

Result<> HostProgram::make_resident() {
  const TimePoint begin = clock_.now();
  if (auto ok = source_->check_unchanged(); !ok)
    return fail(ok.error().code, std::format("model '{}': {}", name_, ok.error().message));
  auto session = Session::create(runtime_, device_, source_->model_file(), settings_, nullptr);
  if (!session) {
    Error error = session.error();
    error.message = std::format("model '{}': {}", name_, error.message);
    return std::unexpected(std::move(error));
  }
  session_ = std::move(*session);
  cold_bytes_ = session_->created_bytes() + source_->external_bytes();
  held_bytes_ = session_->held_bytes() + source_->external_bytes();
  resident_ = true;
  bring_back_us_ = (clock_.now() - begin).count();
  return {};
}

void HostProgram::evict() noexcept {
  session_.reset();
  resident_ = false;
}

Result<std::vector<Tensor>> HostProgram::run(std::span<const Tensor> inputs, std::span<const OutputRequest> outputs,
                                             std::stop_token cancelled) {
  auto result = session_->run(inputs, outputs, cancelled);
  held_bytes_ = session_->held_bytes() + source_->external_bytes();
  return result;
}

}  // namespace npud
