// SPDX-License-Identifier: Apache-2.0
#include "engine/warmup.h"

#include <algorithm>
#include <cstring>
#include <format>
#include <fstream>
#include <random>

#include "engine/onnx_types.h"

namespace npud {
namespace {

constexpr std::uint64_t max_warmup_bytes = 1ull << 30;
constexpr std::uint32_t max_warmup_count = 1000;

class WarmupContext final : public ExecutionContext {
 public:
  WarmupContext(TenantId tenant, Clock& clock) : tenant_(tenant), clock_(clock) {}
  TenantId tenant() const override { return tenant_; }
  PriorityClass priority_class() const override { return PriorityClass::batch; }
  TimePoint deadline() const override { return TimePoint::never(); }
  std::stop_token cancelled() const override { return {}; }
  Clock& clock() const override { return clock_; }

 private:
  TenantId tenant_;
  Clock& clock_;
};

// Numbers small enough for any model, the same at every load.
void fill_random(DataType type, Buffer& buffer, std::uint64_t count) {
  std::mt19937 random(1);
  auto fill = [&]<class T>(T) {
    auto* at = reinterpret_cast<T*>(buffer.bytes().data());
    for (std::uint64_t i = 0; i < count; ++i) {
      at[i] = std::is_floating_point_v<T> ? static_cast<T>(static_cast<double>(random()) / 4294967296.0)
                                          : static_cast<T>(random() & 1);
    }
  };
  switch (type) {
    case DataType::fp32:
      return fill(float{});
    case DataType::fp64:
      return fill(double{});
    case DataType::boolean:
    case DataType::int8:
    case DataType::uint8:
      return fill(std::uint8_t{});
    case DataType::int16:
    case DataType::uint16:
      return fill(std::uint16_t{});
    case DataType::int32:
    case DataType::uint32:
      return fill(std::uint32_t{});
    case DataType::int64:
    case DataType::uint64:
      return fill(std::uint64_t{});
    case DataType::fp16:  // 0 or 1, by their bits
    case DataType::bf16: {
      auto* at = reinterpret_cast<std::uint16_t*>(buffer.bytes().data());
      for (std::uint64_t i = 0; i < count; ++i)
        at[i] = (random() & 1) == 0 ? 0 : type == DataType::fp16 ? 0x3c00 : 0x3f80;
      return;
    }
    case DataType::bytes:
      return;
  }
}

Result<Buffer> read_input(const std::filesystem::path& directory, const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos || name.starts_with('.')) {
    return fail(ErrorCode::invalid_argument,
                std::format("input_data_file \"{}\" must be the name of a file in {}", name, directory.string()));
  }
  std::error_code error;
  const auto path = directory / name;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return fail(ErrorCode::not_found, std::format("{}: {}", path.string(), error.message()));
  if (size > max_warmup_bytes)
    return fail(ErrorCode::invalid_argument, std::format("{} is larger than 1 GiB", path.string()));
  Buffer buffer = Buffer::allocate(size);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(buffer.bytes().data()), static_cast<std::streamsize>(size));
  if (static_cast<std::uint64_t>(file.gcount()) != size)
    return fail(ErrorCode::data_loss, std::format("{} can't be read whole", path.string()));
  return buffer;
}

Result<Tensor> warmup_input(const std::string& name, const inference::ModelWarmup::Input& input,
                            const Signature& signature, std::uint32_t batch_size,
                            const std::filesystem::path& directory) {
  auto declared = std::ranges::find(signature.inputs, name, &TensorInfo::name);
  if (declared == signature.inputs.end())
    return fail(ErrorCode::invalid_argument, std::format("the model has no input '{}'", name));
  auto type = data_type_from_config(input.data_type());
  if (type != declared->type) {
    return fail(ErrorCode::invalid_argument,
                std::format("input '{}' is {} in the warm-up, the model takes {}", name,
                            inference::DataType_Name(input.data_type()), data_type_name(declared->type)));
  }
  Tensor tensor{name, *type, {input.dims().begin(), input.dims().end()}, {}};
  bool fits = tensor.shape.size() == declared->shape.size();
  for (std::size_t i = 0; fits && i < tensor.shape.size(); ++i)
    fits = declared->shape[i] == -1 || declared->shape[i] == tensor.shape[i];
  if (!fits) {
    return fail(ErrorCode::invalid_argument, std::format("input '{}' has dims {} in the warm-up, the model takes {}",
                                                         name, shape_text(tensor.shape), shape_text(declared->shape)));
  }
  if (signature.max_batch_size > 0) tensor.shape.insert(tensor.shape.begin(), batch_size);
  auto count = element_count(tensor.shape);
  if (!count) return fail(ErrorCode::invalid_argument, std::format("input '{}': {}", name, count.error().message));
  const std::size_t element = std::max<std::size_t>(4, data_type_size(*type));
  if (*count > max_warmup_bytes / element)
    return fail(ErrorCode::invalid_argument, std::format("input '{}' is larger than 1 GiB", name));
  if (input.input_data_type_case() == inference::ModelWarmup::Input::kInputDataFile) {
    auto data = read_input(directory, input.input_data_file());
    if (!data) return std::unexpected(data.error());
    tensor.data = std::move(*data);  // the run checks its size
    return tensor;
  }
  // Zeros are also the raw form of empty strings.
  tensor.data = Buffer::allocate(*count * (*type == DataType::bytes ? 4 : data_type_size(*type)));
  if (tensor.data.size_bytes() > 0) std::memset(tensor.data.bytes().data(), 0, tensor.data.size_bytes());
  if (input.random_data()) fill_random(*type, tensor.data, *count);
  return tensor;
}

}  // namespace

Result<> run_warmups(Servable& servable, const inference::ModelConfig& config,
                     const std::filesystem::path& model_directory, TenantId tenant, Clock& clock) {
  WarmupContext context(tenant, clock);
  for (const auto& warmup : config.model_warmup()) {
    auto failed = [&](const Error& error) {
      Error named = error;
      named.message = std::format("model_warmup '{}': {}", warmup.name(), error.message);
      return std::unexpected<Error>(std::move(named));
    };
    const std::uint32_t batch_size = std::max(1u, warmup.batch_size());
    const auto& signature = servable.signature();
    if (batch_size > 1 && batch_size > signature.max_batch_size) {
      return failed(
          {ErrorCode::invalid_argument,
           std::format("batch_size {} is more than max_batch_size ({})", batch_size, signature.max_batch_size),
           {},
           {},
           {}});
    }
    if (warmup.count() > max_warmup_count) {
      return failed({ErrorCode::invalid_argument,
                     std::format("count {} is more than {}", warmup.count(), max_warmup_count),
                     {},
                     {},
                     {}});
    }
    Request request;
    request.model = servable.model();
    request.tenant = tenant;
    for (const TensorInfo& declared : signature.inputs) {
      auto found = warmup.inputs().find(declared.name);
      if (found == warmup.inputs().end() && !declared.optional) {
        return failed({ErrorCode::invalid_argument, std::format("input '{}' is missing", declared.name), {}, {}, {}});
      }
    }
    for (const auto& [name, input] : warmup.inputs()) {
      auto tensor = warmup_input(name, input, signature, batch_size, model_directory / "warmup");
      if (!tensor) return failed(tensor.error());
      request.inputs.push_back(std::move(*tensor));
    }
    for (std::uint32_t i = 0; i < std::max(1u, warmup.count()); ++i) {
      const Request* batch[] = {&request};
      auto responses = servable.run(context, batch);
      if (!responses) return failed(responses.error());
    }
  }
  return {};
}

}  // namespace npud
