// SPDX-License-Identifier: Apache-2.0
#include "engine/rknn_plan.h"

#include <algorithm>
#include <format>
#include <map>
#include <optional>
#include <set>

#include "engine/onnx_types.h"

namespace npud {
namespace {

using rknn::TensorAttributes;
namespace abi = rknn::abi;

constexpr const char* quantisation_key = "npud.quantisation.";

std::unexpected<Error> refuse(std::string message) { return fail(ErrorCode::invalid_argument, std::move(message)); }

std::optional<DataType> own_type(abi::Type type) {
  switch (type) {
    case abi::kFloat32:
      return DataType::fp32;
    case abi::kFloat16:
      return DataType::fp16;
    case abi::kInt8:
      return DataType::int8;
    case abi::kUint8:
      return DataType::uint8;
    case abi::kInt16:
      return DataType::int16;
    case abi::kUint16:
      return DataType::uint16;
    case abi::kInt32:
      return DataType::int32;
    case abi::kUint32:
      return DataType::uint32;
    case abi::kInt64:
      return DataType::int64;
    case abi::kBool:
      return DataType::boolean;
    case abi::kBfloat16:
      return DataType::bf16;
    case abi::kInt4:
      return std::nullopt;  // the protocol can't carry it
  }
  return std::nullopt;
}

std::string names_of(const std::vector<TensorAttributes>& tensors) {
  std::string text;
  for (const auto& tensor : tensors) text += (text.empty() ? "'" : ", '") + tensor.name + "'";
  return text;
}

std::string type_name(DataType type) { return inference::DataType_Name(config_from_data_type(type)); }

std::string quantisation_text(const TensorAttributes& tensor) {
  switch (tensor.quantisation) {
    case abi::kQntAffineAsymmetric:
      return std::format("value = (number - {}) * {}", tensor.zero_point, tensor.scale);
    case abi::kQntDfp:
      return std::format("value = number / 2^{}", tensor.fraction_bits);
    case abi::kQntNone:
      break;
  }
  return {};
}

// The type of one entry; completes it.
template <class Entry>
Result<DataType> choose_type(Entry& entry, const TensorAttributes& tensor, const char* what,
                             std::initializer_list<DataType> others) {
  const auto own = own_type(tensor.type);
  if (entry.data_type() == inference::TYPE_INVALID) {
    if (!own)
      return refuse(std::format("{} '{}' is of 4-bit integers, which no protocol carries; write data_type: TYPE_FP32",
                                what, tensor.name));
    entry.set_data_type(config_from_data_type(*own));
    return *own;
  }
  const auto type = data_type_from_config(entry.data_type());
  if (type && (type == own || std::ranges::find(others, *type) != others.end())) return *type;
  std::string choices = own ? type_name(*own) : "";
  for (const DataType other : others) {
    if (other != own) choices += (choices.empty() ? "" : " or ") + type_name(other);
  }
  return refuse(std::format("{} '{}' is {} in config.pbtxt; the model has it as {}", what, tensor.name,
                            inference::DataType_Name(entry.data_type()), choices));
}

std::vector<std::int64_t> reordered(const std::vector<std::int64_t>& dims, abi::Format from, abi::Format to) {
  if (from == to) return dims;
  return from == abi::kNhwc ? std::vector{dims[0], dims[3], dims[1], dims[2]}
                            : std::vector{dims[0], dims[2], dims[3], dims[1]};
}

template <class Entry>
Result<> check_dims(Entry& entry, const std::vector<std::int64_t>& dims, const char* what) {
  const std::vector<std::int64_t> declared(entry.dims().begin(), entry.dims().end());
  if (!declared.empty() && declared != dims) {
    return refuse(std::format("{} '{}' has dims {} in config.pbtxt, but the model was compiled for {}", what,
                              entry.name(), shape_text(declared), shape_text(dims)));
  }
  entry.mutable_dims()->Assign(dims.begin(), dims.end());
  return {};
}

std::uint64_t bytes_of(const std::vector<std::int64_t>& dims, DataType type) {
  std::uint64_t bytes = data_type_size(type);
  for (const std::int64_t dim : dims) bytes *= static_cast<std::uint64_t>(dim);
  return bytes;
}

abi::Type runtime_type(DataType type, const TensorAttributes& tensor) {
  switch (type) {
    case DataType::fp32:
      return abi::kFloat32;
    case DataType::fp16:
      return abi::kFloat16;
    case DataType::uint8:
      return abi::kUint8;
    default:
      return tensor.type;
  }
}

Result<RknnTensors::In> plan_input(inference::ModelInput& entry, const TensorAttributes& tensor, TensorInfo& info) {
  if (entry.optional())
    return refuse(
        std::format("input '{}' is optional in config.pbtxt; compiled models have no defaults", entry.name()));
  if (entry.allow_ragged_batch() || entry.is_shape_tensor() || entry.has_reshape())
    return fail(ErrorCode::unimplemented,
                std::format("input '{}' is ragged, a shape tensor or reshaped, which isn't supported", entry.name()));
  auto type = choose_type(entry, tensor, "input", {DataType::fp32, DataType::fp16, DataType::uint8});
  if (!type) return std::unexpected(type.error());
  abi::Format format = tensor.format;
  if (entry.format() != inference::ModelInput::FORMAT_NONE) {
    if (tensor.dims.size() != 4 || (tensor.format != abi::kNchw && tensor.format != abi::kNhwc)) {
      return refuse(std::format("input '{}' has a format in config.pbtxt, but is no image: the model has it as {}",
                                entry.name(), shape_text(tensor.dims)));
    }
    format = entry.format() == inference::ModelInput::FORMAT_NCHW ? abi::kNchw : abi::kNhwc;
  }
  const auto dims = reordered(tensor.dims, tensor.format, format);
  if (auto ok = check_dims(entry, dims, "input"); !ok) return std::unexpected(ok.error());
  info = {tensor.name, *type, dims, false};
  return RknnTensors::In{0, runtime_type(*type, tensor), format, bytes_of(dims, *type)};
}

Result<RknnTensors::Out> plan_output(inference::ModelOutput& entry, const TensorAttributes& tensor, TensorInfo& info) {
  if (entry.is_shape_tensor() || entry.has_reshape())
    return fail(ErrorCode::unimplemented,
                std::format("output '{}' is a shape tensor or reshaped, which isn't supported", entry.name()));
  auto type = choose_type(entry, tensor, "output", {DataType::fp32});
  if (!type) return std::unexpected(type.error());
  if (auto ok = check_dims(entry, tensor.dims, "output"); !ok) return std::unexpected(ok.error());
  info = {tensor.name, *type, tensor.dims, false};
  return RknnTensors::Out{0, *type != own_type(tensor.type), bytes_of(tensor.dims, *type)};
}

// Entries of config.pbtxt by the model's tensors; all of the model's where there are none.
template <class Entries>
Result<std::map<std::string, std::size_t>> match(Entries& entries, const std::vector<TensorAttributes>& tensors,
                                                 const char* what) {
  if (entries.empty()) {
    for (const auto& tensor : tensors) entries.Add()->set_name(tensor.name);
  }
  std::map<std::string, std::size_t> places;
  for (int i = 0; i < entries.size(); ++i) {
    const std::string& name = entries[i].name();
    if (std::ranges::find(tensors, name, &TensorAttributes::name) == tensors.end())
      return refuse(std::format("config.pbtxt has {} '{}', but the model has {}", what, name, names_of(tensors)));
    if (!places.emplace(name, static_cast<std::size_t>(i)).second)
      return refuse(std::format("config.pbtxt has {} '{}' twice", what, name));
  }
  return places;
}

// What the numbers of a quantised tensor mean, where clients meet them.
Result<> tell_quantisation(inference::ModelConfig& config, const TensorAttributes& tensor, bool as_own,
                           std::set<std::string>& told) {
  const std::string text = quantisation_text(tensor), key = quantisation_key + tensor.name;
  if (text.empty() || !as_own) return {};
  told.insert(key);
  const auto written = config.parameters().find(key);
  if (written != config.parameters().end() && written->second.string_value() != text) {
    return refuse(std::format("parameter {} is \"{}\" in config.pbtxt; the model says \"{}\"", key,
                              written->second.string_value(), text));
  }
  (*config.mutable_parameters())[key].set_string_value(text);
  return {};
}

}  // namespace

Result<RknnPlacement> plan_rknn_placement(inference::ModelConfig& config, const QueueSettings& defaults,
                                          const std::string& device, std::uint32_t cores) {
  if (auto ok = check_served(config); !ok) return std::unexpected(ok.error());
  for (const std::string& kind : {config.platform(), config.backend()}) {
    if (!kind.empty() && kind != "rknn")
      return refuse(std::format("platform and backend of a compiled .rknn model are \"rknn\", not \"{}\"", kind));
  }
  config.set_platform("rknn");
  config.set_backend("rknn");
  if (config.max_batch_size() > 0)
    return refuse(
        "max_batch_size is set, but a .rknn model has the batch that it was compiled for; leave it out and write whole "
        "dims");
  if (config.has_dynamic_batching())
    return refuse("dynamic_batching needs a max_batch_size above 0, which .rknn models can't have");
  if (config.optimization().has_graph())
    return refuse("optimization.graph is for ONNX models; a .rknn model is compiled");
  RknnPlacement placement;
  std::map<std::string, std::string> parameters;  // in an order, so that the same file gives the same error
  for (const auto& [key, value] : config.parameters()) parameters[key] = value.string_value();
  for (const auto& [key, value] : parameters) {
    if (!key.starts_with("npud.") || key.starts_with(quantisation_key)) continue;
    if (key == "npud.device") {
      if (value != device && value != "rknn" && value != "auto")
        return refuse(
            std::format("parameter npud.device is \"{}\"; compiled .rknn models run on \"{}\" alone", value, device));
      continue;
    }
    auto known = apply_residence(key, value, placement.residence);
    if (!known) return std::unexpected(known.error());
    if (!*known) {
      return refuse(
          std::format("parameter {} is unknown for .rknn models; there are npud.device, npud.pinned, npud.class", key));
    }
  }
  QueueSettings device_defaults = defaults;
  device_defaults.instances = std::max(cores, 1u);
  auto queue = queue_settings(config, device_defaults);
  if (!queue) return std::unexpected(queue.error());
  placement.queue = std::move(*queue);
  placement.contexts = std::min(placement.queue.instances, std::max(cores, 1u));
  if (!config.has_version_policy()) config.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  return placement;
}

Result<RknnTensors> plan_rknn_tensors(inference::ModelConfig& config, const std::vector<TensorAttributes>& inputs,
                                      const std::vector<TensorAttributes>& outputs) {
  RknnTensors plan;
  auto in_places = match(*config.mutable_input(), inputs, "input");
  if (!in_places) return std::unexpected(in_places.error());
  auto out_places = match(*config.mutable_output(), outputs, "output");
  if (!out_places) return std::unexpected(out_places.error());
  plan.signature.inputs.resize(in_places->size());
  plan.signature.outputs.resize(out_places->size());
  std::set<std::string> told;
  for (const auto& tensor : inputs) {
    const auto place = in_places->find(tensor.name);
    if (place == in_places->end())
      return refuse(std::format("input '{}' of the model is missing in config.pbtxt", tensor.name));
    TensorInfo& info = plan.signature.inputs[place->second];
    auto input = plan_input(*config.mutable_input(static_cast<int>(place->second)), tensor, info);
    if (!input) return std::unexpected(input.error());
    input->in_signature = place->second;
    plan.inputs.push_back(*input);
    if (auto ok = tell_quantisation(config, tensor, info.type == own_type(tensor.type), told); !ok)
      return std::unexpected(ok.error());
  }
  for (const auto& tensor : outputs) {
    const auto place = out_places->find(tensor.name);
    if (place == out_places->end()) {
      plan.outputs.push_back({-1, true, bytes_of(tensor.dims, DataType::fp32)});
      continue;
    }
    TensorInfo& info = plan.signature.outputs[place->second];
    auto output = plan_output(*config.mutable_output(static_cast<int>(place->second)), tensor, info);
    if (!output) return std::unexpected(output.error());
    output->in_signature = static_cast<std::int64_t>(place->second);
    plan.outputs.push_back(*output);
    if (auto ok = tell_quantisation(config, tensor, !output->as_float, told); !ok) return std::unexpected(ok.error());
  }
  for (const auto& [key, value] : config.parameters()) {
    if (key.starts_with(quantisation_key) && !told.contains(key))
      return refuse(
          std::format("parameter {}: the model has no such tensor, or it isn't answered in quantised numbers", key));
  }
  return plan;
}

}  // namespace npud
