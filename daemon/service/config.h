// SPDX-License-Identifier: Apache-2.0
// What an administrator can set. npud.toml(5) describes every key; the names there and here are the same.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/request.h"
#include "service/log.h"

namespace npud {

struct ServerConfig {
  std::string socket = "/run/npud/npud.sock";  // empty: only sockets passed by systemd, or TLS
  std::string socket_mode = "0660";            // octal; who may connect at all
  std::string socket_group;                    // group that owns the socket; empty: the daemon's
  std::uint32_t max_connections = 1024;
  std::uint32_t max_connections_per_tenant = 64;
  std::uint32_t max_silent_connections = 512;  // that have not yet said anything
  std::uint32_t max_tenant_servers = 64;       // uids served at once
  std::uint32_t max_streams_per_connection = 256;
  std::uint32_t max_requests_per_stream = 16;  // ModelStreamInfer: taken from the wire and not yet answered
  std::chrono::milliseconds handshake_timeout{5000};
  std::chrono::milliseconds idle_timeout{300000};  // a tenant's server without connections goes away after it
  std::chrono::milliseconds drain_timeout{10000};
  std::chrono::milliseconds stall_timeout{
      120000};  // work in hand and nothing ends: systemd's watchdog isn't fed any more
  std::uint64_t max_message_bytes = 64ull << 20;
  std::uint64_t transport_memory_bytes = 256ull << 20;  // what gRPC may hold for all connections together
};

struct TlsConfig {
  std::string address;  // "host:port"; empty: no TCP at all
  std::string certificate_file, key_file;
  std::string client_ca_file;  // signs the client certificates whose names are tenants
};

struct MetricsConfig {
  std::string address;  // "127.0.0.1:9464"; empty: off
};

struct LogConfig {
  LogTarget target = LogTarget::automatic;
  LogLevel level = LogLevel::info;
};

struct RepositoryConfig {
  std::string path = "/var/lib/npud/models";
  std::string mode = "none";  // "none": all at start; "explicit": on request; "poll": follows the directory
  std::chrono::milliseconds poll_interval{5000};
  std::vector<std::string> load;  // explicit: loaded at start
  bool follow_links = false;      // symbolic links that leave the repository
  std::uint32_t load_threads = 2;
  std::string snapshot_directory;  // copies of what is loaded; empty: $CACHE_DIRECTORY/snapshots, or none without it
};

struct EngineConfig {
  std::uint32_t threads = 0;  // that compute one run; 0: one a CPU
  bool spin = false;          // threads wait for work by spinning: quicker for one model, worse for everybody else
  std::uint32_t workers = 0;  // batches in flight at once; 0: 16
};

struct QueueConfig {
  std::uint32_t max_requests = 64;               // per model, unless its config.pbtxt says otherwise
  std::chrono::milliseconds default_timeout{0};  // 0: none
};

struct HostDeviceConfig {
  std::uint32_t slots = 16;
  std::uint64_t aperture_bytes = 2ull << 30;
  std::uint32_t cores = 1;  // jobs at once
};

struct RknpuDeviceConfig {
  std::string enable = "auto";              // "auto": where there is one; "on": it must be there; "off"
  std::string node;                         // "/dev/dri/renderD128"; empty: the first whose driver is rknpu
  std::string verify = "sampled";           // how many results are checked: "off", "sampled", "always"
  std::chrono::milliseconds timeout{2000};  // of one job's execution
  std::uint64_t aperture_bytes =
      0;  // of resident weights and activations; 0: what the device has, half the machine's memory at most
  bool host_fallback = true;  // requests that it can't answer run on the host
  std::string cache;          // directory of packed models; empty: $CACHE_DIRECTORY/packed, or none without it
  std::uint64_t cache_bytes = std::uint64_t{4} << 30;
  std::chrono::milliseconds rearm{1000},
      rearm_most{60000};  // until it is tried again after it failed; doubled each time up to the most
};

struct RknnDeviceConfig {
  std::string enable = "auto";  // "auto": where the library is; "on": it must be there; "off"
  std::string library = "librknnrt.so";
  std::chrono::milliseconds timeout{10000};       // of one run
  std::chrono::milliseconds load_timeout{60000};  // of making a context
  // Where [devices.rknpu] has the hardware open these are that device's.
  std::uint32_t cores = 3;
  std::uint64_t aperture_bytes = 0;  // of resident contexts; 0: half the machine's memory
};

struct SharedMemoryConfig {
  bool enabled = true;
  std::uint32_t max_regions_per_tenant = 64;
  std::uint64_t max_region_bytes = 1ull << 30;
  std::uint64_t max_in_flight_bytes = 512ull << 20;  // copies of inputs of all requests together; a user alone: half
};

struct AdminConfig {
  std::vector<uid_t> uids;  // may load, unload, drain, reset; root and the daemon's own uid always may
  std::vector<std::string> certificates;
};

struct TenantConfig {
  std::string name;
  std::vector<uid_t> uids;
  std::vector<std::string> certificates;  // names of client certificates
  std::uint32_t weight = 100;
  std::string max_class = "interactive";  // the highest class that it may ask for: realtime, interactive, batch
  std::uint32_t max_requests = 0;         // in flight; 0: the default
  std::uint64_t max_bytes = 0;            // of payload in flight; 0: the default
};

struct TenantDefaults {
  std::uint32_t weight = 100;
  std::string max_class = "interactive";
  std::uint32_t max_requests = 64;
  std::uint64_t max_bytes = 256ull << 20;
};

struct Config {
  ServerConfig server;
  TlsConfig tls;
  MetricsConfig metrics;
  LogConfig log;
  RepositoryConfig repository;
  EngineConfig engine;
  QueueConfig queue;
  HostDeviceConfig host;
  RknpuDeviceConfig rknpu;
  RknnDeviceConfig rknn;
  SharedMemoryConfig shared_memory;
  AdminConfig admin;
  TenantDefaults tenant_defaults;
  std::vector<TenantConfig> tenants;

  std::vector<std::filesystem::path> files;  // that it was read from, in order
};

// Where configuration lies. The first existing main file of the directories counts; then the drop-ins of all of them,
// sorted by file name, one in an earlier directory hiding one of the same name in a later (as systemd does it).
struct ConfigSources {
  std::filesystem::path file;  // --config: this file and FILE.d/*.toml, nothing else; must exist
  std::vector<std::filesystem::path> directories{"/etc/npud", "/run/npud", "/usr/lib/npud"};
};

// Reads and checks everything. Errors name file and line, and what was expected; unknown keys are errors.
Result<Config> load_config(const ConfigSources& sources);

// One file's text on top of `config`. `name` is for messages.
Result<> apply_config_text(Config& config, std::string_view text, const std::string& name);

// What can only be seen with the whole in hand: names twice, uids in two tenants, a TLS address without certificate.
Result<> check_config(const Config& config);

// The effective configuration as TOML that load_config() takes back.
std::string dump_config(const Config& config);

// The sections whose changes need a restart, of those that differ.
std::vector<std::string> sections_needing_restart(const Config& running, const Config& wanted);

Result<PriorityClass> priority_class_from_name(std::string_view name);

}  // namespace npud
