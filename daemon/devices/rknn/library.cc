// SPDX-License-Identifier: Apache-2.0
#include "devices/rknn/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <format>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

namespace npud::rknn {
namespace {

// The oldest whose interface was compared with ours.
constexpr unsigned oldest_major = 1, oldest_minor = 5;
constexpr std::string_view version_mark = "librknnrt version: ";
constexpr std::size_t most_library_bytes = std::size_t{64} << 20;

std::optional<std::pair<unsigned, unsigned>> parse_version(std::string_view text) {
  unsigned major = 0, minor = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), text.data() + text.size(), major);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '.') return std::nullopt;
  if (std::from_chars(first.ptr + 1, end, minor).ec != std::errc{}) return std::nullopt;
  return std::pair(major, minor);
}

// The library says its version in its log: the text is in the file, and there it can be read before any call.
std::string version_in_file(const std::string& path) {
  std::error_code unknown;
  const std::uintmax_t size = std::filesystem::file_size(path, unknown);
  if (unknown) return {};
  std::ifstream file(path, std::ios::binary);
  std::string bytes(std::min<std::size_t>(size, most_library_bytes), '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  // The mark alone is there, too, as the log's format.
  for (std::size_t at = 0; (at = bytes.find(version_mark, at)) != std::string::npos;) {
    at += version_mark.size();
    const std::size_t end = std::min(bytes.find_first_of(std::string_view("\0\n", 2), at), at + 100);
    const std::string version = bytes.substr(at, end - at);
    if (parse_version(version)) return version;
  }
  return {};
}

Result<> check_version(const std::string& version) {
  const auto found = parse_version(version);
  if (!found || *found >= std::pair(oldest_major, oldest_minor)) return {};
  return fail(ErrorCode::failed_precondition,
              std::format("librknnrt {} is older than {}.{}, whose interface npud speaks; install a newer one", version,
                          oldest_major, oldest_minor));
}

std::string text_of(const char (&field)[256]) { return std::string(field, ::strnlen(field, sizeof field)); }

ErrorCode error_code(int status) {
  switch (status) {
    case abi::kMallocFail:
      return ErrorCode::resource_exhausted;
    case abi::kTimeout:
    case abi::kDeviceUnavailable:
    case abi::kContextInvalid:
    case abi::kFail:
      return ErrorCode::unavailable;
    case abi::kModelInvalid:
      return ErrorCode::data_loss;
    case abi::kDeviceUnmatch:
    case abi::kIncompatiblePreCompileModel:
    case abi::kIncompatibleOptimizationLevel:
    case abi::kTargetPlatformUnmatch:
      return ErrorCode::failed_precondition;
    default:
      return ErrorCode::internal;
  }
}

const char* advice(int status) {
  switch (status) {
    case abi::kModelInvalid:
      return "; convert the model anew, for this runtime's version or an older one";
    case abi::kTargetPlatformUnmatch:
      return "; convert the model for this SoC (target_platform)";
    case abi::kDeviceUnmatch:
    case abi::kIncompatiblePreCompileModel:
    case abi::kIncompatibleOptimizationLevel:
      return "; update the runtime and the kernel driver together";
    case abi::kMallocFail:
      return "; unload a model or convert this one to a smaller type";
    case abi::kDeviceUnavailable:
      return "; is the NPU's kernel driver loaded, and may npud open its node?";
    default:
      return "";
  }
}

}  // namespace

std::string status_name(int status) {
  static constexpr const char* names[] = {
      "RKNN_SUCC",
      "RKNN_ERR_FAIL",
      "RKNN_ERR_TIMEOUT",
      "RKNN_ERR_DEVICE_UNAVAILABLE",
      "RKNN_ERR_MALLOC_FAIL",
      "RKNN_ERR_PARAM_INVALID",
      "RKNN_ERR_MODEL_INVALID",
      "RKNN_ERR_CTX_INVALID",
      "RKNN_ERR_INPUT_INVALID",
      "RKNN_ERR_OUTPUT_INVALID",
      "RKNN_ERR_DEVICE_UNMATCH",
      "RKNN_ERR_INCOMPATILE_PRE_COMPILE_MODEL",
      "RKNN_ERR_INCOMPATILE_OPTIMIZATION_LEVEL_VERSION",
      "RKNN_ERR_TARGET_PLATFORM_UNMATCH",
  };
  if (status > 0 || -status >= static_cast<int>(std::size(names))) return std::format("code {}", status);
  return std::format("{} ({})", names[-status], status);
}

Result<std::shared_ptr<Library>> Library::open(const std::string& name) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return fail(
        ErrorCode::not_found,
        std::format("Rockchip's runtime can't be loaded: {}; compiled .rknn models need librknnrt.so of the RKNPU2 "
                    "SDK (airockchip/rknn-toolkit2: rknpu2/runtime/Linux/librknn_api/aarch64) in /usr/lib, or its "
                    "path in devices.rknn.library",
                    why == nullptr ? name : why));
  }
  std::shared_ptr<Library> library(new Library);
  library->path_ = name;
  std::string missing;
  auto find = [&]<class Function>(Function*& function, const char* symbol, bool needed) {
    void* const found = ::dlsym(handle, symbol);
    function = reinterpret_cast<Function*>(found);
    if (found == nullptr && needed) missing += (missing.empty() ? "" : ", ") + std::string(symbol);
    Dl_info info{};
    if (found != nullptr && ::dladdr(found, &info) != 0 && info.dli_fname != nullptr) library->path_ = info.dli_fname;
  };
  find(library->init, "rknn_init", true);
  find(library->destroy, "rknn_destroy", true);
  find(library->query, "rknn_query", true);
  find(library->inputs_set, "rknn_inputs_set", true);
  find(library->run, "rknn_run", true);
  find(library->outputs_get, "rknn_outputs_get", true);
  find(library->outputs_release, "rknn_outputs_release", true);
  find(library->dup_context, "rknn_dup_context", false);
  find(library->set_core_mask, "rknn_set_core_mask", false);
  if (!missing.empty()) {
    return fail(
        ErrorCode::failed_precondition,
        std::format("{} isn't Rockchip's runtime, or not one that npud knows: it lacks {}", library->path_, missing));
  }
  library->runtime_version_ = version_in_file(library->path_);
  if (auto ok = check_version(library->runtime_version_); !ok) return std::unexpected(ok.error());
  return library;
}

std::string Library::runtime_version() const {
  const std::lock_guard lock(mutex_);
  return runtime_version_.empty() ? "unknown" : runtime_version_;
}

std::string Library::driver_version() const {
  const std::lock_guard lock(mutex_);
  return driver_version_.empty() ? "unknown" : driver_version_;
}

Result<> Library::learn(const abi::SdkVersion& told) {
  const std::string runtime = text_of(told.api);
  const std::lock_guard lock(mutex_);
  if (!runtime.empty()) runtime_version_ = runtime;
  driver_version_ = text_of(told.driver);
  return check_version(runtime);
}

std::string Library::versions() const {
  return std::format("librknnrt {}, driver {}", runtime_version(), driver_version());
}

Error Library::error(const char* call, int status) const {
  return Error{error_code(status),
               std::format("{} failed with {} [{}]{}", call, status_name(status), versions(), advice(status)),
               {},
               {},
               {}};
}

}  // namespace npud::rknn
