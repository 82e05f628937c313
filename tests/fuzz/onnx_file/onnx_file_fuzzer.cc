// SPDX-License-Identifier: Apache-2.0
// Any bytes are a model that was inspected, or a sentence. Seeds are in protobuf's text form, which mutates better, and
// in its wire form.
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "engine/onnx_file.h"

namespace {

void inspect(std::span<const std::byte> bytes) {
  auto info = npud::inspect_onnx(bytes);
  if (!info) {
    if (info.error().message.empty() || info.error().message.find('\n') != std::string::npos) std::abort();
    return;
  }
  if (info->outputs.empty()) std::abort();
  for (const auto& external : info->external) {
    if (external.location.empty() || external.location.is_absolute()) std::abort();
    for (const auto& part : external.location)
      if (part == "..") std::abort();
  }
}

// Says nothing of what isn't text.
class Silence final : public google::protobuf::io::ErrorCollector {
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  inspect(std::as_bytes(std::span(data, size)));
  onnx::ModelProto model;
  Silence silence;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&silence);
  parser.SetRecursionLimit(60);
  if (parser.ParseFromString(std::string(reinterpret_cast<const char*>(data), size), &model)) {
    const std::string bytes = model.SerializePartialAsString();
    inspect(std::as_bytes(std::span(bytes)));
  }
  return 0;
}
