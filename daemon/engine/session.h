// SPDX-License-Identifier: Apache-2.0
// One ONNX Runtime session: a model's graph and weights in memory, ready to run. The only place where sessions are
// made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"
#include "devices/host/host_device.h"
#include "engine/runtime.h"

namespace Ort {
struct SessionOptions;
}

namespace npud {

struct SessionSettings {
  int optimization_level = 0;            // as config.pbtxt has it: -1 basic, 0 all, 1 extended
  std::uint64_t memory_limit_bytes = 0;  // weights and activations; 0: none
};

// Changes the options of a session before it is made: how a device brings its custom operators in.
class SessionCustomizer {
 public:
  virtual ~SessionCustomizer() = default;
  virtual Result<> customize(Ort::SessionOptions& options) = 0;
};

// An output to compute. Where the caller knows the shape it says where the result goes, and nothing is copied.
struct OutputRequest {
  std::string name;
  DataType type = DataType::fp32;  // with `destination`, as is `shape`
  std::vector<std::int64_t> shape;
  std::optional<Buffer> destination;  // exactly the bytes of `shape`, aligned to its elements; not for `bytes`
};

// Thread-safe: runs may overlap. No exception leaves it.
class Session {
 public:
  // Reads the file. `customizer` may be null.
  static Result<std::unique_ptr<Session>> create(Runtime& runtime, HostDevice& device,
                                                 const std::filesystem::path& file, const SessionSettings& settings,
                                                 SessionCustomizer* customizer);
  // Gives every byte back.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Computes the outputs in order. Inputs must have the model's types and dense row-major data of their shape. Errors:
  // cancelled, resource_exhausted (the memory limit), invalid_argument (shapes that this graph can't take, malformed
  // strings), internal. What is bound to a destination comes back in it; anything else in memory of its own, none of it
  // the session's.
  Result<std::vector<Tensor>> run(std::span<const Tensor> inputs, std::span<const OutputRequest> outputs,
                                  std::stop_token cancelled);

  std::uint64_t held_bytes() const;     // now
  std::uint64_t created_bytes() const;  // when it had just been made: its weights

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace npud
