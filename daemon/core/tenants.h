// SPDX-License-Identifier: Apache-2.0
// Who pays, and what they may: the kernel's word for a peer (uid) or a certificate's name → TenantId → weight, caps,
// class ceiling.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/request.h"

namespace npud {

struct TenantSettings {
  double weight = 1.0;                                       // share of a contended device, relative to the others; > 0
  std::uint32_t max_in_flight = 0;                           // requests queued or running; 0: no cap
  std::uint64_t max_bytes = 0;                               // payload of requests in flight; 0: no cap
  PriorityClass class_ceiling = PriorityClass::interactive;  // the best class it may ask for
};

// A configured tenant: everybody in `uids` and `certificates` is this one.
struct TenantRule {
  std::string name;
  std::vector<std::uint32_t> uids;
  std::vector<std::string> certificates;
  TenantSettings settings;
};

// Thread-safe. Peers without a rule get a tenant of their own on first use ("uid:1000", "cert:NAME"), with the default
// settings. Ids are never reused and survive configure(): a tenant is known by its name. Holds at most `max_tenants`,
// since containers can bring any number of uids; beyond it new peers are refused with resource_exhausted.
class TenantTable {
 public:
  explicit TenantTable(TenantSettings defaults = {}, std::uint32_t max_tenants = 4096);

  // Replaces all rules and defaults, or changes nothing and says what is wrong (a weight that isn't positive and
  // finite, an empty or double name, a uid or certificate in two rules).
  Result<> configure(TenantSettings defaults, std::vector<TenantRule> rules);

  Result<TenantId> for_uid(std::uint32_t uid);
  Result<TenantId> for_certificate(const std::string& name);

  // Known tenants only (an id from here); an unknown id gets the defaults and the name "tenant N".
  TenantSettings settings(TenantId tenant) const;
  std::string name(TenantId tenant) const;
  std::vector<TenantId> all() const;

 private:
  struct Entry {
    std::string name;
    TenantSettings settings;
    bool configured = false;
  };
  Result<TenantId> find_or_make(const std::string& name);

  mutable std::mutex mutex_;  // all below
  TenantSettings defaults_;
  const std::uint32_t max_tenants_;
  std::vector<Entry> tenants_;  // index + 1 is the id
  std::map<std::string, std::uint32_t> by_name_;
  std::map<std::uint32_t, std::string> rule_of_uid_;
  std::map<std::string, std::string> rule_of_certificate_;
};

}  // namespace npud
