// SPDX-License-Identifier: Apache-2.0
// The daemon's log: one whole sentence a line, with fields; to the journal (fixed MESSAGE_IDs) or to stderr.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace npud {

enum class LogLevel { error = 3, warning = 4, notice = 5, info = 6, debug = 7 };  // syslog's numbers
enum class LogTarget { automatic, journal, stderr_text };

// MESSAGE_IDs: `journalctl MESSAGE_ID=…` finds every line of one kind, in all versions of npud. Never reuse one.
namespace message_id {
inline constexpr std::string_view none = "";
inline constexpr std::string_view started = "21796db9e5254761a4a8d624e319ca92";
inline constexpr std::string_view stopping = "09534ba251934bb68bda0a3673a3ba7e";
inline constexpr std::string_view reloaded = "161789065fed4ca8bc563ea3a67ac74f";
inline constexpr std::string_view reload_failed = "46f5a96e66dd4468ac5440311bf321c7";
inline constexpr std::string_view model_event = "29e39e3a75604e4db3a831656d1ef737";
inline constexpr std::string_view model_failed = "22cc3b1c4c8f4083bc5e8e119480b878";
inline constexpr std::string_view device_event = "4661fb370ef1453b96b261c5c061cb93";
inline constexpr std::string_view tenant_event = "53eef7d517f34785ad09338891c1273f";
inline constexpr std::string_view connection_refused = "040062268fd648f18d2caaea147673a8";
inline constexpr std::string_view no_progress = "b80765d1da344dfba9db5f97807947df";
inline constexpr std::string_view library = "6bf53eac03804587bbb3c353fc7183ea";
}  // namespace message_id

// Field names are upper case, as journald wants them (MODEL, TENANT_UID, DEVICE, BYTES).
using LogFields = std::initializer_list<std::pair<std::string_view, std::string>>;

// Where lines go and from which level on. Any thread; before the first call: stderr, info. `automatic` is the journal
// when stderr is connected to it ($JOURNAL_STREAM names stderr's own device and inode), else stderr.
void set_log(LogTarget target, LogLevel level);
bool log_enabled(LogLevel level);

// Any thread; never fails, never throws. Control characters of the sentence and values are escaped on stderr.
void log_line(LogLevel level, std::string_view id, std::string_view sentence, LogFields fields = {});

// Sends gRPC's own lines here, its errors as warnings, the rest as debug; and protobuf's, as debug.
void log_library_lines();

Result<LogTarget> log_target_from_name(std::string_view name);  // "auto", "journal", "stderr"
Result<LogLevel> log_level_from_name(std::string_view name);
std::string_view log_target_name(LogTarget target);
std::string_view log_level_name(LogLevel level);

}  // namespace npud
