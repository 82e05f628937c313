// SPDX-License-Identifier: Apache-2.0
#include "api/decode.h"

#include <charconv>
#include <cstring>
#include <format>
#include <limits>

#include "core/utf8.h"

namespace npud::api {
namespace {

using Parameter = inference::InferParameter;
using Contents = inference::InferTensorContents;

constexpr std::size_t max_name_bytes = 256;
constexpr int max_tensors = 4096;
constexpr int max_dimensions = 64;

std::unexpected<Error> invalid(std::string message) { return fail(ErrorCode::invalid_argument, std::move(message)); }

// Names come back in messages: quoted, printable, short.
std::string shown(std::string_view name) {
  std::string out = "'";
  for (unsigned char c : utf8_prefix(name, 64)) {
    if (c < 0x20 || c == 0x7f) {
      out += std::format("\\x{:02x}", c);
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + (name.size() > 64 ? "…'" : "'");
}

// Either integer arm, as clients send either.
Result<std::uint64_t> unsigned_parameter(const std::string& name, const Parameter& value) {
  switch (value.parameter_choice_case()) {
    case Parameter::kUint64Param:
      return value.uint64_param();
    case Parameter::kInt64Param:
      if (value.int64_param() >= 0) return static_cast<std::uint64_t>(value.int64_param());
      return invalid(std::format("parameter '{}' is {}: it must not be negative", name, value.int64_param()));
    default:
      return invalid(std::format("parameter '{}' must be an integer (int64_param or uint64_param)", name));
  }
}

Result<> apply_sequence_parameter(const std::string& name, const Parameter& value) {
  // The values that mean "no sequence" are fine: client libraries send them always.
  const bool harmless = (value.has_int64_param() && value.int64_param() == 0) ||
                        (value.has_uint64_param() && value.uint64_param() == 0) ||
                        (value.has_string_param() && value.string_param().empty()) ||
                        (value.has_bool_param() && !value.bool_param());
  if (harmless) {
    return {};
  }
  return fail(
      ErrorCode::unimplemented,
      std::format("parameter '{}': npud doesn't keep sequence state yet; send the state as a tensor and leave {} out",
                  name, name));
}

Result<> apply_parameter(const std::string& name, const Parameter& value, const DecodeContext& context,
                         Request& request) {
  if (name == "priority") {
    auto number = unsigned_parameter(name, value);
    if (!number) return std::unexpected(number.error());
    request.priority = *number;
    return {};
  }
  if (name == "timeout") {
    auto number = unsigned_parameter(name, value);
    if (!number) return std::unexpected(number.error());
    if (*number > 0 && *number < static_cast<std::uint64_t>(Duration::max().count() / 4)) {
      request.deadline = std::min(request.deadline, context.now + Duration(static_cast<std::int64_t>(*number)));
    }
    return {};
  }
  if (name == "sequence_id" || name == "sequence_start" || name == "sequence_end") {
    return apply_sequence_parameter(name, value);
  }
  if (name == "npud.class") {
    PriorityClass wanted;
    if (value.string_param() == "realtime")
      wanted = PriorityClass::realtime;
    else if (value.string_param() == "interactive")
      wanted = PriorityClass::interactive;
    else if (value.string_param() == "batch")
      wanted = PriorityClass::batch;
    else
      return invalid("parameter 'npud.class' must be the string realtime, interactive or batch");
    if (wanted < context.highest_class) {
      return fail(ErrorCode::permission_denied,
                  std::format("class '{}' is above what this tenant may ask for: leave npud.class out, or have the "
                              "administrator raise the tenant's max_class",
                              value.string_param()));
    }
    request.priority_class = wanted;
    return {};
  }
  if (name == "triton_enable_empty_final_response" && value.has_bool_param()) {
    return {};  // about models with any number of answers, of which npud has none
  }
  return invalid(
      std::format("unknown request parameter {}: known are priority, timeout, npud.class, sequence_id, sequence_start, "
                  "sequence_end",
                  shown(name)));
}

// The shared_memory_* parameters of a tensor; nullopt without them.
template <class Map>
Result<std::optional<RegionPart>> region_of(const std::string& tensor, const Map& parameters) {
  RegionPart part;
  bool region = false, size = false, offset = false;
  for (const auto& [name, value] : parameters) {
    if (name == "shared_memory_region") {
      if (!value.has_string_param() || value.string_param().empty()) {
        return invalid(std::format("tensor {}: shared_memory_region must be a string, the name of a registered region",
                                   shown(tensor)));
      }
      part.region = value.string_param();
      region = true;
    } else if (name == "shared_memory_byte_size" || name == "shared_memory_offset") {
      auto number = unsigned_parameter(name, value);
      if (!number) {
        return invalid(std::format("tensor {}: {}", shown(tensor), number.error().message));
      }
      (name == "shared_memory_offset" ? part.offset_bytes : part.size_bytes) = *number;
      (name == "shared_memory_offset" ? offset : size) = true;
    } else if (name == "classification") {
      auto number = unsigned_parameter(name, value);
      if (!number || *number != 0) {
        return fail(
            ErrorCode::unimplemented,
            std::format("tensor {}: npud has no classification extension; ask for the tensor itself", shown(tensor)));
      }
    } else {
      return invalid(
          std::format("tensor {}: unknown parameter {}: known are shared_memory_region, shared_memory_offset, "
                      "shared_memory_byte_size",
                      shown(tensor), shown(name)));
    }
  }
  if (!region) {
    if (size || offset) {
      return invalid(std::format(
          "tensor {}: shared_memory_byte_size and shared_memory_offset need shared_memory_region", shown(tensor)));
    }
    return std::optional<RegionPart>{};
  }
  if (!size) {
    return invalid(std::format("tensor {}: shared_memory_region needs shared_memory_byte_size", shown(tensor)));
  }
  return part;
}

bool has_contents(const Contents& c) {
  return c.bool_contents_size() + c.int_contents_size() + c.int64_contents_size() + c.uint_contents_size() +
             c.uint64_contents_size() + c.fp32_contents_size() + c.fp64_contents_size() + c.bytes_contents_size() >
         0;
}

// Writes `values` as T, each checked to fit.
template <class T, class Values>
Result<Buffer> narrowed(const std::string& tensor, const Values& values) {
  Buffer buffer = Buffer::allocate(static_cast<std::size_t>(values.size()) * sizeof(T));
  std::byte* out = buffer.bytes().data();
  for (const auto value : values) {
    if constexpr (!std::is_same_v<std::remove_cv_t<decltype(value)>, T>) {
      if (value < static_cast<decltype(value)>(std::numeric_limits<T>::lowest()) ||
          value > static_cast<decltype(value)>(std::numeric_limits<T>::max())) {
        return invalid(std::format("tensor {}: the element {} doesn't fit its datatype", shown(tensor), value));
      }
    }
    const T narrow = static_cast<T>(value);
    std::memcpy(out, &narrow, sizeof narrow);
    out += sizeof narrow;
  }
  return buffer;
}

Result<Buffer> bytes_tensor(const std::string& tensor, const google::protobuf::RepeatedPtrField<std::string>& values) {
  std::size_t size_bytes = 0;
  for (const std::string& value : values) {
    if (value.size() > std::numeric_limits<std::uint32_t>::max()) {
      return invalid(std::format("tensor {}: an element is longer than 4 GiB", shown(tensor)));
    }
    size_bytes += sizeof(std::uint32_t) + value.size();
  }
  Buffer buffer = Buffer::allocate(size_bytes);
  std::byte* out = buffer.bytes().data();
  for (const std::string& value : values) {
    const auto length = static_cast<std::uint32_t>(value.size());
    for (unsigned shift = 0; shift < 32; shift += 8) {
      *out++ = static_cast<std::byte>(length >> shift);
    }
    std::memcpy(out, value.data(), value.size());
    out += value.size();
  }
  return buffer;
}

// The one field of the contents that fits the type; anything in another field is an error.
Result<Buffer> from_contents(const Tensor& tensor, const Contents& c) {
  const DataType type = tensor.type;
  int count = 0;
  Result<Buffer> data = invalid(std::format("tensor {}: {} has no typed contents; send it in raw_input_contents",
                                            shown(tensor.name), data_type_name(type)));
  switch (type) {
    case DataType::boolean:
      count = c.bool_contents_size();
      data = narrowed<bool>(tensor.name, c.bool_contents());
      break;
    case DataType::int8:
      count = c.int_contents_size();
      data = narrowed<std::int8_t>(tensor.name, c.int_contents());
      break;
    case DataType::int16:
      count = c.int_contents_size();
      data = narrowed<std::int16_t>(tensor.name, c.int_contents());
      break;
    case DataType::int32:
      count = c.int_contents_size();
      data = narrowed<std::int32_t>(tensor.name, c.int_contents());
      break;
    case DataType::int64:
      count = c.int64_contents_size();
      data = narrowed<std::int64_t>(tensor.name, c.int64_contents());
      break;
    case DataType::uint8:
      count = c.uint_contents_size();
      data = narrowed<std::uint8_t>(tensor.name, c.uint_contents());
      break;
    case DataType::uint16:
      count = c.uint_contents_size();
      data = narrowed<std::uint16_t>(tensor.name, c.uint_contents());
      break;
    case DataType::uint32:
      count = c.uint_contents_size();
      data = narrowed<std::uint32_t>(tensor.name, c.uint_contents());
      break;
    case DataType::uint64:
      count = c.uint64_contents_size();
      data = narrowed<std::uint64_t>(tensor.name, c.uint64_contents());
      break;
    case DataType::fp32:
      count = c.fp32_contents_size();
      data = narrowed<float>(tensor.name, c.fp32_contents());
      break;
    case DataType::fp64:
      count = c.fp64_contents_size();
      data = narrowed<double>(tensor.name, c.fp64_contents());
      break;
    case DataType::bytes:
      count = c.bytes_contents_size();
      data = bytes_tensor(tensor.name, c.bytes_contents());
      break;
    case DataType::fp16:
    case DataType::bf16:
      return data;
  }
  if (!data) {
    return data;
  }
  const int all = c.bool_contents_size() + c.int_contents_size() + c.int64_contents_size() + c.uint_contents_size() +
                  c.uint64_contents_size() + c.fp32_contents_size() + c.fp64_contents_size() + c.bytes_contents_size();
  if (all != count) {
    return invalid(std::format("tensor {}: its contents are in a field that isn't {}'s", shown(tensor.name),
                               data_type_name(type)));
  }
  const auto wanted = element_count(tensor.shape);
  if (wanted && *wanted != static_cast<std::uint64_t>(count)) {
    return invalid(std::format("tensor {}: shape {} has {} elements, contents have {}", shown(tensor.name),
                               shape_text(tensor.shape), *wanted, count));
  }
  return data;
}

Result<> decode_inputs(const std::shared_ptr<inference::ModelInferRequest>& message, const DecodeContext& context,
                       Request& request) {
  const bool raw = message->raw_input_contents_size() > 0;
  if (message->inputs_size() > max_tensors || message->outputs_size() > max_tensors) {
    return invalid(std::format("more than {} tensors in one request", max_tensors));
  }
  int next_raw = 0;
  request.inputs.reserve(static_cast<std::size_t>(message->inputs_size()));
  for (const auto& input : message->inputs()) {
    if (input.name().empty()) {
      return invalid("an input has no name");
    }
    const auto type = data_type_from_name(input.datatype());
    if (!type) {
      return invalid(
          std::format("input {}: unknown datatype {}: use BOOL, UINT8 to UINT64, INT8 to INT64, FP16, BF16, FP32, "
                      "FP64 or BYTES",
                      shown(input.name()), shown(input.datatype())));
    }
    if (input.shape_size() > max_dimensions) {
      return invalid(std::format("input {}: {} dimensions are too many", shown(input.name()), input.shape_size()));
    }
    Tensor tensor{input.name(), *type, {input.shape().begin(), input.shape().end()}, {}};
    if (auto count = element_count(tensor.shape); !count) {
      return invalid(std::format("input {}: {}", shown(input.name()), count.error().message));
    }
    auto region = region_of(input.name(), input.parameters());
    if (!region) {
      return std::unexpected(region.error());
    }
    if (*region) {
      if (has_contents(input.contents())) {
        return invalid(std::format("input {}: has contents and shared memory at once; send one", shown(input.name())));
      }
      if (context.regions == nullptr) {
        return fail(
            ErrorCode::permission_denied,
            "shared memory is only for callers on the unix socket, and only where shared_memory.enabled is true");
      }
      auto data = context.regions->read(context.region_owner, **region);
      if (!data) {
        data.error().message = std::format("input {}: {}", shown(input.name()), data.error().message);
        return std::unexpected(data.error());
      }
      tensor.data = std::move(*data);
    } else if (raw) {
      if (has_contents(input.contents())) {
        return invalid(
            std::format("input {}: has typed contents, and the request has raw_input_contents; send one of the two",
                        shown(input.name())));
      }
      if (next_raw == message->raw_input_contents_size()) {
        return invalid(
            std::format("input {} has no entry in raw_input_contents, which has {}", shown(input.name()), next_raw));
      }
      std::string* bytes = message->mutable_raw_input_contents(next_raw++);
      tensor.data = Buffer(message, std::as_writable_bytes(std::span(*bytes)));
    } else {
      auto data = from_contents(tensor, input.contents());
      if (!data) {
        return std::unexpected(data.error());
      }
      tensor.data = std::move(*data);
    }
    request.payload_bytes += tensor.data.size_bytes();
    request.inputs.push_back(std::move(tensor));
  }
  if (next_raw != message->raw_input_contents_size()) {
    return invalid(std::format("raw_input_contents has {} entries for {} inputs that take one",
                               message->raw_input_contents_size(), next_raw));
  }
  return {};
}

Result<> decode_outputs(const inference::ModelInferRequest& message, const DecodeContext& context,
                        DecodedRequest& decoded) {
  for (const auto& output : message.outputs()) {
    if (output.name().empty()) {
      return invalid("a requested output has no name");
    }
    auto region = region_of(output.name(), output.parameters());
    if (!region) {
      return std::unexpected(region.error());
    }
    if (*region) {
      if (context.regions == nullptr) {
        return fail(
            ErrorCode::permission_denied,
            "shared memory is only for callers on the unix socket, and only where shared_memory.enabled is true");
      }
      if (auto checked = context.regions->check(context.region_owner, **region); !checked) {
        checked.error().message = std::format("output {}: {}", shown(output.name()), checked.error().message);
        return checked;
      }
      decoded.region_outputs.push_back({output.name(), std::move(**region)});
    }
    decoded.request.outputs.push_back({output.name(), std::nullopt});
  }
  return {};
}

}  // namespace

Result<std::optional<std::int64_t>> decode_version(const std::string& text) {
  if (text.empty()) {
    return std::optional<std::int64_t>{};
  }
  std::int64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc{} || end != text.data() + text.size() || version <= 0) {
    return invalid(std::format("model version {} is no positive integer", shown(text)));
  }
  return version;
}

Result<DecodedRequest> decode_infer(std::shared_ptr<inference::ModelInferRequest> message,
                                    const DecodeContext& context) {
  DecodedRequest decoded;
  Request& request = decoded.request;
  if (message->model_name().empty()) {
    return invalid("model_name is empty");
  }
  if (message->model_name().size() > max_name_bytes || message->id().size() > max_name_bytes) {
    return invalid(std::format("model_name and id may have at most {} bytes", max_name_bytes));
  }
  auto version = decode_version(message->model_version());
  if (!version) {
    return std::unexpected(version.error());
  }
  request.id = message->id();
  request.model = message->model_name();
  request.version = *version;
  request.tenant = context.tenant;
  request.priority_class = std::max(context.highest_class, PriorityClass::interactive);
  request.deadline = context.deadline;
  request.timings.received = context.now;
  for (const auto& [name, value] : message->parameters()) {
    if (auto applied = apply_parameter(name, value, context, request); !applied) {
      return std::unexpected(applied.error());
    }
  }
  if (auto inputs = decode_inputs(message, context, request); !inputs) {
    return std::unexpected(inputs.error());
  }
  if (auto outputs = decode_outputs(*message, context, decoded); !outputs) {
    return std::unexpected(outputs.error());
  }
  return decoded;
}

}  // namespace npud::api
