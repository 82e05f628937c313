// SPDX-License-Identifier: Apache-2.0
// The models that can be served: a directory in Triton's layout,
//
//   <root>/<model>/config.pbtxt             optional; completed from the ONNX file
//   <root>/<model>/<version>/model.onnx     version: an integer from 1 without leading zeros
//
// and what of it is loaded. Loading puts Servables into the Server; replacing or unloading takes them out there, and
// each lives on until its last request has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/events.h"
#include "core/servable.h"
#include "core/server.h"
#include "engine/loader.h"
#include "inference/model_config.pb.h"

namespace npud {

enum class ControlMode : std::uint8_t {
  none,        // everything is loaded at start, load() and unload() are refused
  on_request,  // "explicit": only what load() asks for, and `startup_models`
  poll,        // follows the directory; load() and unload() are refused
};
[[nodiscard]] std::optional<ControlMode> control_mode_from_name(std::string_view name);  // "none", "explicit", "poll"

struct RepositoryOptions {
  std::filesystem::path root;
  ControlMode mode = ControlMode::none;
  std::chrono::milliseconds poll_interval{5000};
  std::vector<std::string> startup_models;  // on_request only; "*": all
  bool follow_links = false;                // symbolic links may leave the root
  std::uint32_t load_threads = 2;           // versions loaded at once
};

enum class ModelState : std::uint8_t { unavailable, loading, ready, unloading };
[[nodiscard]] const char* model_state_name(ModelState state);  // "UNAVAILABLE", as RepositoryIndex has it

struct IndexEntry {
  std::string model;
  std::optional<std::int64_t> version;  // none: no version of it was ever tried
  ModelState state = ModelState::unavailable;
  std::string reason;  // why not ready; or, of a ready version, why its newer file isn't what serves
};

struct ModelMetadata {
  std::string model;
  std::vector<std::int64_t> versions;  // that serve, ascending
  std::string platform;                // "onnxruntime_onnx"
  Signature signature;  // of the version asked for; dims without the batch dimension if max_batch_size > 0
  std::map<std::string, std::string> properties;  // device, precision, pinned, …
};

// Thread-safe. load(), unload(), start() and poll_now() block while models load; everything else answers at once.
// Operations on one model follow each other, different models load side by side in at most `load_threads` threads. The
// loader, server and events must outlive it.
class Repository {
 public:
  // Fails if the root isn't a directory that can be read. Loads nothing.
  static Result<std::unique_ptr<Repository>> open(RepositoryOptions options, Loader& loader, Server& server,
                                                  EventBus& events);
  // Waits for the loads that run; what is loaded stays in the server.
  ~Repository();
  Repository(const Repository&) = delete;
  Repository& operator=(const Repository&) = delete;

  // Loads what the mode says and, with `poll`, starts to follow the directory. A model that doesn't load is no error of
  // start(): the reason is in the index and in a load_failed event.
  Result<> start();

  // Loads or reloads a model: reads config.pbtxt and the versions anew. Versions whose files and configuration haven't
  // changed are left alone. Returns the first failure; a version that fails leaves the one that serves in place.
  // `parameters` are RepositoryModelLoad's: "config" (the model's whole configuration as JSON or in text format,
  // instead of config.pbtxt, until the next load); "file:…" is refused, unknown ones too.
  Result<> load(const std::string& model, const std::map<std::string, std::string>& parameters = {});
  // The same in the background; `done` is called once on a thread of the repository's (or at once when refused).
  void load_async(const std::string& model, std::map<std::string, std::string> parameters,
                  std::move_only_function<void(Result<>)> done);

  // New requests are refused from now on; those in flight end. "unload_dependents" is taken and does nothing: there are
  // no ensembles. not_found if it isn't loaded.
  Result<> unload(const std::string& model, const std::map<std::string, std::string>& parameters = {});

  // Every model of the directory and every one that is loaded, by name and version.
  std::vector<IndexEntry> index(bool ready_only) const;

  // Of a version that serves; none: the newest. not_found says what there is.
  Result<inference::ModelConfig> config(const std::string& model, std::optional<std::int64_t> version) const;
  Result<ModelMetadata> metadata(const std::string& model, std::optional<std::int64_t> version) const;
  bool ready(const std::string& model, std::optional<std::int64_t> version) const;

  // `poll` only: one look at the directory, as the interval does it. What changed since the last look is loaded once it
  // has been the same for two looks, so that a copy under way disturbs nothing. Returns the number of models loaded or
  // unloaded.
  std::size_t poll_now();
  // `poll` only: has the directory looked at as soon as the repository's own thread gets to it. Never waits.
  void look_soon();

  // For a daemon that ends: what loads now goes on to its end, what waits for its turn isn't loaded any more (load()
  // fails as unavailable), so that start(), poll_now() and the destructor return sooner.
  void give_up_loading();

  const RepositoryOptions& options() const;

 private:
  struct Impl;
  explicit Repository(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace npud
