// SPDX-License-Identifier: Apache-2.0
// How fast the board computes on this machine: one JSON object a line, in the form of `make bench`. The reference is
// the goal itself.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

#include "conv.h"

namespace {

using npud::rknpu::ConvTask;
using npud::rknpu::Precision;

struct Case {
  const char* name;
  ConvTask task;
  double goal_gmacs;
};

// Of this thread: the figure is that of a core, whatever else the machine does meanwhile.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double gmacs_per_second(const ConvTask& task) {
  const auto& s = task.shape;
  const size_t element = s.in == Precision::kInt8 ? 1 : 2;
  // Small values: fp16 patterns near 1.0, no subnormals or infinities.
  std::vector<std::byte> features(static_cast<size_t>(s.width) * s.height * s.channels * element),
      weights(task.weight_bytes);
  for (size_t i = 0; i < features.size(); ++i)
    features[i] = static_cast<std::byte>(element == 2 && i % 2 ? 0x3c : i * 7 % 120);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<std::byte>(element == 2 && i % 2 ? 0x3c : i * 5 % 120);
  const double macs =
      static_cast<double>(s.out_width) * s.out_height * s.kernel_width * s.kernel_height * s.channels * s.kernels;
  double best_seconds = 1e9;
  for (int run = 0; run < 15; ++run) {
    const double begin = cpu_seconds();
    const auto result = npud::rk3588::convolve(task, features, weights);
    const double took = cpu_seconds() - begin;
    if (result.positions == 0) return 0;
    best_seconds = std::min(best_seconds, took);
  }
  return macs / best_seconds / 1e9;
}

ConvTask conv(uint32_t width, uint32_t height, uint32_t channels, uint32_t kernels, uint32_t kernel, Precision in) {
  ConvTask task;
  task.shape = {.width = width,
                .height = height,
                .channels = channels,
                .kernels = kernels,
                .kernel_width = kernel,
                .kernel_height = kernel,
                .pad_left = kernel / 2,
                .pad_top = kernel / 2,
                .out_width = width,
                .out_height = height,
                .in = in};
  task.weight_bytes = npud::rknpu::conv_weight_bytes(task.shape);
  return task;
}

}  // namespace

int main() {
  const Case cases[] = {
      {"board rk3588: int8 GEMM 704x512x512, one core", conv(1, 704, 512, 512, 1, Precision::kInt8), 10},
      {"board rk3588: int8 GEMM 64x4096x512, one core", conv(1, 64, 4096, 512, 1, Precision::kInt8), 10},
      {"board rk3588: fp16 GEMM 352x512x512, one core", conv(1, 352, 512, 512, 1, Precision::kFp16), 10},
      {"board rk3588: int8 3x3 convolution 28x28x128 to 128, one core", conv(28, 28, 128, 128, 3, Precision::kInt8),
       10},
  };
  for (const Case& c : cases) {
    const double ours = gmacs_per_second(c.task);
    std::printf(
        "{\"name\": \"%s\", \"ours\": %.2f, \"reference\": %.2f, \"ratio\": %.3f, \"unit\": \"GMAC/s\", \"goal\": \">= "
        "1\", \"holds\": %s}\n",
        c.name, ours, c.goal_gmacs, ours / c.goal_gmacs, ours >= c.goal_gmacs ? "true" : "false");
  }
}
