// SPDX-License-Identifier: Apache-2.0
// The reference for serving a model: the same ONNX file and input in an ONNX Runtime session of this process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace npud::bench {

// One model with one FP32 input and one output. Throws Ort::Exception for a model that isn't that. Not thread-safe.
class InProcess {
 public:
  InProcess(const std::string& model_file, int threads);
  ~InProcess();
  // Runs it once; returns the number of elements of the output.
  std::uint64_t run(const std::vector<std::int64_t>& shape, std::vector<float>& values);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace npud::bench
