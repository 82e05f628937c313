// SPDX-License-Identifier: Apache-2.0
#include "core/validate.h"

#include <algorithm>
#include <cstring>
#include <format>
#include <ranges>

#include "core/utf8.h"

namespace npud {
namespace {

std::string names_of(const std::vector<TensorInfo>& infos) {
  std::string text;
  for (const TensorInfo& info : infos) text += (text.empty() ? "'" : ", '") + info.name + "'";
  return text.empty() ? "none" : text;
}

std::string quoted(const std::string& name) { return "'" + printable(name) + "'"; }

std::unexpected<Error> bad(std::string message) { return fail(ErrorCode::invalid_argument, std::move(message)); }

void mix(std::uint64_t& hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdull;
}

// BYTES: each element is a 4-byte little-endian length and that many bytes.
Result<> check_byte_elements(const Tensor& tensor, std::uint64_t count) {
  const auto bytes = tensor.data.bytes();
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (bytes.size() - at < 4) {
      return bad(
          std::format("input {} has {} elements by its shape, but its data ends in element {}; each is a 4-byte length "
                      "and the bytes",
                      quoted(tensor.name), count, i));
    }
    std::uint32_t length = 0;
    for (unsigned b = 0; b < 4; ++b) length |= static_cast<std::uint32_t>(bytes[at + b]) << (8 * b);
    at += 4;
    if (bytes.size() - at < length) {
      return bad(std::format(
          "element {} of input {} says that it has {} bytes, but {} are left; each element is a 4-byte little-endian "
          "length and the bytes",
          i, quoted(tensor.name), length, bytes.size() - at));
    }
    at += length;
  }
  if (at != bytes.size()) {
    return bad(std::format("input {} has {} bytes after its last element; its shape {} means {} elements",
                           quoted(tensor.name), bytes.size() - at, shape_text(tensor.shape), count));
  }
  return {};
}

Result<> check_input(const Tensor& tensor, const TensorInfo& info, std::int64_t max_batch_size) {
  if (tensor.type != info.type) {
    return bad(std::format("input {} has data type {}, but the model expects {}", quoted(tensor.name),
                           data_type_name(tensor.type), data_type_name(info.type)));
  }
  const std::size_t batch_rank = max_batch_size > 0 ? 1 : 0;
  const bool fits =
      tensor.shape.size() == info.shape.size() + batch_rank &&
      std::ranges::equal(info.shape, tensor.shape | std::views::drop(batch_rank),
                         [](std::int64_t expected, std::int64_t is) { return expected == -1 || expected == is; });
  if (!fits) {
    std::vector<std::int64_t> expected;
    if (batch_rank == 1) expected.push_back(-1);
    expected.insert(expected.end(), info.shape.begin(), info.shape.end());
    return bad(std::format("input {} has shape {}, but the model expects {}{}", quoted(tensor.name),
                           shape_text(tensor.shape), shape_text(expected),
                           batch_rank == 1 ? " (the first is the batch dimension)" : ""));
  }
  const auto count = element_count(tensor.shape);
  if (!count) return bad(std::format("input {}: {}", quoted(tensor.name), count.error().message));
  if (batch_rank == 1 && (tensor.shape[0] < 1 || tensor.shape[0] > max_batch_size)) {
    return bad(std::format("input {} has batch size {}, but the model takes 1 to {}", quoted(tensor.name),
                           tensor.shape[0], max_batch_size));
  }
  if (info.type == DataType::bytes) return check_byte_elements(tensor, *count);
  const std::uint64_t wanted = *count * data_type_size(info.type);
  if (tensor.data.size_bytes() != wanted) {
    return bad(std::format("input {} has {} bytes of data, but shape {} of {} means {}", quoted(tensor.name),
                           tensor.data.size_bytes(), shape_text(tensor.shape), data_type_name(info.type), wanted));
  }
  return {};
}

}  // namespace

Result<InputSummary> check_inputs(const Signature& signature, const Request& request) {
  InputSummary summary;
  std::vector<const Tensor*> found(signature.inputs.size(), nullptr);
  for (const Tensor& tensor : request.inputs) {
    const auto info = std::ranges::find(signature.inputs, tensor.name, &TensorInfo::name);
    if (info == signature.inputs.end()) {
      return bad(std::format("there is no input {}; the model's inputs are {}", quoted(tensor.name),
                             names_of(signature.inputs)));
    }
    const Tensor*& place = found[static_cast<std::size_t>(info - signature.inputs.begin())];
    if (place != nullptr) return bad(std::format("input {} is given twice; send it once", quoted(tensor.name)));
    place = &tensor;
    if (auto ok = check_input(tensor, *info, signature.max_batch_size); !ok) return std::unexpected(ok.error());
  }
  bool first = true;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const TensorInfo& info = signature.inputs[i];
    if (found[i] == nullptr) {
      if (!info.optional) {
        return bad(
            std::format("input '{}' is missing; the model's inputs are {}", info.name, names_of(signature.inputs)));
      }
      mix(summary.shape, 0);
      continue;
    }
    const Tensor& tensor = *found[i];
    std::size_t skip = 0;
    if (signature.max_batch_size > 0) {
      skip = 1;
      if (first) {
        summary.batch_elements = tensor.shape[0];
      } else if (tensor.shape[0] != summary.batch_elements) {
        return bad(std::format("input '{}' has batch size {}, but an input before it has {}; all must have the same",
                               tensor.name, tensor.shape[0], summary.batch_elements));
      }
      first = false;
    }
    mix(summary.shape, tensor.shape.size() + 1);
    for (const std::int64_t dimension : tensor.shape | std::views::drop(skip))
      mix(summary.shape, static_cast<std::uint64_t>(dimension));
  }
  for (auto at = request.outputs.begin(); at != request.outputs.end(); ++at) {
    if (std::ranges::find(signature.outputs, at->name, &TensorInfo::name) == signature.outputs.end()) {
      return bad(std::format("there is no output {}; the model's outputs are {}", quoted(at->name),
                             names_of(signature.outputs)));
    }
    if (std::ranges::find(request.outputs.begin(), at, at->name, &OutputWanted::name) != at) {
      return bad(std::format("output {} is asked for twice; ask once", quoted(at->name)));
    }
    // Which outputs are asked for doesn't split batches: a run makes all of them.
  }
  return summary;
}

Result<> finish_outputs(const Request& request, Response& response) {
  if (request.outputs.empty()) return {};
  std::vector<Tensor> outputs;
  outputs.reserve(request.outputs.size());
  for (const OutputWanted& wanted : request.outputs) {
    const auto at = std::ranges::find(response.outputs, wanted.name, &Tensor::name);
    if (at == response.outputs.end()) {
      return fail(ErrorCode::internal,
                  std::format("the model made no output {}, which its signature declares", quoted(wanted.name)));
    }
    Tensor tensor = std::move(*at);
    response.outputs.erase(at);
    if (wanted.destination) {
      const auto data = tensor.data.bytes();
      const auto destination = wanted.destination->bytes();
      if (data.size() > destination.size()) {
        auto error =
            bad(std::format("output {} has {} bytes, but its shared memory has room for {}; register a larger region",
                            quoted(wanted.name), data.size(), destination.size()));
        error.error().bytes_needed = data.size();
        error.error().bytes_free = destination.size();
        return error;
      }
      if (!data.empty() && data.data() != destination.data()) std::memcpy(destination.data(), data.data(), data.size());
      tensor.data = Buffer();
    }
    outputs.push_back(std::move(tensor));
  }
  response.outputs = std::move(outputs);
  return {};
}

}  // namespace npud
