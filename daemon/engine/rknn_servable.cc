// SPDX-License-Identifier: Apache-2.0
#include "engine/rknn_servable.h"

#include <algorithm>
#include <format>

namespace npud {

RknnServable::RknnServable(std::string model, std::int64_t version, RknnPlacement placement, RknnTensors tensors,
                           std::shared_ptr<RknnProgram> program, Arbiter& arbiter)
    : model_(std::move(model)),
      version_(version),
      placement_(std::move(placement)),
      tensors_(std::move(tensors)),
      program_(std::move(program)),
      arbiter_(arbiter) {}

RknnServable::~RknnServable() { arbiter_.forget(*program_); }

std::vector<NodePlacement> RknnServable::placements() const {
  NodePlacement whole;
  whole.name = model_;
  whole.op = "compiled";
  whole.device = arbiter_.device();
  whole.precision = "as compiled";
  whole.reason = "a compiled .rknn model runs whole, through Rockchip's runtime";
  whole.weight_bytes = program_->footprint().bytes;
  whole.runs = runs_;
  whole.total = Duration{total_us_.load()};
  return {whole};
}

Result<std::vector<rknn::Context::Input>> RknnServable::inputs_of(const Request& request) const {
  std::vector<rknn::Context::Input> inputs;
  for (const RknnTensors::In& planned : tensors_.inputs) {
    const TensorInfo& info = tensors_.signature.inputs[planned.in_signature];
    const auto found = std::ranges::find(request.inputs, info.name, &Tensor::name);
    if (found == request.inputs.end())
      return fail(ErrorCode::invalid_argument, std::format("input '{}' of model '{}' is missing", info.name, model_));
    if (found->data.size_bytes() != planned.bytes) {
      return fail(
          ErrorCode::invalid_argument,
          std::format("input '{}' of model '{}' has {} bytes, {} of {} have {}", info.name, model_,
                      found->data.size_bytes(), data_type_name(info.type), shape_text(info.shape), planned.bytes));
    }
    inputs.push_back({found->data, planned.type, planned.format});
  }
  return inputs;
}

std::vector<Tensor> RknnServable::outputs_of(std::vector<Buffer> results) const {
  std::vector<Tensor> computed(tensors_.signature.outputs.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::int64_t place = tensors_.outputs[i].in_signature;
    if (place < 0) continue;
    const TensorInfo& info = tensors_.signature.outputs[static_cast<std::size_t>(place)];
    computed[static_cast<std::size_t>(place)] = {info.name, info.type, info.shape, std::move(results[i])};
  }
  return computed;
}

Result<std::vector<Response>> RknnServable::run(ExecutionContext& context, std::span<const Request* const> batch) {
  if (batch.size() != 1) return fail(ErrorCode::internal, std::format("model '{}' takes no batches", model_));
  Clock& clock = context.clock();
  auto inputs = inputs_of(*batch[0]);
  if (!inputs) return std::unexpected(inputs.error());
  std::vector<rknn::Context::OutputWanted> wanted;
  for (const RknnTensors::Out& output : tensors_.outputs) wanted.push_back({output.as_float, output.bytes});
  std::vector<Buffer> results;
  Duration compute{0};
  Job job{.tenant = context.tenant(),
          .priority_class = std::max(context.priority_class(), placement_.residence.best_class),
          .program = program_,
          .deadline = context.deadline(),
          .cancelled = context.cancelled(),
          .run_on_core = [&](std::uint32_t core) -> Result<> {
            const TimePoint start = clock.now();
            auto ran = program_->run(core, std::move(*inputs), std::move(wanted));
            compute = clock.now() - start;
            if (!ran) {
              Error error = ran.error();
              error.message = std::format("model '{}': {}", model_, error.message);
              return std::unexpected(std::move(error));
            }
            results = std::move(*ran);
            return {};
          }};
  auto report = arbiter_.submit_and_wait(std::move(job));
  if (!report) return std::unexpected(report.error());
  ++runs_;
  total_us_ += compute.count();
  const TimePoint after = clock.now();
  Response response;
  response.model = model_;
  response.version = version_;
  response.outputs = outputs_of(std::move(results));
  response.path.device = arbiter_.device();
  response.timings.compute = compute;
  response.timings.compute_output = clock.now() - after;
  std::vector<Response> responses;
  responses.push_back(std::move(response));
  return responses;
}

}  // namespace npud
