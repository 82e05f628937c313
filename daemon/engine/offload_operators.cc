// SPDX-License-Identifier: Apache-2.0
#include "engine/offload_operators.h"

#include <onnxruntime_cxx_api.h>

#include <format>

namespace npud {
namespace {

thread_local OffloadRun* current_run = nullptr;

OrtStatus* bad_input(const std::string& message) {
  return Ort::Status(message.c_str(), ORT_INVALID_ARGUMENT).release();
}

std::uint64_t product(std::span<const std::int64_t> dims) {
  std::uint64_t all = 1;
  for (std::int64_t dim : dims) all *= static_cast<std::uint64_t>(dim);
  return all;
}

// Rows [..., K] to [..., N].
OrtStatus* compute_matrix(OffloadRun& run, std::size_t index, Ort::KernelContext& context) {
  const auto& node = run.program().node(index);
  const auto in = context.GetInput(0);
  const auto shape = in.GetTensorTypeAndShapeInfo().GetShape();
  if (shape.empty() || shape.back() != static_cast<std::int64_t>(node.op.channels)) {
    return bad_input(std::format("node '{}' takes rows of {} values", node.name, node.op.channels));
  }
  auto out_shape = shape;
  out_shape.back() = node.op.kernels;
  auto out = context.GetOutput(0, out_shape);
  const std::uint64_t rows = product(std::span(shape).first(shape.size() - 1));
  if (rows == 0) return nullptr;
  if (rows > UINT32_MAX) return bad_input(std::format("node '{}' got {} rows", node.name, rows));
  const std::span values(in.GetTensorData<float>(), rows * node.op.channels);
  const std::span results(out.GetTensorMutableData<float>(), rows * node.op.kernels);
  if (auto ran = run.run(index, static_cast<std::uint32_t>(rows), 1, values, results); !ran)
    return Ort::Status(ran.error().message.c_str(), ORT_FAIL).release();
  return nullptr;
}

// [B, C, H, W] or [B, C, L]; image by image, so that others get their turn between them.
OrtStatus* compute_convolution(OffloadRun& run, std::size_t index, Ort::KernelContext& context) {
  const auto& node = run.program().node(index);
  const auto in = context.GetInput(0);
  const auto shape = in.GetTensorTypeAndShapeInfo().GetShape();
  const bool line = shape.size() == 3;
  if ((!line && shape.size() != 4) || shape[1] != static_cast<std::int64_t>(node.op.channels)) {
    return bad_input(std::format("node '{}' takes images of {} channels", node.name, node.op.channels));
  }
  constexpr std::int64_t most = 1 << 26;
  const std::int64_t height = shape[2], width = line ? 1 : shape[3];
  rknpu::Conv2d op = node.op;
  if (height > most || width > most || height + op.pad_top + op.pad_bottom < op.kernel_height ||
      width + op.pad_left + op.pad_right < op.kernel_width || height == 0 || width == 0) {
    return bad_input(std::format("node '{}' can't take an image of {} x {}", node.name, height, width));
  }
  op.height = static_cast<std::uint32_t>(height);
  op.width = static_cast<std::uint32_t>(width);
  std::vector<std::int64_t> out_shape{shape[0], op.kernels, op.out_height()};
  if (!line) out_shape.push_back(op.out_width());
  auto out = context.GetOutput(0, out_shape);
  const std::uint64_t in_image = product(std::span(shape).subspan(1)),
                      out_image = product(std::span(out_shape).subspan(1));
  const float* values = in.GetTensorData<float>();
  float* results = out.GetTensorMutableData<float>();
  for (std::int64_t image = 0; image < shape[0]; ++image, values += in_image, results += out_image) {
    auto ran = run.run(index, op.height, op.width, {values, in_image}, {results, out_image});
    if (!ran) return Ort::Status(ran.error().message.c_str(), ORT_FAIL).release();
  }
  return nullptr;
}

struct Kernel {
  std::size_t index;
  OrtStatus* ComputeV2(OrtKernelContext* raw) {
    try {
      OffloadRun* run = OffloadRun::current();
      if (run == nullptr || index >= run->program().size())
        return Ort::Status("an npud node ran outside of its model", ORT_FAIL).release();
      Ort::KernelContext context(raw);
      return run->program().node(index).kind == rknpu::NodeKind::matrix ? compute_matrix(*run, index, context)
                                                                        : compute_convolution(*run, index, context);
    } catch (const std::exception& error) {
      return Ort::Status(error.what(), ORT_FAIL).release();
    }
  }
};

struct Operator : Ort::CustomOpBase<Operator, Kernel, true> {
  explicit Operator(const char* name) : name_(name) {}
  OrtStatus* CreateKernelV2(const OrtApi&, const OrtKernelInfo* info, void** kernel) const {
    try {
      *kernel = new Kernel{static_cast<std::size_t>(Ort::ConstKernelInfo(info).GetAttribute<std::int64_t>("index"))};
      return nullptr;
    } catch (const std::exception& error) {
      return Ort::Status(error.what(), ORT_FAIL).release();
    }
  }
  const char* GetName() const { return name_; }
  std::size_t GetInputTypeCount() const { return 1; }
  ONNXTensorElementDataType GetInputType(std::size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; }
  std::size_t GetOutputTypeCount() const { return 1; }
  ONNXTensorElementDataType GetOutputType(std::size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; }

 private:
  const char* name_;
};

// As long as the process, since sessions keep pointers.
Ort::CustomOpDomain& domain() {
  static Operator matrix("NpuMatMul"), convolution("NpuConv");
  static Ort::CustomOpDomain made = [] {
    Ort::CustomOpDomain fresh("npud");
    fresh.Add(&matrix);
    fresh.Add(&convolution);
    return fresh;
  }();
  return made;
}

}  // namespace

OffloadRun::OffloadRun(ExecutionContext& context, PriorityClass priority_class, std::shared_ptr<NpuProgram> program,
                       Arbiter& arbiter)
    : context_(context),
      priority_class_(priority_class),
      program_(std::move(program)),
      arbiter_(arbiter),
      outer_(current_run) {
  current_run = this;
}

OffloadRun::~OffloadRun() { current_run = outer_; }

OffloadRun* OffloadRun::current() { return current_run; }

Result<> OffloadRun::run(std::size_t index, std::uint32_t height, std::uint32_t width, std::span<const float> in,
                         std::span<float> out) {
  Clock& clock = context_.clock();
  const TimePoint begin = clock.now();
  bool job_failed = false;
  Job job{.tenant = context_.tenant(),
          .priority_class = priority_class_,
          .program = program_,
          .deadline = context_.deadline(),
          .cancelled = context_.cancelled(),
          .run = [&]() -> Result<> {
            auto ran = program_->run(index, height, width, in, out);
            job_failed = !ran;
            return ran;
          }};
  auto report = arbiter_.submit_and_wait(std::move(job));
  if (!report) {
    failure_ = Failure{report.error(), job_failed};
    return std::unexpected(report.error());
  }
  rknpu::Conv2d op = program_->node(index).op;
  op.height = height;
  op.width = width;
  const std::uint64_t pixels =
      program_->node(index).kind == rknpu::NodeKind::matrix ? height : std::uint64_t{op.out_height()} * op.out_width();
  program_->count(index, pixels * op.kernels * op.kernel_height * op.kernel_width * (op.depthwise ? 1 : op.channels),
                  clock.now() - begin);
  return {};
}

Result<> OffloadOperators::customize(Ort::SessionOptions& options) {
  options.Add(domain());
  return {};
}

Result<> OptimizedGraphWriter::customize(Ort::SessionOptions& options) {
  options.SetGraphOptimizationLevel(ORT_ENABLE_BASIC);
  options.SetOptimizedModelFilePath(file_.c_str());
  return {};
}

}  // namespace npud
