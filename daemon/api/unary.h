// SPDX-License-Identifier: Apache-2.0
// The frames of unary calls: who is calling, may it, and where the work runs.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "api/blocking_pool.h"
#include "api/caller.h"
#include "api/status.h"

namespace npud::api {

enum class Right { anybody, administrator };

inline Result<std::shared_ptr<const Caller>> admitted(CallerResolver& callers,
                                                      const grpc::CallbackServerContext& context, Right right) {
  auto caller = callers.resolve(context);
  if (caller && right == Right::administrator && !(*caller)->admin) {
    return fail(ErrorCode::permission_denied,
                "this call is for administrators: root, npud's own user, and admin.uids and admin.certificates in "
                "npud.toml; you are " +
                    (*caller)->key);
  }
  return caller;
}

// A stream of answers that is refused.
template <class Response>
grpc::ServerWriteReactor<Response>* refused_stream(const grpc::Status& status) {
  struct Refused final : grpc::ServerWriteReactor<Response> {
    explicit Refused(const grpc::Status& s) { this->Finish(s); }
    void OnDone() override { delete this; }
  };
  return new Refused(status);
}

// Runs `work(caller) -> Result<>` at once.
template <class Work>
grpc::ServerUnaryReactor* answer_now(CallerResolver& callers, grpc::CallbackServerContext* context, Right right,
                                     Work work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto caller = admitted(callers, *context, right);
  if (!caller) {
    reactor->Finish(to_status(caller.error()));
    return reactor;
  }
  const Result<> result = work(**caller);
  reactor->Finish(result ? grpc::Status::OK : to_status(result.error()));
  return reactor;
}

// Runs `work(caller) -> Result<>` on the pool. Request, response and context stay valid until Finish().
template <class Work>
grpc::ServerUnaryReactor* answer_later(BlockingPool& pool, CallerResolver& callers,
                                       grpc::CallbackServerContext* context, Right right, Work work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto caller = admitted(callers, *context, right);
  if (!caller) {
    reactor->Finish(to_status(caller.error()));
    return reactor;
  }
  auto queued = pool.run([reactor, caller = *caller, work = std::move(work)]() mutable {
    const Result<> result = work(*caller);
    reactor->Finish(result ? grpc::Status::OK : to_status(result.error()));
  });
  if (!queued) {
    reactor->Finish(to_status(queued.error()));
  }
  return reactor;
}

}  // namespace npud::api
