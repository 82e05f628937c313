// SPDX-License-Identifier: Apache-2.0
// What config.pbtxt says of a model on an NPU: which device, which precision, which nodes otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace npud {

// The NPU of this machine as the configuration may name it.
struct NpuChoice {
  std::string name;     // "rknpu0"
  std::string kind;     // "rknpu"
  bool healthy = true;  // else "auto" means the host
  std::string why_not;  // with !healthy
  std::uint32_t cores = 1;
};

enum class OffloadPrecision : std::uint8_t { fp16, int8 };
enum class OffloadVerify : std::uint8_t { off, sampled, always };

struct OffloadSettings {
  bool wanted = false;     // heavy nodes go to the NPU
  bool automatic = false;  // … where that is possible; else it is an error at load if it isn't
  OffloadPrecision precision = OffloadPrecision::fp16;
  std::optional<OffloadVerify> verify;  // none: as the device is set
  // Glob patterns over node names; the first list that matches decides, in this order.
  std::vector<std::string> host_nodes, int8_nodes, fp16_nodes;
};

// "a*, b?" → its patterns; commas and white space separate.
[[nodiscard]] std::vector<std::string> split_patterns(std::string_view text);
[[nodiscard]] bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

}  // namespace npud
