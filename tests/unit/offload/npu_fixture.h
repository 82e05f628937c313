// SPDX-License-Identifier: Apache-2.0
// An engine with a host device and the virtual board as its NPU. At the end of each test nothing is left on either.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "board_port.h"
#include "devices/rknpu/device.h"
#include "engine/npu_target.h"
#include "engine_fixture.h"

namespace npud::test {

class NpuTest : public ::testing::Test {
 protected:
  struct Options {
    rknpu::DeviceSettings device;
    std::uint64_t space_bytes = 32u << 20;
    std::uint32_t spaces = 1;
    NpuTargetSettings target;
    bool dead = false;
  };

  void open(const Options& options) {
    auto port = std::make_unique<rknpu::BoardPort>(state_, options.space_bytes, options.spaces);
    port_ = port.get();
    if (options.dead) port_->arm(VBOARD_FAULT_DEAD, VBOARD_FAULT_ANY_CORE, 0, 0);
    auto device = rknpu::RknpuDevice::open(std::move(port), options.device, engine_.clock);
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
    arbiter_ = std::make_unique<DeviceArbiter>(
        DeviceArbiterSettings{.device = "rknpu0",
                              .cores = 3,
                              .slots = 64,
                              .aperture_bytes = options.spaces * (options.space_bytes / 4 * 3),
                              .fairness = {}},
        engine_.clock, engine_.tenants, engine_.events);
    target_ = std::make_unique<NpuTarget>(*device_, *arbiter_, engine_.clock, engine_.events, options.target);
    auto loader = OnnxLoader::create({}, shared_runtime(), engine_.host, engine_.arbiter, engine_.clock, target_.get());
    ASSERT_TRUE(loader) << loader.error().message;
    engine_.loader = std::move(*loader);
  }
  void open() { open(Options{}); }

  void TearDown() override {
    engine_.loader.reset();
    target_.reset();
    if (arbiter_) {
      EXPECT_TRUE(arbiter_->snapshot().programs.empty()) << "a program was never forgotten";
    }
    arbiter_.reset();
    device_.reset();
    EXPECT_EQ(state_.allocated_bytes, 0u) << "bytes of NPU memory were left behind";
    EXPECT_EQ(engine_.host.used_bytes(), 0u) << "a session's memory is still there";
  }

  using Parameters = std::vector<std::pair<std::string, std::string>>;
  static inference::ModelConfig config(const Parameters& parameters) {
    inference::ModelConfig config;
    for (const auto& [key, value] : parameters) (*config.mutable_parameters())[key].set_string_value(value);
    return config;
  }

  std::shared_ptr<Servable> load(const std::string& name, const onnx::ModelProto& model, const Parameters& parameters) {
    auto loaded = engine_.load(name, model, config(parameters));
    EXPECT_TRUE(loaded) << loaded.error().message;
    return loaded ? loaded->servable : nullptr;
  }

  std::string refusal(const onnx::ModelProto& model, const Parameters& parameters) {
    auto loaded = engine_.load("refused", model, config(parameters));
    return loaded ? "it was loaded" : loaded.error().message;
  }

  Response answer(Servable& servable, const std::vector<Tensor>& inputs) {
    auto responses = engine_.run(servable, {inputs});
    EXPECT_TRUE(responses) << responses.error().message << "\n" << state_.log;
    return responses ? responses->at(0) : Response{};
  }

  std::vector<float> noise(std::size_t count, float scale = 1) {
    std::vector<float> out(count);
    std::normal_distribution<float> normal(0, scale);
    for (float& v : out) v = normal(random_);
    return out;
  }

  Tensor noise_tensor(const std::string& name, const Dims& dims, float scale = 1) {
    std::size_t count = 1;
    for (auto dim : dims) count *= static_cast<std::size_t>(dim);
    return float_tensor(name, dims, noise(count, scale));
  }

  // The largest difference, relative to the largest magnitude; infinite where sizes or finiteness differ.
  static double distance(const Tensor& ours, const Tensor& reference) {
    if (ours.shape != reference.shape) return INFINITY;
    const auto a = floats(ours), b = floats(reference);
    return rknpu::relative_distance(a, b);
  }

  rknpu::BoardPort::State state_;
  rknpu::BoardPort* port_ = nullptr;
  std::mt19937 random_{7};
  EngineParts engine_{8, 512u << 20, false};
  std::unique_ptr<rknpu::RknpuDevice> device_;
  std::unique_ptr<DeviceArbiter> arbiter_;
  std::unique_ptr<NpuTarget> target_;
};

}  // namespace npud::test
