// SPDX-License-Identifier: Apache-2.0
// Models for the fake runtime, and what they must answer, computed apart from it.
#pragma once

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cmath>
#include <cstring>
#include <format>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "devices/rknn/abi.h"
#include "onnx_models.h"

namespace npud::test {

namespace abi = rknn::abi;

inline std::string u64_text(std::uint64_t value) {
  std::string text(8, '\0');
  for (int i = 0; i < 8; ++i) text[static_cast<std::size_t>(i)] = static_cast<char>(value >> (8 * i));
  return text;
}

// A whole .rknn file around `data`.
inline std::string rknn_file(const std::string& data, std::uint64_t version = 6) {
  const std::string description = R"({"version": "2.3.2", "target_platform": ["rk3588"]})";
  return std::string("RKNN\0\0\0\0", 8) + u64_text(version) + u64_text(data.size()) +
         (version == 1 ? "" : std::string(40, '\0')) + data + u64_text(description.size()) + description;
}

struct FakeModel {
  std::vector<std::string> lines{"in x 0 3 0 0 1 1 6", "out y 0 3 0 0 1 1 4"};
  std::size_t inputs = 6, outputs = 4;
  std::vector<float> weights;

  explicit FakeModel(unsigned seed = 1, std::size_t in = 6, std::size_t out = 4) : inputs(in), outputs(out) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> some(-1, 1);
    weights.resize(in * out);
    for (float& w : weights) w = some(random);
  }
  FakeModel& with(std::vector<std::string> tensors) {
    lines = std::move(tensors);
    return *this;
  }
  FakeModel& does(const std::string& what, const std::string& value) {
    lines.push_back("do " + what + " " + value);
    return *this;
  }
  std::string file() const {
    std::string data;
    for (const std::string& line : lines) data += line + "\n";
    data += "end\n" + std::string(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float));
    return rknn_file(data);
  }
  std::vector<float> answer(const std::vector<float>& x) const {
    std::vector<float> y(outputs);
    for (std::size_t i = 0; i < outputs; ++i)
      for (std::size_t k = 0; k < inputs; ++k) y[i] += weights[i * inputs + k] * x[k];
    return y;
  }
};

// The fake runtime's own functions.
class FakeRuntime {
 public:
  explicit FakeRuntime(const std::string& name = "librknnrt.so") : path_(std::string(NPUD_FAKE_RUNTIMES) + "/" + name) {
    handle_ = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle_, nullptr) << ::dlerror();
    call<void()>("fake_rknn_reset")();
  }
  const std::string& path() const { return path_; }
  void fail(const char* what, int code, int times = 1) {
    call<void(const char*, int, int)>("fake_rknn_fail")(what, code, times);
  }
  int calls(const char* what) { return call<int(const char*)>("fake_rknn_calls")(what); }
  int contexts() { return call<int()>("fake_rknn_contexts")(); }
  int masks() { return call<int()>("fake_rknn_masks")(); }
  int most_running() { return call<int()>("fake_rknn_most_running")(); }
  // Overdue calls come back on threads that nobody waits for.
  bool contexts_become(int count) {
    for (int i = 0; i < 5000 && contexts() != count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return contexts() == count;
  }

 private:
  template <class Function>
  Function* call(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(handle_, name));
  }
  const std::string path_;
  void* handle_ = nullptr;
};

}  // namespace npud::test
