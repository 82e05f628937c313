// SPDX-License-Identifier: Apache-2.0
// Rockchip's runtime as a library that may or may not be on this machine: opened when npud starts, never linked.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "core/error.h"
#include "devices/rknn/abi.h"

namespace npud::rknn {

// "RKNN_ERR_MODEL_INVALID (-6)"; an unknown code by its number alone.
[[nodiscard]] std::string status_name(int status);

// Its functions and its versions. Immutable but for the versions, which the first context tells. The library is never
// closed again: a call that never came back may still be in it. Thread-safe; the calls are as safe as the runtime's
// are, so each context is used by one thread at a time (devices/rknn/context.h).
class Library {
 public:
  // `name` as dlopen() takes it. not_found says what to install; failed_precondition: it isn't the runtime, or one that
  // is too old for this interface.
  static Result<std::shared_ptr<Library>> open(const std::string& name);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  abi::InitFunction* init = nullptr;
  abi::DestroyFunction* destroy = nullptr;
  abi::QueryFunction* query = nullptr;
  abi::InputsSetFunction* inputs_set = nullptr;
  abi::RunFunction* run = nullptr;
  abi::OutputsGetFunction* outputs_get = nullptr;
  abi::OutputsReleaseFunction* outputs_release = nullptr;
  // Null where the runtime hasn't it.
  abi::DupContextFunction* dup_context = nullptr;
  abi::SetCoreMaskFunction* set_core_mask = nullptr;

  const std::string& path() const { return path_; }
  std::string runtime_version() const;  // "2.3.2 (429f97ae6b@2025-04-09T09:09:27)"; "unknown" until a context told it
  std::string driver_version() const;   // the kernel driver's, in the runtime's words; "unknown" likewise

  // What a context answered to kQuerySdkVersion. failed_precondition: older than this interface.
  Result<> learn(const abi::SdkVersion& told);

  // A failed call, with its code by name and both versions. The error's code follows the runtime's.
  Error error(const char* call, int status) const;
  std::string versions() const;  // "librknnrt 2.3.2 (…), driver 0.9.8"

 private:
  Library() = default;
  std::string path_;
  mutable std::mutex mutex_;  // below
  std::string runtime_version_, driver_version_;
};

}  // namespace npud::rknn
