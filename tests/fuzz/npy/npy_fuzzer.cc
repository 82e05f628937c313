// SPDX-License-Identifier: Apache-2.0
// .npy files come from anywhere: whatever is in one, parse_npy() refuses it or returns a tensor that is written and
// read back the same.
#include <cstdint>
#include <cstdlib>

#include "npud/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace npud::client;
  auto tensor = parse_npy({reinterpret_cast<const char*>(data), size});
  if (!tensor) return 0;
  auto count = element_count(tensor->shape);
  if (!count) std::abort();
  if (tensor->type != DataType::bytes && tensor->data.size() != *count * data_type_size(tensor->type)) std::abort();
  auto file = format_npy(*tensor);
  if (!file) std::abort();
  auto back = parse_npy(*file);
  if (!back || back->type != tensor->type || back->shape != tensor->shape || back->data != tensor->data) std::abort();
  return 0;
}
