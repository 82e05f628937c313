// SPDX-License-Identifier: Apache-2.0
#include "models/config_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <format>

namespace npud {
namespace {

constexpr std::size_t max_config_bytes = 4 << 20;

// Keeps the first error: the ones after it are mostly its consequences.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (found) return;
    found = true;
    // The parser counts from 0, and says -1 for what concerns the whole text.
    where = line < 0 ? "" : std::format(":{}:{}", line + 1, column + 1);
    what = message;
  }
  bool found = false;
  std::string where, what;
};

}  // namespace

Result<inference::ModelConfig> parse_config_text(std::string_view text, const std::string& file) {
  if (text.size() > max_config_bytes) {
    return fail(ErrorCode::invalid_argument,
                std::format("{}: has {} bytes, more than the 4 MiB that a configuration may have", file, text.size()));
  }
  if (auto zero = text.find('\0'); zero != std::string_view::npos) {
    return fail(ErrorCode::invalid_argument,
                std::format("{}: has a zero byte at offset {}; it has to be text", file, zero));
  }
  inference::ModelConfig config;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(32);
  if (!parser.ParseFromString(std::string(text), &config) || error.found) {
    return fail(ErrorCode::invalid_argument,
                std::format("{}{}: {}", file, error.where, error.found ? error.what : "can't be read"));
  }
  return config;
}

Result<inference::ModelConfig> parse_config_override(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') return parse_config_text(text, "config");
  if (text.size() > max_config_bytes)
    return fail(ErrorCode::invalid_argument, "config: more than the 4 MiB that a configuration may have");
  inference::ModelConfig config;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  const auto status = google::protobuf::util::JsonStringToMessage(std::string(text), &config, options);
  if (!status.ok())
    return fail(ErrorCode::invalid_argument, std::format("config: {}", std::string_view(status.message())));
  return config;
}

}  // namespace npud
