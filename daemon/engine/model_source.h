// SPDX-License-Identifier: Apache-2.0
// The files of one version of a model, held so that the model can be loaded from them again and be the same.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/error.h"
#include "engine/onnx_file.h"

namespace npud {

// Immutable after open(). With a snapshot directory the files are copied (by reference where the file system can), and
// the copies are removed with the object; without, a file that changes is noticed by check_unchanged().
class ModelSource {
 public:
  static Result<std::shared_ptr<const ModelSource>> open(const std::filesystem::path& model_file,
                                                         const std::filesystem::path& snapshot_directory,
                                                         std::uint64_t max_bytes);
  // A model of one file that isn't ONNX: info() stays empty.
  static Result<std::shared_ptr<const ModelSource>> open_single_file(const std::filesystem::path& model_file,
                                                                     const std::filesystem::path& snapshot_directory,
                                                                     std::uint64_t max_bytes);
  ~ModelSource();
  ModelSource(const ModelSource&) = delete;
  ModelSource& operator=(const ModelSource&) = delete;

  const std::filesystem::path& model_file() const { return model_file_; }
  const OnnxInfo& info() const { return info_; }
  std::uint64_t external_bytes() const { return external_bytes_; }
  std::vector<std::filesystem::path> files() const;  // the model's, then its external data's

  // failed_precondition: a file isn't what was inspected.
  Result<> check_unchanged() const;

 private:
  struct Fingerprint {
    std::filesystem::path path;
    dev_t device;
    ino_t inode;
    off_t size;
    timespec modified, changed;
  };
  ModelSource() = default;
  // The model's file: bounded, copied, its fingerprint taken.
  Result<> take(const std::filesystem::path& model_file, const std::filesystem::path& snapshot_directory,
                std::uint64_t max_bytes);
  Result<> copy_in(const std::filesystem::path& from, const std::filesystem::path& name);
  static Result<Fingerprint> fingerprint(const std::filesystem::path& path);

  std::filesystem::path model_file_;
  std::filesystem::path snapshot_;  // empty: none
  OnnxInfo info_;
  std::uint64_t external_bytes_ = 0;
  std::vector<Fingerprint> files_;
};

// Removes what a daemon that was killed left in the directory, unless another one lives there. Makes the directory.
// Returns a descriptor to be kept open as long as the directory is used.
Result<int> claim_snapshot_directory(const std::filesystem::path& directory);

}  // namespace npud
