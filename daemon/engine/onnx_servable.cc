// SPDX-License-Identifier: Apache-2.0
#include "engine/onnx_servable.h"

#include <algorithm>
#include <cstring>
#include <format>
#include <numeric>
#include <ranges>
#include <utility>

#include "engine/bytes_tensor.h"

namespace npud {
namespace {

const Tensor* find_input(const Request& request, const std::string& name) {
  auto found = std::ranges::find(request.inputs, name, &Tensor::name);
  return found == request.inputs.end() ? nullptr : &*found;
}

// Elements in one row of a shape, a row being one step of the first dimension.
std::uint64_t row_elements(std::span<const std::int64_t> shape) {
  return std::accumulate(shape.begin() + 1, shape.end(), std::uint64_t{1}, [](std::uint64_t product, std::int64_t dim) {
    return product * static_cast<std::uint64_t>(dim);
  });
}

// Rows [first, first + rows) of a tensor; shares its memory.
Tensor rows_of(const Tensor& tensor, std::int64_t first, std::int64_t rows) {
  Tensor part = tensor;
  part.shape[0] = rows;
  const std::uint64_t row = row_elements(tensor.shape);
  if (const std::size_t element = data_type_size(tensor.type); element != 0) {
    part.data = tensor.data.slice(first * row * element, rows * row * element);
  } else {
    const std::size_t begin = bytes_tensor_prefix(tensor.data.bytes(), first * row);
    part.data = tensor.data.slice(begin, bytes_tensor_prefix(tensor.data.bytes().subspan(begin), rows * row));
  }
  return part;
}

bool aligned(const Buffer& buffer, std::size_t element) {
  return reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % element == 0;
}

}  // namespace

OnnxServable::OnnxServable(std::string model, std::int64_t version, ModelPlan plan,
                           std::shared_ptr<HostProgram> program, Arbiter& arbiter, std::unique_ptr<Offload> offload)
    : model_(std::move(model)),
      version_(version),
      plan_(std::move(plan)),
      program_(std::move(program)),
      arbiter_(arbiter),
      offload_(std::move(offload)) {}

OnnxServable::~OnnxServable() { arbiter_.forget(*program_); }

std::vector<NodePlacement> OnnxServable::placements() const {
  return offload_ ? offload_->placements() : std::vector<NodePlacement>{};
}

Result<> OnnxServable::bring_in(TenantId tenant) {
  if (offload_) return offload_->bring_in(tenant);
  Job job{
      .tenant = tenant, .priority_class = PriorityClass::batch, .program = program_, .run = [] { return Result<>{}; }};
  auto report = arbiter_.submit_and_wait(std::move(job));
  if (!report) return std::unexpected(report.error());
  return {};
}

Result<std::span<const Tensor>> OnnxServable::join_inputs(std::span<const Request* const> batch,
                                                          std::vector<Part>& parts, std::vector<Tensor>& joined) const {
  const bool batched = plan_.signature.max_batch_size > 0;
  if (batch.size() > 1 && !batched)
    return fail(ErrorCode::internal, std::format("model '{}' takes no batches", model_));
  std::int64_t rows = 0;
  for (const Request* request : batch) {
    const std::int64_t own =
        batched && !request->inputs.empty() && !request->inputs[0].shape.empty() ? request->inputs[0].shape[0] : 1;
    parts.push_back({rows, own});
    rows += own;
  }
  if (batch.size() == 1) return batch[0]->inputs;

  for (const Tensor& first : batch[0]->inputs) {
    Tensor tensor{first.name, first.type, first.shape, {}};
    std::size_t size = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Tensor* part = find_input(*batch[i], first.name);
      if (part == nullptr || part->type != first.type || batch[i]->inputs.size() != batch[0]->inputs.size() ||
          part->shape.empty() || part->shape[0] != parts[i].rows ||
          !std::ranges::equal(part->shape | std::views::drop(1), first.shape | std::views::drop(1))) {
        return fail(ErrorCode::internal,
                    std::format("requests for model '{}' with different inputs are in one batch", model_));
      }
      size += part->data.size_bytes();
    }
    tensor.shape[0] = rows;
    tensor.data = Buffer::allocate(size);
    std::byte* at = tensor.data.bytes().data();
    for (const Request* request : batch) {
      const auto bytes = find_input(*request, first.name)->data.bytes();
      if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
      at += bytes.size();
    }
    joined.push_back(std::move(tensor));
  }
  return joined;
}

std::vector<OutputRequest> OnnxServable::wanted_outputs(std::span<const Request* const> batch,
                                                        std::int64_t rows) const {
  std::vector<OutputRequest> wanted;
  for (const TensorInfo& info : plan_.signature.outputs) {
    const OutputWanted* by_request = nullptr;
    bool needed = false;
    for (const Request* request : batch) {
      auto found = std::ranges::find(request->outputs, info.name, &OutputWanted::name);
      if (found != request->outputs.end()) by_request = &*found;
      needed = needed || request->outputs.empty() || found != request->outputs.end();
    }
    if (!needed) continue;
    OutputRequest output{info.name, info.type, info.shape, {}};
    if (plan_.signature.max_batch_size > 0) output.shape.insert(output.shape.begin(), rows);
    // Known shape: straight into the client's memory, or into the response's. Otherwise the run decides, and it is
    // copied.
    const std::size_t element = data_type_size(info.type);
    if (auto count = element_count(output.shape); element != 0 && count && *count > 0) {
      const std::uint64_t bytes = *count * element;
      if (batch.size() == 1 && by_request != nullptr && by_request->destination &&
          by_request->destination->size_bytes() >= bytes && aligned(*by_request->destination, element)) {
        output.destination = by_request->destination->slice(0, bytes);
      } else {
        output.destination = Buffer::allocate(bytes);
      }
    }
    wanted.push_back(std::move(output));
  }
  return wanted;
}

Result<std::vector<Tensor>> OnnxServable::outputs_of(const Request& request, const Part& part, std::int64_t rows,
                                                     std::span<const Tensor> computed) const {
  std::vector<Tensor> outputs;
  for (const Tensor& whole : computed) {
    if (!request.outputs.empty() &&
        std::ranges::find(request.outputs, whole.name, &OutputWanted::name) == request.outputs.end())
      continue;
    if (part.rows == rows) {
      outputs.push_back(whole);
      continue;
    }
    if (whole.shape.empty() || whole.shape[0] != rows) {
      return fail(ErrorCode::invalid_argument,
                  std::format("model '{}' has max_batch_size {}, but its output '{}' came as {} for a batch of {}; "
                              "set max_batch_size: 0",
                              model_, plan_.signature.max_batch_size, whole.name, shape_text(whole.shape), rows));
    }
    outputs.push_back(rows_of(whole, part.first_row, part.rows));
  }
  return outputs;
}

Result<std::vector<Tensor>> OnnxServable::run_on_host(ExecutionContext& context, std::span<const Tensor> inputs,
                                                      std::span<const OutputRequest> wanted, Duration& compute) {
  Clock& clock = context.clock();
  std::vector<Tensor> computed;
  Job job{.tenant = context.tenant(),
          .priority_class = std::max(context.priority_class(), plan_.residence.best_class),
          .program = program_,
          .deadline = context.deadline(),
          .cancelled = context.cancelled(),
          .run = [&]() -> Result<> {
            const TimePoint start = clock.now();
            auto result = program_->run(inputs, wanted, context.cancelled());
            compute += clock.now() - start;
            if (!result) {
              Error error = result.error();
              error.message = std::format("model '{}': {}", model_, error.message);
              return std::unexpected(std::move(error));
            }
            computed = std::move(*result);
            return {};
          }};
  auto report = arbiter_.submit_and_wait(std::move(job));
  if (!report) return std::unexpected(report.error());
  return computed;
}

Result<std::vector<Response>> OnnxServable::run(ExecutionContext& context, std::span<const Request* const> batch) {
  Clock& clock = context.clock();
  const TimePoint begin = clock.now();
  std::vector<Part> parts;
  std::vector<Tensor> joined, computed;
  std::span<const Tensor> inputs;
  std::vector<OutputRequest> wanted;
  std::int64_t rows = 0;
  try {
    auto whole = join_inputs(batch, parts, joined);
    if (!whole) return std::unexpected(whole.error());
    inputs = *whole;
    rows = parts.back().first_row + parts.back().rows;
    wanted = wanted_outputs(batch, rows);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::resource_exhausted,
                std::format("there is no memory for the outputs of a batch of {} of model '{}'", rows, model_));
  }
  const Duration compute_input = clock.now() - begin;

  Duration compute{0};
  PathTaken path;
  bool answered = false;
  if (offload_) {
    const TimePoint start = clock.now();
    auto attempt = offload_->run(context, inputs, wanted);
    compute = clock.now() - start;
    if (!attempt) {
      Error error = attempt.error();
      if (!error.message.contains("'" + model_)) error.message = std::format("model '{}': {}", model_, error.message);
      return std::unexpected(std::move(error));
    }
    if (attempt->outputs) {
      computed = std::move(*attempt->outputs);
      path.device = offload_->path();
      answered = true;
    } else {
      path.reason = std::move(attempt->reason);
      path.rearm_after = attempt->rearm_after;
    }
  }
  if (!answered) {
    auto result = run_on_host(context, inputs, wanted, compute);
    if (!result) return std::unexpected(result.error());
    computed = std::move(*result);
    path.device = arbiter_.device();
  }

  const TimePoint after = clock.now();
  std::vector<Response> responses;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    // What one request alone had computed is what it asked for.
    Result<std::vector<Tensor>> outputs =
        batch.size() == 1 ? std::exchange(computed, {}) : outputs_of(*batch[i], parts[i], rows, computed);
    if (!outputs) return std::unexpected(outputs.error());
    Response response;
    response.model = model_;
    response.version = version_;
    response.outputs = std::move(*outputs);
    response.path = path;
    response.timings.batch_size = static_cast<std::uint32_t>(rows);
    response.timings.compute_input = compute_input;
    response.timings.compute = compute;
    responses.push_back(std::move(response));
  }
  const Duration compute_output = clock.now() - after;
  for (Response& response : responses) response.timings.compute_output = compute_output;
  return responses;
}

}  // namespace npud
