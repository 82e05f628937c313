// SPDX-License-Identifier: Apache-2.0
// Layers, checks across keys, and the dump. config_reader.cc has the reading of one file.
#include "service/config.h"

#include <algorithm>
#include <format>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "service/config_schema.h"

namespace npud {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t max_file_bytes = 1u << 20;

Result<> apply_file(Config& config, const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size_bytes = fs::file_size(path, error);
  if (error) {
    return fail(ErrorCode::not_found, std::format("{}: can't read it: {}", path.string(), error.message()));
  }
  if (size_bytes > max_file_bytes) {
    return fail(ErrorCode::invalid_argument,
                std::format("{}: {} bytes are too many for a configuration file (at most {})", path.string(),
                            size_bytes, max_file_bytes));
  }
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) {
    return fail(ErrorCode::not_found, std::format("{}: can't read it", path.string()));
  }
  if (auto applied = apply_config_text(config, text.str(), path.string()); !applied) {
    return applied;
  }
  config.files.push_back(path);
  return {};
}

// Drop-ins by file name; directories given first win.
Result<std::map<std::string, fs::path>> drop_ins(const std::vector<fs::path>& directories) {
  std::map<std::string, fs::path> found;
  for (const fs::path& directory : directories) {
    std::error_code error;
    fs::directory_iterator entries(directory, error);
    if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
      continue;
    }
    if (error) {
      return fail(ErrorCode::not_found, std::format("{}: can't list it: {}", directory.string(), error.message()));
    }
    for (const fs::directory_entry& entry : entries) {
      if (entry.path().extension() == ".toml" && !entry.path().filename().string().starts_with('.')) {
        found.try_emplace(entry.path().filename().string(), entry.path());
      }
    }
  }
  return found;
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      out += std::format("\\u{:04x}", c);
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + '"';
}

class Dumper {
 public:
  bool section(std::string_view name) {
    out_ += std::format("{}[{}]\n", out_.empty() ? "" : "\n", name);
    return true;
  }
  void value(std::string_view key, const std::string& v) { line(key, toml_string(v)); }
  void value(std::string_view key, bool v) { line(key, v ? "true" : "false"); }
  void value(std::string_view key, const Bytes& v) { line(key, std::to_string(v.value)); }
  void value(std::string_view key, const Millis& v) { line(key, std::to_string(v.value.count())); }
  void value(std::string_view key, const Count& v) { line(key, std::to_string(v.value)); }
  void value(std::string_view key, const Choice& v) { line(key, toml_string(v.value)); }
  void value(std::string_view key, LogTarget v) { line(key, toml_string(log_target_name(v))); }
  void value(std::string_view key, LogLevel v) { line(key, toml_string(log_level_name(v))); }
  void value(std::string_view key, const std::vector<std::string>& v) {
    std::string text;
    for (const std::string& item : v) {
      text += (text.empty() ? "" : ", ") + toml_string(item);
    }
    line(key, std::format("[{}]", text));
  }
  void value(std::string_view key, const std::vector<uid_t>& v) {
    std::string text;
    for (uid_t item : v) {
      text += std::format("{}{}", text.empty() ? "" : ", ", item);
    }
    line(key, std::format("[{}]", text));
  }
  void tenants(std::vector<TenantConfig>& tenants) {
    for (TenantConfig& tenant : tenants) {
      out_ += "\n[[tenant]]\n";
      visit_tenant(*this, tenant);
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void line(std::string_view key, std::string_view text) { out_ += std::format("{} = {}\n", key, text); }
  std::string out_;
};

// The text of one section, to compare.
std::map<std::string, std::string> sections_of(const Config& config) {
  std::map<std::string, std::string> sections;
  std::istringstream lines(dump_config(config));
  std::string line, current;
  while (std::getline(lines, line)) {
    if (line.starts_with('[')) {
      current = line.substr(line.find_first_not_of('['));
      current = current.substr(0, current.find(']'));
    }
    sections[current] += line + '\n';
  }
  return sections;
}

}  // namespace

Result<Config> load_config(const ConfigSources& sources) {
  Config config;
  std::vector<fs::path> drop_in_directories;
  if (!sources.file.empty()) {
    if (auto applied = apply_file(config, sources.file); !applied) {
      return std::unexpected(applied.error());
    }
    drop_in_directories.push_back(sources.file.string() + ".d");
  } else {
    bool main_found = false;
    for (const fs::path& directory : sources.directories) {
      const fs::path file = directory / "npud.toml";
      std::error_code error;
      if (!main_found && fs::exists(file, error)) {
        main_found = true;
        if (auto applied = apply_file(config, file); !applied) {
          return std::unexpected(applied.error());
        }
      }
      drop_in_directories.push_back(directory / "npud.toml.d");
    }
  }
  auto found = drop_ins(drop_in_directories);
  if (!found) {
    return std::unexpected(found.error());
  }
  for (const auto& [name, path] : *found) {
    if (auto applied = apply_file(config, path); !applied) {
      return std::unexpected(applied.error());
    }
  }
  if (auto checked = check_config(config); !checked) {
    return std::unexpected(checked.error());
  }
  return config;
}

Result<> check_config(const Config& config) {
  auto bad = [](std::string message) { return fail(ErrorCode::invalid_argument, std::move(message)); };
  const std::string& mode = config.server.socket_mode;
  if (mode.empty() || mode.size() > 4 || mode.find_first_not_of("01234567") != std::string::npos) {
    return bad(std::format("server.socket_mode: '{}' is no octal file mode such as 0660", mode));
  }
  if (config.server.socket.size() > 107) {
    return bad(std::format("server.socket: {} bytes are too long for a unix socket's path (at most 107)",
                           config.server.socket.size()));
  }
  if (!config.server.socket.empty() && !config.server.socket.starts_with('/')) {
    return bad(std::format("server.socket: '{}' must be an absolute path", config.server.socket));
  }
  if (!config.tls.address.empty() &&
      (config.tls.certificate_file.empty() || config.tls.key_file.empty() || config.tls.client_ca_file.empty())) {
    return bad(
        "tls.address is set, so tls.certificate_file, tls.key_file and tls.client_ca_file must be set too: "
        "npud serves TCP only with mutual TLS");
  }
  if (config.repository.mode != "explicit" && !config.repository.load.empty()) {
    return bad(std::format("repository.load is for repository.mode = \"explicit\"; with \"{}\" every model is loaded",
                           config.repository.mode));
  }
  std::set<std::string> names, certificates;
  std::map<uid_t, std::string> uids;
  for (const TenantConfig& tenant : config.tenants) {
    if (tenant.name.empty()) {
      return bad("a [[tenant]] has no name: add name = \"…\"");
    }
    if (!names.insert(tenant.name).second) {
      return bad(std::format("two tenants are named '{}'", tenant.name));
    }
    if (tenant.uids.empty() && tenant.certificates.empty()) {
      return bad(std::format("tenant '{}' has neither uids nor certificates, so nobody could be it", tenant.name));
    }
    for (uid_t uid : tenant.uids) {
      if (auto [it, fresh] = uids.emplace(uid, tenant.name); !fresh) {
        return bad(std::format("uid {} is in both tenants '{}' and '{}'", uid, it->second, tenant.name));
      }
    }
    for (const std::string& certificate : tenant.certificates) {
      if (!certificates.insert(certificate).second) {
        return bad(std::format("certificate '{}' is named by two tenants", certificate));
      }
    }
  }
  return {};
}

std::string dump_config(const Config& config) {
  Config copy = config;  // the visitor takes references
  Dumper dumper;
  visit_config(dumper, copy);
  return dumper.take();
}

std::vector<std::string> sections_needing_restart(const Config& running, const Config& wanted) {
  static constexpr std::initializer_list<std::string_view> applied_live = {"log", "admin", "tenant", "tenant_defaults"};
  auto was = sections_of(running);
  auto is = sections_of(wanted);
  std::vector<std::string> changed;
  for (const auto& [name, text] : is) {
    if (std::ranges::find(applied_live, name) == applied_live.end() && was[name] != text) {
      changed.push_back(name);
    }
  }
  return changed;
}

Result<PriorityClass> priority_class_from_name(std::string_view name) {
  if (name == "realtime") return PriorityClass::realtime;
  if (name == "interactive") return PriorityClass::interactive;
  if (name == "batch") return PriorityClass::batch;
  return fail(ErrorCode::invalid_argument, std::format("'{}' is no class: use realtime, interactive or batch", name));
}

}  // namespace npud
