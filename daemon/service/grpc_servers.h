// SPDX-License-Identifier: Apache-2.0
// The gRPC side of connections: one grpc::Server for each uid, so that a service always knows whom it serves, and one
// for TLS.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "api/backend.h"
#include "service/callers.h"
#include "service/config.h"
#include "service/connections.h"

namespace npud {

// take() and closed() come from the Connections thread; the rest from any. Servers are made on first use, at most
// max_tenant_servers; one without connections is closed after idle_timeout, or at once when another uid needs its
// place. They use gRPC's shared callback threads: an idle one costs some memory and no thread.
class GrpcServers final : public ConnectionSink {
 public:
  GrpcServers(const ServerConfig& config, api::Backend& backend, const Callers& callers);
  ~GrpcServers() override;

  // Makes the server for TLS connections. invalid_argument: the files can't be read or don't fit together.
  Result<> enable_tls(const TlsConfig& config);

  bool take(UniqueFd fd, const Peer& peer) override;
  void closed(const Peer& peer) override;

  // grpc.health.v1: the whole ("") and the inference service, on all servers, those to come included.
  void set_serving(bool serving);
  std::uint32_t tenant_servers() const;

  // Calls in progress may end until then; afterwards they are cancelled. Returns when all are gone.
  void shut_down(std::chrono::system_clock::time_point deadline);

 private:
  class PeerServer;
  using Key = std::int64_t;  // uid, or -1 for TLS
  using Servers = std::map<Key, std::unique_ptr<PeerServer>>;
  std::unique_ptr<PeerServer> make_server(std::shared_ptr<grpc::ServerCredentials> credentials,
                                          std::unique_ptr<api::CallerResolver> resolver);
  Servers::iterator let_go(Servers::iterator idle);  // under mutex_
  void reap(std::stop_token stop);

  const ServerConfig config_;
  api::Backend& backend_;
  const Callers& callers_;
  grpc::ResourceQuota quota_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  Servers servers_;                                                // under mutex_
  std::vector<std::unique_ptr<PeerServer>> leaving_;               // under mutex_; closed by the reaper
  bool serving_ = false, shut_down_ = false, look_again_ = false;  // under mutex_
  std::jthread reaper_;
};

}  // namespace npud
