// SPDX-License-Identifier: Apache-2.0
#include "api/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>

namespace npud::api {
namespace {

using google::protobuf::FileDescriptor;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

void add_with_imports(const FileDescriptor* file, std::set<const FileDescriptor*>& seen,
                      ServerReflectionResponse& response) {
  if (!seen.insert(file).second) {
    return;
  }
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  response.mutable_file_descriptor_response()->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file->dependency_count(); ++i) {
    add_with_imports(file->dependency(i), seen, response);
  }
}

void answer(const ServerReflectionRequest& request, const std::vector<std::string>& services,
            ServerReflectionResponse& response) {
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  const FileDescriptor* file = nullptr;
  std::string asked;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const std::string& name : services) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case ServerReflectionRequest::kFileByFilename:
      asked = request.file_by_filename();
      file = pool->FindFileByName(asked);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      asked = request.file_containing_symbol();
      file = pool->FindFileContainingSymbol(asked);
      break;
    case ServerReflectionRequest::kFileContainingExtension:
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      asked = "extensions, of which there are none";
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
      response.mutable_error_response()->set_error_message("the request asks for nothing");
      return;
  }
  if (file == nullptr) {
    response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response.mutable_error_response()->set_error_message("not found: " + asked);
    return;
  }
  std::set<const FileDescriptor*> seen;
  add_with_imports(file, seen, response);
}

class Stream final : public grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse> {
 public:
  explicit Stream(const std::vector<std::string>& services) : services_(services) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      return Finish(grpc::Status::OK);
    }
    response_.Clear();
    answer(request_, services_, response_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) {
      return Finish(grpc::Status::OK);
    }
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const std::vector<std::string>& services_;
  ServerReflectionRequest request_;
  ServerReflectionResponse response_;
};

}  // namespace

grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse>* ReflectionService::ServerReflectionInfo(
    grpc::CallbackServerContext* /*context*/) {
  return new Stream(services_);
}

}  // namespace npud::api
