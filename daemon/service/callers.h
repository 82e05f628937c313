// SPDX-License-Identifier: Apache-2.0
// From uids and certificates to Callers: tenants, rights, classes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "api/caller.h"
#include "core/tenants.h"
#include "service/config.h"

namespace npud {

// What a configuration says about peers. Thread-safe; configure() again takes effect for calls that come after it.
class Callers {
 public:
  explicit Callers(TenantTable& tenants) : tenants_(tenants) {}

  Result<> configure(const Config& config);
  Result<std::shared_ptr<const api::Caller>> for_uid(uid_t uid) const;
  Result<std::shared_ptr<const api::Caller>> for_certificate(const std::string& name) const;
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  TenantTable& tenants_;
  std::atomic<std::uint64_t> generation_{1};
  mutable std::mutex mutex_;
  std::set<uid_t> admin_uids_;                // under mutex_
  std::set<std::string> admin_certificates_;  // under mutex_
};

// Everybody behind one unix server is this uid. Remembers the answer until the configuration changes.
class UidResolver final : public api::CallerResolver {
 public:
  UidResolver(const Callers& callers, uid_t uid) : callers_(callers), uid_(uid) {}
  Result<std::shared_ptr<const api::Caller>> resolve(const grpc::CallbackServerContext& context) override;

 private:
  struct Known {
    std::uint64_t generation;
    std::shared_ptr<const api::Caller> caller;
  };
  const Callers& callers_;
  const uid_t uid_;
  std::atomic<std::shared_ptr<const Known>> known_;
};

// The verified client certificate's common name or, without one, its first DNS name.
class CertificateResolver final : public api::CallerResolver {
 public:
  explicit CertificateResolver(const Callers& callers) : callers_(callers) {}
  Result<std::shared_ptr<const api::Caller>> resolve(const grpc::CallbackServerContext& context) override;

 private:
  const Callers& callers_;
};

}  // namespace npud
