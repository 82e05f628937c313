// SPDX-License-Identifier: Apache-2.0
// The outside of a .rknn file: enough to know that a file is whole before a closed library reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/error.h"

namespace npud::rknn {

// Layout, all little-endian: "RKNN", four zero bytes, u64 version, u64 size of the data, 40 bytes of header with
// version 2 and later, the data, u64 size of the description, the description (JSON). As lutzroeder/netron
// (source/rknn.js) and other public readers take files of toolkits 1.0 to 2.3 apart; which bits a description must have
// isn't public.
struct ModelFile {
  std::uint64_t version = 0;
  std::span<const std::byte> data, description;
};

// data_loss: not such a file, or cut short; unimplemented: encrypted, or of the first generation.
Result<ModelFile> inspect_model_file(std::span<const std::byte> bytes);

}  // namespace npud::rknn
