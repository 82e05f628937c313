// SPDX-License-Identifier: Apache-2.0
// libnpud: inference over the Open Inference Protocol.
//
//   auto client = npud::client::Client::connect({});                       // $NPUD_ADDRESS or /run/npud/npud.sock
//   if (!client) …
//   auto result = client->infer({.model = "ocr_cls", .inputs = {std::move(x)}});
//   if (!result) std::cerr << npud::client::to_string(result.error());
//
// A Client may be used by any number of threads at once, and copied (copies share the connection).
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "npud/error.h"
#include "npud/tensor.h"

namespace inference {  // the wire's own messages, for metadata: "inference/grpc_service.pb.h"
class ModelConfigResponse;
class ModelMetadataResponse;
class ModelStatisticsResponse;
class RepositoryIndexResponse;
class ServerMetadataResponse;
class SystemSharedMemoryStatusResponse;
}  // namespace inference

namespace npud::client {

// PEM files. npud answers on TCP only to clients with a certificate, whose name is their tenant.
struct Tls {
  std::string ca_file, certificate_file, key_file;
  std::string server_name;  // where the certificate doesn't carry the address's host name
};

struct ConnectOptions {
  // "/path", "unix:/path" or "host:port". Empty: $NPUD_ADDRESS, or else unix:/run/npud/npud.sock.
  std::string address;
  std::optional<Tls> tls;  // required for host:port
  std::chrono::milliseconds timeout{5000};
  std::size_t max_message_bytes = 256u << 20;
};

[[nodiscard]] std::string default_address();

struct OutputWanted {
  std::string name;
  std::optional<RegionSpan> shared;  // the result is written there instead of sent
};

using Parameter = std::variant<bool, std::int64_t, std::string, double>;

struct InferRequest {
  std::string model;
  std::string version;  // empty: by the model's version policy
  std::string id;
  std::vector<Tensor> inputs;
  std::vector<OutputWanted> outputs;  // empty: all
  std::uint64_t priority = 0;         // 1 is highest; 0: the model's default
  // How long it may wait for its turn and run. Becomes the call's deadline as well (a little later, so that npud's own
  // word arrives).
  std::optional<std::chrono::microseconds> timeout;
  std::map<std::string, Parameter> parameters;
};

struct InferResult {
  std::string model, version, id;
  std::vector<Tensor> outputs;
  std::map<std::string, Parameter> parameters;
  std::string path;  // where it ran: "device=host"

  const Tensor* output(std::string_view name) const;  // nullptr: no such output
};

// An inference under way. Destroying it without cancel() lets it go on.
class Call {
 public:
  void cancel();

 private:
  friend class Client;
  std::function<void()> cancel_;
};

// Requests and answers on one connection, answers in the order of the requests. One thread may write while another
// reads.
class Stream {
 public:
  struct Answer {
    std::string id;
    Result<InferResult> result;  // an error of this request; the stream goes on
  };

  ~Stream();  // cancels what is still open
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  Result<> write(InferRequest request);
  void finish_writing();
  // The next answer; nullopt when the server ended the stream after finish_writing().
  Result<std::optional<Answer>> read();

 private:
  friend class Client;
  struct State;
  explicit Stream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Client {
 public:
  // Connects, and fails if that isn't done in time, with a message that says what is wrong (no socket, no right to it,
  // nobody listens).
  static Result<Client> connect(const ConnectOptions& options = {});

  const std::string& address() const;

  Result<bool> live() const;
  Result<bool> ready() const;
  Result<bool> model_ready(const std::string& model, const std::string& version = "") const;
  Result<inference::ServerMetadataResponse> server_metadata() const;
  Result<inference::ModelMetadataResponse> model_metadata(const std::string& model,
                                                          const std::string& version = "") const;
  Result<inference::ModelConfigResponse> model_config(const std::string& model, const std::string& version = "") const;
  Result<inference::ModelStatisticsResponse> model_statistics(const std::string& model = "",
                                                              const std::string& version = "") const;
  Result<inference::RepositoryIndexResponse> repository_index(bool only_ready = false) const;
  // Loading may take long, everything else answers at once. A load that isn't done within `timeout` goes on in the
  // daemon.
  static constexpr std::chrono::minutes load_timeout{10};
  Result<> load(const std::string& model, std::chrono::milliseconds timeout = load_timeout) const;
  Result<> unload(const std::string& model, std::chrono::milliseconds timeout = load_timeout) const;

  Result<InferResult> infer(InferRequest request) const;
  // `done` is called once, on a thread of the library's; it must not block for long.
  Call infer_async(InferRequest request, std::move_only_function<void(Result<InferResult>)> done) const;
  std::future<Result<InferResult>> infer_future(InferRequest request) const;
  Result<Stream> stream() const;

  // See npud/shared_memory.h, which calls these.
  Result<> register_region(const std::string& name, const std::string& key, std::uint64_t offset_bytes,
                           std::uint64_t size_bytes) const;
  Result<> unregister_region(const std::string& name) const;
  Result<inference::SystemSharedMemoryStatusResponse> regions(const std::string& name = "") const;

 private:
  friend class Control;
  struct State;
  explicit Client(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace npud::client
