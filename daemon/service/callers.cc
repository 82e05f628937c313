// SPDX-License-Identifier: Apache-2.0
#include "service/callers.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>
#include <unistd.h>

#include <format>

namespace npud {
namespace {

TenantSettings settings_of(double weight, const std::string& max_class, std::uint32_t max_requests,
                           std::uint64_t max_bytes) {
  return {.weight = weight,
          .max_in_flight = max_requests,
          .max_bytes = max_bytes,
          .class_ceiling = priority_class_from_name(max_class).value_or(PriorityClass::interactive)};
}

}  // namespace

Result<> Callers::configure(const Config& config) {
  const TenantDefaults& d = config.tenant_defaults;
  std::vector<TenantRule> rules;
  for (const TenantConfig& tenant : config.tenants) {
    TenantRule rule{tenant.name, {tenant.uids.begin(), tenant.uids.end()}, tenant.certificates, {}};
    rule.settings =
        settings_of(tenant.weight, tenant.max_class, tenant.max_requests != 0 ? tenant.max_requests : d.max_requests,
                    tenant.max_bytes != 0 ? tenant.max_bytes : d.max_bytes);
    rules.push_back(std::move(rule));
  }
  if (auto done = tenants_.configure(settings_of(d.weight, d.max_class, d.max_requests, d.max_bytes), std::move(rules));
      !done) {
    return done;
  }
  {
    const std::lock_guard lock(mutex_);
    admin_uids_ = {config.admin.uids.begin(), config.admin.uids.end()};
    admin_uids_.insert({0, ::getuid()});
    admin_certificates_ = {config.admin.certificates.begin(), config.admin.certificates.end()};
  }
  generation_.fetch_add(1, std::memory_order_release);
  return {};
}

Result<std::shared_ptr<const api::Caller>> Callers::for_uid(uid_t uid) const {
  auto tenant = tenants_.for_uid(uid);
  if (!tenant) {
    return std::unexpected(tenant.error());
  }
  auto caller = std::make_shared<api::Caller>();
  caller->tenant = *tenant;
  caller->tenant_name = tenants_.name(*tenant);
  caller->uid = uid;
  caller->key = std::format("uid:{}", uid);
  caller->highest_class = tenants_.settings(*tenant).class_ceiling;
  const std::lock_guard lock(mutex_);
  caller->admin = admin_uids_.contains(uid);
  return caller;
}

Result<std::shared_ptr<const api::Caller>> Callers::for_certificate(const std::string& name) const {
  auto tenant = tenants_.for_certificate(name);
  if (!tenant) {
    return std::unexpected(tenant.error());
  }
  auto caller = std::make_shared<api::Caller>();
  caller->tenant = *tenant;
  caller->tenant_name = tenants_.name(*tenant);
  caller->key = std::format("cert:{}", name);
  caller->highest_class = tenants_.settings(*tenant).class_ceiling;
  const std::lock_guard lock(mutex_);
  caller->admin = admin_certificates_.contains(name);
  return caller;
}

Result<std::shared_ptr<const api::Caller>> UidResolver::resolve(const grpc::CallbackServerContext& /*context*/) {
  const std::uint64_t generation = callers_.generation();  // before asking: at worst the answer is asked for once more
  if (const auto known = known_.load(); known && known->generation == generation) {
    return known->caller;
  }
  auto caller = callers_.for_uid(uid_);
  if (caller) {
    known_.store(std::make_shared<const Known>(generation, *caller));
  }
  return caller;
}

Result<std::shared_ptr<const api::Caller>> CertificateResolver::resolve(const grpc::CallbackServerContext& context) {
  const auto auth = context.auth_context();
  for (const char* property : {GRPC_X509_CN_PROPERTY_NAME, GRPC_PEER_DNS_PROPERTY_NAME}) {
    if (const auto values = auth->FindPropertyValues(property); auth->IsPeerAuthenticated() && !values.empty()) {
      return callers_.for_certificate(std::string(values.front().data(), values.front().size()));
    }
  }
  return fail(ErrorCode::permission_denied,
              "the client certificate has neither a common name nor a DNS name, so it names no tenant");
}

}  // namespace npud
