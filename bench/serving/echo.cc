// SPDX-License-Identifier: Apache-2.0
// npud-bench-echo SOCKET: what gRPC costs without npud. The same service, message and kind of server (callbacks, one
// unix socket); ModelInfer answers with the inputs as outputs and does nothing else. Runs until SIGTERM or SIGINT.
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <csignal>
#include <iostream>

#include "inference/grpc_service.grpc.pb.h"

namespace {

class Echo final : public inference::GRPCInferenceService::CallbackService {
 public:
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const inference::ModelInferRequest* request,
                                       inference::ModelInferResponse* response) override {
    response->set_model_name(request->model_name());
    response->set_model_version("1");
    response->set_id(request->id());
    for (const auto& input : request->inputs()) {
      auto& output = *response->add_outputs();
      output.set_name("y");
      output.set_datatype(input.datatype());
      output.mutable_shape()->CopyFrom(input.shape());
    }
    for (const auto& raw : request->raw_input_contents()) response->add_raw_output_contents(raw);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: npud-bench-echo SOCKET\n";
    return 2;
  }
  // Before gRPC makes threads, so that they all leave the signals to sigwait().
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  Echo echo;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(std::string("unix:") + argv[1], grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(&echo);
  auto server = builder.BuildAndStart();
  if (!server) {
    std::cerr << "npud-bench-echo: can't listen on " << argv[1] << '\n';
    return 1;
  }
  int signal = 0;
  sigwait(&ends, &signal);
  server->Shutdown();
  return 0;
}
