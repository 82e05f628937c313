// SPDX-License-Identifier: Apache-2.0
#include "service/log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <format>
#include <vector>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

namespace npud {
namespace {

std::atomic<bool> to_journal{false};
std::atomic<LogLevel> threshold{LogLevel::info};

bool stderr_is_the_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat st{};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &st) != 0) {
    return false;
  }
  return std::format("{}:{}", st.st_dev, st.st_ino) == stream;
}

// `quoted`: stands between quotes, so that its own get a backslash.
void append_escaped(std::string& out, std::string_view text, bool quoted = false) {
  for (unsigned char c : text) {
    if (c < 0x20 || c == 0x7f) {
      out += std::format("\\x{:02x}", c);
    } else {
      if (quoted && (c == '"' || c == '\\')) {
        out += '\\';
      }
      out += static_cast<char>(c);
    }
  }
}

void write_journal(LogLevel level, std::string_view id, std::string_view sentence, LogFields fields) {
  std::vector<std::string> entries;
  entries.reserve(fields.size() + 3);
  entries.push_back(std::format("MESSAGE={}", sentence));
  entries.push_back(std::format("PRIORITY={}", static_cast<int>(level)));
  if (!id.empty()) {
    entries.push_back(std::format("MESSAGE_ID={}", id));
  }
  for (const auto& [name, value] : fields) {
    entries.push_back(std::format("{}={}", name, value));
  }
  std::vector<iovec> iov;
  iov.reserve(entries.size());
  for (std::string& entry : entries) {
    iov.push_back({entry.data(), entry.size()});
  }
  sd_journal_sendv(iov.data(), static_cast<int>(iov.size()));
}

void write_stderr(LogLevel level, std::string_view sentence, LogFields fields) {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  std::string line = std::format("{:%FT%T}Z {:7} ", now, log_level_name(level));
  append_escaped(line, sentence);
  for (const auto& [name, value] : fields) {
    line += std::format(" {}=", name);
    const bool quote = value.empty() || value.find_first_of(" \"\\=") != std::string::npos;
    line += quote ? "\"" : "";
    append_escaped(line, value, quote);
    line += quote ? "\"" : "";
  }
  line += '\n';
  // One write a line, so that lines of several threads don't mix.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

void grpc_line(gpr_log_func_args* args) {
  const bool error = args->severity == GPR_LOG_SEVERITY_ERROR;
  log_line(error ? LogLevel::warning : LogLevel::debug, message_id::library,
           std::format("gRPC says: {}", args->message), {{"SOURCE", std::format("{}:{}", args->file, args->line)}});
}

// Protobuf writes a line for each string in a message that isn't UTF-8: any client could flood the log.
void protobuf_line(google::protobuf::LogLevel /*level*/, const char* file, int line, const std::string& text) {
  log_line(LogLevel::debug, message_id::library, std::format("protobuf says: {}", text),
           {{"SOURCE", std::format("{}:{}", file, line)}});
}

struct LevelName {
  LogLevel level;
  std::string_view name;
};
constexpr std::array level_names = {LevelName{LogLevel::error, "error"}, LevelName{LogLevel::warning, "warning"},
                                    LevelName{LogLevel::notice, "notice"}, LevelName{LogLevel::info, "info"},
                                    LevelName{LogLevel::debug, "debug"}};

}  // namespace

void set_log(LogTarget target, LogLevel level) {
  to_journal = target == LogTarget::journal || (target == LogTarget::automatic && stderr_is_the_journal());
  threshold = level;
}

bool log_enabled(LogLevel level) { return level <= threshold.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view id, std::string_view sentence, LogFields fields) {
  if (!log_enabled(level)) {
    return;
  }
  try {
    if (to_journal.load(std::memory_order_relaxed)) {
      write_journal(level, id, sentence, fields);
    } else {
      write_stderr(level, sentence, fields);
    }
  } catch (const std::bad_alloc&) {
    static constexpr std::string_view lost = "npud: a log line was lost: out of memory\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, lost.data(), lost.size());
  }
}

void log_library_lines() {
  google::protobuf::SetLogHandler(protobuf_line);
  gpr_set_log_function(grpc_line);
  gpr_set_log_verbosity(log_enabled(LogLevel::debug) ? GPR_LOG_SEVERITY_INFO : GPR_LOG_SEVERITY_ERROR);
}

Result<LogTarget> log_target_from_name(std::string_view name) {
  if (name == "auto") return LogTarget::automatic;
  if (name == "journal") return LogTarget::journal;
  if (name == "stderr") return LogTarget::stderr_text;
  return fail(ErrorCode::invalid_argument, std::format("'{}' is no log target: use auto, journal or stderr", name));
}

Result<LogLevel> log_level_from_name(std::string_view name) {
  for (const auto& entry : level_names) {
    if (entry.name == name) return entry.level;
  }
  return fail(ErrorCode::invalid_argument,
              std::format("'{}' is no log level: use error, warning, notice, info or debug", name));
}

std::string_view log_target_name(LogTarget target) {
  switch (target) {
    case LogTarget::automatic:
      return "auto";
    case LogTarget::journal:
      return "journal";
    case LogTarget::stderr_text:
      return "stderr";
  }
  return "auto";
}

std::string_view log_level_name(LogLevel level) {
  for (const auto& entry : level_names) {
    if (entry.level == level) return entry.name;
  }
  return "info";
}

}  // namespace npud
