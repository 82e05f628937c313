// SPDX-License-Identifier: Apache-2.0
#include "engine_fixture.h"

#include <cstring>
#include <stdexcept>

#include "engine/bytes_tensor.h"

namespace npud::test {
namespace {

template <class T>
Tensor make_tensor(const std::string& name, DataType type, const Dims& shape, const std::vector<T>& values) {
  return {name, type, shape, Buffer::copy_of(std::as_bytes(std::span(values)))};
}

}  // namespace

Runtime& shared_runtime() {
  static std::unique_ptr<Runtime> runtime = [] {
    auto made = Runtime::create({.threads = 2, .spin = false, .log = [](RuntimeLogLevel, std::string_view) {}});
    if (!made) throw std::runtime_error(made.error().message);
    return std::move(*made);
  }();
  return *runtime;
}

Tensor float_tensor(const std::string& name, const Dims& shape, const std::vector<float>& values) {
  return make_tensor(name, DataType::fp32, shape, values);
}

Tensor int64_tensor(const std::string& name, const Dims& shape, const std::vector<std::int64_t>& values) {
  return make_tensor(name, DataType::int64, shape, values);
}

Tensor string_tensor(const std::string& name, const Dims& shape, const std::vector<std::string>& values) {
  std::vector<std::string_view> views(values.begin(), values.end());
  return {name, DataType::bytes, shape, encode_bytes_tensor(views)};
}

std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> values(tensor.data.size_bytes() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.bytes().data(), tensor.data.size_bytes());
  return values;
}

std::vector<std::string> strings(const Tensor& tensor) {
  auto elements = decode_bytes_tensor(tensor.data.bytes(), element_count(tensor.shape).value());
  return {elements->begin(), elements->end()};
}

EngineParts::EngineParts(std::uint32_t slots, std::uint64_t aperture_bytes, bool snapshots)
    : host({.slots = slots,
            .aperture_bytes = aperture_bytes,
            .cores = 2,
            .driver = "ONNX Runtime " + Runtime::version()}),
      arbiter({.device = "host", .cores = 2, .slots = slots, .aperture_bytes = aperture_bytes, .fairness = {}}, clock,
              tenants, events) {
  OnnxLoaderOptions options;
  if (snapshots) options.snapshot_directory = directory.path() / "snapshots";
  auto made = OnnxLoader::create(options, shared_runtime(), host, arbiter, clock);
  if (!made) throw std::runtime_error(made.error().message);
  loader = std::move(*made);
}

Result<LoadedModel> EngineParts::load(const std::string& model, const onnx::ModelProto& onnx,
                                      const inference::ModelConfig& config) {
  const auto version = directory.path() / "models" / model / "1";
  write_model(version / "model.onnx", onnx);
  return load_file(model, version, config);
}

Result<LoadedModel> EngineParts::load_file(const std::string& model, const std::filesystem::path& version_directory,
                                           const inference::ModelConfig& config) {
  return loader->load({model, 1, version_directory.parent_path(), version_directory, config});
}

Result<std::vector<Response>> EngineParts::run(Servable& servable, std::vector<std::vector<Tensor>> batch) {
  std::vector<Request> requests(batch.size());
  std::vector<const Request*> pointers;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    requests[i].inputs = std::move(batch[i]);
    pointers.push_back(&requests[i]);
  }
  TestContext context(clock);
  return servable.run(context, pointers);
}

Result<std::vector<Tensor>> EngineParts::run_one(Servable& servable, std::vector<Tensor> inputs) {
  auto responses = run(servable, {std::move(inputs)});
  if (!responses) return std::unexpected(responses.error());
  return std::move(responses->at(0).outputs);
}

}  // namespace npud::test
