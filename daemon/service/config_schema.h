// SPDX-License-Identifier: Apache-2.0
// The one list of configuration keys. A visitor is called with each key and a reference to its value: the reader fills
// them in, the dumper writes them out, so the two cannot disagree.
#pragma once

#include <cstdint>

#include "service/config.h"

namespace npud {

struct Bytes {  // an integer, or a string with a unit: "512 MiB"
  std::uint64_t& value;
  std::uint64_t min, max;
};
struct Millis {
  std::chrono::milliseconds& value;
  std::int64_t min, max;
};
struct Count {
  std::uint32_t& value;
  std::uint32_t min, max;
};
struct Choice {
  std::string& value;
  std::initializer_list<std::string_view> choices;
};

inline constexpr std::initializer_list<std::string_view> class_choices = {"realtime", "interactive", "batch"};
inline constexpr std::uint64_t largest_bytes = 1ull << 50;
inline constexpr std::int64_t day_ms = 86400000;

template <class Visitor>
void visit_tenant(Visitor& v, TenantConfig& c) {
  v.value("name", c.name);
  v.value("uids", c.uids);
  v.value("certificates", c.certificates);
  v.value("weight", Count{c.weight, 1, 10000});
  v.value("max_class", Choice{c.max_class, class_choices});
  v.value("max_requests", Count{c.max_requests, 0, 1u << 20});
  v.value("max_bytes", Bytes{c.max_bytes, 0, largest_bytes});
}

template <class Visitor>
void visit_config(Visitor& v, Config& c) {
  if (v.section("server")) {
    v.value("socket", c.server.socket);
    v.value("socket_mode", c.server.socket_mode);
    v.value("socket_group", c.server.socket_group);
    v.value("max_connections", Count{c.server.max_connections, 1, 1u << 16});
    v.value("max_connections_per_tenant", Count{c.server.max_connections_per_tenant, 1, 1u << 16});
    v.value("max_silent_connections", Count{c.server.max_silent_connections, 1, 1u << 16});
    v.value("max_tenant_servers", Count{c.server.max_tenant_servers, 1, 4096});
    v.value("max_streams_per_connection", Count{c.server.max_streams_per_connection, 1, 1u << 16});
    v.value("max_requests_per_stream", Count{c.server.max_requests_per_stream, 1, 4096});
    v.value("handshake_timeout_ms", Millis{c.server.handshake_timeout, 10, day_ms});
    v.value("idle_timeout_ms", Millis{c.server.idle_timeout, 10, day_ms});
    v.value("drain_timeout_ms", Millis{c.server.drain_timeout, 0, day_ms});
    v.value("stall_timeout_ms", Millis{c.server.stall_timeout, 1000, day_ms});
    v.value("max_message_bytes", Bytes{c.server.max_message_bytes, 1024, (1ull << 31) - 1});
    v.value("transport_memory_bytes", Bytes{c.server.transport_memory_bytes, 1u << 20, largest_bytes});
  }
  if (v.section("tls")) {
    v.value("address", c.tls.address);
    v.value("certificate_file", c.tls.certificate_file);
    v.value("key_file", c.tls.key_file);
    v.value("client_ca_file", c.tls.client_ca_file);
  }
  if (v.section("metrics")) {
    v.value("address", c.metrics.address);
  }
  if (v.section("log")) {
    v.value("target", c.log.target);
    v.value("level", c.log.level);
  }
  if (v.section("repository")) {
    v.value("path", c.repository.path);
    v.value("mode", Choice{c.repository.mode, {"none", "explicit", "poll"}});
    v.value("poll_interval_ms", Millis{c.repository.poll_interval, 20, day_ms});
    v.value("load", c.repository.load);
    v.value("follow_links", c.repository.follow_links);
    v.value("load_threads", Count{c.repository.load_threads, 1, 64});
    v.value("snapshot_directory", c.repository.snapshot_directory);
  }
  if (v.section("engine")) {
    v.value("threads", Count{c.engine.threads, 0, 1024});
    v.value("spin", c.engine.spin);
    v.value("workers", Count{c.engine.workers, 0, 1024});
  }
  if (v.section("queue")) {
    v.value("max_requests", Count{c.queue.max_requests, 1, 1u << 20});
    v.value("default_timeout_ms", Millis{c.queue.default_timeout, 0, day_ms});
  }
  if (v.section("devices.host")) {
    v.value("slots", Count{c.host.slots, 1, 4096});
    v.value("aperture_bytes", Bytes{c.host.aperture_bytes, 1u << 20, largest_bytes});
    v.value("cores", Count{c.host.cores, 1, 1024});
  }
  if (v.section("devices.rknpu")) {
    v.value("enable", Choice{c.rknpu.enable, {"auto", "on", "off"}});
    v.value("node", c.rknpu.node);
    v.value("verify", Choice{c.rknpu.verify, {"off", "sampled", "always"}});
    v.value("timeout_ms", Millis{c.rknpu.timeout, 10, 60000});
    v.value("aperture_bytes", Bytes{c.rknpu.aperture_bytes, 0, largest_bytes});
    v.value("host_fallback", c.rknpu.host_fallback);
    v.value("cache", c.rknpu.cache);
    v.value("cache_bytes", Bytes{c.rknpu.cache_bytes, 0, largest_bytes});
    v.value("rearm_ms", Millis{c.rknpu.rearm, 1, 3600000});
    v.value("rearm_most_ms", Millis{c.rknpu.rearm_most, 1, 86400000});
  }
  if (v.section("devices.rknn")) {
    v.value("enable", Choice{c.rknn.enable, {"auto", "on", "off"}});
    v.value("library", c.rknn.library);
    v.value("timeout_ms", Millis{c.rknn.timeout, 10, 3600000});
    v.value("load_timeout_ms", Millis{c.rknn.load_timeout, 10, 3600000});
    v.value("cores", Count{c.rknn.cores, 1, 8});
    v.value("aperture_bytes", Bytes{c.rknn.aperture_bytes, 0, largest_bytes});
  }
  if (v.section("shared_memory")) {
    v.value("enabled", c.shared_memory.enabled);
    v.value("max_regions_per_tenant", Count{c.shared_memory.max_regions_per_tenant, 1, 1u << 16});
    v.value("max_region_bytes", Bytes{c.shared_memory.max_region_bytes, 1, largest_bytes});
    v.value("max_in_flight_bytes", Bytes{c.shared_memory.max_in_flight_bytes, 4096, largest_bytes});
  }
  if (v.section("admin")) {
    v.value("uids", c.admin.uids);
    v.value("certificates", c.admin.certificates);
  }
  if (v.section("tenant_defaults")) {
    v.value("weight", Count{c.tenant_defaults.weight, 1, 10000});
    v.value("max_class", Choice{c.tenant_defaults.max_class, class_choices});
    v.value("max_requests", Count{c.tenant_defaults.max_requests, 1, 1u << 20});
    v.value("max_bytes", Bytes{c.tenant_defaults.max_bytes, 1024, largest_bytes});
  }
  v.tenants(c.tenants);
}

}  // namespace npud
