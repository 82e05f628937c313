// SPDX-License-Identifier: Apache-2.0
#include "engine/offload_operators.h"

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <format>
#include <vector>

namespace npud {
namespace {

thread_local OffloadRun* current_run = nullptr;

std::unexpected<Error> bad_input(std::string message) { return fail(ErrorCode::invalid_argument, std::move(message)); }

std::uint64_t product(std::span<const std::int64_t> dims) {
  std::uint64_t all = 1;
  for (std::int64_t dim : dims) all *= static_cast<std::uint64_t>(dim);
  return all;
}

// Rows [..., K] to [..., N].
Result<> compute_matrix(OffloadRun& run, std::size_t index, Ort::KernelContext& context) {
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
  if (rows == 0) return {};
  if (rows > UINT32_MAX) return bad_input(std::format("node '{}' got {} rows", node.name, rows));
  const std::span values(in.GetTensorData<float>(), rows * node.op.channels);
  const std::span results(out.GetTensorMutableData<float>(), rows * node.op.kernels);
  return run.run(index, static_cast<std::uint32_t>(rows), 1, values, results);
}

struct Image {
  std::uint32_t height, width;
  std::span<const float> in;
};

// The NPU makes [M·KH·KW][H][W]; the block of a pixel belongs below and beside each other: [M][H·KH][W·KW].
Result<> run_shuffled(OffloadRun& run, std::size_t index, const Image& image, std::span<float> out) {
  const NodeWindow& block = run.program().window(index);
  std::vector<float> planes(out.size());
  if (auto ran = run.run(index, image.height, image.width, image.in, planes); !ran) return ran;
  const std::size_t height = image.height, width = image.width, kh = block.kernel_height, kw = block.kernel_width;
  const float* from = planes.data();
  for (std::size_t m = 0; m < block.channels; ++m) {
    for (std::size_t y = 0; y < kh; ++y) {
      for (std::size_t x = 0; x < kw; ++x) {
        for (std::size_t row = 0; row < height; ++row) {
          float* to = out.data() + ((m * height + row) * kh + y) * width * kw + x;
          for (std::size_t column = 0; column < width; ++column) to[column * kw] = *from++;
        }
      }
    }
  }
  return {};
}

// The NPU makes [M·KH·KW][H][W]; each plane is added where that tap of all blocks lies in [M][OH][OW].
Result<> run_scattered(OffloadRun& run, std::size_t index, const Image& image, std::size_t out_height,
                       std::size_t out_width, std::span<float> out) {
  const NodeWindow& block = run.program().window(index);
  const std::size_t height = image.height, width = image.width;
  std::vector<float> planes(run.program().node(index).op.kernels * height * width);
  if (auto ran = run.run(index, image.height, image.width, image.in, planes); !ran) return ran;
  const float* from = planes.data();
  for (std::size_t m = 0; m < block.channels; ++m) {
    const std::span<float> plane = out.subspan(m * out_height * out_width, out_height * out_width);
    std::ranges::fill(plane, block.bias.empty() ? 0.0f : block.bias[m]);
    for (std::uint32_t ky = 0; ky < block.kernel_height; ++ky) {
      for (std::uint32_t kx = 0; kx < block.kernel_width; ++kx, from += height * width) {
        // Columns that land within the pads.
        const std::int64_t shift = std::int64_t{kx} * block.dilation_x - block.pad_left;
        std::size_t first = 0, end = width;
        while (first < end && static_cast<std::int64_t>(first * block.stride_x) + shift < 0) ++first;
        while (end > first &&
               static_cast<std::int64_t>((end - 1) * block.stride_x) + shift >= static_cast<std::int64_t>(out_width))
          --end;
        for (std::size_t row = 0; row < height; ++row) {
          const std::int64_t y =
              static_cast<std::int64_t>(row * block.stride_y) + std::int64_t{ky} * block.dilation_y - block.pad_top;
          if (y < 0 || y >= static_cast<std::int64_t>(out_height)) continue;
          float* to = plane.data() + static_cast<std::size_t>(y) * out_width;
          for (std::size_t column = first; column < end; ++column)
            to[static_cast<std::int64_t>(column * block.stride_x) + shift] += from[row * width + column];
        }
      }
    }
  }
  return {};
}

// Rows of windows [C·KH·KW] for some output pixels at a time, so that they take little memory and others get their
// turn.
Result<> run_unfolded(OffloadRun& run, std::size_t index, const Image& image, std::size_t out_width,
                      std::span<float> out) {
  constexpr std::size_t most_values = 1 << 20;
  const NodeWindow& window = run.program().window(index);
  const std::size_t k = run.program().node(index).op.channels, n = run.program().node(index).op.kernels,
                    pixels = out.size() / n, at_once = std::clamp<std::size_t>(most_values / k, 1, pixels);
  std::vector<float> rows(at_once * k), results(at_once * n);
  const std::int64_t height = image.height, width = image.width;
  for (std::size_t first = 0; first < pixels; first += at_once) {
    const std::size_t count = std::min(at_once, pixels - first);
    float* to = rows.data();
    for (std::size_t pixel = first; pixel < first + count; ++pixel) {
      const std::int64_t top = static_cast<std::int64_t>(pixel / out_width * window.stride_y) - window.pad_top,
                         left = static_cast<std::int64_t>(pixel % out_width * window.stride_x) - window.pad_left;
      for (std::size_t c = 0; c < window.channels; ++c) {
        const float* plane = image.in.data() + c * static_cast<std::size_t>(height * width);
        for (std::uint32_t ky = 0; ky < window.kernel_height; ++ky) {
          const std::int64_t y = top + std::int64_t{ky} * window.dilation_y;
          for (std::uint32_t kx = 0; kx < window.kernel_width; ++kx) {
            const std::int64_t x = left + std::int64_t{kx} * window.dilation_x;
            *to++ = y < 0 || y >= height || x < 0 || x >= width ? 0.0f : plane[y * width + x];
          }
        }
      }
    }
    auto ran = run.run(index, static_cast<std::uint32_t>(count), 1, std::span(rows).first(count * k),
                       std::span(results).first(count * n));
    if (!ran) return ran;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t kernel = 0; kernel < n; ++kernel) out[kernel * pixels + first + i] = results[i * n + kernel];
    }
  }
  return {};
}

// Of one image of `height` x `width`: its channels, and the result's. Zero: it can't be taken.
struct ConvolutionShape {
  std::int64_t channels = 0;
  std::uint64_t out_channels = 0, out_height = 0, out_width = 0;
};

ConvolutionShape convolution_shape(const NpuProgram& program, std::size_t index, std::int64_t height,
                                   std::int64_t width) {
  rknpu::Conv2d op = program.node(index).op;
  const NodeWindow& window = program.window(index);
  const auto h = static_cast<std::uint64_t>(height), w = static_cast<std::uint64_t>(width);
  switch (window.form) {
    case NodeForm::shuffled:
      return {op.channels, window.channels, h * window.kernel_height, w * window.kernel_width};
    case NodeForm::scattered:
      return {op.channels, window.channels, window.scattered_height(h), window.scattered_width(w)};
    case NodeForm::unfolded:
      return {window.channels, op.kernels, window.out_height(h), window.out_width(w)};
    case NodeForm::plain:
      break;
  }
  if (h + op.pad_top + op.pad_bottom < op.kernel_height || w + op.pad_left + op.pad_right < op.kernel_width)
    return {op.channels, op.kernels, 0, 0};
  op.height = static_cast<std::uint32_t>(height);
  op.width = static_cast<std::uint32_t>(width);
  return {op.channels, op.kernels, op.out_height(), op.out_width()};
}

// [B, C, H, W] or [B, C, L]; image by image, so that others get their turn between them.
Result<> compute_convolution(OffloadRun& run, std::size_t index, Ort::KernelContext& context) {
  const std::string& name = run.program().node(index).name;
  const auto in = context.GetInput(0);
  const auto shape = in.GetTensorTypeAndShapeInfo().GetShape();
  const bool line = shape.size() == 3;
  if (!line && shape.size() != 4) return bad_input(std::format("node '{}' takes images or lines", name));
  constexpr std::int64_t most = 1 << 30;  // what fits the device is said by the plan
  const std::int64_t height = shape[2], width = line ? 1 : shape[3];
  const ConvolutionShape made = convolution_shape(run.program(), index, std::min(height, most), std::min(width, most));
  if (shape[1] != made.channels)
    return bad_input(std::format("node '{}' takes images of {} channels", name, made.channels));
  if (height == 0 || width == 0 || height > most || width > most || made.out_height == 0 || made.out_width == 0)
    return bad_input(std::format("node '{}' can't take an image of {} x {}", name, height, width));
  std::vector<std::int64_t> out_shape{shape[0], static_cast<std::int64_t>(made.out_channels),
                                      static_cast<std::int64_t>(made.out_height)};
  if (!line) out_shape.push_back(static_cast<std::int64_t>(made.out_width));
  auto out = context.GetOutput(0, out_shape);
  const std::uint64_t in_image = product(std::span(shape).subspan(1)),
                      out_image = product(std::span(out_shape).subspan(1));
  const float* values = in.GetTensorData<float>();
  float* results = out.GetTensorMutableData<float>();
  for (std::int64_t i = 0; i < shape[0]; ++i, values += in_image, results += out_image) {
    const Image image{static_cast<std::uint32_t>(height), static_cast<std::uint32_t>(width), {values, in_image}};
    const std::span<float> to(results, out_image);
    const NodeForm form = run.program().window(index).form;
    const Result<> ran = form == NodeForm::shuffled ? run_shuffled(run, index, image, to)
                         : form == NodeForm::scattered
                             ? run_scattered(run, index, image, made.out_height, made.out_width, to)
                         : form == NodeForm::unfolded ? run_unfolded(run, index, image, made.out_width, to)
                                                      : run.run(index, image.height, image.width, image.in, to);
    if (!ran) return ran;
  }
  return {};
}

// What fails is thrown, as ONNX Runtime's executor expects of operators without a status: it never frees the status
// that the other kind returns (CustomOpKernel::Compute, core/session/custom_ops.cc of 1.21).
struct Kernel {
  std::size_t index;
  bool rows;  // of a matrix; else images
  void Compute(OrtKernelContext* raw) {
    OffloadRun* run = OffloadRun::current();
    if (run == nullptr || index >= run->program().size())
      throw Ort::Exception("an npud node ran outside of its model", ORT_FAIL);
    Ort::KernelContext context(raw);
    auto computed = rows ? compute_matrix(*run, index, context) : compute_convolution(*run, index, context);
    if (computed) return;
    throw Ort::Exception(std::move(computed.error().message),
                         computed.error().code == ErrorCode::invalid_argument ? ORT_INVALID_ARGUMENT : ORT_FAIL);
  }
};

struct Operator : Ort::CustomOpBase<Operator, Kernel> {
  Operator(const char* name, bool rows) : name_(name), rows_(rows) {}
  void* CreateKernel(const OrtApi&, const OrtKernelInfo* info) const {
    return new Kernel{static_cast<std::size_t>(Ort::ConstKernelInfo(info).GetAttribute<std::int64_t>("index")), rows_};
  }
  const char* GetName() const { return name_; }
  std::size_t GetInputTypeCount() const { return 1; }
  ONNXTensorElementDataType GetInputType(std::size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; }
  std::size_t GetOutputTypeCount() const { return 1; }
  ONNXTensorElementDataType GetOutputType(std::size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; }

 private:
  const char* name_;
  const bool rows_;
};

// As long as the process, since sessions keep pointers.
Ort::CustomOpDomain& domain() {
  static Operator matrix("NpuMatMul", true), convolution("NpuConv", false);
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
  auto attempt = [&] {
    job_failed = false;
    return arbiter_.submit_and_wait({.tenant = context_.tenant(),
                                     .priority_class = priority_class_,
                                     .program = program_,
                                     .deadline = context_.deadline(),
                                     .cancelled = context_.cancelled(),
                                     .run = [&]() -> Result<> {
                                       auto ran = program_->run(index, height, width, in, out);
                                       job_failed = !ran;
                                       return ran;
                                     }});
  };
  auto report = attempt();
  // Its address space has no room for the activations: it comes in anew where there is, or where others leave for it.
  if (!report && job_failed && report.error().code == ErrorCode::resource_exhausted && program_->wants_more_room() &&
      arbiter_.vacate(*program_))
    report = attempt();
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
