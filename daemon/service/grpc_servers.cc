// SPDX-License-Identifier: Apache-2.0
#include "service/grpc_servers.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>

#include <format>
#include <fstream>
#include <sstream>

#include "api/services.h"
#include "service/log.h"

namespace npud {
namespace {

constexpr const char* inference_service = "inference.GRPCInferenceService";

Result<std::string> contents_of(const std::string& path, const char* key) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream || text.str().empty()) {
    return fail(ErrorCode::invalid_argument, std::format("{}: can't read {}", key, path));
  }
  return text.str();
}

}  // namespace

// One grpc::Server with its services. Destroying it shuts it down and cancels what it still does.
class GrpcServers::PeerServer {
 public:
  PeerServer(std::unique_ptr<api::CallerResolver> resolver, api::Backend& backend)
      : resolver(std::move(resolver)), services(backend, *this->resolver) {}
  ~PeerServer() {
    if (server) {
      server->Shutdown(std::chrono::system_clock::now());
      server->Wait();
    }
  }

  std::string owner;
  std::unique_ptr<api::CallerResolver> resolver;
  api::Services services;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  std::uint32_t connections = 0;
  std::chrono::steady_clock::time_point idle_since = std::chrono::steady_clock::now();
};

GrpcServers::GrpcServers(const ServerConfig& config, api::Backend& backend, const Callers& callers)
    : config_(config), backend_(backend), callers_(callers), quota_("npud") {
  quota_.Resize(config_.transport_memory_bytes);
  grpc::EnableDefaultHealthCheckService(true);
  reaper_ = std::jthread([this](std::stop_token stop) { reap(stop); });
}

GrpcServers::~GrpcServers() { shut_down(std::chrono::system_clock::now()); }

std::unique_ptr<GrpcServers::PeerServer> GrpcServers::make_server(std::shared_ptr<grpc::ServerCredentials> credentials,
                                                                  std::unique_ptr<api::CallerResolver> resolver) {
  auto peer = std::make_unique<PeerServer>(std::move(resolver), backend_);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(config_.max_message_bytes));
  builder.SetMaxSendMessageSize(-1);
  builder.SetResourceQuota(quota_);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(config_.max_streams_per_connection));
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 * 1024);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, static_cast<int>(config_.handshake_timeout.count()));
  // A peer that was unplugged (TCP), or that said no more than the preface, doesn't answer pings; pings of clients are
  // allowed at a sane rate. An idle connection stays: its user's regions hang on it.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  peer->services.add_to(builder);
  peer->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, std::move(credentials));
  peer->server = builder.BuildAndStart();
  if (!peer->server) {
    return nullptr;
  }
  if (auto* health = peer->server->GetHealthCheckService()) {
    health->SetServingStatus(serving_);
    health->SetServingStatus(inference_service, serving_);
  }
  return peer;
}

Result<> GrpcServers::enable_tls(const TlsConfig& config) {
  auto certificate = contents_of(config.certificate_file, "tls.certificate_file");
  auto key = contents_of(config.key_file, "tls.key_file");
  auto client_ca = contents_of(config.client_ca_file, "tls.client_ca_file");
  for (const auto* part : {&certificate, &key, &client_ca}) {
    if (!*part) {
      return std::unexpected(part->error());
    }
  }
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = std::move(*client_ca);
  options.pem_key_cert_pairs.push_back({std::move(*key), std::move(*certificate)});
  const std::lock_guard lock(mutex_);
  auto server = make_server(grpc::SslServerCredentials(options), std::make_unique<CertificateResolver>(callers_));
  if (!server) {
    return fail(ErrorCode::invalid_argument,
                "the TLS server can't be made: check that tls.certificate_file, tls.key_file and tls.client_ca_file "
                "are PEM files that fit "
                "together");
  }
  servers_[-1] = std::move(server);
  return {};
}

bool GrpcServers::take(UniqueFd fd, const Peer& peer) {
  const bool tls = peer.via == ListenerKind::tcp_tls;
  const Key key = tls ? -1 : static_cast<Key>(peer.uid);
  const std::lock_guard lock(mutex_);
  if (shut_down_) {
    return false;
  }
  auto found = servers_.find(key);
  if (found == servers_.end()) {
    if (tls) {
      return false;
    }
    if (servers_.size() >= config_.max_tenant_servers) {
      // The one that has been idle longest makes room.
      auto idle = servers_.end();
      for (auto it = servers_.begin(); it != servers_.end(); ++it) {
        if (it->first != -1 && it->second->connections == 0 &&
            (idle == servers_.end() || it->second->idle_since < idle->second->idle_since)) {
          idle = it;
        }
      }
      if (idle == servers_.end()) {
        return false;
      }
      let_go(idle);
      look_again_ = true;
      wake_.notify_all();
    }
    auto server = make_server(grpc::InsecureServerCredentials(), std::make_unique<UidResolver>(callers_, peer.uid));
    if (!server) {
      log_line(LogLevel::error, message_id::connection_refused,
               std::format("No gRPC server could be made for uid {}.", peer.uid));
      return false;
    }
    server->owner = std::format("uid:{}", peer.uid);
    found = servers_.emplace(key, std::move(server)).first;
  }
  PeerServer& server = *found->second;
  ++server.connections;
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = -1;
  connection.fd = fd.release();
  server.acceptor->HandleNewConnection(&connection);
  return true;
}

// What a user registered stays while it is connected, and idle_timeout longer. It is forgotten here, not when the
// reaper gets to it: the same user may be back by then, with regions of its new server.
GrpcServers::Servers::iterator GrpcServers::let_go(Servers::iterator idle) {
  if (backend_.regions != nullptr) {
    backend_.regions->remove(idle->second->owner, "");
  }
  leaving_.push_back(std::move(idle->second));
  return servers_.erase(idle);
}

void GrpcServers::closed(const Peer& peer) {
  const Key key = peer.via == ListenerKind::tcp_tls ? -1 : static_cast<Key>(peer.uid);
  const std::lock_guard lock(mutex_);
  const auto found = servers_.find(key);
  if (found == servers_.end() || found->second->connections == 0) {
    return;
  }
  PeerServer& server = *found->second;
  --server.connections;
  if (server.connections == 0) {
    server.idle_since = std::chrono::steady_clock::now();
    look_again_ = true;
    wake_.notify_all();
  }
}

void GrpcServers::set_serving(bool serving) {
  const std::lock_guard lock(mutex_);
  serving_ = serving;
  for (const auto& [key, peer] : servers_) {
    if (auto* health = peer->server->GetHealthCheckService()) {
      health->SetServingStatus(serving);
      health->SetServingStatus(inference_service, serving);
    }
  }
}

std::uint32_t GrpcServers::tenant_servers() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(servers_.size());
}

void GrpcServers::reap(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto now = std::chrono::steady_clock::now();
    auto next = now + std::chrono::hours(1);
    for (auto it = servers_.begin(); it != servers_.end();) {
      const auto gone_at = it->second->idle_since + config_.idle_timeout;
      if (it->first == -1 || it->second->connections > 0) {
        ++it;
      } else if (gone_at <= now) {
        it = let_go(it);
      } else {
        next = std::min(next, gone_at);
        ++it;
      }
    }
    if (!leaving_.empty()) {
      auto leaving = std::move(leaving_);
      leaving_.clear();
      lock.unlock();
      leaving.clear();  // waits for gRPC, so not under the lock
      lock.lock();
      continue;
    }
    wake_.wait_until(lock, stop, next, [this] { return look_again_; });
    look_again_ = false;
  }
}

void GrpcServers::shut_down(std::chrono::system_clock::time_point deadline) {
  Servers servers;
  {
    const std::lock_guard lock(mutex_);
    shut_down_ = true;
    servers.swap(servers_);
  }
  reaper_.request_stop();
  if (reaper_.joinable()) {
    reaper_.join();
  }
  // All at once: each may take until the deadline.
  std::vector<std::jthread> threads;
  for (auto& [key, peer] : servers) {
    threads.emplace_back([&peer, deadline] { peer->server->Shutdown(deadline); });
  }
  threads.clear();
  servers.clear();
  leaving_.clear();
}

}  // namespace npud
