// SPDX-License-Identifier: Apache-2.0
// The names of priority classes, as configurations and messages have them.
#pragma once

#include "core/request.h"

namespace npud {

inline const char* class_name(PriorityClass priority_class) {
  switch (priority_class) {
    case PriorityClass::realtime:
      return "realtime";
    case PriorityClass::interactive:
      return "interactive";
    case PriorityClass::batch:
      return "batch";
  }
  return "?";
}

}  // namespace npud
