// SPDX-License-Identifier: Apache-2.0
// What lies where in a model repository. Names come from clients and from whoever may write the directory: nothing here
// follows them out of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "inference/model_config.pb.h"

namespace npud {

// invalid_argument unless `name` is one path component, UTF-8, that doesn't begin with a dot and has no control
// characters.
Result<> check_model_name(std::string_view name);

class Layout {
 public:
  // The directory must exist. `follow_links`: symbolic links may lead out of it.
  static Result<Layout> open(const std::filesystem::path& root, bool follow_links);

  // Directories that could be models, sorted. Others are left out.
  Result<std::vector<std::string>> models() const;
  // The model's directory; not_found, or permission_denied for a link that leads out.
  Result<std::filesystem::path> model_directory(const std::string& model) const;
  // Numbered directories in it, ascending.
  std::vector<std::int64_t> versions(const std::filesystem::path& model_directory) const;
  // Text of config.pbtxt; nullopt if there is none.
  Result<std::optional<std::string>> config_text(const std::filesystem::path& model_directory) const;

  // Names, sizes, inodes and times of all files below, as one string: different after any change that a file system
  // shows. permission_denied for a link that leads out, resource_exhausted for more files than a model has.
  Result<std::string> fingerprint(const std::filesystem::path& directory) const;

  const std::filesystem::path& root() const { return root_; }

 private:
  Layout(std::filesystem::path root, bool follow_links) : root_(std::move(root)), follow_links_(follow_links) {}
  Result<> check_inside(const std::filesystem::path& path) const;

  std::filesystem::path root_;  // canonical
  bool follow_links_;
};

// Those of `available` (ascending) that the policy serves. not_found: there are none, or a specific one is missing.
Result<std::vector<std::int64_t>> choose_versions(const inference::ModelVersionPolicy& policy,
                                                  const std::vector<std::int64_t>& available);

}  // namespace npud
