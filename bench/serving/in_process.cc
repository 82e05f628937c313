// SPDX-License-Identifier: Apache-2.0
#include "in_process.h"

#include <onnxruntime_cxx_api.h>

namespace npud::bench {

struct InProcess::State {
  Ort::Env environment{ORT_LOGGING_LEVEL_ERROR, "npud-bench"};
  Ort::Session session{nullptr};
  std::string input, output;
};

InProcess::InProcess(const std::string& model_file, int threads) : state_(std::make_unique<State>()) {
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(threads);
  options.SetInterOpNumThreads(1);
  state_->session = Ort::Session(state_->environment, model_file.c_str(), options);
  Ort::AllocatorWithDefaultOptions allocator;
  state_->input = state_->session.GetInputNameAllocated(0, allocator).get();
  state_->output = state_->session.GetOutputNameAllocated(0, allocator).get();
}

InProcess::~InProcess() = default;

std::uint64_t InProcess::run(const std::vector<std::int64_t>& shape, std::vector<float>& values) {
  auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  Ort::Value input = Ort::Value::CreateTensor<float>(memory, values.data(), values.size(), shape.data(), shape.size());
  const char* inputs[] = {state_->input.c_str()};
  const char* outputs[] = {state_->output.c_str()};
  auto result = state_->session.Run(Ort::RunOptions{nullptr}, inputs, &input, 1, outputs, 1);
  return result[0].GetTensorTypeAndShapeInfo().GetElementCount();
}

}  // namespace npud::bench
