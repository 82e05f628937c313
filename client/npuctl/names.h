// SPDX-License-Identifier: Apache-2.0
// Words for the protocol's enumerations.
#pragma once

#include <string>

#include "npud/v1/control.pb.h"

namespace npud::ctl {

std::string health_name(v1::Health health);           // "ok", "degraded", "dead"
std::string residency_name(v1::Residency residency);  // "cold", "coming", "resident", "leaving"
std::string event_name(v1::EventKind kind);           // "brought-in"

}  // namespace npud::ctl
