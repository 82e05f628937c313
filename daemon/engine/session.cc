// SPDX-License-Identifier: Apache-2.0
#include "engine/session.h"

#include <onnxruntime_cxx_api.h>
#include <onnxruntime_session_options_config_keys.h>

#include <array>
#include <cstring>
#include <format>
#include <memory_resource>

#include "engine/bytes_tensor.h"
#include "engine/onnx_types.h"
#include "engine/session_allocator.h"

namespace npud {
namespace {

GraphOptimizationLevel optimization_level(int level) {
  if (level < 0) return ORT_ENABLE_BASIC;
  return level == 0 ? ORT_ENABLE_ALL : ORT_ENABLE_EXTENDED;
}

// ONNX Runtime's sentences have line breaks and source positions in them; the log and status messages take one line.
std::string one_line(std::string_view text) {
  std::string line;
  for (char c : text) line += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

Result<> fill_strings(Ort::Value& value, const Tensor& tensor, std::uint64_t count) {
  auto elements = decode_bytes_tensor(tensor.data.bytes(), count);
  if (!elements) {
    return fail(ErrorCode::invalid_argument, std::format("input '{}': {}", tensor.name, elements.error().message));
  }
  for (std::size_t i = 0; i < elements->size(); ++i) {
    // By length: an element may hold zero bytes.
    char* at = value.GetResizedStringTensorElementBuffer(i, (*elements)[i].size());
    std::memcpy(at, (*elements)[i].data(), (*elements)[i].size());
  }
  return {};
}

}  // namespace

struct Session::Impl {
  Impl(HostDevice& device, std::uint64_t limit_bytes)
      : allocator(device, limit_bytes),
        host_memory(Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault)) {}

  Result<Ort::Value> input_value(const Tensor& tensor, std::vector<Buffer>& kept);
  Result<Tensor> take_output(const OutputRequest& wanted, Ort::Value& value);
  Error run_error(ErrorCode code, const std::string& message, std::uint64_t refusals_before,
                  const std::stop_token& cancelled) const;

  SessionAllocator allocator;  // outlives the session
  Ort::MemoryInfo host_memory;
  std::optional<Ort::Session> session;
  std::uint64_t created_bytes = 0;
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() { impl_->session.reset(); }

Result<std::unique_ptr<Session>> Session::create(Runtime& runtime, HostDevice& device,
                                                 const std::filesystem::path& file, const SessionSettings& settings,
                                                 SessionCustomizer* customizer) {
  auto impl = std::make_unique<Impl>(device, settings.memory_limit_bytes);
  try {
    Ort::SessionOptions options;
    options.DisablePerSessionThreads();
    options.SetExecutionMode(ORT_SEQUENTIAL);
    options.SetGraphOptimizationLevel(optimization_level(settings.optimization_level));
    options.AddConfigEntry(kOrtSessionOptionsConfigUseEnvAllocators, "1");
    // Denormals would make the time of a run depend on its numbers.
    options.AddConfigEntry(kOrtSessionOptionsConfigSetDenormalAsZero, "1");
    if (customizer != nullptr) {
      if (auto ok = customizer->customize(options); !ok) return std::unexpected(ok.error());
    }
    // The environment hands its registered allocator to sessions as they are made, which keep it: registered for just
    // this one, the session's memory is known apart from every other's.
    std::scoped_lock lock(runtime.creation_mutex());
    const OrtApi& api = Ort::GetApi();
    Ort::ThrowOnError(api.RegisterAllocator(runtime.env(), &impl->allocator));
    struct Unregister {
      const OrtApi& api;
      Ort::Env& env;
      const OrtMemoryInfo* info;
      ~Unregister() { Ort::Status ignored(api.UnregisterAllocator(env, info)); }
    } unregister{api, runtime.env(), impl->allocator.Info(&impl->allocator)};
    impl->session.emplace(runtime.env(), file.c_str(), options);
  } catch (const Ort::Exception& error) {
    if (impl->allocator.refusals() > 0) {
      Error refused{
          ErrorCode::resource_exhausted,
          std::format(
              "making the session takes more than the {} bytes that it may have (it wanted {}); raise the device's "
              "aperture_bytes",
              impl->allocator.limit_bytes(), impl->allocator.refused_total_bytes()),
          {},
          impl->allocator.refused_total_bytes(),
          impl->allocator.limit_bytes()};
      return std::unexpected(std::move(refused));
    }
    const ErrorCode code = error.GetOrtErrorCode() == ORT_NO_SUCHFILE       ? ErrorCode::not_found
                           : error.GetOrtErrorCode() == ORT_NOT_IMPLEMENTED ? ErrorCode::unimplemented
                                                                            : ErrorCode::data_loss;
    return fail(code, std::format("ONNX Runtime refuses the file: {}", one_line(error.what())));
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, std::format("making the session failed: {}", one_line(error.what())));
  }
  impl->allocator.run_ended();
  impl->created_bytes = impl->allocator.in_use_bytes();
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Result<Ort::Value> Session::Impl::input_value(const Tensor& tensor, std::vector<Buffer>& kept) {
  auto count = element_count(tensor.shape);
  if (!count)
    return fail(ErrorCode::invalid_argument, std::format("input '{}': {}", tensor.name, count.error().message));
  if (tensor.type == DataType::bytes) {
    // Decoded before anything is allocated for it: the count is the client's word.
    auto value = Ort::Value(nullptr);
    if (tensor.data.size_bytes() / 4 < *count) {
      return fail(ErrorCode::invalid_argument,
                  std::format("input '{}': {} strings need at least {} bytes, there are {}", tensor.name, *count,
                              *count * 4, tensor.data.size_bytes()));
    }
    Ort::AllocatorWithDefaultOptions strings;
    value = Ort::Value::CreateTensor(strings, tensor.shape.data(), tensor.shape.size(),
                                     ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING);
    if (auto ok = fill_strings(value, tensor, *count); !ok) return std::unexpected(ok.error());
    return value;
  }
  const std::size_t element = data_type_size(tensor.type);
  if (tensor.data.size_bytes() != *count * element) {
    return fail(ErrorCode::invalid_argument,
                std::format("input '{}' has {} bytes, shape {} of {} needs {}", tensor.name, tensor.data.size_bytes(),
                            shape_text(tensor.shape), data_type_name(tensor.type), *count * element));
  }
  Buffer data = tensor.data;
  if (reinterpret_cast<std::uintptr_t>(data.bytes().data()) % element != 0) {
    data = Buffer::copy_of(data.bytes());
    kept.push_back(data);
  }
  // Kernels only read their inputs; the interface isn't const. An empty tensor still needs an address.
  static std::byte nothing[64];
  void* at = data.size_bytes() == 0 ? nothing : data.bytes().data();
  return Ort::Value::CreateTensor(host_memory, at, data.size_bytes(), tensor.shape.data(), tensor.shape.size(),
                                  static_cast<ONNXTensorElementDataType>(onnx_from_data_type(tensor.type)));
}

Result<Tensor> Session::Impl::take_output(const OutputRequest& wanted, Ort::Value& value) {
  Tensor tensor;
  tensor.name = wanted.name;
  if (!value.IsTensor()) return fail(ErrorCode::unimplemented, std::format("output '{}' is not a tensor", wanted.name));
  auto info = value.GetTensorTypeAndShapeInfo();
  auto type = data_type_from_onnx(static_cast<std::int32_t>(info.GetElementType()));
  if (!type)
    return fail(ErrorCode::unimplemented,
                std::format("output '{}' has a type that the protocol can't carry", wanted.name));
  tensor.type = *type;
  tensor.shape = info.GetShape();
  if (wanted.destination) {
    tensor.data = *wanted.destination;
    return tensor;
  }
  const std::uint64_t count = info.GetElementCount();
  if (tensor.type == DataType::bytes) {
    std::vector<std::string_view> elements;
    elements.reserve(count);
    std::vector<std::size_t> offsets(count);
    std::string text(count == 0 ? 0 : value.GetStringTensorDataLength(), '\0');
    if (count > 0) value.GetStringTensorContent(text.data(), text.size(), offsets.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t end = i + 1 < count ? offsets[i + 1] : text.size();
      elements.emplace_back(text.data() + offsets[i], end - offsets[i]);
    }
    tensor.data = encode_bytes_tensor(elements);
    return tensor;
  }
  // Copied out of the session's memory: that has to be free when the session goes, whoever still holds a response.
  const std::uint64_t bytes = count * data_type_size(tensor.type);
  tensor.data = Buffer::allocate(bytes);
  if (bytes > 0) std::memcpy(tensor.data.bytes().data(), value.GetTensorRawData(), bytes);
  return tensor;
}

Error Session::Impl::run_error(ErrorCode code, const std::string& message, std::uint64_t refusals_before,
                               const std::stop_token& cancelled) const {
  if (cancelled.stop_requested()) return {ErrorCode::cancelled, "it was cancelled while it ran", {}, {}, {}};
  if (allocator.refusals() != refusals_before) {
    return {ErrorCode::resource_exhausted,
            std::format("the run takes more memory than the {} bytes that the model may have (it wanted {}); send "
                        "smaller inputs or raise "
                        "the device's aperture_bytes",
                        allocator.limit_bytes(), allocator.refused_total_bytes()),
            {},
            allocator.refused_total_bytes(),
            allocator.limit_bytes()};
  }
  return {code, one_line(message), {}, {}, {}};
}

Result<std::vector<Tensor>> Session::run(std::span<const Tensor> inputs, std::span<const OutputRequest> outputs,
                                         std::stop_token cancelled) {
  const std::uint64_t refusals = impl_->allocator.refusals();
  struct RunEnd {
    SessionAllocator& allocator;
    ~RunEnd() { allocator.run_ended(); }
  } end{impl_->allocator};  // after the values below are gone
  try {
    std::array<std::byte, 512> first_block;
    std::pmr::monotonic_buffer_resource block(first_block.data(), first_block.size());
    std::pmr::vector<const char*> input_names(&block), output_names(&block);
    std::pmr::vector<Ort::Value> input_values(&block), output_values(&block);
    std::vector<Buffer> kept;
    input_names.reserve(inputs.size());
    input_values.reserve(inputs.size());
    output_names.reserve(outputs.size());
    output_values.reserve(outputs.size());
    for (const Tensor& tensor : inputs) {
      auto value = impl_->input_value(tensor, kept);
      if (!value) return std::unexpected(value.error());
      input_names.push_back(tensor.name.c_str());
      input_values.push_back(std::move(*value));
    }
    for (const OutputRequest& wanted : outputs) {
      output_names.push_back(wanted.name.c_str());
      output_values.emplace_back(nullptr);
      if (wanted.destination) {
        output_values.back() =
            Ort::Value::CreateTensor(impl_->host_memory, wanted.destination->bytes().data(),
                                     wanted.destination->size_bytes(), wanted.shape.data(), wanted.shape.size(),
                                     static_cast<ONNXTensorElementDataType>(onnx_from_data_type(wanted.type)));
      }
    }
    Ort::RunOptions options;
    std::stop_callback terminate(cancelled, [&options] { options.SetTerminate(); });
    impl_->session->Run(options, input_names.data(), input_values.data(), input_values.size(), output_names.data(),
                        output_values.data(), output_values.size());
    std::vector<Tensor> results;
    results.reserve(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      auto tensor = impl_->take_output(outputs[i], output_values[i]);
      if (!tensor) return std::unexpected(tensor.error());
      results.push_back(std::move(*tensor));
    }
    return results;
  } catch (const Ort::Exception& error) {
    // What the graph can't do with these inputs is the client's matter: sizes that don't go together, an index out of
    // range.
    const bool ours = error.GetOrtErrorCode() == ORT_ENGINE_ERROR || error.GetOrtErrorCode() == ORT_EP_FAIL;
    return std::unexpected(
        impl_->run_error(ours ? ErrorCode::internal : ErrorCode::invalid_argument, error.what(), refusals, cancelled));
  } catch (const std::exception& error) {
    return std::unexpected(impl_->run_error(ErrorCode::internal, error.what(), refusals, cancelled));
  }
}

std::uint64_t Session::held_bytes() const { return impl_->allocator.held_bytes(); }
std::uint64_t Session::created_bytes() const { return impl_->created_bytes; }

}  // namespace npud
