// SPDX-License-Identifier: Apache-2.0
// config.pbtxt, and the "config" parameter of a load: any text gives a configuration or a sentence, and a configuration
// meets a model.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/model_config.h"
#include "models/config_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  npud::OnnxInfo info;
  info.inputs = {{"x", npud::DataType::fp32, std::vector<std::int64_t>{-1, 3}, false},
                 {"s", npud::DataType::bytes, std::nullopt, true}};
  info.outputs = {{"y", npud::DataType::fp32, std::vector<std::int64_t>{-1, 5}, false}};
  for (auto config : {npud::parse_config_text(text, "config.pbtxt"), npud::parse_config_override(text)}) {
    if (!config) {
      if (config.error().message.empty()) std::abort();
      continue;
    }
    auto plan = npud::plan_model(*config, info, {}, "host");
    if (!plan) {
      if (plan.error().message.empty()) std::abort();
      continue;
    }
    // What was accepted is complete and within its bounds, and is accepted again.
    if (plan->signature.inputs.empty() || plan->queue.instances < 1 || plan->queue.instances > 1024) std::abort();
    for (auto size : plan->queue.preferred_batch_sizes)
      if (size < 1 || size > plan->signature.max_batch_size) std::abort();
    if (!npud::plan_model(*config, info, {}, "host")) std::abort();
  }
  return 0;
}
