// SPDX-License-Identifier: Apache-2.0
// The Port of a real driver: npud_rknpu, or the vendor's 0.9.8, found among /dev/dri by its DRM name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "devices/rknpu/driver/port.h"

namespace npud::rknpu {

// Render nodes whose driver calls itself "rknpu", in the order of their numbers.
std::vector<std::string> find_nodes();

// Opens a node and asks it what it can do. not_found, permission_denied or failed_precondition (too old an interface),
// saying what to do.
Result<std::unique_ptr<Port>> open_drm_port(const std::string& node);

}  // namespace npud::rknpu
