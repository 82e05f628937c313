// SPDX-License-Identifier: Apache-2.0
#include "codec.h"

#include <cstring>
#include <format>

#include "rpc/status_details.pb.h"

namespace npud::client {
namespace {

using inference::InferParameter;

void set_parameter(InferParameter& to, const Parameter& from) {
  if (const auto* b = std::get_if<bool>(&from)) to.set_bool_param(*b);
  if (const auto* i = std::get_if<std::int64_t>(&from)) to.set_int64_param(*i);
  if (const auto* s = std::get_if<std::string>(&from)) to.set_string_param(*s);
  if (const auto* d = std::get_if<double>(&from)) to.set_double_param(*d);
}

std::optional<Parameter> get_parameter(const InferParameter& from) {
  switch (from.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return from.bool_param();
    case InferParameter::kInt64Param:
      return from.int64_param();
    case InferParameter::kUint64Param:
      return static_cast<std::int64_t>(from.uint64_param());
    case InferParameter::kStringParam:
      return from.string_param();
    case InferParameter::kDoubleParam:
      return from.double_param();
    case InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return std::nullopt;
}

template <class Parameters>
void set_region(Parameters& parameters, const RegionSpan& span) {
  parameters["shared_memory_region"].set_string_param(span.region);
  parameters["shared_memory_byte_size"].set_int64_param(static_cast<std::int64_t>(span.size_bytes));
  if (span.offset_bytes != 0)
    parameters["shared_memory_offset"].set_int64_param(static_cast<std::int64_t>(span.offset_bytes));
}

std::uint64_t unsigned_of(const InferParameter& parameter) {
  return parameter.has_uint64_param() ? parameter.uint64_param() : static_cast<std::uint64_t>(parameter.int64_param());
}

std::optional<RegionSpan> get_region(const google::protobuf::Map<std::string, InferParameter>& parameters) {
  auto region = parameters.find("shared_memory_region");
  if (region == parameters.end()) return std::nullopt;
  RegionSpan span{region->second.string_param(), 0, 0};
  if (auto it = parameters.find("shared_memory_offset"); it != parameters.end())
    span.offset_bytes = unsigned_of(it->second);
  if (auto it = parameters.find("shared_memory_byte_size"); it != parameters.end())
    span.size_bytes = unsigned_of(it->second);
  return span;
}

// Elements of a typed field, narrowed to `Narrow`, as raw bytes.
template <class Narrow, class Field>
std::string pack(const Field& field) {
  std::string raw;
  raw.reserve(static_cast<std::size_t>(field.size()) * sizeof(Narrow));
  for (const auto& value : field) {
    auto narrow = static_cast<Narrow>(value);
    raw.append(reinterpret_cast<const char*>(&narrow), sizeof(narrow));
  }
  return raw;
}

std::string raw_of(DataType type, const inference::InferTensorContents& contents) {
  switch (type) {
    case DataType::boolean:
      return pack<std::uint8_t>(contents.bool_contents());
    case DataType::uint8:
      return pack<std::uint8_t>(contents.uint_contents());
    case DataType::uint16:
      return pack<std::uint16_t>(contents.uint_contents());
    case DataType::uint32:
      return pack<std::uint32_t>(contents.uint_contents());
    case DataType::uint64:
      return pack<std::uint64_t>(contents.uint64_contents());
    case DataType::int8:
      return pack<std::int8_t>(contents.int_contents());
    case DataType::int16:
      return pack<std::int16_t>(contents.int_contents());
    case DataType::int32:
      return pack<std::int32_t>(contents.int_contents());
    case DataType::int64:
      return pack<std::int64_t>(contents.int64_contents());
    case DataType::fp32:
      return pack<float>(contents.fp32_contents());
    case DataType::fp64:
      return pack<double>(contents.fp64_contents());
    case DataType::bytes: {
      std::vector<std::string> values(contents.bytes_contents().begin(), contents.bytes_contents().end());
      return Tensor::of_strings("", {}, values).data;
    }
    case DataType::fp16:
    case DataType::bf16:
      break;
  }
  return {};
}

}  // namespace

void encode(InferRequest&& request, inference::ModelInferRequest& message) {
  message.set_model_name(std::move(request.model));
  message.set_model_version(std::move(request.version));
  message.set_id(std::move(request.id));
  auto& parameters = *message.mutable_parameters();
  for (const auto& [name, value] : request.parameters) set_parameter(parameters[name], value);
  if (request.priority != 0) parameters["priority"].set_uint64_param(request.priority);
  if (request.timeout) parameters["timeout"].set_int64_param(request.timeout->count());
  for (Tensor& input : request.inputs) {
    auto& to = *message.add_inputs();
    to.set_name(std::move(input.name));
    to.set_datatype(std::string(data_type_name(input.type)));
    to.mutable_shape()->Assign(input.shape.begin(), input.shape.end());
    if (input.shared) {
      set_region(*to.mutable_parameters(), *input.shared);
    } else {
      message.add_raw_input_contents(std::move(input.data));
    }
  }
  for (OutputWanted& output : request.outputs) {
    auto& to = *message.add_outputs();
    to.set_name(std::move(output.name));
    if (output.shared) set_region(*to.mutable_parameters(), *output.shared);
  }
}

Result<InferResult> decode(inference::ModelInferResponse&& message) {
  InferResult result;
  result.model = std::move(*message.mutable_model_name());
  result.version = std::move(*message.mutable_model_version());
  result.id = std::move(*message.mutable_id());
  for (const auto& [name, value] : message.parameters()) {
    if (auto parameter = get_parameter(value)) result.parameters.emplace(name, *std::move(parameter));
  }
  // Some servers send a (then empty) raw entry for outputs in shared memory too, some don't.
  const bool raw_for_each = message.raw_output_contents_size() == message.outputs_size();
  int raw = 0;
  for (auto& output : *message.mutable_outputs()) {
    auto type = data_type_from_name(output.datatype());
    if (!type)
      return fail(Code::data_loss,
                  std::format("the answer's output '{}' has the unknown type '{}'", output.name(), output.datatype()));
    Tensor tensor{std::move(*output.mutable_name()),
                  *type,
                  {output.shape().begin(), output.shape().end()},
                  {},
                  get_region(output.parameters())};
    auto elements = element_count(tensor.shape);
    if (!elements) return std::unexpected(elements.error());
    if (tensor.shared) {
      if (raw_for_each) ++raw;
    } else {
      if (output.has_contents()) {
        tensor.data = raw_of(*type, output.contents());
      } else if (raw < message.raw_output_contents_size()) {
        tensor.data = std::move(*message.mutable_raw_output_contents(raw++));
      } else {
        return fail(Code::data_loss, std::format("the answer has no data for output '{}'", tensor.name));
      }
      if (*type != DataType::bytes && tensor.data.size() != *elements * data_type_size(*type)) {
        return fail(Code::data_loss,
                    std::format("the answer's output '{}' of shape {} has {} bytes instead of {}", tensor.name,
                                shape_text(tensor.shape), tensor.data.size(), *elements * data_type_size(*type)));
      }
    }
    result.outputs.push_back(std::move(tensor));
  }
  return result;
}

std::string path_of(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  auto path = trailers.find("npud-path");
  return path == trailers.end() ? std::string() : std::string(path->second.data(), path->second.size());
}

Error error_of(const grpc::Status& status, const grpc::ClientContext* context) {
  Error error{static_cast<Code>(status.error_code()), status.error_message(), {}, {}, {}, {}};
  if (context != nullptr) error.path = path_of(*context);
  google::rpc::Status details;
  if (status.error_details().empty() || !details.ParseFromString(status.error_details())) return error;
  for (const auto& any : details.details()) {
    google::rpc::RetryInfo retry;
    google::rpc::ErrorInfo info;
    if (any.UnpackTo(&retry)) {
      error.retry_after =
          std::chrono::microseconds(retry.retry_delay().seconds() * 1'000'000 + retry.retry_delay().nanos() / 1000);
    } else if (any.UnpackTo(&info)) {
      auto number = [&](const char* name) -> std::optional<std::uint64_t> {
        auto it = info.metadata().find(name);
        if (it == info.metadata().end() || it->second.empty()) return std::nullopt;
        char* end = nullptr;
        errno = 0;
        std::uint64_t value = std::strtoull(it->second.c_str(), &end, 10);
        return *end == '\0' && errno == 0 ? std::optional(value) : std::nullopt;
      };
      error.bytes_needed = number("bytes_needed");
      error.bytes_free = number("bytes_free");
    }
  }
  return error;
}

}  // namespace npud::client
