// SPDX-License-Identifier: Apache-2.0
#include "engine/config_common.h"

#include <algorithm>
#include <format>

namespace npud {
namespace {

constexpr std::int64_t max_max_batch_size = 1 << 16;

std::unexpected<Error> refuse(std::string message) { return fail(ErrorCode::invalid_argument, std::move(message)); }
std::unexpected<Error> not_yet(std::string message) { return fail(ErrorCode::unimplemented, std::move(message)); }

// `by_default`: what a configuration without instance_group gets; one where the order of requests is to be kept.
Result<std::uint32_t> instances(inference::ModelConfig& config, std::uint32_t by_default) {
  std::uint64_t count = 0;
  for (const auto& group : config.instance_group()) {
    if (group.kind() == inference::ModelInstanceGroup::KIND_GPU || group.gpus_size() > 0) {
      return refuse(std::format("instance_group '{}' wants a GPU and npud has none; write kind: KIND_AUTO or KIND_CPU",
                                group.name()));
    }
    if (group.count() < 0 || group.count() > 1024) {
      return refuse(
          std::format("instance_group '{}' has a count of {}, it can be 1 to 1024", group.name(), group.count()));
    }
    if (group.has_rate_limiter())
      return not_yet("instance_group.rate_limiter isn't supported; the device's arbiter decides who runs");
    if (group.passive() || group.profile_size() > 0)
      return not_yet("instance_group.passive and .profile aren't supported");
    count += std::max(1, group.count());
  }
  if (count > 1024) return refuse(std::format("instance_group adds up to {} instances, more than 1024", count));
  if (count == 0) {
    auto* group = config.add_instance_group();
    count = config.dynamic_batching().preserve_ordering() ? 1 : std::max(by_default, 1u);
    group->set_count(static_cast<std::int32_t>(count));
    group->set_kind(inference::ModelInstanceGroup::KIND_AUTO);
  }
  return static_cast<std::uint32_t>(count);
}

}  // namespace

Result<> check_served(const inference::ModelConfig& config) {
  if (config.has_ensemble_scheduling()) return not_yet("ensemble_scheduling isn't supported yet");
  if (config.has_sequence_batching()) return not_yet("sequence_batching isn't supported yet");
  if (config.model_transaction_policy().decoupled()) return not_yet("decoupled models aren't supported");
  if (config.response_cache().enable()) return not_yet("response_cache isn't supported");
  if (!config.cc_model_filenames().empty())
    return not_yet("cc_model_filenames chooses files by GPU, which npud doesn't serve");
  if (config.optimization().execution_accelerators().gpu_execution_accelerator_size() > 0 ||
      config.optimization().execution_accelerators().cpu_execution_accelerator_size() > 0) {
    return not_yet("optimization.execution_accelerators isn't supported; npud.device says where the model runs");
  }
  if (config.max_batch_size() < 0 || config.max_batch_size() > max_max_batch_size) {
    return refuse(std::format("max_batch_size is {}, it can be 0 (no batching) to {}", config.max_batch_size(),
                              max_max_batch_size));
  }
  return {};
}

Result<std::filesystem::path> file_of_version(const std::filesystem::path& version_directory, const std::string& name) {
  if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos || name.starts_with('.')) {
    return refuse(
        std::format("default_model_filename \"{}\" must be the name of a file in the version's directory", name));
  }
  return version_directory / name;
}

Result<bool> apply_residence(const std::string& key, const std::string& value, ResidencePlan& plan) {
  if (key == "npud.pinned") {
    if (value != "true" && value != "false")
      return refuse(std::format("parameter npud.pinned is \"{}\"; write \"true\" or \"false\"", value));
    plan.pinned = value == "true";
    return true;
  }
  if (key != "npud.class") return false;
  if (value == "realtime") {
    plan.best_class = PriorityClass::realtime;
  } else if (value == "interactive") {
    plan.best_class = PriorityClass::interactive;
  } else if (value == "batch") {
    plan.best_class = PriorityClass::batch;
  } else {
    return refuse(
        std::format("parameter npud.class is \"{}\"; write \"realtime\", \"interactive\" or \"batch\"", value));
  }
  return true;
}

Result<QueueSettings> queue_settings(inference::ModelConfig& config, const QueueSettings& defaults) {
  QueueSettings queue = defaults;
  auto count = instances(config, defaults.instances);
  if (!count) return std::unexpected(count.error());
  queue.instances = *count;
  if (!config.has_dynamic_batching()) return queue;
  const auto& batching = config.dynamic_batching();
  constexpr std::uint64_t max_delay_us = 60'000'000;
  if (batching.max_queue_delay_microseconds() > max_delay_us) {
    return refuse(std::format("dynamic_batching.max_queue_delay_microseconds is {}, more than a minute",
                              batching.max_queue_delay_microseconds()));
  }
  if (batching.preserve_ordering() && queue.instances > 1) {
    return not_yet("dynamic_batching.preserve_ordering isn't supported with more than one instance");
  }
  if (batching.priority_queue_policy_size() > 0)
    return not_yet("dynamic_batching.priority_queue_policy isn't supported yet");
  if (batching.priority_levels() > 1000)
    return refuse(std::format("dynamic_batching.priority_levels is {}, more than 1000", batching.priority_levels()));
  if (batching.default_priority_level() > batching.priority_levels() ||
      (batching.priority_levels() > 0 && batching.default_priority_level() == 0)) {
    return refuse(std::format("dynamic_batching.default_priority_level is {}, it can be 1 to priority_levels ({})",
                              batching.default_priority_level(), batching.priority_levels()));
  }
  for (std::int32_t size : batching.preferred_batch_size()) {
    if (size < 1 || size > config.max_batch_size()) {
      return refuse(std::format("dynamic_batching.preferred_batch_size {} is not between 1 and max_batch_size ({})",
                                size, config.max_batch_size()));
    }
    queue.preferred_batch_sizes.push_back(size);
  }
  queue.max_queue_delay = Duration{static_cast<std::int64_t>(batching.max_queue_delay_microseconds())};
  queue.priority_levels = batching.priority_levels();
  queue.default_priority = batching.default_priority_level();
  if (batching.has_default_queue_policy()) {
    const auto& policy = batching.default_queue_policy();
    if (policy.timeout_action() == inference::ModelQueuePolicy::DELAY)
      return not_yet("timeout_action: DELAY isn't supported");
    if (policy.default_timeout_microseconds() > (1ull << 50))
      return refuse("default_timeout_microseconds is more than 35 years");
    if (policy.default_timeout_microseconds() > 0) {
      queue.default_timeout = Duration{static_cast<std::int64_t>(policy.default_timeout_microseconds())};
    }
    if (policy.max_queue_size() > 0) queue.max_queued = policy.max_queue_size();
  }
  return queue;
}

}  // namespace npud
