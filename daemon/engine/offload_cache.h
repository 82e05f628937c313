// SPDX-License-Identifier: Apache-2.0
// Offloaded graphs on disk, so that a model that was loaded once needs neither optimising nor packing again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "core/error.h"
#include "engine/offload_graph.h"

namespace npud {

// What makes one offloaded graph the same as another: the model's files, what was asked for, and who made it.
class OffloadKey {
 public:
  OffloadKey& add(std::string_view text);
  // The file's contents.
  Result<> add_file(const std::filesystem::path& file);
  std::string hex() const;  // SHA-256 of all that was added

 private:
  std::string digests_;
};

// Thread-safe; several daemons may share a directory. One file a graph: it is written beside its place, brought to the
// disk and renamed, and carries a version and the SHA-256 of its contents, so that a torn or damaged one is never taken
// for whole.
class OffloadCache {
 public:
  // Makes the directory, for this user alone. failed_precondition: it can't be made, or others may write in it.
  static Result<std::unique_ptr<OffloadCache>> open(std::filesystem::path directory, std::uint64_t most_bytes);

  // Nothing where there is none. data_loss: there was one, and it is damaged, or of another version; it is removed.
  Result<std::optional<OffloadedGraph>> find(const std::string& key);
  // Makes room by removing those that were used least recently. What is larger than the whole cache isn't kept.
  Result<> store(const std::string& key, const OffloadedGraph& graph);

 private:
  OffloadCache(std::filesystem::path directory, std::uint64_t most_bytes);
  std::filesystem::path file_of(const std::string& key) const;
  void make_room(std::uint64_t bytes);

  const std::filesystem::path directory_;
  const std::uint64_t most_bytes_;
  std::mutex mutex_;  // one writer of this process at a time
};

// Exposed for tests: the contents without the file's frame.
std::string offloaded_graph_to_bytes(const OffloadedGraph& graph);
std::optional<OffloadedGraph> offloaded_graph_from_bytes(std::string_view bytes);

}  // namespace npud
