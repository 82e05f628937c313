// SPDX-License-Identifier: Apache-2.0
// The device code, whole, against the virtual board as a library: right numbers over sizes and precisions, right
// behaviour when the NPU drops, stalls or lies, and nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <list>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "board_port.h"
#include "devices/rknpu/device.h"

namespace npud::rknpu {
namespace {

using testing::HasSubstr;

class DeviceTest : public testing::Test {
 protected:
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(state_.allocated_bytes, 0u) << "bytes of NPU memory were left behind";
    EXPECT_EQ(state_.buffers, 0u);
  }

  RknpuDevice& open(DeviceSettings settings = {}, uint64_t space_bytes = 48u << 20, uint32_t spaces = 1,
                    const rk3588::Options& options = {}) {
    auto port = std::make_unique<BoardPort>(state_, space_bytes, spaces, options);
    port_ = port.get();
    auto device = RknpuDevice::open(std::move(port), settings, clock_);
    EXPECT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
    EXPECT_EQ(device_->info().health, DeviceHealth::ok) << device_->info().health_reason << "\n" << state_.log;
    return *device_;
  }

  std::vector<float> noise(std::size_t count, float scale = 1) {
    std::vector<float> out(count);
    std::normal_distribution<float> normal(0, scale);
    for (float& v : out) v = normal(random_);
    return out;
  }

  NodeSpec matrix(uint32_t k, uint32_t n, NodePrecision precision, bool bias = true) {
    NodeSpec spec{.name = "product", .precision = precision, .op = {.channels = k, .kernels = n}};
    spec.weights = noise(std::size_t{k} * n, 1 / std::sqrt(static_cast<float>(k)));
    if (bias) spec.bias = noise(n);
    return spec;
  }

  static std::vector<float> product(const NodeSpec& spec, uint32_t rows, std::span<const float> in) {
    const uint32_t k_all = spec.op.channels, n_all = spec.op.kernels;
    std::vector<float> out(std::size_t{rows} * n_all);
    for (uint32_t m = 0; m < rows; ++m) {
      for (uint32_t n = 0; n < n_all; ++n) {
        double sum = spec.bias.empty() ? 0 : spec.bias[n];
        for (uint32_t k = 0; k < k_all; ++k) sum += double{in[m * k_all + k]} * spec.weights[k * n_all + n];
        out[m * n_all + n] = static_cast<float>(spec.relu ? std::max(sum, 0.0) : sum);
      }
    }
    return out;
  }

  std::unique_ptr<Residence> upload(const NodeSpec& spec) {
    auto packed = pack_node(spec);
    EXPECT_TRUE(packed) << packed.error().message;
    packed_.push_back(std::move(*packed));
    auto residence = device_->upload(std::span(&packed_.back(), 1));
    EXPECT_TRUE(residence) << residence.error().message;
    return residence ? std::move(*residence) : nullptr;
  }

  BoardPort::State state_;
  BoardPort* port_ = nullptr;
  SteadyClock clock_;
  std::mt19937 random_{5};
  std::unique_ptr<RknpuDevice> device_;
  std::list<PackedNode> packed_;  // outlive their residences
};

TEST_F(DeviceTest, ProductsOfManySizesAreRightInBothPrecisions) {
  open({.verify = Verify::always});
  for (const auto& [precision, tolerance] : {std::pair{NodePrecision::fp16, 2e-3}, {NodePrecision::int8, 2e-2}}) {
    for (const auto& [k, n] : {std::pair{8u, 8u}, {100u, 33u}, {128u, 64u}, {515u, 130u}}) {
      const NodeSpec spec = matrix(k, n, precision, n != 33);
      const auto residence = upload(spec);
      for (uint32_t rows : {1u, 7u, 64u, 333u}) {
        const auto in = noise(std::size_t{rows} * k);
        std::vector<float> out(std::size_t{rows} * n);
        const auto ran = residence->run_matrix(0, rows, in, out);
        ASSERT_TRUE(ran) << ran.error().message << "\n" << state_.log;
        EXPECT_LT(relative_distance(out, product(spec, rows, in)), tolerance) << rows << "x" << k << "x" << n;
      }
    }
  }
  EXPECT_EQ(device_->counters().wrong_results, 0u);
  EXPECT_GT(device_->counters().checked, 0u);
}

TEST_F(DeviceTest, BigProductsAreSpreadOverTheCores) {
  RknpuDevice& device = open({.split_macs = 1});
  const NodeSpec spec = matrix(256, 192, NodePrecision::fp16);
  const auto residence = upload(spec);
  const uint32_t rows = 200;
  const auto in = noise(std::size_t{rows} * 256);
  std::vector<float> out(std::size_t{rows} * 192);
  const uint64_t before[] = {state_.board->counter(0, VBOARD_COUNT_TASKS), state_.board->counter(1, VBOARD_COUNT_TASKS),
                             state_.board->counter(2, VBOARD_COUNT_TASKS)};
  ASSERT_TRUE(residence->run_matrix(0, rows, in, out));
  EXPECT_LT(relative_distance(out, product(spec, rows, in)), 2e-3);
  for (unsigned core = 0; core < 3; ++core)
    EXPECT_GT(state_.board->counter(core, VBOARD_COUNT_TASKS), before[core]) << "core " << core;
  EXPECT_EQ(device.counters().jobs, 1u);
}

TEST_F(DeviceTest, ConvolutionsKeepTheirBiasAndRelu) {
  open({.verify = Verify::always});
  for (const bool depthwise : {false, true}) {
    NodeSpec spec{.name = "conv", .kind = NodeKind::convolution, .relu = true};
    spec.op = {.channels = 24,
               .kernels = depthwise ? 24u : 40u,
               .kernel_height = 3,
               .kernel_width = 3,
               .stride_y = 2,
               .stride_x = 2,
               .pad_top = 1,
               .pad_left = 1,
               .pad_bottom = 1,
               .pad_right = 1,
               .depthwise = depthwise};
    spec.weights = noise(std::size_t{spec.op.kernels} * (depthwise ? 1 : 24) * 9, 0.1f);
    spec.bias = noise(spec.op.kernels);
    const auto residence = upload(spec);
    for (const auto& [h, w] : {std::pair{17u, 30u}, {64u, 48u}}) {
      Conv2d op = spec.op;
      op.height = h;
      op.width = w;
      const auto in = noise(std::size_t{24} * h * w);
      std::vector<float> out(std::size_t{op.kernels} * op.out_height() * op.out_width()), want(out.size());
      const auto ran = residence->run_convolution(0, h, w, in, out);
      ASSERT_TRUE(ran) << ran.error().message << "\n" << state_.log;
      for (uint32_t n = 0; n < op.kernels; ++n)
        for (uint32_t y = 0; y < op.out_height(); ++y)
          for (uint32_t x = 0; x < op.out_width(); ++x) {
            double sum = spec.bias[n];
            for (uint32_t c = 0; c < (depthwise ? 1u : 24u); ++c)
              for (int ky = 0; ky < 3; ++ky)
                for (int kx = 0; kx < 3; ++kx) {
                  const int iy = static_cast<int>(y) * 2 + ky - 1, ix = static_cast<int>(x) * 2 + kx - 1;
                  if (iy < 0 || ix < 0 || iy >= static_cast<int>(h) || ix >= static_cast<int>(w)) continue;
                  sum += double{in[((depthwise ? n : c) * h + iy) * w + ix]} *
                         spec.weights[((n * (depthwise ? 1 : 24) + c) * 3 + ky) * 3 + kx];
                }
            want[(n * op.out_height() + y) * op.out_width() + x] = static_cast<float>(std::max(sum, 0.0));
          }
      EXPECT_LT(relative_distance(out, want), 3e-3) << (depthwise ? "depthwise " : "") << h << "x" << w;
    }
  }
}

struct Strike {
  const char* name;
  uint32_t kind, arg;
};

void PrintTo(const Strike& strike, std::ostream* out) { *out << strike.name; }

class FaultTest : public DeviceTest, public testing::WithParamInterface<Strike> {};

TEST_P(FaultTest, OneStrikeIsRetriedAndTheAnswerIsRight) {
  RknpuDevice& device = open({.verify = Verify::always});
  const NodeSpec spec = matrix(64, 48, NodePrecision::fp16);
  const auto residence = upload(spec);
  const auto in = noise(std::size_t{20} * 64);
  std::vector<float> out(std::size_t{20} * 48);
  port_->arm(GetParam().kind, VBOARD_FAULT_ANY_CORE, GetParam().arg, 1);
  const auto ran = residence->run_matrix(0, 20, in, out);
  ASSERT_TRUE(ran) << ran.error().message << "\n" << state_.log;
  EXPECT_LT(relative_distance(out, product(spec, 20, in)), 2e-3);
  EXPECT_EQ(device.counters().retries, 1u);
  EXPECT_TRUE(device.suspected());
  EXPECT_EQ(device.info().health, DeviceHealth::degraded);
  // A good canary arms it again.
  ASSERT_TRUE(device.canary());
  EXPECT_FALSE(device.suspected());
  EXPECT_EQ(device.info().health, DeviceHealth::ok);
}

TEST_P(FaultTest, StrikesWithoutEndAreAnErrorAndNeverAWrongAnswer) {
  RknpuDevice& device = open({.verify = Verify::always});
  const auto residence = upload(matrix(64, 48, NodePrecision::fp16));
  const auto in = noise(std::size_t{20} * 64);
  std::vector<float> out(std::size_t{20} * 48);
  port_->arm(GetParam().kind, VBOARD_FAULT_ANY_CORE, GetParam().arg, 0);
  EXPECT_FALSE(residence->run_matrix(0, 20, in, out));
  EXPECT_EQ(device.counters().failures, 1u);
  EXPECT_FALSE(device.canary());
  const auto packed = pack_node(matrix(32, 32, NodePrecision::fp16));
  const auto again = device.upload(std::span(&*packed, 1));
  ASSERT_FALSE(again) << "a device that fails its canary must not take a program";
  EXPECT_EQ(again.error().code, ErrorCode::unavailable);
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultTest,
                         testing::Values(Strike{"dropped", VBOARD_FAULT_DISPATCH_DROP, 0},
                                         Strike{"stalled", VBOARD_FAULT_STALL, 0},
                                         Strike{"wrong_bit", VBOARD_FAULT_WRONG_BIT, 0}),
                         [](const auto& info) { return info.param.name; });

TEST_F(DeviceTest, OperandsOfTheJobBeforeAreFoundAndTheAnswerIsRight) {
  RknpuDevice& device = open({.verify = Verify::always});
  const NodeSpec spec = matrix(64, 48, NodePrecision::fp16);
  const auto residence = upload(spec);
  const auto in = noise(std::size_t{20} * 64);
  std::vector<float> out(std::size_t{20} * 48);
  port_->arm(VBOARD_FAULT_STALE_OPERANDS, VBOARD_FAULT_ANY_CORE, 0, 1);
  const auto ran = residence->run_matrix(0, 20, in, out);
  ASSERT_TRUE(ran) << ran.error().message << "\n" << state_.log;
  EXPECT_LT(relative_distance(out, product(spec, 20, in)), 2e-3);
  EXPECT_EQ(device.counters().wrong_results, 1u);
}

// What a core's registers show, and what stays in it from job to job, may be another way on the next chip.
class SettingTest : public DeviceTest, public testing::WithParamInterface<const char*> {};

TEST_P(SettingTest, ChainsOnAllCoresAreRightWhateverTheBoardDoesBesidesComputing) {
  rk3588::Options options;
  ASSERT_TRUE(options.set(GetParam()));
  open({.verify = Verify::always, .split_macs = 1}, 48u << 20, 1, options);
  const NodeSpec spec = matrix(515, 130, NodePrecision::fp16);
  const auto residence = upload(spec);
  for (const uint32_t rows : {3u, 400u}) {
    const auto in = noise(std::size_t{rows} * 515);
    std::vector<float> out(std::size_t{rows} * 130);
    const auto ran = residence->run_matrix(0, rows, in, out);
    ASSERT_TRUE(ran) << ran.error().message << "\n" << state_.log;
    EXPECT_LT(relative_distance(out, product(spec, rows, in)), 2e-3);
  }
  EXPECT_EQ(device_->counters().wrong_results, 0u);
}

INSTANTIATE_TEST_SUITE_P(Control, SettingTest,
                         testing::Values("task-status=modulo", "task-status=count", "task-status=stuck",
                                         "int-raw=plain", "reset-values=zero", "s-status=zero", "op-en-zero=ignored",
                                         "core-pointer=optional", "mrdma=optional", "cbuf-state=cleared",
                                         "reset-cbuf=clears", "rate-unpowered=ignored", "page-2000=zero",
                                         "stall-busy=fails", "stall-busy=works", "reset-mmu=keeps"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace_if(name, [](char c) { return c == '-' || c == '='; }, '_');
                           return name;
                         });

// What reports about the arithmetic disagree on is decided by canaries when the device is opened.
struct Arithmetic {
  const char *chained_int, *short_height, *int8_out;
};

void PrintTo(const Arithmetic& a, std::ostream* out) { *out << a.chained_int << ' ' << a.short_height; }

class ArithmeticTest : public DeviceTest, public testing::WithParamInterface<Arithmetic> {};

TEST_P(ArithmeticTest, CanariesDecideWhatIsUsedAndAllIsRight) {
  rk3588::Options options;
  for (const char* setting : {GetParam().chained_int, GetParam().short_height, GetParam().int8_out})
    ASSERT_TRUE(options.set(setting));
  RknpuDevice& device = open({.verify = Verify::always, .split_macs = UINT64_MAX}, 48u << 20, 1, options);
  EXPECT_EQ(device.counters().wrong_results, 0u) << "what a probe provoked counts";
  EXPECT_FALSE(device.suspected());
  const auto notes = device.info().notes;
  const auto noted = [&](const char* what) {
    return std::ranges::any_of(notes, [&](const std::string& note) { return note.contains(what); });
  };
  EXPECT_EQ(noted("integer tasks in one job"), options.chained_int_accumulates);
  EXPECT_EQ(noted("fewer than 4 rows"), options.short_height_wrong);
  for (const auto& [precision, tolerance] : {std::pair{NodePrecision::fp16, 2e-3}, {NodePrecision::int8, 2e-2}}) {
    const NodeSpec spec = matrix(256, 96, precision);
    const auto residence = upload(spec);
    for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 1500u}) {
      const auto in = noise(std::size_t{rows} * 256);
      std::vector<float> out(std::size_t{rows} * 96);
      const uint64_t jobs = device.counters().jobs, bytes = device.counters().bytes_out;
      const auto ran = residence->run_matrix(0, rows, in, out);
      ASSERT_TRUE(ran) << ran.error().message << "\n" << state_.log;
      EXPECT_LT(relative_distance(out, product(spec, rows, in)), tolerance) << rows;
      const uint64_t computed = (device.counters().bytes_out - bytes) / (96 * 4);
      if (rows < 4) {
        EXPECT_EQ(computed, options.short_height_wrong ? 4 : rows);
      }
      if (rows == 1500) {
        const bool chained = device.counters().jobs - jobs == 1;
        EXPECT_EQ(chained, precision == NodePrecision::fp16 || !options.chained_int_accumulates);
      }
    }
  }
  EXPECT_EQ(device.counters().retries, 0u);
}

INSTANTIATE_TEST_SUITE_P(Reports, ArithmeticTest,
                         testing::Values(Arithmetic{"chained-int=accumulate", "short-height=wrong", "int8-out=k512"},
                                         Arithmetic{"chained-int=clear", "short-height=wrong", "int8-out=any"},
                                         Arithmetic{"chained-int=accumulate", "short-height=ok", "int8-out=any"},
                                         Arithmetic{"chained-int=clear", "short-height=ok", "int8-out=k512"}),
                         [](const auto& info) {
                           std::string name = std::string(info.param.chained_int) + "_" + info.param.short_height;
                           std::ranges::replace_if(name, [](char c) { return c == '-' || c == '='; }, '_');
                           return name;
                         });

// Inverts one bit in each of two results of one pixel, so that their sum stays what it was. False: there is no such
// pair.
bool invert_two_that_cancel(std::span<std::byte> cube, uint32_t bit) {
  for (std::size_t at = 0; at + 16 <= cube.size(); at += 16) {
    uint32_t words[4];  // an atom: 32-bit results of one pixel
    std::memcpy(words, &cube[at], sizeof words);
    for (int a = 0; a < 4; ++a) {
      for (int b = a + 1; b < 4; ++b) {
        // Of fp32 both need the same sign and exponent.
        if (((words[a] ^ words[b]) >> bit & 1) == 0 || words[a] >> 23 != words[b] >> 23) continue;
        words[a] ^= 1u << bit, words[b] ^= 1u << bit;
        std::memcpy(&cube[at], words, sizeof words);
        return true;
      }
    }
  }
  return false;
}

TEST_F(DeviceTest, TwoWrongBitsThatCancelInTheSumAreFound) {
  for (const NodePrecision precision : {NodePrecision::fp16, NodePrecision::int8}) {
    RknpuDevice& device = open({.verify = Verify::always});
    const NodeSpec spec = matrix(64, 48, precision);
    const auto residence = upload(spec);
    const auto in = noise(std::size_t{20} * 64);
    std::vector<float> out(std::size_t{20} * 48);
    bool struck = false;
    port_->falsify = [&](std::span<std::byte> cube) {
      if (!struck) struck = invert_two_that_cancel(cube, precision == NodePrecision::fp16 ? 21 : 3);
    };
    ASSERT_TRUE(residence->run_matrix(0, 20, in, out));
    port_->falsify = {};
    ASSERT_TRUE(struck) << "no two results of these cancel";
    EXPECT_EQ(device.counters().wrong_results, 1u);
    EXPECT_EQ(device.counters().retries, 1u);
    EXPECT_LT(relative_distance(out, product(spec, 20, in)), precision == NodePrecision::fp16 ? 2e-3 : 3e-2);
  }
}

TEST_F(DeviceTest, AnErrorOfLittleWeightInAWideProductIsFound) {
  RknpuDevice& device = open({.verify = Verify::always});
  const NodeSpec spec = matrix(512, 512, NodePrecision::fp16);
  const auto residence = upload(spec);
  const auto in = noise(std::size_t{4} * 512);
  const std::vector<float> right = product(spec, 4, in);
  bool struck = false;
  port_->falsify = [&](std::span<std::byte> cube) {
    if (std::exchange(struck, true)) return;
    std::vector<float> values(cube.size() / sizeof(float));
    std::memcpy(values.data(), cube.data(), cube.size());
    values[0] += 0.05f * std::ranges::max(values, {}, [](float v) { return std::fabs(v); });
    std::memcpy(cube.data(), values.data(), sizeof(float));
  };
  std::vector<float> out(std::size_t{4} * 512);
  ASSERT_TRUE(residence->run_matrix(0, 4, in, out));
  port_->falsify = {};
  EXPECT_EQ(device.counters().wrong_results, 1u);
  EXPECT_LT(relative_distance(out, right), 2e-3);
}

// Every channel rounds as the others do: the sum over them is off by more than independent roundings would be.
TEST_F(DeviceTest, EqualWeightsOnAFlatInputAreNoFalseAlarm) {
  RknpuDevice& device = open({.verify = Verify::always});
  NodeSpec rows{.name = "average", .op = {.channels = 2048, .kernels = 512}};
  rows.weights.assign(std::size_t{2048} * 512, 1.0f / 2048);
  NodeSpec image{.name = "blur", .kind = NodeKind::convolution};
  image.op = {.channels = 128, .kernels = 256, .kernel_height = 3, .kernel_width = 3};
  image.weights.assign(std::size_t{256} * 128 * 9, 1.0f / 1152);
  const auto product = upload(rows), convolution = upload(image);
  for (const float value : {0.3f, 0.7f, 1.1f, -123.4f}) {
    std::vector<float> out(std::size_t{4} * 512);
    auto ran = product->run_matrix(0, 4, std::vector<float>(std::size_t{4} * 2048, value), out);
    EXPECT_TRUE(ran) << value << ": " << ran.error().message;
    out.resize(std::size_t{256} * 10 * 14);
    ran = convolution->run_convolution(0, 12, 16, std::vector<float>(std::size_t{128} * 12 * 16, value), out);
    EXPECT_TRUE(ran) << value << ": " << ran.error().message;
  }
  EXPECT_EQ(device.counters().retries, 0u);
  EXPECT_FALSE(device.suspected());
}

TEST_F(DeviceTest, AWrongValueAmongResultsThatRoundAlikeIsFound) {
  RknpuDevice& device = open({.verify = Verify::always});
  NodeSpec spec{.name = "average", .op = {.channels = 2048, .kernels = 512}};
  spec.weights.assign(std::size_t{2048} * 512, 1.0f / 2048);
  const auto residence = upload(spec);
  bool struck = false;
  port_->falsify = [&](std::span<std::byte> cube) {
    if (std::exchange(struck, true)) return;
    float value;
    std::memcpy(&value, cube.data() + 64, sizeof value);
    value *= 1.02f;
    std::memcpy(cube.data() + 64, &value, sizeof value);
  };
  std::vector<float> out(std::size_t{8} * 512);
  ASSERT_TRUE(residence->run_matrix(0, 8, std::vector<float>(std::size_t{8} * 2048, 0.3f), out));
  port_->falsify = {};
  EXPECT_EQ(device.counters().wrong_results, 1u);
  for (float v : out) EXPECT_NEAR(v, 0.3f, 1e-3f);
}

TEST_F(DeviceTest, AFullSpaceSendsAModelToTheNext) {
  RknpuDevice& device = open({}, 8u << 20, 2);
  const auto packed = pack_node(matrix(1024, 2048, NodePrecision::fp16, false));  // 4 MiB
  ASSERT_TRUE(packed);
  std::vector<std::unique_ptr<Residence>> all;
  for (int i = 0; i < 2; ++i) {
    auto residence = device.upload(std::span(&*packed, 1));
    ASSERT_TRUE(residence) << residence.error().message;
    all.push_back(std::move(*residence));
  }
  EXPECT_EQ(device.info().apertures.size(), 2u);
  std::vector<float> in(1024, 0.5f), out(2048);
  for (auto& residence : all) EXPECT_TRUE(residence->run_matrix(0, 1, in, out));
  bool full = false;
  for (int i = 0; i < 3 && !full; ++i) {
    auto residence = device.upload(std::span(&*packed, 1));
    if (residence) {
      all.push_back(std::move(*residence));
    } else {
      full = true;
      EXPECT_EQ(residence.error().code, ErrorCode::resource_exhausted);
      EXPECT_TRUE(residence.error().bytes_needed && residence.error().bytes_free);
    }
  }
  EXPECT_TRUE(full);
}

TEST_F(DeviceTest, ASpaceIsChosenWithRoomForActivations) {
  RknpuDevice& device = open({}, 8u << 20, 2);
  const auto heavy = pack_node(matrix(1024, 2048, NodePrecision::fp16, false)),  // 4 MiB
      wide = pack_node(matrix(64, 1024, NodePrecision::fp16, false));
  ASSERT_TRUE(heavy && wide);
  const auto first = device.upload(std::span(&*heavy, 1));
  ASSERT_TRUE(first);
  auto second = device.upload(std::span(&*wide, 1), {}, 5u << 20);
  ASSERT_TRUE(second) << second.error().message;
  ASSERT_EQ(device.info().apertures.size(), 2u);
  EXPECT_LT(device.info().apertures[1].used_bytes, 1u << 20) << "what is promised isn't used yet";
  // What was promised is nobody else's, and counts no more once it is filled.
  auto none = device.upload(std::span(&*wide, 1), {}, 5u << 20);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::resource_exhausted);
  const auto in = noise(std::size_t{1100} * 64);
  std::vector<float> out(std::size_t{1100} * 1024);
  EXPECT_TRUE((*second)->run_matrix(0, 1100, in, out));
  EXPECT_GT((*second)->activations_wanted(), out.size() * 4);
  EXPECT_TRUE(device.upload(std::span(&*wide, 1), {}, 2u << 20));
  second->reset();
  EXPECT_TRUE(device.upload(std::span(&*wide, 1), {}, 5u << 20));
}

TEST_F(DeviceTest, WhatFp16CannotHoldIsRefusedAndNothingIsRetried) {
  RknpuDevice& device = open();
  const auto residence = upload(matrix(32, 32, NodePrecision::fp16));
  std::vector<float> in(32, 1e6f), out(32);
  const auto ran = residence->run_matrix(0, 1, in, out);
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(ran.error().message, HasSubstr("65504"));
  EXPECT_EQ(device.counters().retries, 0u);
  EXPECT_FALSE(device.suspected());
  std::vector<float> short_out(31);
  EXPECT_FALSE(residence->run_matrix(0, 1, std::vector<float>(32, 1.0f), short_out));
}

// The largest error of a result relative to itself.
double worst_relative_error(std::span<const float> ours, std::span<const double> want) {
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i)
    worst =
        std::max(worst, want[i] == 0 ? std::fabs(double{ours[i]}) : std::fabs(ours[i] - want[i]) / std::fabs(want[i]));
  return worst;
}

TEST_F(DeviceTest, InputsAndWeightsTooSmallForFp16AreScaledAndKeepTheirBits) {
  open({.verify = Verify::always});
  constexpr uint32_t k = 40, n = 24, rows = 5;
  for (const float weight : {1.0f, 1e-8f, 1e-20f}) {
    for (const float bias : {0.0f, 0.5f, 1e-9f}) {
      if (bias != 0 && weight < 1e-8f) continue;  // beside such a bias they are nothing
      NodeSpec spec = matrix(k, n, NodePrecision::fp16, false);
      for (float& w : spec.weights) w = std::fabs(w) * weight + 1e-3f * weight;
      if (bias != 0) spec.bias.assign(n, bias);
      const auto residence = upload(spec);
      for (const float value : {1.0f, 3e-5f, 1e-8f, 1e-13f}) {
        std::vector<float> in = noise(std::size_t{rows} * k), out(std::size_t{rows} * n);
        for (float& v : in) v = std::fabs(v) * value;
        in[0] = value * 1e-7f;  // one that its row's others drown
        std::vector<double> want(out.size());
        for (uint32_t m = 0; m < rows; ++m)
          for (uint32_t i = 0; i < n; ++i) {
            want[m * n + i] = bias;
            for (uint32_t c = 0; c < k; ++c) want[m * n + i] += double{in[m * k + c]} * spec.weights[c * n + i];
          }
        const auto ran = residence->run_matrix(0, rows, in, out);
        ASSERT_TRUE(ran) << weight << " " << value << ": " << ran.error().message;
        EXPECT_LT(worst_relative_error(out, want), 2e-3) << weight << " x " << value << " + " << bias;
      }
    }
  }
  EXPECT_EQ(device_->counters().wrong_results, 0u);
}

TEST_F(DeviceTest, OneTinyValueBesideALargeOneComesThrough) {
  open({.verify = Verify::always});
  NodeSpec spec{.name = "identity", .op = {.channels = 4, .kernels = 4}, .weights = std::vector<float>(16)};
  for (uint32_t i = 0; i < 4; ++i) spec.weights[i * 5] = 1;
  const auto residence = upload(spec);
  const std::vector<float> in{1.0f, 1e-8f, 3e-6f, 0.0f};
  std::vector<float> out(4);
  ASSERT_TRUE(residence->run_matrix(0, 1, in, out));
  EXPECT_LT(worst_relative_error(out, std::vector<double>{1, 1e-8, 3e-6, 0}), 1e-3);
}

TEST_F(DeviceTest, DepthwiseResultsTooSmallForFp16AreScaled) {
  open({.verify = Verify::always});
  for (const float weight : {1.0f, 1e-3f, 1e-9f}) {
    NodeSpec spec{.name = "depthwise", .kind = NodeKind::convolution};
    spec.op = {.channels = 8, .kernels = 8, .kernel_height = 2, .kernel_width = 2, .depthwise = true};
    spec.weights = noise(32);
    for (float& w : spec.weights) w = (std::fabs(w) + 0.1f) * weight;
    const auto residence = upload(spec);
    for (const float value : {100.0f, 1e-3f, 1e-10f}) {
      std::vector<float> in = noise(8 * 6 * 6), out(8 * 5 * 5);
      for (float& v : in) v = (std::fabs(v) + 0.1f) * value;
      std::vector<double> want(out.size());
      for (std::size_t c = 0; c < 8; ++c)
        for (std::size_t y = 0; y < 5; ++y)
          for (std::size_t x = 0; x < 5; ++x)
            for (std::size_t tap = 0; tap < 4; ++tap)
              want[(c * 5 + y) * 5 + x] +=
                  double{in[(c * 6 + y + tap / 2) * 6 + x + tap % 2]} * spec.weights[c * 4 + tap];
      const auto ran = residence->run_convolution(0, 6, 6, in, out);
      ASSERT_TRUE(ran) << weight << " " << value << ": " << ran.error().message;
      EXPECT_LT(worst_relative_error(out, want), 2e-3) << weight << " x " << value;
    }
  }
}

TEST_F(DeviceTest, RowsTooFarApartForFp16AreRefusedWithTheReason) {
  RknpuDevice& device = open();
  const auto residence = upload(matrix(32, 32, NodePrecision::fp16));
  std::vector<float> in(64, 1e4f), out(64);
  std::fill_n(in.begin(), 32, 1e-7f);
  const auto ran = residence->run_matrix(0, 2, in, out);
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(ran.error().message, HasSubstr("very different sizes"));
  EXPECT_FALSE(device.suspected());
}

// As trained networks have them; the whole node on the host would cost more than they are worth.
TEST_F(DeviceTest, ADeadKernelBesideOthersGivesItsBias) {
  open({.verify = Verify::always});
  NodeSpec spec = matrix(32, 32, NodePrecision::fp16);
  for (std::size_t i = 0; i < 32; ++i) spec.weights[i * 32] = 1e-30f;
  const auto residence = upload(spec);
  const auto in = noise(64);
  std::vector<float> out(64);
  ASSERT_TRUE(residence->run_matrix(0, 2, in, out));
  EXPECT_LT(relative_distance(out, product(spec, 2, in)), 2e-3);
  EXPECT_FLOAT_EQ(out[0], spec.bias[0]);
}

// Multiplied by what the weights are, the bias would be infinite, and a good device blamed for it.
TEST_F(DeviceTest, ABiasTooLargeBesideScaledWeightsIsTheHosts) {
  NodeSpec spec = matrix(32, 16, NodePrecision::fp16);
  for (float& w : spec.weights) w *= 0x1p-90f;
  spec.bias.assign(16, 0x1p-10f);
  EXPECT_TRUE(pack_node(spec));
  spec.bias[3] = -0x1p60f;
  const auto packed = pack_node(spec);
  ASSERT_FALSE(packed);
  EXPECT_EQ(packed.error().code, ErrorCode::invalid_argument);
}

TEST_F(DeviceTest, TheCheckSeesWhatFp16LostOfTheInput) {
  const auto packed = pack_node(matrix(32, 32, NodePrecision::fp16));
  ASSERT_TRUE(packed);
  std::vector<float> in(64, 1.0f);
  EXPECT_TRUE(fp16_holds(*packed, in, 0));
  in[3] = 1e-8f;  // drowned by its row
  EXPECT_TRUE(fp16_holds(*packed, in, 0));
  std::fill_n(in.begin() + 32, 32, 1e-8f);
  EXPECT_FALSE(fp16_holds(*packed, in, 0));
  EXPECT_TRUE(fp16_holds(*packed, in, 14));
}

TEST_F(DeviceTest, WhenACoreIsLostTheOthersGoOnAloneUntilItIsBack) {
  RknpuDevice& device = open({.split_macs = 1});
  constexpr uint32_t k = 64, n = 96, rows = 48;
  NodeSpec spec{.name = "product", .op = {.channels = k, .kernels = n}, .weights = std::vector<float>(k * n, 0.5f)};
  const auto packed = pack_node(spec);
  ASSERT_TRUE(packed);
  auto residence = device.upload(std::span(&*packed, 1));
  ASSERT_TRUE(residence);
  const std::vector<float> in(rows * k, 2.0f);
  const std::vector<float> right(rows * n, float{k});
  std::vector<float> out(rows * n);
  ASSERT_TRUE((*residence)->run_matrix(0, rows, in, out));
  EXPECT_EQ(out, right);
  port_->refuse_gangs = true;
  const auto refused = (*residence)->run_matrix(0, rows, in, out);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::internal);
  ASSERT_TRUE(device.canary());
  EXPECT_EQ(device.info().health, DeviceHealth::degraded);
  EXPECT_THAT(device.info().health_reason, HasSubstr("single cores"));
  EXPECT_FALSE(device.suspected());
  std::ranges::fill(out, 0.0f);
  ASSERT_TRUE((*residence)->run_matrix(0, rows, in, out));
  EXPECT_EQ(out, right);
  port_->refuse_gangs = false;
  ASSERT_TRUE(device.canary());
  EXPECT_EQ(device.info().health, DeviceHealth::ok);
  std::ranges::fill(out, 0.0f);
  ASSERT_TRUE((*residence)->run_matrix(0, rows, in, out));
  EXPECT_EQ(out, right);
  residence->reset();
}

TEST_F(DeviceTest, ARunIsSpreadOverTheCoresOnlyWhileItIsAlone) {
  open({.split_macs = 1});
  const NodeSpec spec = matrix(256, 192, NodePrecision::fp16);
  const auto first = upload(spec), second = upload(spec);
  const auto in = noise(std::size_t{32} * 256);
  const auto right = product(spec, 32, in);
  std::vector<std::size_t> widths;
  std::promise<void> entered, go;
  std::mutex mutex;
  bool blocked = false;
  port_->on_run = [&](const Submission& s) {
    {
      const std::lock_guard lock(mutex);
      widths.push_back(s.cores.size());
      if (std::exchange(blocked, true)) return;
    }
    entered.set_value();
    go.get_future().wait();
  };
  std::vector<float> a(right.size()), b(right.size());
  std::jthread other([&] { EXPECT_TRUE(first->run_matrix(0, 32, in, a)); });
  entered.get_future().wait();
  EXPECT_TRUE(second->run_matrix(0, 32, in, b));
  go.set_value();
  other.join();
  EXPECT_EQ(widths, (std::vector<std::size_t>{3, 1, 1, 1}));
  EXPECT_LT(relative_distance(a, right), 2e-3);
  EXPECT_LT(relative_distance(b, right), 2e-3);
  widths.clear();
  EXPECT_TRUE(second->run_matrix(0, 32, in, b));
  EXPECT_EQ(widths, (std::vector<std::size_t>{3}));
}

TEST_F(DeviceTest, ADeadCoreFromTheStartIsToldAndNotUsed) {
  auto port = std::make_unique<BoardPort>(state_, 16u << 20);
  port->arm(VBOARD_FAULT_DEAD, VBOARD_FAULT_ANY_CORE, 0, 0);
  auto device = RknpuDevice::open(std::move(port), {}, clock_);
  ASSERT_TRUE(device);
  EXPECT_EQ((*device)->info().health, DeviceHealth::dead);
  EXPECT_FALSE((*device)->info().health_reason.empty());
}

}  // namespace
}  // namespace npud::rknpu
