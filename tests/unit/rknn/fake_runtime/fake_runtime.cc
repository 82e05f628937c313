// SPDX-License-Identifier: Apache-2.0
// A librknnrt of the tests' own: the interface's functions over "compiled" models that really compute. It stands where
// Rockchip's library would, which can't run here: what it proves ends at this border.
//
// The data of such a model is lines of text, then floats:
//   in|out NAME TYPE FORMAT QUANTISATION ZERO_POINT SCALE DIMS…    numbers as devices/rknn/abi.h has them
//   do WHAT VALUE      fails, waits or lies as told: see Model
//   end
//   weights            [all elements of all outputs][all elements of all inputs], row-major: the outputs are their
//   product
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "devices/rknn/abi.h"
#include "devices/rknn/model_file.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

#ifndef FAKE_VERSION
#define FAKE_VERSION "2.3.2 (fake@2025-04-09T09:09:27)"
#endif

namespace {

namespace abi = npud::rknn::abi;
// As a real one has it in its log.
const char* volatile version_line = "librknnrt version: " FAKE_VERSION;

struct Tensor {
  abi::TensorAttr attr{};
  std::vector<float> values;
};

struct Model {
  std::vector<Tensor> inputs, outputs;
  std::vector<float> weights;
  std::map<std::string, std::string>
      does;  // init, run, get, dup, mask: a code; sleep: ms; hang: while this file exists;
             // shorten: outputs come a byte short; twist: attributes that can't be
  int code(const char* call) const {
    const auto found = does.find(call);
    return found == does.end() ? 0 : std::stoi(found->second);
  }
};

struct Instance {
  std::shared_ptr<const Model> model;
  std::vector<Tensor> inputs, outputs;
  std::uint64_t bytes = 0;
  bool shares = false, info_only = false, ran = false;
  int mask = 0;
};

std::mutex mutex;  // the registry; an instance is its caller's
std::map<abi::Context, std::shared_ptr<Instance>> instances;
abi::Context next = 1000;
std::map<std::string, std::pair<int, int>> failures;  // code, how many times
std::map<std::string, int> calls;
std::set<int> masks;
std::atomic<int> running{0}, most_running{0};

int enter(const char* call) {
  const std::lock_guard lock(mutex);
  ++calls[call];
  const auto found = failures.find(call);
  if (found == failures.end() || found->second.second == 0) return 0;
  --found->second.second;
  return found->second.first;
}

std::shared_ptr<Instance> find(abi::Context context) {
  const std::lock_guard lock(mutex);
  const auto found = instances.find(context);
  return found == instances.end() ? nullptr : found->second;
}

std::size_t type_bytes(int type) {
  switch (type) {
    case abi::kFloat32:
    case abi::kInt32:
      return 4;
    case abi::kFloat16:
      return 2;
    case abi::kInt64:
      return 8;
    default:
      return 1;
  }
}

std::shared_ptr<Model> parse(const std::byte* bytes, std::size_t size) {
  const auto file = npud::rknn::inspect_model_file({bytes, size});
  if (!file) return nullptr;
  const std::string text(reinterpret_cast<const char*>(file->data.data()), file->data.size());
  const std::size_t end = text.find("\nend\n");
  if (end == std::string::npos) return nullptr;
  auto model = std::make_shared<Model>();
  std::istringstream lines(text.substr(0, end));
  std::size_t in = 0, out = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string what, name, value;
    words >> what >> name;
    if (what == "do") {
      words >> value;
      model->does[name] = value;
      continue;
    }
    Tensor tensor;
    std::strncpy(tensor.attr.name, name.c_str(), sizeof tensor.attr.name - 1);
    words >> tensor.attr.type >> tensor.attr.fmt >> tensor.attr.qnt_type >> tensor.attr.zp >> tensor.attr.scale;
    tensor.attr.n_elems = 1;
    for (std::uint32_t dim; words >> dim;) {
      tensor.attr.dims[tensor.attr.n_dims++] = dim;
      tensor.attr.n_elems *= dim;
    }
    tensor.attr.size = tensor.attr.size_with_stride =
        static_cast<std::uint32_t>(tensor.attr.n_elems * type_bytes(tensor.attr.type));
    auto& list = what == "in" ? model->inputs : model->outputs;
    tensor.attr.index = static_cast<std::uint32_t>(list.size());
    (what == "in" ? in : out) += tensor.attr.n_elems;
    list.push_back(tensor);
  }
  const std::size_t weights = file->data.size() - end - 5;
  if (in == 0 || out == 0 || weights != in * out * sizeof(float)) return nullptr;
  model->weights.resize(in * out);
  std::memcpy(model->weights.data(), text.data() + end + 5, weights);
  return model;
}

float quantised(const abi::TensorAttr& attr, float value) {
  return std::clamp(std::nearbyint(value / attr.scale) + static_cast<float>(attr.zp), -128.0f, 127.0f);
}
// What the model's own type keeps of a value.
float kept(const abi::TensorAttr& attr, float value) {
  if (attr.type == abi::kInt8 && attr.qnt_type == abi::kQntAffineAsymmetric)
    return (quantised(attr, value) - static_cast<float>(attr.zp)) * attr.scale;
  if (attr.type == abi::kFloat16) return static_cast<float>(static_cast<_Float16>(value));
  return value;
}

bool read_input(const abi::Input& input, Tensor& tensor) {
  const abi::TensorAttr& attr = tensor.attr;
  if (input.size != attr.n_elems * type_bytes(input.type) || input.pass_through != 0) return false;
  tensor.values.resize(attr.n_elems);
  std::vector<float> given(attr.n_elems);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char* at = static_cast<const char*>(input.buf) + i * type_bytes(input.type);
    switch (input.type) {
      case abi::kFloat32:
        std::memcpy(&given[i], at, 4);
        break;
      case abi::kFloat16: {
        _Float16 half;
        std::memcpy(&half, at, 2);
        given[i] = static_cast<float>(half);
        break;
      }
      case abi::kUint8:
        given[i] = static_cast<unsigned char>(*at);
        break;
      case abi::kInt8:
        if (attr.type != abi::kInt8) return false;
        given[i] = (static_cast<float>(static_cast<signed char>(*at)) - static_cast<float>(attr.zp)) * attr.scale;
        break;
      default:
        return false;
    }
    given[i] = kept(attr, given[i]);
  }
  if (input.fmt == attr.fmt) {
    tensor.values = given;
    return true;
  }
  if (attr.n_dims != 4 || attr.fmt != abi::kNhwc || input.fmt != abi::kNchw) return false;
  const std::size_t h = attr.dims[1], w = attr.dims[2], c = attr.dims[3];
  for (std::size_t n = 0; n < attr.dims[0]; ++n)
    for (std::size_t y = 0; y < h; ++y)
      for (std::size_t x = 0; x < w; ++x)
        for (std::size_t k = 0; k < c; ++k)
          tensor.values[((n * h + y) * w + x) * c + k] = given[((n * c + k) * h + y) * w + x];
  return true;
}

void write_output(const abi::TensorAttr& attr, bool as_float, float value, char* to) {
  if (as_float || attr.type == abi::kFloat32) {
    value = kept(attr, value);
    std::memcpy(to, &value, 4);
  } else if (attr.type == abi::kFloat16) {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(to, &half, 2);
  } else {
    *to = static_cast<char>(static_cast<signed char>(attr.qnt_type == abi::kQntNone ? value : quantised(attr, value)));
  }
}

}  // namespace

// --- the interface

EXPORT int rknn_init(abi::Context* context, void* bytes, std::uint32_t size, std::uint32_t flags, void*) {
  if (const int code = enter(flags == abi::kFlagCollectModelInfoOnly ? "info" : "rknn_init")) return code;
  auto model = parse(static_cast<const std::byte*>(bytes), size);
  if (!model) return abi::kModelInvalid;
  if (model->code("init") != 0 && flags == 0) return model->code("init");
  auto instance = std::make_shared<Instance>();
  instance->model = model;
  instance->inputs = model->inputs;
  instance->outputs = model->outputs;
  instance->info_only = flags != 0;
  instance->bytes = instance->info_only ? 0 : model->weights.size() * 4 + 4096;
  const std::lock_guard lock(mutex);
  instances[*context = ++next] = instance;
  return 0;
}

EXPORT int rknn_destroy(abi::Context context) {
  enter("rknn_destroy");
  const std::lock_guard lock(mutex);
  return instances.erase(context) == 1 ? 0 : abi::kContextInvalid;
}

EXPORT int rknn_query(abi::Context context, int query, void* info, std::uint32_t size) {
  if (const int code = enter("rknn_query")) return code;
  const auto instance = find(context);
  if (!instance) return abi::kContextInvalid;
  auto give = [&](const auto& answer) {
    if (size != sizeof answer) return static_cast<int>(abi::kParamInvalid);
    std::memcpy(info, &answer, sizeof answer);
    return 0;
  };
  if (query == abi::kQueryMemSize) {
    abi::MemSize memory{};
    memory.weight_bytes = static_cast<std::uint32_t>(instance->model->weights.size() * 4);
    memory.internal_bytes = 4096;
    memory.dma_bytes = instance->bytes;
    return give(memory);
  }
  if (instance->info_only) return abi::kParamInvalid;
  if (query == abi::kQuerySdkVersion) {
    abi::SdkVersion version{};
    std::strncpy(version.api, FAKE_VERSION, sizeof version.api - 1);
    std::strncpy(version.driver, "0.9.8", sizeof version.driver - 1);
    return give(version);
  }
  if (query == abi::kQueryInOutNum) {
    return give(abi::InOutNum{static_cast<std::uint32_t>(instance->inputs.size()),
                              static_cast<std::uint32_t>(instance->outputs.size())});
  }
  if (query != abi::kQueryInputAttr && query != abi::kQueryOutputAttr) return abi::kParamInvalid;
  const auto& list = query == abi::kQueryInputAttr ? instance->inputs : instance->outputs;
  const std::uint32_t index = static_cast<const abi::TensorAttr*>(info)->index;
  if (index >= list.size()) return abi::kParamInvalid;
  abi::TensorAttr attr = list[index].attr;
  const auto twist = instance->model->does.find("twist");
  if (twist != instance->model->does.end()) {
    if (twist->second == "rank") attr.n_dims = 4000000000u;
    if (twist->second == "size") attr.dims[0] = 0x7fffffff;
    if (twist->second == "type") attr.type = 77;
    if (twist->second == "elements") ++attr.n_elems;
    if (twist->second == "name") std::memset(attr.name, 'x', sizeof attr.name);
  }
  return give(attr);
}

EXPORT int rknn_inputs_set(abi::Context context, std::uint32_t count, abi::Input* inputs) {
  if (const int code = enter("rknn_inputs_set")) return code;
  const auto instance = find(context);
  if (!instance) return abi::kContextInvalid;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (inputs[i].index >= instance->inputs.size() || !read_input(inputs[i], instance->inputs[inputs[i].index]))
      return abi::kInputInvalid;
  }
  return 0;
}

EXPORT int rknn_run(abi::Context context, void*) {
  if (const int code = enter("rknn_run")) return code;
  const auto instance = find(context);
  if (!instance) return abi::kContextInvalid;
  const Model& model = *instance->model;
  const int now = ++running;
  for (int most = most_running; now > most && !most_running.compare_exchange_weak(most, now);) {
  }
  {
    const std::lock_guard lock(mutex);
    masks.insert(instance->mask);
  }
  if (const auto sleep = model.does.find("sleep"); sleep != model.does.end())
    std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(sleep->second)));
  if (const auto hang = model.does.find("hang"); hang != model.does.end()) {
    while (std::filesystem::exists(hang->second)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  --running;
  if (model.code("run") != 0) return model.code("run");
  std::vector<float> x;
  for (const Tensor& input : instance->inputs) x.insert(x.end(), input.values.begin(), input.values.end());
  const float* w = model.weights.data();
  for (Tensor& output : instance->outputs) {
    output.values.resize(output.attr.n_elems);
    for (float& value : output.values) {
      value = 0;
      for (const float v : x) value += v * *w++;
    }
  }
  instance->ran = true;
  return 0;
}

EXPORT int rknn_outputs_get(abi::Context context, std::uint32_t count, abi::Output* outputs, void*) {
  if (const int code = enter("rknn_outputs_get")) return code;
  const auto instance = find(context);
  if (!instance || !instance->ran) return abi::kContextInvalid;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Tensor& tensor = instance->outputs.at(outputs[i].index);
    const std::size_t element = outputs[i].want_float ? 4 : type_bytes(tensor.attr.type);
    if (!outputs[i].is_prealloc || outputs[i].size != tensor.attr.n_elems * element) return abi::kOutputInvalid;
    for (std::size_t k = 0; k < tensor.values.size(); ++k)
      write_output(tensor.attr, outputs[i].want_float, tensor.values[k],
                   static_cast<char*>(outputs[i].buf) + k * element);
    if (instance->model->does.contains("shorten")) --outputs[i].size;
  }
  return 0;
}

EXPORT int rknn_outputs_release(abi::Context, std::uint32_t, abi::Output*) { return enter("rknn_outputs_release"); }

#ifndef FAKE_MINIMAL
EXPORT int rknn_dup_context(abi::Context* from, abi::Context* to) {
  if (const int code = enter("rknn_dup_context")) return code;
  const auto original = find(*from);
  if (!original) return abi::kContextInvalid;
  auto copy = std::make_shared<Instance>();
  copy->model = original->model;
  copy->inputs = original->model->inputs;
  copy->outputs = original->model->outputs;
  copy->shares = true;
  copy->bytes = 4096;
  const std::lock_guard lock(mutex);
  instances[*to = ++next] = copy;
  return 0;
}

EXPORT int rknn_set_core_mask(abi::Context context, int mask) {
  if (const int code = enter("rknn_set_core_mask")) return code;
  const auto instance = find(context);
  if (!instance) return abi::kContextInvalid;
  instance->mask = mask;
  return 0;
}
#endif

// --- for tests

EXPORT void fake_rknn_fail(const char* call, int code, int times) {
  const std::lock_guard lock(mutex);
  failures[call] = {code, times};
}
EXPORT int fake_rknn_calls(const char* call) {
  const std::lock_guard lock(mutex);
  return calls[call];
}
EXPORT int fake_rknn_contexts() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(instances.size());
}
EXPORT int fake_rknn_masks() {  // those of runs, or'ed
  const std::lock_guard lock(mutex);
  int all = 0;
  for (const int mask : masks) all |= mask;
  return all;
}
EXPORT int fake_rknn_most_running() { return most_running; }
EXPORT void fake_rknn_reset() {
  const std::lock_guard lock(mutex);
  failures.clear();
  calls.clear();
  masks.clear();
  most_running = 0;
}
