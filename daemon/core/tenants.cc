// SPDX-License-Identifier: Apache-2.0
#include "core/tenants.h"

#include <cmath>
#include <format>
#include <set>
#include <utility>

namespace npud {
namespace {

Result<> check(const std::string& who, const TenantSettings& settings) {
  if (!(std::isfinite(settings.weight) && settings.weight > 0)) {
    return fail(ErrorCode::invalid_argument,
                std::format("{} has weight {}; it must be a number above 0", who, settings.weight));
  }
  return {};
}

}  // namespace

TenantTable::TenantTable(TenantSettings defaults, std::uint32_t max_tenants)
    : defaults_(defaults), max_tenants_(max_tenants) {}

Result<> TenantTable::configure(TenantSettings defaults, std::vector<TenantRule> rules) {
  if (auto ok = check("the default tenant", defaults); !ok) return ok;
  std::map<std::string, TenantSettings> settings_of;
  std::map<std::uint32_t, std::string> rule_of_uid;
  std::map<std::string, std::string> rule_of_certificate;
  for (const TenantRule& rule : rules) {
    if (rule.name.empty()) return fail(ErrorCode::invalid_argument, "a tenant has no name; give each one a name");
    if (auto ok = check(std::format("tenant '{}'", rule.name), rule.settings); !ok) return ok;
    if (!settings_of.emplace(rule.name, rule.settings).second) {
      return fail(ErrorCode::invalid_argument, std::format("tenant '{}' is configured twice; join the two", rule.name));
    }
    for (const std::uint32_t uid : rule.uids) {
      const auto [at, fresh] = rule_of_uid.emplace(uid, rule.name);
      if (!fresh && at->second != rule.name) {
        return fail(ErrorCode::invalid_argument, std::format("uid {} belongs to tenants '{}' and '{}'; leave it in one",
                                                             uid, at->second, rule.name));
      }
    }
    for (const std::string& certificate : rule.certificates) {
      const auto [at, fresh] = rule_of_certificate.emplace(certificate, rule.name);
      if (!fresh && at->second != rule.name) {
        return fail(ErrorCode::invalid_argument,
                    std::format("certificate '{}' belongs to tenants '{}' and '{}'; leave it in one", certificate,
                                at->second, rule.name));
      }
    }
  }

  const std::lock_guard lock(mutex_);
  std::size_t fresh = 0;
  for (const auto& [name, settings] : settings_of) fresh += by_name_.contains(name) ? 0 : 1;
  if (tenants_.size() + fresh > max_tenants_) {
    return fail(
        ErrorCode::resource_exhausted,
        std::format(
            "{} tenants are known and {} more are configured, but at most {} fit; restart npud or configure fewer",
            tenants_.size(), fresh, max_tenants_));
  }
  defaults_ = defaults;
  rule_of_uid_ = std::move(rule_of_uid);
  rule_of_certificate_ = std::move(rule_of_certificate);
  for (Entry& entry : tenants_) {
    const auto at = settings_of.find(entry.name);
    entry.configured = at != settings_of.end();
    entry.settings = entry.configured ? at->second : defaults_;
  }
  for (const auto& [name, settings] : settings_of) {
    if (by_name_.contains(name)) continue;
    tenants_.push_back({name, settings, true});
    by_name_[name] = static_cast<std::uint32_t>(tenants_.size());
  }
  return {};
}

Result<TenantId> TenantTable::for_uid(std::uint32_t uid) {
  const std::lock_guard lock(mutex_);
  const auto rule = rule_of_uid_.find(uid);
  return find_or_make(rule != rule_of_uid_.end() ? rule->second : std::format("uid:{}", uid));
}

Result<TenantId> TenantTable::for_certificate(const std::string& name) {
  if (name.empty())
    return fail(ErrorCode::permission_denied, "the client certificate names nobody; issue one with a common name");
  const std::lock_guard lock(mutex_);
  const auto rule = rule_of_certificate_.find(name);
  return find_or_make(rule != rule_of_certificate_.end() ? rule->second : "cert:" + name);
}

Result<TenantId> TenantTable::find_or_make(const std::string& name) {
  if (const auto at = by_name_.find(name); at != by_name_.end()) return TenantId{at->second};
  if (tenants_.size() >= max_tenants_) {
    return fail(
        ErrorCode::resource_exhausted,
        std::format("{} tenants are known and no more fit; put '{}' into a configured tenant", tenants_.size(), name));
  }
  tenants_.push_back({name, defaults_, false});
  const auto id = static_cast<std::uint32_t>(tenants_.size());
  by_name_[name] = id;
  return TenantId{id};
}

TenantSettings TenantTable::settings(TenantId tenant) const {
  const std::lock_guard lock(mutex_);
  return tenant.value >= 1 && tenant.value <= tenants_.size() ? tenants_[tenant.value - 1].settings : defaults_;
}

std::string TenantTable::name(TenantId tenant) const {
  const std::lock_guard lock(mutex_);
  return tenant.value >= 1 && tenant.value <= tenants_.size() ? tenants_[tenant.value - 1].name
                                                              : std::format("tenant {}", tenant.value);
}

std::vector<TenantId> TenantTable::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<TenantId> ids;
  for (std::uint32_t id = 1; id <= tenants_.size(); ++id) ids.push_back(TenantId{id});
  return ids;
}

}  // namespace npud
