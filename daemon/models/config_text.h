// SPDX-License-Identifier: Apache-2.0
// A model's configuration as text.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"
#include "inference/model_config.pb.h"

namespace npud {

// Protobuf text format. Unknown fields and repeated single fields are errors; messages begin "FILE:LINE:COLUMN:".
// `file` is for them only.
Result<inference::ModelConfig> parse_config_text(std::string_view text, const std::string& file);

// What clients send as the "config" parameter of RepositoryModelLoad: JSON (proto3 mapping) if it begins with '{', else
// text format.
Result<inference::ModelConfig> parse_config_override(std::string_view text);

}  // namespace npud
