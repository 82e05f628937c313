// SPDX-License-Identifier: Apache-2.0
#include "engine/model_source.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <format>
#include <set>

namespace npud {
namespace {

constexpr const char* prefix = "model-";

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Error system_error(const std::filesystem::path& path, const char* what) {
  return {ErrorCode::failed_precondition,
          std::format("{} can't be {}: {}", path.string(), what, std::strerror(errno)),
          {},
          {},
          {}};
}

// Everything from the start of `from` to the end of `to`: by reference if both lie on one file system that can, else
// through the kernel.
Result<> copy_whole(const std::filesystem::path& from, const std::filesystem::path& to) {
  Descriptor source{::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (source.fd < 0) return std::unexpected(system_error(from, "opened"));
  struct stat status{};
  if (::fstat(source.fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    return fail(ErrorCode::invalid_argument, std::format("{} is not a regular file", from.string()));
  }
  Descriptor target{::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (target.fd < 0) return std::unexpected(system_error(to, "made"));
  if (::ioctl(target.fd, FICLONE, source.fd) == 0) return {};
  off_t left = status.st_size;
  bool in_kernel = true;
  std::vector<std::byte> chunk;
  while (left > 0) {
    ssize_t moved = -1;
    if (in_kernel) {
      moved = ::copy_file_range(source.fd, nullptr, target.fd, nullptr, static_cast<std::size_t>(left), 0);
      if (moved < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)) {
        in_kernel = false;
        continue;
      }
    } else {
      chunk.resize(1 << 20);
      moved = ::read(source.fd, chunk.data(), chunk.size());
      for (ssize_t written = 0; moved > 0 && written < moved;) {
        const ssize_t now = ::write(target.fd, chunk.data() + written, static_cast<std::size_t>(moved - written));
        if (now < 0 && errno == EINTR) continue;
        if (now < 0) return std::unexpected(system_error(to, "written"));
        written += now;
      }
    }
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return std::unexpected(system_error(to, "written"));
    if (moved == 0)
      return fail(ErrorCode::data_loss, std::format("{} became shorter while it was copied", from.string()));
    left -= moved;
  }
  return {};
}

}  // namespace

Result<ModelSource::Fingerprint> ModelSource::fingerprint(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    return fail(errno == ENOENT ? ErrorCode::not_found : ErrorCode::failed_precondition,
                std::format("{}: {}", path.string(), std::strerror(errno)));
  }
  return Fingerprint{path, status.st_dev, status.st_ino, status.st_size, status.st_mtim, status.st_ctim};
}

Result<> ModelSource::take(const std::filesystem::path& model_file, const std::filesystem::path& snapshot_directory,
                           std::uint64_t max_bytes) {
  model_file_ = model_file;
  auto original = fingerprint(model_file);
  if (!original) return std::unexpected(original.error());
  if (static_cast<std::uint64_t>(original->size) > max_bytes) {
    return fail(ErrorCode::invalid_argument, std::format("{} has {} bytes, more than the {} that a model may have",
                                                         model_file.string(), original->size, max_bytes));
  }
  if (!snapshot_directory.empty()) {
    std::string directory = (snapshot_directory / (std::string(prefix) + "XXXXXX")).string();
    if (::mkdtemp(directory.data()) == nullptr) return std::unexpected(system_error(directory, "made"));
    snapshot_ = directory;
    const std::string name = "model" + model_file.extension().string();
    if (auto ok = copy_in(model_file, name); !ok) return ok;
    model_file_ = snapshot_ / name;
  }
  auto print = fingerprint(model_file_);
  if (!print) return std::unexpected(print.error());
  files_.push_back(std::move(*print));
  return {};
}

Result<std::shared_ptr<const ModelSource>> ModelSource::open_single_file(
    const std::filesystem::path& model_file, const std::filesystem::path& snapshot_directory, std::uint64_t max_bytes) {
  std::shared_ptr<ModelSource> source(new ModelSource);
  if (auto taken = source->take(model_file, snapshot_directory, max_bytes); !taken)
    return std::unexpected(taken.error());
  return source;
}

Result<std::shared_ptr<const ModelSource>> ModelSource::open(const std::filesystem::path& model_file,
                                                             const std::filesystem::path& snapshot_directory,
                                                             std::uint64_t max_bytes) {
  std::shared_ptr<ModelSource> source(new ModelSource);
  if (auto taken = source->take(model_file, snapshot_directory, max_bytes); !taken)
    return std::unexpected(taken.error());
  auto info = inspect_onnx_file(source->model_file_, max_bytes);
  if (!info) return std::unexpected(info.error());
  source->info_ = std::move(*info);

  std::uint64_t total_bytes = static_cast<std::uint64_t>(source->files_[0].size);
  std::set<std::filesystem::path> seen;
  std::error_code error;
  const auto directory = std::filesystem::canonical(model_file.parent_path(), error);
  for (const auto& external : source->info_.external) {
    const auto path = directory / external.location;
    if (seen.insert(external.location).second) {
      // Beside the model also after links were followed.
      const auto real = std::filesystem::canonical(path, error);
      if (error) return fail(ErrorCode::not_found, std::format("its external data {} is missing", path.string()));
      if (real.lexically_relative(directory).native().starts_with("..")) {
        return fail(ErrorCode::invalid_argument,
                    std::format("its external data {} leads out of the version's directory", path.string()));
      }
      auto external_print = fingerprint(real);
      if (!external_print) return std::unexpected(external_print.error());
      source->external_bytes_ += static_cast<std::uint64_t>(external_print->size);
      if (total_bytes + source->external_bytes_ > max_bytes) {
        return fail(ErrorCode::invalid_argument,
                    std::format("its files have more than the {} bytes that a model may have", max_bytes));
      }
      if (!source->snapshot_.empty()) {
        if (auto ok = source->copy_in(real, external.location); !ok) return std::unexpected(ok.error());
        external_print = fingerprint(source->snapshot_ / external.location);
        if (!external_print) return std::unexpected(external_print.error());
      }
      source->files_.push_back(std::move(*external_print));
    }
    const auto size =
        std::filesystem::file_size(source->snapshot_.empty() ? path : source->snapshot_ / external.location, error);
    if (error || external.offset_bytes > size || external.length_bytes > size - external.offset_bytes) {
      return fail(ErrorCode::data_loss,
                  std::format("its external data {} has {} bytes, a weight needs {} at offset {}", path.string(),
                              error ? 0 : size, external.length_bytes, external.offset_bytes));
    }
  }
  return source;
}

ModelSource::~ModelSource() {
  if (snapshot_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(snapshot_, ignored);
}

Result<> ModelSource::copy_in(const std::filesystem::path& from, const std::filesystem::path& name) {
  const auto to = snapshot_ / name;
  std::error_code error;
  std::filesystem::create_directories(to.parent_path(), error);
  if (error)
    return fail(ErrorCode::failed_precondition,
                std::format("{} can't be made: {}", to.parent_path().string(), error.message()));
  return copy_whole(from, to);
}

std::vector<std::filesystem::path> ModelSource::files() const {
  std::vector<std::filesystem::path> paths;
  for (const auto& file : files_) paths.push_back(file.path);
  return paths;
}

Result<> ModelSource::check_unchanged() const {
  for (const auto& before : files_) {
    auto now = fingerprint(before.path);
    auto same = [](timespec a, timespec b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; };
    if (!now || now->device != before.device || now->inode != before.inode || now->size != before.size ||
        !same(now->modified, before.modified) || !same(now->changed, before.changed)) {
      return fail(ErrorCode::failed_precondition,
                  std::format("{} has changed since the model was loaded; load it again (with a snapshot directory it "
                              "would have been kept)",
                              before.path.string()));
    }
  }
  return {};
}

Result<int> claim_snapshot_directory(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return fail(ErrorCode::failed_precondition,
                std::format("{} can't be made: {}", directory.string(), error.message()));
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return std::unexpected(system_error(directory, "opened"));
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
      if (entry.path().filename().native().starts_with(prefix)) std::filesystem::remove_all(entry.path(), error);
    }
    ::flock(fd, LOCK_SH);
  } else {
    ::flock(fd, LOCK_SH | LOCK_NB);
  }
  return fd;
}

}  // namespace npud
