// SPDX-License-Identifier: Apache-2.0
#include "service/daemon.h"

#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <format>
#include <fstream>

#include "service/log.h"
#include "service/notify.h"

namespace npud {
namespace {

constexpr std::uint32_t default_workers = 16;
// About what it costs to wake a worker on a busy machine.
constexpr Duration inline_below{200};

std::uint64_t own_resident_bytes() {
  std::uint64_t size_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> size_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void log_runtime_line(RuntimeLogLevel level, std::string_view text) {
  const LogLevel as = level == RuntimeLogLevel::error     ? LogLevel::error
                      : level == RuntimeLogLevel::warning ? LogLevel::warning
                                                          : LogLevel::debug;
  log_line(as, message_id::library, std::format("ONNX Runtime says: {}", text));
}

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) {
    text += (text.empty() ? "" : ", ") + item;
  }
  return text;
}

}  // namespace

Daemon::Daemon(Config config, ConfigSources sources)
    : config_(std::move(config)),
      sources_(std::move(sources)),
      events_(clock_, 1024),
      callers_(tenants_),
      event_log_(events_, tenants_),
      shared_memory_(config_.shared_memory) {}

Daemon::~Daemon() {
  // From the outside in: no new calls, then no calls, then what they used.
  metrics_.reset();
  if (connections_) {
    connections_->stop();
  }
  loading_ = {};  // it tells the servers that npud is ready
  grpc_.reset();
  // What is resident leaves before the session runtime does; programs hang on the servables in the server.
  repository_.reset();
  server_.reset();
  loader_.reset();
  rknn_loader_.reset();
  onnx_loader_.reset();
  rknn_ = {};
  npu_.reset();
  host_arbiter_.reset();
}

Result<std::unique_ptr<Daemon>> Daemon::create(Config config, ConfigSources sources) {
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(config), std::move(sources)));
  if (auto opened = daemon->open(); !opened) {
    return std::unexpected(opened.error());
  }
  return daemon;
}

Result<> Daemon::open() {
  if (auto configured = callers_.configure(config_); !configured) {
    return configured;
  }
  if (auto opened = open_engine(); !opened) {
    return opened;
  }
  std::vector<api::DeviceHandle> devices{{host_.get(), host_arbiter_.get(), {}}};
  if (npu_) {
    devices.push_back({npu_->device.get(), npu_->arbiter.get(), [this] { return npu_->device->canary(); }});
  }
  if (rknn_.own_arbiter) {
    devices.push_back({rknn_.device.get(), rknn_.own_arbiter.get(), {}});
  }
  backend_ =
      std::make_unique<api::Backend>(api::Backend{.clock = clock_,
                                                  .server = *server_,
                                                  .repository = *repository_,
                                                  .tenants = tenants_,
                                                  .events = events_,
                                                  .devices = std::move(devices),
                                                  .regions = config_.shared_memory.enabled ? &shared_memory_ : nullptr,
                                                  .blocking = blocking_,
                                                  .facts = [this] { return facts(); },
                                                  .ready = [this] { return ready_.load(); },
                                                  .started = clock_.now(),
                                                  .max_requests_per_stream = config_.server.max_requests_per_stream});
  return open_sockets();
}

Result<> Daemon::open_engine() {
  auto runtime =
      Runtime::create({.threads = config_.engine.threads, .spin = config_.engine.spin, .log = log_runtime_line});
  if (!runtime) {
    return std::unexpected(runtime.error());
  }
  runtime_ = std::move(*runtime);
  host_ = std::make_unique<HostDevice>(HostDeviceOptions{.slots = config_.host.slots,
                                                         .aperture_bytes = config_.host.aperture_bytes,
                                                         .cores = config_.host.cores,
                                                         .driver = std::format("ONNX Runtime {}", Runtime::version())});
  host_arbiter_ = std::make_unique<DeviceArbiter>(DeviceArbiterSettings{.device = host_->name(),
                                                                        .cores = config_.host.cores,
                                                                        .slots = config_.host.slots,
                                                                        .aperture_bytes = config_.host.aperture_bytes,
                                                                        .fairness = {}},
                                                  clock_, tenants_, events_);
  auto npu = open_npu(config_.rknpu, clock_, tenants_, events_, npu_notes_);
  if (!npu) {
    return std::unexpected(npu.error());
  }
  npu_ = std::move(*npu);
  auto rknn = open_rknn(config_.rknn, npu_.get(), clock_, tenants_, events_);
  if (!rknn) {
    return std::unexpected(rknn.error());
  }
  rknn_ = std::move(*rknn);
  auto own_tenant = tenants_.for_uid(::getuid());
  if (!own_tenant) {
    return std::unexpected(own_tenant.error());
  }
  OnnxLoaderOptions loader_options;
  loader_options.load_tenant = *own_tenant;
  loader_options.queue_defaults.max_queued = config_.queue.max_requests;
  loader_options.queue_defaults.default_timeout = config_.queue.default_timeout;
  loader_options.queue_defaults.instances =
      config_.host.cores;  // one session serves them all, so they cost activations
  loader_options.snapshot_directory = config_.repository.snapshot_directory;
  if (const char* cache = std::getenv("CACHE_DIRECTORY");
      cache != nullptr && loader_options.snapshot_directory.empty()) {
    loader_options.snapshot_directory = std::filesystem::path(cache) / "snapshots";
  }
  auto loader = OnnxLoader::create(loader_options, *runtime_, *host_, *host_arbiter_, clock_,
                                   npu_ ? npu_->target.get() : nullptr);
  if (!loader) {
    return std::unexpected(loader.error());
  }
  onnx_loader_ = std::move(*loader);
  if (rknn_.device) {
    rknn_loader_ =
        std::make_unique<RknnLoader>(RknnLoaderOptions{.queue_defaults = loader_options.queue_defaults,
                                                       .load_tenant = loader_options.load_tenant,
                                                       .snapshot_directory = loader_options.snapshot_directory},
                                     *rknn_.device, *rknn_.arbiter, clock_);
  }
  loader_ = std::make_unique<LoaderByKind>(*onnx_loader_, rknn_loader_.get(), rknn_.why_not);
  server_ = std::make_unique<Server>(
      ServerSettings{.workers = config_.engine.workers != 0 ? config_.engine.workers : default_workers,
                     .inline_below = inline_below},
      clock_, tenants_, events_);
  RepositoryOptions options{.root = config_.repository.path,
                            .mode = control_mode_from_name(config_.repository.mode).value_or(ControlMode::none),
                            .poll_interval = config_.repository.poll_interval,
                            .startup_models = config_.repository.load,
                            .follow_links = config_.repository.follow_links,
                            .load_threads = config_.repository.load_threads};
  auto repository = Repository::open(std::move(options), *loader_, *server_, events_);
  if (!repository) {
    repository.error().message = std::format("repository.path: {}", repository.error().message);
    return std::unexpected(repository.error());
  }
  repository_ = std::move(*repository);
  return {};
}

Result<> Daemon::open_sockets() {
  grpc_ = std::make_unique<GrpcServers>(config_.server, *backend_, callers_);
  auto listeners = passed_listeners();
  if (!listeners) {
    return std::unexpected(listeners.error());
  }
  if (listeners->empty() && !config_.server.socket.empty()) {
    auto listener = listen_unix(config_.server);
    if (!listener) {
      return std::unexpected(listener.error());
    }
    listeners->push_back(std::move(*listener));
  }
  if (!config_.tls.address.empty()) {
    if (auto enabled = grpc_->enable_tls(config_.tls); !enabled) {
      return enabled;
    }
    auto tcp = listen_tcp(config_.tls.address);
    if (!tcp) {
      return std::unexpected(tcp.error());
    }
    for (Listener& listener : *tcp) {
      listeners->push_back(std::move(listener));
    }
  }
  if (listeners->empty()) {
    return fail(ErrorCode::invalid_argument, "there is nothing to listen on: set server.socket or tls.address");
  }
  const ServerConfig& s = config_.server;
  connections_ = std::make_unique<Connections>(std::move(*listeners),
                                               ConnectionLimits{.max_total = s.max_connections,
                                                                .max_per_uid = s.max_connections_per_tenant,
                                                                .max_silent = s.max_silent_connections,
                                                                .handshake_timeout = s.handshake_timeout},
                                               *grpc_);
  progress_ = std::make_unique<Progress>(*backend_, *connections_, s.stall_timeout);
  if (!config_.metrics.address.empty()) {
    auto metrics = Metrics::start(config_.metrics.address, *backend_, [this] { return connections_->counts(); });
    if (!metrics) {
      return std::unexpected(metrics.error());
    }
    metrics_ = std::move(*metrics);
  }
  return {};
}

api::DaemonFacts Daemon::facts() const {
  std::vector<std::string> files;
  for (const auto& file : config_.files) {
    files.push_back(file.string());
  }
  api::DaemonFacts facts{.connections = connections_->counts().open,
                         .resident_bytes = own_resident_bytes(),
                         .configuration_path = files.empty() ? "(built-in defaults)" : joined(files),
                         .notes = npu_notes_};
  for (std::string& note : rknn_.notes()) {
    facts.notes.push_back(std::move(note));
  }
  if (::geteuid() == 0) {
    facts.notes.push_back("npud runs as root; the packaged unit runs it as the user npud without any capability");
  }
  return facts;
}

void Daemon::load_models() {
  loading_ = std::jthread([this] {
    if (auto started = repository_->start(); !started) {
      log_line(LogLevel::error, message_id::model_failed,
               std::format("The repository can't be served: {}", started.error().message));
    }
    ::malloc_trim(0);  // what loading took and gave back
    begin_to_serve();
  });
}

// Nothing of it when draining began while models were loaded.
void Daemon::begin_to_serve() {
  const std::lock_guard lock(stopping_mutex_);
  if (stopping_) {
    return;
  }
  ready_ = true;
  grpc_->set_serving(true);
  std::string addresses;
  for (const Listener& listener : connections_->listeners()) {
    // A name with several addresses stands for them all.
    if (!addresses.ends_with(listener.address())) {
      addresses += (addresses.empty() ? "" : " ") + listener.address();
    }
  }
  const std::size_t versions = server_->all().size();
  log_line(LogLevel::notice, message_id::started,
           std::format("npud serves {} model versions on {}.", versions, addresses), {{"ADDRESS", addresses}});
  notify_ready(std::format("Serving {} model versions.", versions));
}

Result<> Daemon::run() {
  if (auto started = connections_->start(); !started) {
    return started;
  }
  load_models();
  for (;;) {
    switch (next_signal()) {
      case SIGHUP:
        reload();
        break;
      case SIGTERM:
      case SIGINT:
        drain();
        return {};
      default:
        break;
    }
  }
}

// Waits for a signal; meanwhile feeds the watchdog as long as there is progress.
int Daemon::next_signal() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGHUP, SIGTERM, SIGINT}) {
    sigaddset(&set, signal);
  }
  const auto watchdog = watchdog_interval();
  auto interval = std::chrono::microseconds(std::chrono::seconds(5));
  if (watchdog.count() > 0) {
    interval = std::min(interval, watchdog);
  }
  bool stuck = false;
  for (;;) {
    if (progress_->check(std::chrono::steady_clock::now())) {
      notify_watchdog();
      stuck = false;
    } else if (!stuck) {
      stuck = true;
      log_line(LogLevel::error, message_id::no_progress,
               std::format("npud makes no progress: {}.", progress_->reason()));
      notify_status(std::format("No progress: {}.", progress_->reason()));
    }
    give_memory_back_when_idle();
    if (!ready_) {
      notify_extend_timeout(interval * 4);
    }
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(interval);
    const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(interval - seconds).count()};
    const int signal = ::sigtimedwait(&set, nullptr, &timeout);
    if (signal > 0) {
      return signal;
    }
  }
}

// Once after work, when a whole interval brought none.
void Daemon::give_memory_back_when_idle() {
  const std::uint64_t done = progress_->done();
  if (done != trimmed_at_ && done == seen_done_ && server_->snapshot().in_flight == 0) {
    host_->let_reserves_go();
    ::malloc_trim(0);
    trimmed_at_ = done;
  }
  seen_done_ = done;
}

void Daemon::reload() {
  const bool was_ready = ready_;  // while models are loaded for the first time READY would be a lie
  if (was_ready) {
    notify_reloading();
  }
  auto wanted = load_config(sources_);
  Result<> applied = wanted ? callers_.configure(*wanted) : Result<>(std::unexpected(wanted.error()));
  if (!applied) {
    log_line(LogLevel::error, message_id::reload_failed,
             std::format("The configuration stays as it was: {}", applied.error().message));
  } else {
    set_log(wanted->log.target, wanted->log.level);
    log_library_lines();
    const auto restart = sections_needing_restart(config_, *wanted);
    log_line(LogLevel::notice, message_id::reloaded,
             restart.empty()
                 ? "The configuration was read again."
                 : std::format("The configuration was read again; changes in {} take a restart.", joined(restart)));
    config_.log = wanted->log;
    config_.admin = wanted->admin;
    config_.tenants = wanted->tenants;
    config_.tenant_defaults = wanted->tenant_defaults;
  }
  if (repository_->options().mode == ControlMode::poll) {
    repository_->look_soon();
  }
  if (was_ready) {
    notify_ready(std::format("Serving {} model versions.", server_->all().size()));
  }
}

void Daemon::drain() {
  const auto timeout = config_.server.drain_timeout;
  log_line(LogLevel::notice, message_id::stopping,
           std::format("npud stops: requests in hand have {} ms to end.", timeout.count()));
  notify_stopping("Draining.");
  notify_extend_timeout(timeout + std::chrono::seconds(5));
  {
    const std::lock_guard lock(stopping_mutex_);
    stopping_ = true;
    ready_ = false;
    grpc_->set_serving(false);  // who watches health goes elsewhere
  }
  repository_->give_up_loading();
  connections_->stop_accepting();
  const auto begin = std::chrono::steady_clock::now();
  if (auto drained = server_->drain(clock_.now() + std::chrono::duration_cast<Duration>(timeout)); !drained) {
    log_line(LogLevel::warning, message_id::stopping,
             std::format("Not everything ended in time: {}", drained.error().message));
  }
  // Answers that are on their way out get what is left of the time, half a second at least.
  const auto left = std::max<std::chrono::nanoseconds>(timeout - (std::chrono::steady_clock::now() - begin),
                                                       std::chrono::milliseconds(500));
  grpc_->shut_down(std::chrono::system_clock::now() +
                   std::chrono::duration_cast<std::chrono::system_clock::duration>(
                       std::min<std::chrono::nanoseconds>(left, std::chrono::seconds(2))));
  log_line(LogLevel::notice, message_id::stopping, "npud has stopped.");
}

}  // namespace npud
