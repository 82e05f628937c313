// SPDX-License-Identifier: Apache-2.0
#include "engine/model_config.h"

#include <algorithm>
#include <format>
#include <set>

#include "engine/config_common.h"
#include "engine/onnx_types.h"

namespace npud {
namespace {

std::unexpected<Error> refuse(std::string message) { return fail(ErrorCode::invalid_argument, std::move(message)); }
std::unexpected<Error> not_yet(std::string message) { return fail(ErrorCode::unimplemented, std::move(message)); }

std::string names_of(const std::vector<OnnxTensor>& tensors) {
  std::string text;
  for (const auto& tensor : tensors) text += (text.empty() ? "'" : ", '") + tensor.name + "'";
  return text.empty() ? "none" : text;
}

// Dimensions as config.pbtxt has them: without the batch dimension.
Result<std::vector<std::int64_t>> dims_from_file(const OnnxTensor& tensor, bool batched, const char* what) {
  std::vector<std::int64_t> dims = *tensor.shape;
  if (batched) {
    if (dims.empty() || dims[0] != -1) {
      return refuse(
          std::format("max_batch_size is set, but the first dimension of {} '{}' {} is not variable in the file; set "
                      "max_batch_size: 0 or export the model with a variable batch dimension",
                      what, tensor.name, shape_text(dims)));
    }
    dims.erase(dims.begin());
  }
  return dims;
}

// One entry of input[] or output[] against the file's tensor; fills in what is missing.
template <class Entry>
Result<TensorInfo> reconcile(Entry& entry, const OnnxTensor& tensor, bool batched, const char* what) {
  if (entry.has_reshape())
    return not_yet(std::format("{} '{}' has a reshape, which isn't supported yet", what, tensor.name));
  if (entry.is_shape_tensor())
    return not_yet(std::format("{} '{}' is a shape tensor, which ONNX models haven't", what, tensor.name));
  if (entry.data_type() == inference::TYPE_INVALID) {
    entry.set_data_type(config_from_data_type(tensor.type));
  } else if (data_type_from_config(entry.data_type()) != tensor.type) {
    return refuse(std::format("{} '{}' is {} in config.pbtxt and {} in the file; write data_type: {}", what,
                              tensor.name, inference::DataType_Name(entry.data_type()), data_type_name(tensor.type),
                              inference::DataType_Name(config_from_data_type(tensor.type))));
  }
  std::vector<std::int64_t> declared(entry.dims().begin(), entry.dims().end());
  for (std::int64_t dim : declared) {
    if (dim < -1 || dim == 0)
      return refuse(std::format("{} '{}' has a dimension of {}; write -1 for any size", what, tensor.name, dim));
  }
  if (auto elements = element_count([&] {
        auto fixed = declared;
        std::erase(fixed, -1);
        return fixed;
      }());
      !elements) {
    return refuse(
        std::format("{} '{}' has dims {}: {}", what, tensor.name, shape_text(declared), elements.error().message));
  }
  if (tensor.shape) {
    auto in_file = dims_from_file(tensor, batched, what);
    if (!in_file) return std::unexpected(in_file.error());
    if (declared.empty()) {
      declared = *in_file;
    } else {
      bool fits = declared.size() == in_file->size();
      for (std::size_t i = 0; fits && i < declared.size(); ++i) {
        fits = declared[i] == (*in_file)[i] || (*in_file)[i] == -1;
      }
      if (!fits) {
        return refuse(std::format("{} '{}' has dims {} in config.pbtxt, but {} in the file{}", what, tensor.name,
                                  shape_text(declared), shape_text(*in_file),
                                  batched ? " (without the batch dimension)" : ""));
      }
    }
  } else if (declared.empty() && std::string_view(what) == "input") {
    return refuse(
        std::format("the file doesn't say what shape input '{}' has; write its dims in config.pbtxt", tensor.name));
  } else if (declared.empty()) {
    declared = {-1};
  }
  entry.mutable_dims()->Assign(declared.begin(), declared.end());
  return TensorInfo{tensor.name, tensor.type, declared, false};
}

template <class Entries>
Result<std::vector<TensorInfo>> reconcile_all(Entries& entries, const std::vector<OnnxTensor>& tensors, bool batched,
                                              bool all_needed, const char* what) {
  if (entries.empty()) {
    for (const auto& tensor : tensors) entries.Add()->set_name(tensor.name);
  }
  std::vector<TensorInfo> result;
  std::set<std::string> seen;
  for (auto& entry : entries) {
    auto tensor = std::ranges::find(tensors, entry.name(), &OnnxTensor::name);
    if (tensor == tensors.end()) {
      return refuse(
          std::format("config.pbtxt has {} '{}', but the file has {}", what, entry.name(), names_of(tensors)));
    }
    if (!seen.insert(entry.name()).second)
      return refuse(std::format("config.pbtxt has {} '{}' twice", what, entry.name()));
    auto info = reconcile(entry, *tensor, batched, what);
    if (!info) return std::unexpected(info.error());
    if constexpr (requires { entry.optional(); }) {
      if (entry.optional() && !tensor->has_default) {
        return refuse(
            std::format("input '{}' is optional in config.pbtxt, but the file has no default for it", entry.name()));
      }
      if (entry.allow_ragged_batch())
        return not_yet(std::format("input '{}' allows ragged batches, which isn't supported yet", entry.name()));
      if (tensor->has_default) entry.set_optional(true);
      info->optional = tensor->has_default;
    }
    result.push_back(std::move(*info));
  }
  for (const auto& tensor : tensors) {
    if (all_needed && !tensor.has_default && !seen.contains(tensor.name)) {
      return refuse(std::format("{} '{}' of the file is missing in config.pbtxt", what, tensor.name));
    }
  }
  return result;
}

Result<> check_kind(inference::ModelConfig& config) {
  if (auto ok = check_served(config); !ok) return ok;
  const std::string& platform = config.platform();
  const std::string& backend = config.backend();
  if (!platform.empty() && platform != "onnxruntime_onnx") {
    return not_yet(
        std::format("platform \"{}\" isn't served; npud serves \"onnxruntime_onnx\" and \"rknn\"", platform));
  }
  if (!backend.empty() && backend != "onnxruntime") {
    return not_yet(std::format("backend \"{}\" isn't served; npud serves \"onnxruntime\" and \"rknn\"", backend));
  }
  config.set_platform("onnxruntime_onnx");
  config.set_backend("onnxruntime");
  return {};
}

// Who runs the heavy nodes; npud.place is stronger than npud.device.
Result<> apply_device(const std::map<std::string, std::string>& parameters, const std::string& device,
                      const NpuChoice* npu, OffloadSettings& offload) {
  for (const char* key : {"npud.device", "npud.place"}) {
    const auto found = parameters.find(key);
    if (found == parameters.end()) continue;
    const std::string& value = found->second;
    if (value == device) {
      offload.wanted = offload.automatic = false;
    } else if (value == "auto") {
      offload.automatic = true;
      offload.wanted = npu != nullptr && npu->healthy;
    } else if (npu != nullptr && (value == npu->name || value == npu->kind)) {
      offload.wanted = true;
      offload.automatic = false;
    } else {
      return refuse(
          std::format("parameter {} is \"{}\": there is no such device for this model here; there is \"{}\"{}", key,
                      value, device, npu == nullptr ? "" : std::format(" and \"{}\"", npu->name)));
    }
  }
  return {};
}

// The keys that say how nodes run on an NPU.
Result<> apply_offload(const std::string& key, const std::string& value, const std::string& device,
                       OffloadSettings& offload) {
  if (!offload.wanted && !offload.automatic) {
    return refuse(std::format(
        "parameter {} is for models on an NPU, and this one runs on \"{}\"; set npud.device, or leave it out", key,
        device));
  }
  if (key == "npud.verify") {
    if (value == "off") {
      offload.verify = OffloadVerify::off;
    } else if (value == "sampled") {
      offload.verify = OffloadVerify::sampled;
    } else if (value == "always") {
      offload.verify = OffloadVerify::always;
    } else {
      return refuse(std::format("parameter npud.verify is \"{}\"; write \"off\", \"sampled\" or \"always\"", value));
    }
    return {};
  }
  auto patterns = split_patterns(value);
  if (patterns.empty())
    return refuse(std::format("parameter {} has no pattern; write names of nodes, or leave it out", key));
  (key == "npud.host_nodes"   ? offload.host_nodes
   : key == "npud.int8_nodes" ? offload.int8_nodes
                              : offload.fp16_nodes) = std::move(patterns);
  return {};
}

Result<> apply_precision(const std::string& value, const std::string& device, OffloadSettings& offload) {
  const bool npu = offload.wanted || offload.automatic;
  if (npu && value == "fp16") {
    offload.precision = OffloadPrecision::fp16;
  } else if (npu && value == "int8") {
    offload.precision = OffloadPrecision::int8;
  } else if (npu) {
    return refuse(std::format("parameter npud.precision is \"{}\"; an NPU computes in \"fp16\" or \"int8\"", value));
  } else if (value != "model") {
    return refuse(std::format(
        "parameter npud.precision is \"{}\": device \"{}\" computes as the file says; write \"model\" or leave it out",
        value, device));
  }
  return {};
}

Result<> apply_parameters(const inference::ModelConfig& config, const std::string& device, const NpuChoice* npu,
                          ModelPlan& plan) {
  std::map<std::string, std::string> parameters;  // in an order, so that the same file gives the same error
  for (const auto& [key, value] : config.parameters()) parameters[key] = value.string_value();
  if (auto ok = apply_device(parameters, device, npu, plan.offload); !ok) return ok;
  for (const auto& [key, value] : parameters) {
    if (!key.starts_with("npud.") || key == "npud.device" || key == "npud.place") continue;
    if (key == "npud.precision") {
      if (auto ok = apply_precision(value, device, plan.offload); !ok) return ok;
    } else if (key == "npud.host_nodes" || key == "npud.int8_nodes" || key == "npud.fp16_nodes" ||
               key == "npud.verify") {
      if (auto ok = apply_offload(key, value, device, plan.offload); !ok) return ok;
    } else if (auto known = apply_residence(key, value, plan.residence); !known) {
      return std::unexpected(known.error());
    } else if (!*known) {
      return refuse(
          std::format("parameter {} is unknown; there are npud.device, npud.place, npud.precision, npud.host_nodes, "
                      "npud.int8_nodes, "
                      "npud.fp16_nodes, npud.verify, npud.pinned, npud.class",
                      key));
    }
  }
  return {};
}

}  // namespace

Result<ModelPlan> plan_model(inference::ModelConfig& config, const OnnxInfo& info, const QueueSettings& defaults,
                             const std::string& device, const NpuChoice* npu) {
  ModelPlan plan;
  if (auto ok = check_kind(config); !ok) return std::unexpected(ok.error());
  if (config.default_model_filename().empty()) config.set_default_model_filename("model.onnx");
  const bool batched = config.max_batch_size() > 0;
  if (config.has_dynamic_batching() && !batched) return refuse("dynamic_batching needs a max_batch_size above 0");
  auto inputs = reconcile_all(*config.mutable_input(), info.inputs, batched, true, "input");
  if (!inputs) return std::unexpected(inputs.error());
  auto outputs = reconcile_all(*config.mutable_output(), info.outputs, batched, false, "output");
  if (!outputs) return std::unexpected(outputs.error());
  plan.signature = {std::move(*inputs), std::move(*outputs), config.max_batch_size()};
  if (auto ok = apply_parameters(config, device, npu, plan); !ok) return std::unexpected(ok.error());
  QueueSettings device_defaults = defaults;
  if (plan.offload.wanted) device_defaults.instances = npu->cores;
  auto queue = queue_settings(config, device_defaults);
  if (!queue) return std::unexpected(queue.error());
  plan.queue = std::move(*queue);
  if (!config.has_version_policy()) config.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  plan.session.optimization_level = config.optimization().graph().level();
  return plan;
}

}  // namespace npud
