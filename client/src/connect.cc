// SPDX-License-Identifier: Apache-2.0
// Client::connect: addresses, certificates, and what is wrong when nobody answers.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <format>
#include <fstream>
#include <iterator>

#include "state.h"

namespace npud::client {
namespace {

constexpr const char* kDefaultSocket = "/run/npud/npud.sock";

Result<std::string> read_file(const std::string& path, const char* what) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return fail(Code::failed_precondition, std::format("can't read the {} {}: {}", what, path, std::strerror(errno)));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Result<std::shared_ptr<grpc::ChannelCredentials>> tls_credentials(const Tls& tls) {
  grpc::SslCredentialsOptions options;
  for (auto [path, to, what] : {std::tuple(&tls.ca_file, &options.pem_root_certs, "CA certificate"),
                                std::tuple(&tls.certificate_file, &options.pem_cert_chain, "client certificate"),
                                std::tuple(&tls.key_file, &options.pem_private_key, "client key")}) {
    if (path->empty()) {
      return fail(
          Code::invalid_argument,
          std::format("npud asks for a certificate on TCP: the {} is missing (ca, cert and key belong together)",
                      what));
    }
    auto text = read_file(*path, what);
    if (!text) return std::unexpected(text.error());
    *to = *std::move(text);
  }
  return grpc::SslCredentials(options);
}

// Why a connection to this socket can't be made, found out by making one by hand.
std::string socket_trouble(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) {
    if (errno == EACCES)
      return std::format("you may not enter the directory of {}: join its group, or ask the administrator", path);
    return std::format(
        "there is no socket {} ({}): is npud running? (systemctl status npud; NPUD_ADDRESS names another socket)", path,
        std::strerror(errno));
  }
  if (!S_ISSOCK(status.st_mode)) return std::format("{} is no socket", path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return std::format("{} is too long for a unix socket (107 bytes)", path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // Not blocking: where the queue of connections is full, connect() would wait for as long as it is.
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return std::format("can't make a socket: {}", std::strerror(errno));
  int failed = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ? errno : 0;
  close(fd);
  switch (failed) {
    case 0:
      return std::format(
          "{} takes connections but doesn't answer: it may be closing (too many users or connections), or no npud",
          path);
    case EACCES:
      return std::format("you may not write to {}: join the socket's group, or ask the administrator", path);
    case EAGAIN:
      return std::format("{} takes no more connections: npud is stuck, or flooded with them (systemctl status npud)",
                         path);
    case ECONNREFUSED:
      return std::format("nobody listens on {}: npud isn't running (systemctl status npud)", path);
    default:
      return std::format("can't connect to {}: {}", path, std::strerror(failed));
  }
}

}  // namespace

std::string default_address() {
  const char* configured = std::getenv("NPUD_ADDRESS");
  return configured != nullptr && *configured != '\0' ? configured : std::string("unix:") + kDefaultSocket;
}

Result<Client> Client::connect(const ConnectOptions& options) {
  std::string address = options.address.empty() ? default_address() : options.address;
  if (address.starts_with('/')) address = "unix:" + address;
  bool is_unix = address.starts_with("unix:");
  std::string socket_path = is_unix ? address.substr(5) : "";
  if (socket_path.starts_with("//")) socket_path.erase(0, 2);
  if (is_unix && socket_path.empty()) return fail(Code::invalid_argument, "the address 'unix:' names no socket");

  std::shared_ptr<grpc::ChannelCredentials> credentials;
  if (options.tls) {
    if (is_unix)
      return fail(Code::invalid_argument, std::format("{} is a unix socket, which takes no certificates", address));
    auto made = tls_credentials(*options.tls);
    if (!made) return std::unexpected(made.error());
    credentials = *std::move(made);
  } else if (is_unix) {
    credentials = grpc::InsecureChannelCredentials();
  } else {
    return fail(Code::invalid_argument, std::format("'{}' is a TCP address, where npud asks for a client certificate: "
                                                    "give ca, cert and key, or an address like "
                                                    "unix:{}",
                                                    address, kDefaultSocket));
  }

  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(std::min<std::size_t>(options.max_message_bytes, INT32_MAX)));
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // each Client has a connection of its own
  if (options.tls && !options.tls->server_name.empty()) arguments.SetSslTargetNameOverride(options.tls->server_name);

  auto state = std::make_shared<State>();
  state->address = address;
  state->timeout = options.timeout;
  state->channel = grpc::CreateCustomChannel(is_unix ? "unix:" + socket_path : address, credentials, arguments);
  if (is_unix && access(socket_path.c_str(), W_OK) != 0) return fail(Code::unavailable, socket_trouble(socket_path));
  if (!state->channel->WaitForConnected(std::chrono::system_clock::now() + options.timeout)) {
    return fail(Code::unavailable,
                is_unix ? socket_trouble(socket_path)
                        : std::format("no npud answers at {} within {} ms, or it doesn't accept the certificate",
                                      address, options.timeout.count()));
  }
  state->inference = inference::GRPCInferenceService::NewStub(state->channel);
  state->control = v1::Control::NewStub(state->channel);
  return Client(std::move(state));
}

}  // namespace npud::client
