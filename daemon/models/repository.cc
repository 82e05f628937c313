// SPDX-License-Identifier: Apache-2.0
#include "models/repository.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <format>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "models/config_text.h"
#include "models/layout.h"
#include "models/load_pool.h"

namespace npud {
namespace {

struct VersionRecord {
  std::shared_ptr<Servable> serving;  // null: doesn't serve
  std::weak_ptr<Servable> leaving;    // unloaded, its last requests may still run
  inference::ModelConfig config;      // of the one that serves
  std::string fingerprint;            // of what serves
  bool loading = false;
  std::string reason;  // why the last attempt failed, or "unloaded"
};

struct ModelRecord {
  std::mutex operation;  // held by whoever loads or unloads the model
  // Below: guarded by Impl::mutex.
  std::map<std::int64_t, VersionRecord> versions;
  std::string reason;  // why none of its versions was tried
  std::string polled;  // state of its directory that was acted on
  std::string seen;    // state at the last look
};

std::unexpected<Error> named(const std::string& model, const Error& error) {
  Error result = error;
  if (!error.message.contains("'" + model)) result.message = std::format("model '{}': {}", model, error.message);
  return std::unexpected(std::move(result));
}

std::string list(const std::vector<std::int64_t>& versions) {
  std::string text;
  for (auto version : versions) text += (text.empty() ? "" : ", ") + std::to_string(version);
  return text;
}

}  // namespace

std::optional<ControlMode> control_mode_from_name(std::string_view name) {
  if (name == "none") return ControlMode::none;
  if (name == "explicit") return ControlMode::on_request;
  if (name == "poll") return ControlMode::poll;
  return std::nullopt;
}

const char* model_state_name(ModelState state) {
  switch (state) {
    case ModelState::unavailable:
      return "UNAVAILABLE";
    case ModelState::loading:
      return "LOADING";
    case ModelState::ready:
      return "READY";
    case ModelState::unloading:
      return "UNLOADING";
  }
  return "UNAVAILABLE";
}

struct Repository::Impl {
  Impl(RepositoryOptions options, Layout layout, Loader& loader, Server& server, EventBus& events)
      : options(std::move(options)),
        layout(std::move(layout)),
        loader(loader),
        server(server),
        events(events),
        pool(this->options.load_threads) {}

  std::shared_ptr<ModelRecord> record(const std::string& model) {
    std::scoped_lock lock(mutex);
    auto& slot = models[model];
    if (!slot) slot = std::make_shared<ModelRecord>();
    return slot;
  }

  Result<> check_explicit(const char* what) const;
  Result<> load(const std::string& model, const std::map<std::string, std::string>& parameters);
  Result<> load_versions(const std::string& model, ModelRecord& model_record,
                         const std::map<std::string, std::string>& parameters);
  Result<> unload(const std::string& model);
  void publish_failure(const std::string& model, std::int64_t version, const std::string& message);
  std::string look_at(const std::string& model) const;
  std::size_t poll_now();
  void follow(std::stop_token stop);
  Result<std::pair<std::shared_ptr<Servable>, inference::ModelConfig>> find(const std::string& model,
                                                                            std::optional<std::int64_t> version) const;

  const RepositoryOptions options;
  const Layout layout;
  Loader& loader;
  Server& server;
  EventBus& events;

  mutable std::mutex mutex;  // `models` and what it says of itself above
  std::map<std::string, std::shared_ptr<ModelRecord>> models;

  std::mutex poll_mutex;  // one look at a time
  std::mutex sleep_mutex;
  std::condition_variable_any sleep;
  bool look_soon = false;  // under sleep_mutex
  std::atomic<bool> giving_up{false};
  LoadPool pool;          // its tasks use all of the above
  std::jthread follower;  // uses the pool: goes first
};

Repository::Repository(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Repository::~Repository() = default;

Result<std::unique_ptr<Repository>> Repository::open(RepositoryOptions options, Loader& loader, Server& server,
                                                     EventBus& events) {
  auto layout = Layout::open(options.root, options.follow_links);
  if (!layout) return std::unexpected(layout.error());
  if (options.poll_interval < std::chrono::milliseconds(1)) {
    return fail(ErrorCode::invalid_argument, "repository.poll_interval_ms has to be at least 1");
  }
  return std::unique_ptr<Repository>(
      new Repository(std::make_unique<Impl>(std::move(options), std::move(*layout), loader, server, events)));
}

const RepositoryOptions& Repository::options() const { return impl_->options; }

// --- loading
// -----------------------------------------------------------------------------------------------------------------

Result<> Repository::start() {
  std::set<std::string> names;
  const bool all =
      impl_->options.mode != ControlMode::on_request || std::ranges::contains(impl_->options.startup_models, "*");
  if (all) {
    auto present = impl_->layout.models();
    if (!present) return std::unexpected(present.error());
    names.insert(present->begin(), present->end());
  }
  if (impl_->options.mode == ControlMode::on_request) {
    for (const auto& name : impl_->options.startup_models)
      if (name != "*") names.insert(name);
  }
  std::vector<std::move_only_function<void()>> tasks;
  for (const auto& name : names) {
    tasks.push_back([this, name] {
      auto record = impl_->record(name);
      std::string state = impl_->options.mode == ControlMode::poll ? impl_->look_at(name) : "";
      std::ignore = impl_->load(name, {});  // the index has the reason
      std::scoped_lock lock(impl_->mutex);
      record->polled = record->seen = std::move(state);
    });
  }
  impl_->pool.run_all(std::move(tasks));
  if (impl_->options.mode == ControlMode::poll) {
    impl_->follower = std::jthread([impl = impl_.get()](std::stop_token stop) { impl->follow(stop); });
  }
  return {};
}

Result<> Repository::Impl::check_explicit(const char* what) const {
  if (options.mode == ControlMode::on_request) return {};
  return fail(ErrorCode::failed_precondition,
              std::format("models can't be {} by request with repository.mode = \"{}\"; set it to \"explicit\"", what,
                          options.mode == ControlMode::poll ? "poll" : "none"));
}

Result<> Repository::load(const std::string& model, const std::map<std::string, std::string>& parameters) {
  std::promise<Result<>> result;
  auto future = result.get_future();
  load_async(model, parameters, [&result](Result<> outcome) { result.set_value(std::move(outcome)); });
  return future.get();
}

void Repository::load_async(const std::string& model, std::map<std::string, std::string> parameters,
                            std::move_only_function<void(Result<>)> done) {
  if (auto ok = impl_->check_explicit("loaded"); !ok) return done(std::move(ok));
  if (auto ok = check_model_name(model); !ok) return done(std::move(ok));
  impl_->pool.submit([impl = impl_.get(), model, parameters = std::move(parameters), done = std::move(done)]() mutable {
    done(impl->load(model, parameters));
  });
}

Result<> Repository::Impl::load(const std::string& model, const std::map<std::string, std::string>& parameters) {
  if (auto directory = layout.model_directory(model); !directory) {
    // Nothing is remembered of names that were never there.
    std::scoped_lock lock(mutex);
    if (!models.contains(model)) return std::unexpected(directory.error());
  }
  auto model_record = record(model);
  std::scoped_lock operation(model_record->operation);
  if (giving_up) {
    return fail(ErrorCode::unavailable, std::format("model '{}' isn't loaded any more: npud is about to stop", model));
  }
  Result<> result;
  try {
    result = load_versions(model, *model_record, parameters);
  } catch (const std::exception& error) {  // no memory, or a library's own
    result = fail(ErrorCode::internal, std::format("loading failed: {}", error.what()));
  }
  std::scoped_lock lock(mutex);
  for (auto& [number, version] : model_record->versions) version.loading = false;
  if (!result) {
    result = named(model, result.error());
    const bool told = std::ranges::any_of(
        model_record->versions, [&](const auto& entry) { return entry.second.reason == result.error().message; });
    model_record->reason = told ? "" : result.error().message;
    if (!told) publish_failure(model, 0, result.error().message);
  } else {
    model_record->reason.clear();
  }
  return result;
}

void Repository::Impl::publish_failure(const std::string& model, std::int64_t version, const std::string& message) {
  Event event;
  event.kind = EventKind::load_failed;
  event.model = model;
  event.version = version;
  event.message = message;
  events.publish(std::move(event));
}

Result<> Repository::Impl::load_versions(const std::string& model, ModelRecord& model_record,
                                         const std::map<std::string, std::string>& parameters) {
  std::optional<std::string> text_override;
  for (const auto& [key, value] : parameters) {
    if (key == "config") {
      text_override = value;
    } else if (key.starts_with("file:")) {
      return fail(ErrorCode::invalid_argument,
                  std::format("parameter '{}' would bring in a file with the request, which npud refuses: put it "
                              "into the repository",
                              key));
    } else {
      return fail(ErrorCode::invalid_argument, std::format("load parameter '{}' is unknown; there is \"config\"", key));
    }
  }
  auto directory = layout.model_directory(model);
  if (!directory) return std::unexpected(directory.error());
  inference::ModelConfig config;
  auto config_text = layout.config_text(*directory);
  if (!config_text) return std::unexpected(config_text.error());
  if (text_override || *config_text) {
    auto parsed = text_override ? parse_config_override(*text_override)
                                : parse_config_text(**config_text, model + "/config.pbtxt");
    if (!parsed) return std::unexpected(parsed.error());
    config = std::move(*parsed);
  }
  if (!config.name().empty() && config.name() != model) {
    return fail(ErrorCode::invalid_argument,
                std::format("its configuration says name: \"{}\"; the name is that of the directory, '{}'",
                            config.name(), model));
  }
  auto chosen = choose_versions(config.version_policy(), layout.versions(*directory));
  if (!chosen) return std::unexpected(chosen.error());
  const std::string config_key = (text_override ? *text_override : config_text->value_or("")) + '\n';
  std::string warmup_key;
  if (std::error_code none; std::filesystem::is_directory(*directory / "warmup", none)) {
    auto warmup = layout.fingerprint(*directory / "warmup");
    if (!warmup) return std::unexpected(warmup.error());
    warmup_key = std::move(*warmup);
  }

  std::map<std::int64_t, std::shared_ptr<Servable>> serve;
  std::optional<Error> first_error;
  for (std::int64_t number : *chosen) {
    const auto version_directory = *directory / std::to_string(number);
    auto failed = [&](const Error& error) {
      Error full = named(model, error).error();
      {
        std::scoped_lock lock(mutex);
        auto& version = model_record.versions[number];
        version.loading = false;
        version.reason = full.message;
      }
      publish_failure(model, number, full.message);
      if (!first_error) first_error = std::move(full);
    };
    auto files = layout.fingerprint(version_directory);
    if (!files) {
      failed(files.error());
      continue;
    }
    // Taken before the files are read: what changes while they are read is a change that is still to come.
    const std::string fingerprint = config_key + warmup_key + *files;
    {
      std::scoped_lock lock(mutex);
      auto& version = model_record.versions[number];
      if (version.serving && version.fingerprint == fingerprint) {
        version.reason.clear();
        serve[number] = version.serving;
        continue;
      }
      version.loading = true;
    }
    auto loaded = loader.load({model, number, *directory, version_directory, config});
    if (!loaded) {
      failed(loaded.error());
      continue;
    }
    serve[number] = loaded->servable;
    std::scoped_lock lock(mutex);
    auto& version = model_record.versions[number];
    version = {loaded->servable, {}, std::move(loaded->config), fingerprint, false, ""};
  }

  std::vector<std::shared_ptr<Servable>> let_go;  // destroyed without the lock: that waits for a device
  std::vector<std::shared_ptr<Servable>> all;
  {
    std::scoped_lock lock(mutex);
    for (auto& [number, version] : model_record.versions) {
      if (serve.contains(number) || !version.serving) continue;
      if (first_error) {
        serve[number] = version.serving;  // something failed: what served goes on
      } else {
        version.leaving = version.serving;
        let_go.push_back(std::move(version.serving));
        version.serving = nullptr;
        version.reason = std::format("the version policy serves {} now", list(*chosen));
      }
    }
    for (const auto& [number, servable] : serve) all.push_back(servable);
  }
  if (!all.empty()) server.replace(model, std::move(all));
  if (first_error) return std::unexpected(*first_error);
  return {};
}

Result<> Repository::unload(const std::string& model, const std::map<std::string, std::string>& parameters) {
  if (auto ok = impl_->check_explicit("unloaded"); !ok) return ok;
  if (auto ok = check_model_name(model); !ok) return ok;
  for (const auto& [key, value] : parameters) {
    if (key != "unload_dependents") {
      return fail(ErrorCode::invalid_argument,
                  std::format("unload parameter '{}' is unknown; there is \"unload_dependents\"", key));
    }
  }
  return impl_->unload(model);
}

Result<> Repository::Impl::unload(const std::string& model) {
  std::shared_ptr<ModelRecord> model_record;
  {
    std::scoped_lock lock(mutex);
    if (auto found = models.find(model); found != models.end()) model_record = found->second;
  }
  if (!model_record) return fail(ErrorCode::not_found, std::format("model '{}' is not loaded", model));
  std::scoped_lock operation(model_record->operation);
  std::vector<std::shared_ptr<Servable>> let_go;
  {
    std::scoped_lock lock(mutex);
    model_record->reason.clear();
    for (auto& [number, version] : model_record->versions) {
      version.reason = "unloaded";
      if (!version.serving) continue;
      version.leaving = version.serving;
      let_go.push_back(std::move(version.serving));
      version.serving = nullptr;
    }
  }
  if (let_go.empty()) return fail(ErrorCode::not_found, std::format("model '{}' is not loaded", model));
  for (const auto& servable : let_go) std::ignore = server.remove(model, servable->version());
  return {};
}

// --- following the directory
// -------------------------------------------------------------------------------------------------

std::string Repository::Impl::look_at(const std::string& model) const {
  auto directory = layout.model_directory(model);
  if (!directory) return directory.error().code == ErrorCode::not_found ? "" : directory.error().message;
  auto fingerprint = layout.fingerprint(*directory);
  return fingerprint ? "present\n" + *fingerprint : fingerprint.error().message;
}

std::size_t Repository::poll_now() { return impl_->poll_now(); }

void Repository::look_soon() {
  {
    std::scoped_lock lock(impl_->sleep_mutex);
    impl_->look_soon = true;
  }
  impl_->sleep.notify_all();
}

void Repository::give_up_loading() { impl_->giving_up = true; }

std::size_t Repository::Impl::poll_now() {
  std::scoped_lock one(poll_mutex);
  std::set<std::string> names;
  if (auto present = layout.models()) names.insert(present->begin(), present->end());
  {
    std::scoped_lock lock(mutex);
    for (const auto& [name, unused] : models) names.insert(name);
  }
  std::vector<std::move_only_function<void()>> tasks;
  for (const auto& name : names) {
    std::string state = look_at(name);
    auto model_record = record(name);
    std::scoped_lock lock(mutex);
    if (state == model_record->polled) {
      model_record->seen = std::move(state);
      continue;
    }
    if (state != model_record->seen) {  // it changed since the last look: not yet
      model_record->seen = std::move(state);
      continue;
    }
    model_record->polled = state;
    tasks.push_back([this, name, gone = state.empty()] { std::ignore = gone ? unload(name) : load(name, {}); });
  }
  const std::size_t changed = tasks.size();
  pool.run_all(std::move(tasks));
  // What went away altogether is forgotten, so that names can't pile up.
  std::scoped_lock lock(mutex);
  std::erase_if(models, [](const auto& entry) {
    return entry.second->polled.empty() && entry.second->seen.empty() && entry.second.use_count() == 1 &&
           std::ranges::none_of(entry.second->versions, [](const auto& version) {
             return version.second.serving || !version.second.leaving.expired();
           });
  });
  return changed;
}

void Repository::Impl::follow(std::stop_token stop) {
  std::unique_lock lock(sleep_mutex);
  while (!stop.stop_requested()) {
    sleep.wait_for(lock, stop, options.poll_interval, [this] { return look_soon; });
    look_soon = false;
    if (stop.stop_requested()) return;
    lock.unlock();
    poll_now();
    lock.lock();
  }
}

// --- looking in
// --------------------------------------------------------------------------------------------------------------

std::vector<IndexEntry> Repository::index(bool ready_only) const {
  std::map<std::string, std::vector<IndexEntry>> entries;
  if (!ready_only) {
    if (auto present = impl_->layout.models()) {
      for (const auto& name : *present) entries[name];
    }
  }
  {
    std::scoped_lock lock(impl_->mutex);
    for (const auto& [name, model] : impl_->models) {
      for (const auto& [number, version] : model->versions) {
        const ModelState state = version.serving              ? ModelState::ready
                                 : version.loading            ? ModelState::loading
                                 : !version.leaving.expired() ? ModelState::unloading
                                                              : ModelState::unavailable;
        if (ready_only && state != ModelState::ready) continue;
        entries[name].push_back({name, number, state, model->reason.empty() ? version.reason : model->reason});
      }
      if (model->versions.empty() && !model->reason.empty() && !ready_only) {
        entries[name].push_back({name, std::nullopt, ModelState::unavailable, model->reason});
      }
    }
  }
  std::vector<IndexEntry> result;
  for (auto& [name, versions] : entries) {
    if (versions.empty() && !ready_only)
      versions.push_back({name, std::nullopt, ModelState::unavailable, "not loaded"});
    std::ranges::move(versions, std::back_inserter(result));
  }
  return result;
}

Result<std::pair<std::shared_ptr<Servable>, inference::ModelConfig>> Repository::Impl::find(
    const std::string& model, std::optional<std::int64_t> version) const {
  std::scoped_lock lock(mutex);
  auto found = models.find(model);
  std::vector<std::int64_t> there;
  if (found != models.end()) {
    for (const auto& [number, record] : found->second->versions)
      if (record.serving) there.push_back(number);
  }
  if (there.empty()) {
    std::string why;
    if (found != models.end()) {
      why = found->second->reason;
      for (const auto& [number, record] : found->second->versions)
        if (!record.reason.empty()) why = record.reason;
    }
    return fail(ErrorCode::not_found, std::format("model '{}' is not loaded{}{}", model, why.empty() ? "" : ": ", why));
  }
  const std::int64_t wanted = version.value_or(there.back());
  if (!std::ranges::contains(there, wanted)) {
    return fail(ErrorCode::not_found,
                std::format("model '{}' has no version {}; it serves {}", model, wanted, list(there)));
  }
  const auto& record = found->second->versions.at(wanted);
  return std::pair(record.serving, record.config);
}

Result<inference::ModelConfig> Repository::config(const std::string& model, std::optional<std::int64_t> version) const {
  auto found = impl_->find(model, version);
  if (!found) return std::unexpected(found.error());
  return std::move(found->second);
}

Result<ModelMetadata> Repository::metadata(const std::string& model, std::optional<std::int64_t> version) const {
  auto found = impl_->find(model, version);
  if (!found) return std::unexpected(found.error());
  ModelMetadata metadata;
  metadata.model = model;
  metadata.platform = found->second.platform();
  metadata.signature = found->first->signature();
  for (const auto& [key, value] : found->second.parameters()) {
    if (key.starts_with("npud.")) metadata.properties[key] = value.string_value();
  }
  std::scoped_lock lock(impl_->mutex);
  if (auto record = impl_->models.find(model); record != impl_->models.end()) {
    for (const auto& [number, entry] : record->second->versions)
      if (entry.serving) metadata.versions.push_back(number);
  }
  return metadata;
}

bool Repository::ready(const std::string& model, std::optional<std::int64_t> version) const {
  return impl_->find(model, version).has_value();
}

}  // namespace npud
