// SPDX-License-Identifier: Apache-2.0
#include "engine/onnx_file.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/onnx_pb.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <format>
#include <limits>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "engine/onnx_types.h"

namespace npud {
namespace {

constexpr std::uint64_t max_tensor_bytes = 1ull << 40;
constexpr int max_rank = 64;
constexpr int max_graph_depth = 16;  // of subgraphs in If, Loop and Scan

// Names come from the file: shortened, and without bytes that would break a log line.
std::string shown(const std::string& name) {
  std::string text = "'";
  for (char c : name.substr(0, 100)) text += (c >= 0x20 && c != 0x7f) ? c : '?';
  return text + (name.size() > 100 ? "…'" : "'");
}

std::optional<std::uint64_t> parse_number(const std::string& text) {
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<OnnxExternalData> external_data(const onnx::TensorProto& tensor, std::uint64_t expected_bytes) {
  OnnxExternalData data;
  data.length_bytes = expected_bytes;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") {
      data.location = entry.value();
    } else if (entry.key() == "offset" || entry.key() == "length") {
      auto number = parse_number(entry.value());
      if (!number) {
        return fail(ErrorCode::invalid_argument, std::format("external data of weight {} has {} {}, which is no number",
                                                             shown(tensor.name()), entry.key(), shown(entry.value())));
      }
      (entry.key() == "offset" ? data.offset_bytes : data.length_bytes) = *number;
    }
  }
  bool escapes = data.location.empty() || data.location.is_absolute() ||
                 data.location.native().find('\0') != std::string::npos ||
                 data.location.native().find('\\') != std::string::npos;
  for (const auto& part : data.location) escapes = escapes || part == ".." || part.empty();
  if (escapes) {
    return fail(
        ErrorCode::invalid_argument,
        std::format("external data of weight {} lies at {}; it has to be a file beside the model, named without '..'",
                    shown(tensor.name()), shown(data.location.native())));
  }
  if (data.length_bytes != expected_bytes || data.offset_bytes > max_tensor_bytes) {
    return fail(ErrorCode::invalid_argument,
                std::format("external data of weight {} has {} bytes at offset {}, its shape needs {}",
                            shown(tensor.name()), data.length_bytes, data.offset_bytes, expected_bytes));
  }
  return data;
}

// Adds the tensor's bytes, and checks that the data that the shape promises is there.
Result<> inspect_weight(const onnx::TensorProto& tensor, OnnxInfo& info) {
  std::uint64_t elements = 1;
  if (tensor.dims_size() > max_rank) {
    return fail(ErrorCode::invalid_argument,
                std::format("weight {} has {} dimensions", shown(tensor.name()), tensor.dims_size()));
  }
  for (std::int64_t dim : tensor.dims()) {
    if (dim < 0) {
      return fail(ErrorCode::invalid_argument,
                  std::format("weight {} has a dimension of {}", shown(tensor.name()), dim));
    }
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(dim), &elements) || elements > max_tensor_bytes) {
      return fail(ErrorCode::invalid_argument,
                  std::format("weight {} has a shape of more than 2^40 elements", shown(tensor.name())));
    }
  }
  if (tensor.data_type() == onnx::TensorProto::STRING) {
    if (static_cast<std::uint64_t>(tensor.string_data_size()) != elements) {
      return fail(ErrorCode::data_loss, std::format("constant {} has {} strings, its shape needs {}",
                                                    shown(tensor.name()), tensor.string_data_size(), elements));
    }
    for (const auto& text : tensor.string_data()) info.weight_bytes += text.size();
    return {};
  }
  const std::uint32_t bits = onnx_type_bits(tensor.data_type());
  if (bits == 0) {
    return fail(ErrorCode::unimplemented,
                std::format("weight {} has the unknown data type {}", shown(tensor.name()), tensor.data_type()));
  }
  const std::uint64_t bytes = (elements * bits + 7) / 8;
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
    auto data = external_data(tensor, bytes);
    if (!data) return std::unexpected(data.error());
    info.external.push_back(std::move(*data));
  } else if (tensor.has_raw_data()) {
    if (tensor.raw_data().size() != bytes) {
      return fail(ErrorCode::data_loss, std::format("weight {} has {} bytes, its shape needs {}", shown(tensor.name()),
                                                    tensor.raw_data().size(), bytes));
    }
  } else {
    // Typed fields hold one entry an element, except two for a complex number and two 4-bit numbers in an int32.
    const std::uint64_t entries = static_cast<std::uint64_t>(tensor.float_data_size()) + tensor.int32_data_size() +
                                  tensor.int64_data_size() + tensor.double_data_size() + tensor.uint64_data_size();
    const bool complex =
        tensor.data_type() == onnx::TensorProto::COMPLEX64 || tensor.data_type() == onnx::TensorProto::COMPLEX128;
    const std::uint64_t expected = complex ? 2 * elements : bits == 4 ? (elements + 1) / 2 : elements;
    if (entries != expected) {
      return fail(ErrorCode::data_loss,
                  std::format("weight {} has {} values, its shape needs {}", shown(tensor.name()), entries, expected));
    }
  }
  info.weight_bytes += bytes;
  return {};
}

Result<> inspect_nodes(const onnx::GraphProto& graph, int depth, OnnxInfo& info);

Result<> inspect_attributes(const onnx::NodeProto& node, int depth, OnnxInfo& info) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_t()) {
      if (auto ok = inspect_weight(attribute.t(), info); !ok) return ok;
    }
    for (const auto& tensor : attribute.tensors()) {
      if (auto ok = inspect_weight(tensor, info); !ok) return ok;
    }
    if (attribute.has_g()) {
      if (auto ok = inspect_nodes(attribute.g(), depth + 1, info); !ok) return ok;
    }
    for (const auto& graph : attribute.graphs()) {
      if (auto ok = inspect_nodes(graph, depth + 1, info); !ok) return ok;
    }
  }
  return {};
}

// Every value has one producer, and nodes can be put into an order (Kahn).
Result<> check_acyclic(const onnx::GraphProto& graph) {
  std::unordered_map<std::string, int> producer;
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const auto& output : graph.node(i).output()) {
      if (!output.empty() && !producer.emplace(output, i).second) {
        return fail(ErrorCode::invalid_argument, std::format("value {} has two producers", shown(output)));
      }
    }
  }
  std::vector<std::vector<int>> consumers(graph.node_size());
  std::vector<int> waits_for(graph.node_size());
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const auto& input : graph.node(i).input()) {
      if (auto found = producer.find(input); found != producer.end()) {
        consumers[found->second].push_back(i);
        ++waits_for[i];
      }
    }
  }
  std::vector<int> ready;
  for (int i = 0; i < graph.node_size(); ++i)
    if (waits_for[i] == 0) ready.push_back(i);
  int done = 0;
  while (!ready.empty()) {
    const int node = ready.back();
    ready.pop_back();
    ++done;
    for (int consumer : consumers[node])
      if (--waits_for[consumer] == 0) ready.push_back(consumer);
  }
  if (done == graph.node_size()) return {};
  for (int i = 0; i < graph.node_size(); ++i) {
    if (waits_for[i] > 0) {
      return fail(ErrorCode::invalid_argument,
                  std::format("the graph has a cycle through node {} ({})", shown(graph.node(i).name()),
                              shown(graph.node(i).op_type())));
    }
  }
  return {};
}

Result<> inspect_nodes(const onnx::GraphProto& graph, int depth, OnnxInfo& info) {
  if (depth > max_graph_depth) return fail(ErrorCode::invalid_argument, "its subgraphs are nested too deeply");
  for (const auto& tensor : graph.initializer()) {
    if (auto ok = inspect_weight(tensor, info); !ok) return ok;
  }
  for (const auto& sparse : graph.sparse_initializer()) {
    if (auto ok = inspect_weight(sparse.values(), info); !ok) return ok;
    if (auto ok = inspect_weight(sparse.indices(), info); !ok) return ok;
  }
  for (const auto& node : graph.node()) {
    if (auto ok = inspect_attributes(node, depth, info); !ok) return ok;
  }
  info.node_count += graph.node_size();
  return check_acyclic(graph);
}

Result<OnnxTensor> inspect_value(const onnx::ValueInfoProto& value, const char* what) {
  OnnxTensor tensor;
  tensor.name = value.name();
  if (value.name().empty()) return fail(ErrorCode::data_loss, std::format("it has an {} without a name", what));
  if (!value.type().has_tensor_type()) {
    return fail(
        ErrorCode::unimplemented,
        std::format("{} {} is not a tensor; sequences, maps and optionals can't be served", what, shown(value.name())));
  }
  const auto& type = value.type().tensor_type();
  auto data_type = data_type_from_onnx(type.elem_type());
  if (!data_type) {
    return fail(ErrorCode::unimplemented, std::format("{} {} has ONNX data type {}, which the protocol can't carry",
                                                      what, shown(value.name()), type.elem_type()));
  }
  tensor.type = *data_type;
  if (!type.has_shape()) return tensor;
  if (type.shape().dim_size() > max_rank) {
    return fail(ErrorCode::invalid_argument,
                std::format("{} {} has {} dimensions", what, shown(value.name()), type.shape().dim_size()));
  }
  tensor.shape.emplace();
  std::uint64_t elements = 1;
  for (const auto& dim : type.shape().dim()) {
    // Exporters write 0 and negative numbers for "any size" as well as leaving the value out.
    const bool fixed = dim.has_dim_value() && dim.dim_value() > 0;
    tensor.shape->push_back(fixed ? dim.dim_value() : -1);
    if (fixed && (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(dim.dim_value()), &elements) ||
                  elements > max_tensor_bytes)) {
      return fail(ErrorCode::invalid_argument,
                  std::format("{} {} has a shape of more than 2^40 elements", what, shown(value.name())));
    }
  }
  return tensor;
}

Result<> inspect_interface(const onnx::GraphProto& graph, OnnxInfo& info) {
  std::unordered_set<std::string> initialised;
  for (const auto& tensor : graph.initializer()) initialised.insert(tensor.name());
  std::set<std::string> names;
  for (const auto& value : graph.input()) {
    // Before IR version 4 every weight had to be listed as an input; it is one no client means to send.
    if (initialised.contains(value.name()) && info.ir_version < 4) continue;
    auto tensor = inspect_value(value, "input");
    if (!tensor) return std::unexpected(tensor.error());
    tensor->has_default = initialised.contains(value.name());
    if (!names.insert(tensor->name).second)
      return fail(ErrorCode::data_loss, std::format("it has two inputs {}", shown(tensor->name)));
    info.inputs.push_back(std::move(*tensor));
  }
  names.clear();
  for (const auto& value : graph.output()) {
    auto tensor = inspect_value(value, "output");
    if (!tensor) return std::unexpected(tensor.error());
    if (!names.insert(tensor->name).second)
      return fail(ErrorCode::data_loss, std::format("it has two outputs {}", shown(tensor->name)));
    info.outputs.push_back(std::move(*tensor));
  }
  return {};
}

}  // namespace

Result<OnnxInfo> inspect_onnx(std::span<const std::byte> file) {
  if (file.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return fail(ErrorCode::invalid_argument,
                "it is larger than 2 GiB, the limit of the format; export it with external data");
  }
  onnx::ModelProto model;
  google::protobuf::io::ArrayInputStream stream(file.data(), static_cast<int>(file.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetRecursionLimit(4 * max_graph_depth + 36);
  if (!model.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
    return fail(ErrorCode::data_loss,
                std::format("its {} bytes are not a complete ONNX model; copy or export it again", file.size()));
  }
  if (!model.has_graph() || model.graph().output_size() == 0 || model.opset_import_size() == 0) {
    return fail(ErrorCode::data_loss,
                std::format("its {} bytes hold no ONNX graph with outputs and an operator set; copy or export it again",
                            file.size()));
  }
  OnnxInfo info;
  info.ir_version = model.ir_version();
  info.producer = model.producer_name();
  for (const auto& opset : model.opset_import()) {
    info.opsets[opset.domain() == "ai.onnx" ? "" : opset.domain()] = opset.version();
  }
  if (auto ok = inspect_nodes(model.graph(), 0, info); !ok) return std::unexpected(ok.error());
  if (auto ok = inspect_interface(model.graph(), info); !ok) return std::unexpected(ok.error());
  return info;
}

Result<OnnxInfo> inspect_onnx_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0)
    return fail(ErrorCode::not_found, std::format("{} can't be opened: {}", path.string(), std::strerror(errno)));
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat status{};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    return fail(ErrorCode::invalid_argument, std::format("{} is not a regular file", path.string()));
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > max_bytes) {
    return fail(ErrorCode::invalid_argument,
                std::format("{} has {} bytes, more than the {} that a model may have", path.string(), size, max_bytes));
  }
  // Read, not mapped: a file that shrinks while it is read must not be a SIGBUS.
  std::vector<std::byte> bytes(size);
  std::uint64_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd, bytes.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return fail(ErrorCode::data_loss, std::format("{} can't be read: {}", path.string(), std::strerror(errno)));
    if (got == 0) return fail(ErrorCode::data_loss, std::format("{} became shorter while it was read", path.string()));
    done += static_cast<std::uint64_t>(got);
  }
  return inspect_onnx(bytes);
}

}  // namespace npud
