// SPDX-License-Identifier: Apache-2.0
// All of npud, put together: made from a Config, runs until it is told to stop.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "api/backend.h"
#include "core/server.h"
#include "devices/host/host_device.h"
#include "engine/onnx_loader.h"
#include "engine/rknn_loader.h"
#include "engine/runtime.h"
#include "service/callers.h"
#include "service/config.h"
#include "service/connections.h"
#include "service/event_log.h"
#include "service/grpc_servers.h"
#include "service/metrics.h"
#include "service/npu.h"
#include "service/rknn.h"
#include "service/shared_memory.h"
#include "service/watchdog.h"

namespace npud {

// Signals SIGTERM, SIGINT and SIGHUP must be blocked in all threads before it is made; run() takes them. Used from one
// thread.
class Daemon {
 public:
  // Opens everything that can fail, sockets last; nothing is served yet.
  static Result<std::unique_ptr<Daemon>> create(Config config, ConfigSources sources);
  ~Daemon();

  // Serves. SIGHUP reads the configuration again; SIGTERM and SIGINT drain and return.
  Result<> run();

 private:
  Daemon(Config config, ConfigSources sources);
  Result<> open();
  Result<> open_engine();
  Result<> open_sockets();
  void load_models();
  void begin_to_serve();
  void reload();
  int next_signal();
  void give_memory_back_when_idle();
  void drain();
  api::DaemonFacts facts() const;

  Config config_;
  const ConfigSources sources_;
  SteadyClock clock_;
  TenantTable tenants_;
  EventBus events_;
  Callers callers_;
  EventLog event_log_;
  SharedMemory shared_memory_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<HostDevice> host_;
  std::unique_ptr<DeviceArbiter> host_arbiter_;
  std::unique_ptr<Npu> npu_;  // null: none is used
  std::vector<std::string> npu_notes_;
  Rknn rknn_;
  std::unique_ptr<OnnxLoader> onnx_loader_;
  std::unique_ptr<RknnLoader> rknn_loader_;  // null: there is no runtime for them
  std::unique_ptr<LoaderByKind> loader_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Repository> repository_;
  api::BlockingPool blocking_;
  std::unique_ptr<api::Backend> backend_;
  std::unique_ptr<GrpcServers> grpc_;
  std::unique_ptr<Connections> connections_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Metrics> metrics_;
  std::uint64_t seen_done_ = 0, trimmed_at_ = 0;
  std::atomic<bool> ready_{false};
  std::mutex stopping_mutex_;  // held while the daemon tells that it is ready, or that it no longer is
  bool stopping_ = false;      // under stopping_mutex_
  std::jthread loading_;
};

}  // namespace npud
