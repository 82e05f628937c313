// SPDX-License-Identifier: Apache-2.0
#include "engine/offload_cache.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <format>
#include <fstream>
#include <iterator>
#include <memory>
#include <type_traits>
#include <vector>

namespace npud {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

// Raise it whenever packing, layouts or this format change.
constexpr std::uint32_t format_version = 4;
constexpr char magic[8] = {'n', 'p', 'u', 'd', 'p', 'a', 'c', 'k'};
constexpr const char* suffix = ".npack";
constexpr const char* part = ".part-";
constexpr std::size_t digest_bytes = 32;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t payload_bytes;
  unsigned char digest[digest_bytes];
};
static_assert(sizeof(Header) == 56);

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void add(const void* data, std::size_t size) { EVP_DigestUpdate(context_.get(), data, size); }
  std::string digest() {
    std::string out(digest_bytes, '\0');
    EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(out.data()), nullptr);
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

std::string sha256(std::string_view text) {
  Sha256 sum;
  sum.add(text.data(), text.size());
  return sum.digest();
}

class Writer {
 public:
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void value(const T& v) {
    out_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  template <class T>
  void values(const std::vector<T>& v) {
    value(std::uint64_t{v.size()});
    out_.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T));
  }
  void text(std::string_view v) {
    value(std::uint64_t{v.size()});
    out_.append(v);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Once something is missing everything else is, too.
class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void value(T& v) {
    if (const char* from = take(sizeof v)) std::memcpy(&v, from, sizeof v);
  }
  template <class T>
  void values(std::vector<T>& v) {
    const std::uint64_t count = counted(sizeof(T));
    if (const char* from = take(count * sizeof(T)); from != nullptr && count > 0) {
      v.resize(count);
      std::memcpy(v.data(), from, count * sizeof(T));
    }
  }
  void text(std::string& v) {
    const std::uint64_t size = counted(1);
    if (const char* from = take(size)) v.assign(from, size);
  }
  // A number of things that take at least `each` bytes.
  std::uint64_t counted(std::size_t each) {
    std::uint64_t count = 0;
    value(count);
    if (count > in_.size() / each) whole_ = false;
    return whole_ ? count : 0;
  }
  bool whole() const { return whole_; }
  bool ended() const { return whole_ && in_.empty(); }

 private:
  const char* take(std::uint64_t size) {
    if (!whole_ || size > in_.size()) {
      whole_ = false;
      return nullptr;
    }
    const char* at = in_.data();
    in_.remove_prefix(size);
    return at;
  }
  std::string_view in_;
  bool whole_ = true;
};

// Fields one by one: padding would make equal graphs differ.
template <class Archive, class Op>
void op_fields(Archive& a, Op& op) {
  a.value(op.channels), a.value(op.kernels), a.value(op.kernel_height), a.value(op.kernel_width);
  a.value(op.stride_y), a.value(op.stride_x);
  a.value(op.pad_top), a.value(op.pad_left), a.value(op.pad_bottom), a.value(op.pad_right);
  a.value(op.depthwise), a.value(op.in), a.value(op.out);
}

template <class Archive, class Node>
void node_fields(Archive& a, Node& node) {
  auto& packed = node.packed;
  a.text(packed.name);
  a.value(packed.kind), a.value(packed.precision), a.value(packed.relu);
  op_fields(a, packed.op);
  a.values(packed.weights), a.values(packed.bias), a.values(packed.scales);
  a.value(packed.exponent);
  a.values(packed.check), a.values(packed.check_magnitude), a.values(packed.check_weighted);
  auto& w = node.window;
  a.value(w.form), a.value(w.channels), a.value(w.kernel_height), a.value(w.kernel_width);
  a.value(w.stride_y), a.value(w.stride_x), a.value(w.dilation_y), a.value(w.dilation_x);
  a.value(w.pad_top), a.value(w.pad_left), a.value(w.pad_bottom), a.value(w.pad_right);
  a.value(w.extra_y), a.value(w.extra_x), a.values(w.bias);
}

template <class Archive, class Placement>
void placement_fields(Archive& a, Placement& placement) {
  a.text(placement.name), a.text(placement.op), a.text(placement.device), a.text(placement.precision),
      a.text(placement.reason);
  a.value(placement.weight_bytes);
}

Error system_error(const std::filesystem::path& path, const char* what) {
  const ErrorCode code =
      errno == ENOSPC || errno == EDQUOT ? ErrorCode::resource_exhausted : ErrorCode::failed_precondition;
  return {code, std::format("{} can't be {}: {}", path.string(), what, std::strerror(errno)), {}, {}, {}};
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

bool write_all(int fd, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t now = ::write(fd, at, size);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    at += now;
    size -= static_cast<std::size_t>(now);
  }
  return true;
}

bool read_all(int fd, void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t now = ::read(fd, at, size);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    at += now;
    size -= static_cast<std::size_t>(now);
  }
  return true;
}

}  // namespace

OffloadKey& OffloadKey::add(std::string_view text) {
  digests_ += sha256(text);
  return *this;
}

Result<> OffloadKey::add_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  Sha256 sum;
  std::vector<char> chunk(1 << 20);
  while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), in.gcount() > 0)
    sum.add(chunk.data(), static_cast<std::size_t>(in.gcount()));
  if (!in.eof()) return fail(ErrorCode::failed_precondition, std::format("{} can't be read", file.string()));
  digests_ += sum.digest();
  return {};
}

std::string OffloadKey::hex() const {
  std::string out;
  for (const char c : sha256(digests_)) out += std::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

std::string offloaded_graph_to_bytes(const OffloadedGraph& graph) {
  Writer out;
  out.text(graph.model.SerializeAsString());
  out.value(std::uint64_t{graph.nodes.size()});
  for (const auto& node : graph.nodes) node_fields(out, node);
  out.value(std::uint64_t{graph.placements.size()});
  for (const auto& placement : graph.placements) placement_fields(out, placement);
  return out.take();
}

std::optional<OffloadedGraph> offloaded_graph_from_bytes(std::string_view bytes) {
  Reader in(bytes);
  OffloadedGraph graph;
  std::string model;
  in.text(model);
  graph.nodes.resize(in.counted(1));
  for (auto& node : graph.nodes) {
    if (in.whole()) node_fields(in, node);
  }
  graph.placements.resize(in.counted(1));
  for (auto& placement : graph.placements) {
    if (in.whole()) placement_fields(in, placement);
  }
  if (!in.ended() || graph.placements.size() < graph.nodes.size() || !graph.model.ParseFromString(model))
    return std::nullopt;
  return graph;
}

OffloadCache::OffloadCache(std::filesystem::path directory, std::uint64_t most_bytes)
    : directory_(std::move(directory)), most_bytes_(most_bytes) {}

Result<std::unique_ptr<OffloadCache>> OffloadCache::open(std::filesystem::path directory, std::uint64_t most_bytes) {
  std::error_code error;
  std::filesystem::create_directories(directory.parent_path(), error);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return std::unexpected(system_error(directory, "made"));
  struct stat status{};
  if (::stat(directory.c_str(), &status) != 0) return std::unexpected(system_error(directory, "used"));
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(
        ErrorCode::failed_precondition,
        std::format("{} must be a directory that only its owner, npud's user, can write in", directory.string()));
  }
  // What a daemon left that was killed while it wrote; another one may be writing right now.
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().filename().string().starts_with(part) && entry.last_write_time(error) < old)
      std::filesystem::remove(entry.path(), error);
  }
  return std::unique_ptr<OffloadCache>(new OffloadCache(std::move(directory), most_bytes));
}

std::filesystem::path OffloadCache::file_of(const std::string& key) const { return directory_ / (key + suffix); }

Result<std::optional<OffloadedGraph>> OffloadCache::find(const std::string& key) {
  const auto file = file_of(key);
  const Descriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() < 0 && errno == ENOENT) return std::optional<OffloadedGraph>();
  if (fd.get() < 0) return std::unexpected(system_error(file, "opened"));
  auto damaged = [&](const char* how) {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    return fail(ErrorCode::data_loss, std::format("{} {}; it is made again", file.string(), how));
  };
  struct stat status{};
  Header header;
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) || !read_all(fd.get(), &header, sizeof header) ||
      std::memcmp(header.magic, magic, sizeof magic) != 0)
    return damaged("is no packed model");
  if (header.version != format_version) return damaged("is of another version");
  if (header.payload_bytes != static_cast<std::uint64_t>(status.st_size) - sizeof header) return damaged("is torn");
  std::string payload(header.payload_bytes, '\0');
  if (!read_all(fd.get(), payload.data(), payload.size())) return damaged("is torn");
  if (std::memcmp(sha256(payload).data(), header.digest, digest_bytes) != 0) return damaged("is damaged");
  auto graph = offloaded_graph_from_bytes(payload);
  if (!graph) return damaged("can't be read");
  ::futimens(fd.get(), nullptr);  // used just now
  return graph;
}

Result<> OffloadCache::store(const std::string& key, const OffloadedGraph& graph) {
  const std::string payload = offloaded_graph_to_bytes(graph);
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = format_version;
  header.payload_bytes = payload.size();
  std::memcpy(header.digest, sha256(payload).data(), digest_bytes);
  const std::uint64_t size = sizeof header + payload.size();
  if (size > most_bytes_) return {};
  const std::lock_guard lock(mutex_);
  make_room(size);
  std::string name = (directory_ / (std::string(part) + "XXXXXX")).string();
  const Descriptor fd(::mkostemp(name.data(), O_CLOEXEC));
  if (fd.get() < 0) return std::unexpected(system_error(name, "made"));
  if (!write_all(fd.get(), &header, sizeof header) || !write_all(fd.get(), payload.data(), payload.size()) ||
      ::fsync(fd.get()) != 0 || ::rename(name.c_str(), file_of(key).c_str()) != 0) {
    const Error error = system_error(name, "written");
    ::unlink(name.c_str());
    return std::unexpected(error);
  }
  const Descriptor directory(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || ::fsync(directory.get()) != 0) return std::unexpected(system_error(directory_, "written"));
  return {};
}

void OffloadCache::make_room(std::uint64_t bytes) {
  struct Entry {
    std::filesystem::path path;
    std::filesystem::file_time_type used;
    std::uint64_t bytes;
  };
  std::vector<Entry> entries;
  std::uint64_t sum = bytes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    if (entry.path().extension() != suffix) continue;
    const std::uint64_t size = entry.file_size(error);
    if (error) continue;
    entries.push_back({entry.path(), entry.last_write_time(error), size});
    sum += size;
  }
  std::ranges::sort(entries, {}, &Entry::used);
  for (const Entry& entry : entries) {
    if (sum <= most_bytes_) break;
    if (std::filesystem::remove(entry.path, error)) sum -= entry.bytes;
  }
}

}  // namespace npud
