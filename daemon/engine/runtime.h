// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime, once for the process: its environment, its thread pool shared by all sessions, where its messages go.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/error.h"

namespace Ort {
struct Env;
}

namespace npud {

enum class RuntimeLogLevel : std::uint8_t { info, warning, error };

struct RuntimeOptions {
  std::uint32_t threads =
      0;              // that compute one run, its own included; the others are shared by all sessions; 0: one a CPU
  bool spin = false;  // threads spin a while before they sleep: better latency for one model, worse for everybody else
  // Messages of ONNX Runtime; any thread; empty: warnings and errors to stderr.
  std::function<void(RuntimeLogLevel, std::string_view)> log;
};

// Make one, early, before a second thread uses ONNX; sessions and loaders must not outlive it. Thread-safe once made.
//
// Debian's ONNX Runtime shares libonnx with us, and both register the same 567 operator schemas, the second time with
// an error line each on stderr. create() makes libonnx register first, empties its registry, and lets ONNX Runtime fill
// it: no schema is registered twice, so the lines never arise and nothing has to be filtered.
class Runtime {
 public:
  static Result<std::unique_ptr<Runtime>> create(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Ort::Env& env() { return *env_; }
  // Held while a session is made: the environment names one allocator at a time, and each session gets its own.
  std::mutex& creation_mutex() { return creation_mutex_; }
  static std::string version();  // "1.21.0"

 private:
  explicit Runtime(RuntimeOptions options);
  RuntimeOptions options_;
  std::unique_ptr<Ort::Env> env_;
  std::mutex creation_mutex_;
};

}  // namespace npud
