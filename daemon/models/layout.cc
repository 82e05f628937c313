// SPDX-License-Identifier: Apache-2.0
#include "models/layout.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <format>

#include "core/utf8.h"

namespace npud {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t max_files = 10'000;
constexpr std::uint64_t max_config_bytes = 4 << 20;

std::optional<std::int64_t> version_number(const std::string& name) {
  std::int64_t version = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), version);
  if (error != std::errc() || end != name.data() + name.size() || version < 1 || name[0] == '0') return std::nullopt;
  return version;
}

}  // namespace

Result<> check_model_name(std::string_view name) {
  auto refuse = [](std::string_view why) {
    return fail(ErrorCode::invalid_argument, std::format("the model's name {}", why));
  };
  if (name.empty()) return refuse("is empty");
  if (name.size() > 255) return refuse("is longer than 255 bytes");
  if (name[0] == '.') return refuse("begins with a dot");
  if (name.find('/') != std::string_view::npos)
    return refuse("has a slash in it; it has to be the name of a directory of the repository");
  if (std::ranges::any_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    return refuse("has a control character in it");
  if (!is_utf8(name)) return refuse("isn't UTF-8, which clients could not be told");
  return {};
}

Result<Layout> Layout::open(const fs::path& root, bool follow_links) {
  std::error_code error;
  auto real = fs::canonical(root, error);
  if (error) {
    return fail(ErrorCode::failed_precondition,
                std::format("the model repository {} can't be used: {}; make it, or set repository.path", root.string(),
                            error.message()));
  }
  fs::directory_iterator readable(real, error);
  if (error)
    return fail(ErrorCode::failed_precondition,
                std::format("the model repository {} can't be read: {}", root.string(), error.message()));
  return Layout(std::move(real), follow_links);
}

Result<> Layout::check_inside(const fs::path& path) const {
  if (follow_links_) return {};
  std::error_code error;
  const auto real = fs::canonical(path, error);
  if (error) return fail(ErrorCode::not_found, std::format("{}: {}", path.string(), error.message()));
  const auto relative = real.lexically_relative(root_);
  if (relative.empty() || *relative.begin() == "..") {
    return fail(ErrorCode::permission_denied,
                std::format("{} leads out of the repository to {}; copy it in, or set repository.follow_links",
                            path.string(), real.string()));
  }
  return {};
}

Result<std::vector<std::string>> Layout::models() const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(root_, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const auto name = entry->path().filename().string();
    if (entry->is_directory(ignored) && check_model_name(name)) names.push_back(name);
  }
  if (error)
    return fail(ErrorCode::failed_precondition,
                std::format("the model repository {} can't be read: {}", root_.string(), error.message()));
  std::ranges::sort(names);
  return names;
}

Result<fs::path> Layout::model_directory(const std::string& model) const {
  if (auto ok = check_model_name(model); !ok) return std::unexpected(ok.error());
  const auto path = root_ / model;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return fail(ErrorCode::not_found,
                std::format("there is no model '{}' in the repository {}", model, root_.string()));
  }
  if (auto ok = check_inside(path); !ok) return std::unexpected(ok.error());
  return path;
}

std::vector<std::int64_t> Layout::versions(const fs::path& model_directory) const {
  std::vector<std::int64_t> versions;
  std::error_code error;
  for (fs::directory_iterator entry(model_directory, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (auto version = version_number(entry->path().filename().string()); version && entry->is_directory(ignored))
      versions.push_back(*version);
  }
  std::ranges::sort(versions);
  return versions;
}

Result<std::optional<std::string>> Layout::config_text(const fs::path& model_directory) const {
  const auto path = model_directory / "config.pbtxt";
  std::error_code error;
  if (fs::symlink_status(path, error).type() == fs::file_type::not_found) return std::nullopt;
  if (auto ok = check_inside(path); !ok) return std::unexpected(ok.error());
  auto failed = [&](const char* why) {
    return fail(ErrorCode::failed_precondition, std::format("{}: {}", path.string(), why));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return failed(std::strerror(errno));
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat status{};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return failed("it is not a regular file");
  std::string text;
  char chunk[16384];
  for (;;) {
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(std::strerror(errno));
    if (got == 0) return text;
    text.append(chunk, static_cast<std::size_t>(got));
    if (text.size() > max_config_bytes) return failed("it has more than the 4 MiB that a configuration may have");
  }
}

Result<std::string> Layout::fingerprint(const fs::path& directory) const {
  std::vector<std::string> lines;
  std::error_code error;
  auto options = fs::directory_options::skip_permission_denied;
  if (follow_links_) options |= fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator entry(directory, options, error), end; !error && entry != end;
       entry.increment(error)) {
    if (lines.size() >= max_files || entry.depth() > 16) {
      return fail(ErrorCode::resource_exhausted,
                  std::format("{} has more than {} files or directories too deep", directory.string(), max_files));
    }
    std::error_code ignored;
    if (entry->is_symlink(ignored)) {
      if (auto ok = check_inside(entry->path()); !ok) return std::unexpected(ok.error());
    }
    struct stat status{};
    if (::stat(entry->path().c_str(), &status) != 0) continue;  // went away meanwhile: the next look shows it
    if (S_ISDIR(status.st_mode)) {
      lines.push_back(std::format("{}/", entry->path().lexically_relative(directory).string()));
    } else {
      lines.push_back(std::format("{} {} {} {}.{:09} {}.{:09}", entry->path().lexically_relative(directory).string(),
                                  status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                                  status.st_ctim.tv_sec, status.st_ctim.tv_nsec));
    }
  }
  if (error) return fail(ErrorCode::not_found, std::format("{}: {}", directory.string(), error.message()));
  std::ranges::sort(lines);
  std::string text;
  for (const auto& line : lines) text += line + '\n';
  return text;
}

Result<std::vector<std::int64_t>> choose_versions(const inference::ModelVersionPolicy& policy,
                                                  const std::vector<std::int64_t>& available) {
  if (available.empty()) {
    return fail(ErrorCode::not_found,
                "it has no version; put its file into a directory named 1 (numbers from 1, without leading zeros)");
  }
  if (policy.has_all()) return available;
  if (policy.has_specific()) {
    std::vector<std::int64_t> chosen;
    for (std::int64_t version : policy.specific().versions()) {
      if (!std::ranges::binary_search(available, version)) {
        return fail(ErrorCode::not_found, std::format("version_policy names version {}, which isn't there", version));
      }
      chosen.push_back(version);
    }
    if (chosen.empty()) return fail(ErrorCode::invalid_argument, "version_policy: specific names no version");
    std::ranges::sort(chosen);
    chosen.erase(std::ranges::unique(chosen).begin(), chosen.end());
    return chosen;
  }
  const std::size_t count = std::min<std::size_t>(available.size(), std::max(1u, policy.latest().num_versions()));
  return std::vector<std::int64_t>(available.end() - static_cast<std::ptrdiff_t>(count), available.end());
}

}  // namespace npud
