// SPDX-License-Identifier: Apache-2.0
// The PPU: windows of a cube from memory to their maximum, minimum or average. Pure arithmetic on buffers.
#pragma once

#include <cstddef>
#include <span>

#include "devices/rknpu/hw/task.h"
#include "dpu.h"

namespace npud::rk3588 {

// `source`: [surface][height][width] atoms of 16 bytes.
Surfaces run_ppu(const rknpu::PpuTask& task, std::span<const std::byte> source);

}  // namespace npud::rk3588
