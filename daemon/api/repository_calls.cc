// SPDX-License-Identifier: Apache-2.0
// The calls of InferenceService that change what is served, and shared memory.
#include <format>
#include <map>

#include "api/inference_service.h"
#include "api/unary.h"

namespace npud::api {
namespace {

// What Repository takes: text. Bytes are for file contents, which it refuses by name.
std::map<std::string, std::string> texts(
    const google::protobuf::Map<std::string, inference::ModelRepositoryParameter>& parameters) {
  std::map<std::string, std::string> out;
  for (const auto& [name, value] : parameters) {
    switch (value.parameter_choice_case()) {
      case inference::ModelRepositoryParameter::kBoolParam:
        out[name] = value.bool_param() ? "true" : "false";
        break;
      case inference::ModelRepositoryParameter::kInt64Param:
        out[name] = std::to_string(value.int64_param());
        break;
      case inference::ModelRepositoryParameter::kStringParam:
        out[name] = value.string_param();
        break;
      case inference::ModelRepositoryParameter::kBytesParam:
        out[name] = value.bytes_param();
        break;
      case inference::ModelRepositoryParameter::PARAMETER_CHOICE_NOT_SET:
        out[name] = "";
        break;
    }
  }
  return out;
}

Result<> only_repository(const std::string& name) {
  if (name.empty()) {
    return {};
  }
  return fail(ErrorCode::not_found, "npud has one repository and it has no name: leave repository_name empty");
}

}  // namespace

Result<Regions*> InferenceService::regions_for(const Caller& caller) const {
  if (!caller.uid) {
    return fail(ErrorCode::permission_denied,
                "shared memory is for callers on the unix socket: another machine has none in common");
  }
  if (backend_.regions == nullptr) {
    return fail(ErrorCode::unimplemented, "shared memory is switched off here (shared_memory.enabled in npud.toml)");
  }
  return backend_.regions;
}

InferenceService::Reactor* InferenceService::RepositoryIndex(Context* context,
                                                             const inference::RepositoryIndexRequest* request,
                                                             inference::RepositoryIndexResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    if (auto known = only_repository(request->repository_name()); !known) {
      return known;
    }
    for (const IndexEntry& entry : backend_.repository.index(request->ready())) {
      auto& model = *out->add_models();
      model.set_name(entry.model);
      if (entry.version) {
        model.set_version(std::to_string(*entry.version));
      }
      model.set_state(model_state_name(entry.state));
      model.set_reason(entry.reason);
    }
    return {};
  });
}

InferenceService::Reactor* InferenceService::RepositoryModelLoad(Context* context,
                                                                 const inference::RepositoryModelLoadRequest* request,
                                                                 inference::RepositoryModelLoadResponse*) {
  Reactor* reactor = context->DefaultReactor();
  auto caller = admitted(callers_, *context, Right::administrator);
  if (auto known = only_repository(request->repository_name()); caller && !known) {
    caller = std::unexpected(known.error());
  }
  if (!caller) {
    reactor->Finish(to_status(caller.error()));
    return reactor;
  }
  backend_.repository.load_async(request->model_name(), texts(request->parameters()), [reactor](Result<> result) {
    reactor->Finish(result ? grpc::Status::OK : to_status(result.error()));
  });
  return reactor;
}

InferenceService::Reactor* InferenceService::RepositoryModelUnload(
    Context* context, const inference::RepositoryModelUnloadRequest* request,
    inference::RepositoryModelUnloadResponse*) {
  return answer_later(backend_.blocking, callers_, context, Right::administrator,
                      [this, request](const Caller&) -> Result<> {
                        if (auto known = only_repository(request->repository_name()); !known) {
                          return known;
                        }
                        return backend_.repository.unload(request->model_name(), texts(request->parameters()));
                      });
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryStatus(
    Context* context, const inference::SystemSharedMemoryStatusRequest* request,
    inference::SystemSharedMemoryStatusResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller& caller) -> Result<> {
    auto regions = regions_for(caller);
    if (!regions) {
      return std::unexpected(regions.error());
    }
    auto infos = (*regions)->list(caller.key, request->name());
    if (!infos) {
      return std::unexpected(infos.error());
    }
    for (const RegionInfo& info : *infos) {
      auto& region = (*out->mutable_regions())[info.name];
      region.set_name(info.name);
      region.set_key(info.key);
      region.set_offset(info.offset_bytes);
      region.set_byte_size(info.size_bytes);
    }
    return {};
  });
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryRegister(
    Context* context, const inference::SystemSharedMemoryRegisterRequest* request,
    inference::SystemSharedMemoryRegisterResponse*) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller& caller) -> Result<> {
    auto regions = regions_for(caller);
    if (!regions) {
      return std::unexpected(regions.error());
    }
    return (*regions)->add(caller.key, *caller.uid,
                           {request->name(), request->key(), request->offset(), request->byte_size()});
  });
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryUnregister(
    Context* context, const inference::SystemSharedMemoryUnregisterRequest* request,
    inference::SystemSharedMemoryUnregisterResponse*) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller& caller) -> Result<> {
    auto regions = regions_for(caller);
    if (!regions) {
      return std::unexpected(regions.error());
    }
    (*regions)->remove(caller.key, request->name());
    return {};
  });
}

}  // namespace npud::api
