// SPDX-License-Identifier: Apache-2.0
#include "api/control_service.h"

#include <algorithm>
#include <format>
#include <map>

#include "api/deadline.h"
#include "api/decode.h"
#include "api/event_stream.h"
#include "api/unary.h"
#include "api/version.h"
#include "core/priority_class.h"
#include "core/utf8.h"

namespace npud::api {
namespace {

std::uint64_t us(Duration d) { return static_cast<std::uint64_t>(std::max<Duration::rep>(0, d.count())); }

v1::Health health_of(DeviceHealth health) {
  switch (health) {
    case DeviceHealth::ok:
      return v1::HEALTH_OK;
    case DeviceHealth::degraded:
      return v1::HEALTH_DEGRADED;
    case DeviceHealth::dead:
      return v1::HEALTH_DEAD;
  }
  return v1::HEALTH_UNKNOWN;
}

v1::Residency residency_of(ResidencyState state) {
  switch (state) {
    case ResidencyState::cold:
      return v1::RESIDENCY_COLD;
    case ResidencyState::coming:
      return v1::RESIDENCY_COMING;
    case ResidencyState::resident:
      return v1::RESIDENCY_RESIDENT;
    case ResidencyState::leaving:
      return v1::RESIDENCY_LEAVING;
  }
  return v1::RESIDENCY_UNKNOWN;
}

void explain_nodes(const std::vector<NodePlacement>& placements, v1::ExplainResponse& out) {
  std::map<std::string, std::uint32_t> by_device;
  std::uint64_t macs = 0;
  for (const NodePlacement& from : placements) {
    auto& node = *out.add_nodes();
    node.set_name(from.name);
    node.set_op(from.op);
    node.set_device(from.device);
    node.set_precision(from.precision);
    node.set_reason(from.runs == 0
                        ? from.reason
                        : std::format("{}; {} multiply-accumulates a run", from.reason, from.macs / from.runs));
    node.set_weight_bytes(from.weight_bytes);
    node.set_runs(from.runs);
    node.set_total_us(us(from.total));
    ++by_device[from.device];
    macs += from.macs;
  }
  std::string counts;
  for (const auto& [device, count] : by_device) {
    counts += std::format("{}{} on {}", counts.empty() ? "" : ", ", count, device);
  }
  out.set_summary(std::format(
      "{} MatMul, Gemm and Conv: {}; {} multiply-accumulates were done on devices; all other nodes run on the host",
      placements.size(), counts, macs));
}

// `wait(until)` in pieces, so that a caller who has gone away holds no thread of the pool.
template <class Wait>
Result<> wait_while_wanted(const grpc::CallbackServerContext& context, Clock& clock, TimePoint until, Wait wait) {
  for (;;) {
    const TimePoint piece = std::min(until, clock.now() + std::chrono::milliseconds(200));
    Result<> result = wait(piece);
    if (result || result.error().code != ErrorCode::deadline_exceeded || piece == until || context.IsCancelled()) {
      return result;
    }
  }
}

}  // namespace

void ControlService::set_tenant(v1::TenantId* out, TenantId tenant) const {
  out->set_id(tenant.value);
  out->set_name(backend_.tenants.name(tenant));
}

Result<DeviceHandle*> ControlService::device(const std::string& name) {
  std::string known;
  for (DeviceHandle& handle : backend_.devices) {
    if (handle.arbiter->device() == name) {
      return &handle;
    }
    known += (known.empty() ? "" : ", ") + handle.arbiter->device();
  }
  return fail(ErrorCode::not_found,
              std::format("there is no device '{}'; there are: {}", utf8_prefix(name, 64), known));
}

ControlService::Reactor* ControlService::Status(Context* context, const v1::StatusRequest*, v1::StatusResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller& caller) -> Result<> {
    const ServerSnapshot server = backend_.server.snapshot();
    const DaemonFacts facts = backend_.facts();
    out->set_version(daemon_version);
    out->set_uptime_us(us(backend_.clock.now() - backend_.started));
    out->set_ready(backend_.ready());
    out->set_draining(server.draining);
    out->set_requests_in_flight(server.in_flight);
    out->set_requests_queued(server.queued);
    out->set_payload_bytes(server.payload_bytes);
    out->set_resident_bytes(facts.resident_bytes);
    out->set_worker_threads(server.workers);
    out->set_workers_busy(server.workers_busy);
    out->set_connections(facts.connections);
    out->set_shared_memory_regions(backend_.regions != nullptr ? backend_.regions->region_count() : 0);
    out->set_configuration_path(facts.configuration_path);
    out->mutable_caller()->set_id(caller.tenant.value);
    out->mutable_caller()->set_name(caller.tenant_name);
    for (const std::string& note : facts.notes) {
      out->add_notes(note);
    }
    return {};
  });
}

ControlService::Reactor* ControlService::ListDevices(Context* context, const v1::ListDevicesRequest*,
                                                     v1::ListDevicesResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    for (const DeviceHandle& handle : backend_.devices) {
      const DeviceInfo info = handle.device->info();
      const ArbiterSnapshot arbiter = handle.arbiter->snapshot();
      v1::Device& device = *out->add_devices();
      device.set_name(info.name);
      device.set_kind(info.kind);
      device.set_driver(info.driver);
      device.set_cores(info.cores);
      device.set_cores_busy(arbiter.cores_busy);
      device.set_slots(arbiter.slots);
      device.set_slots_used(arbiter.slots_used);
      bool first = true;
      for (const ApertureInfo& aperture : info.apertures) {
        v1::Aperture& to = *device.add_apertures();
        to.set_name(aperture.name);
        to.set_limit_bytes(aperture.limit_bytes);
        to.set_used_bytes(first && !info.counts_apertures ? arbiter.used_bytes : aperture.used_bytes);
        first = false;
      }
      device.set_health(arbiter.dead ? v1::HEALTH_DEAD : health_of(info.health));
      device.set_health_reason(arbiter.dead ? arbiter.dead_reason : info.health_reason);
      for (const std::string& note : info.notes) {
        device.add_notes(note);
      }
      device.set_draining(arbiter.draining);
      device.set_jobs_waiting(static_cast<std::uint32_t>(arbiter.waiting.size()));
      device.set_jobs_done(arbiter.jobs_done);
      device.set_jobs_failed(arbiter.jobs_failed);
      device.set_busy_us(us(arbiter.busy));
      device.set_switch_us(us(arbiter.switching));
      device.set_brought_in(arbiter.brought_in);
      device.set_evicted(arbiter.evicted);
      device.set_switch_cost_us(us(arbiter.switch_cost));
      device.set_upload_bytes_per_second(arbiter.upload_bytes_per_second);
      device.set_fairness_slack_us(us(arbiter.fairness_slack));
    }
    return {};
  });
}

ControlService::Reactor* ControlService::ListPrograms(Context* context, const v1::ListProgramsRequest* request,
                                                      v1::ListProgramsResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    if (!request->device().empty()) {
      if (auto known = device(request->device()); !known) {
        return std::unexpected(known.error());
      }
    }
    for (const DeviceHandle& handle : backend_.devices) {
      const ArbiterSnapshot arbiter = handle.arbiter->snapshot();
      if (!request->device().empty() && request->device() != arbiter.device) {
        continue;
      }
      for (const ProgramSnapshot& program : arbiter.programs) {
        v1::Program& to = *out->add_programs();
        to.set_name(program.name);
        to.set_device(arbiter.device);
        to.set_residency(residency_of(program.state));
        to.set_slots(program.footprint.slots);
        to.set_bytes(program.footprint.bytes);
        to.set_pinned(program.pinned);
        to.set_running(program.running);
        to.set_runs(program.runs);
        to.set_brought_in(program.brought_in);
        to.set_evicted(program.evicted);
        to.set_bring_back_us(us(program.bring_back));
        to.set_idle_us(us(program.idle));
        // "model:version" or "model:version/node"
        const auto colon = program.name.rfind(':', program.name.find('/'));
        if (colon != std::string::npos) {
          to.set_model(program.name.substr(0, colon));
          const std::string rest = program.name.substr(colon + 1, program.name.find('/') - colon - 1);
          if (auto number = decode_version(rest); number && *number) {
            to.set_version(**number);
          }
        }
      }
    }
    return {};
  });
}

ControlService::Reactor* ControlService::ListTenants(Context* context, const v1::ListTenantsRequest*,
                                                     v1::ListTenantsResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    const ServerSnapshot server = backend_.server.snapshot();
    std::map<TenantId, ArbiterTenantSnapshot> charged;
    Duration all{0};
    for (const DeviceHandle& handle : backend_.devices) {
      for (const ArbiterTenantSnapshot& tenant : handle.arbiter->snapshot().tenants) {
        charged[tenant.tenant].charged += tenant.charged;
        charged[tenant.tenant].waited += tenant.waited;
        all += tenant.charged;
      }
    }
    for (const TenantId id : backend_.tenants.all()) {
      const TenantSettings settings = backend_.tenants.settings(id);
      v1::Tenant& to = *out->add_tenants();
      set_tenant(to.mutable_tenant(), id);
      to.set_weight(settings.weight);
      to.set_class_ceiling(class_name(settings.class_ceiling));
      to.set_max_in_flight(settings.max_in_flight);
      to.set_max_bytes(settings.max_bytes);
      if (const auto found = std::ranges::find(server.tenants, id, &TenantSnapshot::tenant);
          found != server.tenants.end()) {
        to.set_in_flight(found->in_flight);
        to.set_bytes(found->bytes);
        to.set_succeeded(found->succeeded);
        to.set_failed(found->failed);
        to.set_rejected(found->rejected);
        to.set_latency_p50_us(us(found->latency_p50));
        to.set_latency_p99_us(us(found->latency_p99));
      }
      if (const auto found = charged.find(id); found != charged.end()) {
        to.set_device_us(us(found->second.charged));
        to.set_waited_us(us(found->second.waited));
        to.set_share(all.count() > 0
                         ? static_cast<double>(found->second.charged.count()) / static_cast<double>(all.count())
                         : 0);
      }
    }
    return {};
  });
}

ControlService::Reactor* ControlService::ListRunning(Context* context, const v1::ListRunningRequest*,
                                                     v1::ListRunningResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    for (const DeviceHandle& handle : backend_.devices) {
      const ArbiterSnapshot arbiter = handle.arbiter->snapshot();
      for (const RunningJobSnapshot& job : arbiter.running) {
        v1::Running& to = *out->add_running();
        to.set_device(arbiter.device);
        to.set_core(job.core);
        to.set_program(job.program);
        set_tenant(to.mutable_tenant(), job.tenant);
        to.set_priority_class(class_name(job.priority_class));
        to.set_for_us(us(job.running_for));
      }
      for (const WaitingJobSnapshot& job : arbiter.waiting) {
        v1::Waiting& to = *out->add_waiting();
        to.set_device(arbiter.device);
        to.set_program(job.program);
        set_tenant(to.mutable_tenant(), job.tenant);
        to.set_priority_class(class_name(job.priority_class));
        to.set_for_us(us(job.waiting_for));
      }
    }
    for (const QueueSnapshot& queue : backend_.server.snapshot().queues) {
      v1::ModelQueue& to = *out->add_queues();
      to.set_model(queue.model);
      to.set_version(queue.version);
      to.set_queued(queue.queued);
      to.set_running(queue.running);
      to.set_max_queued(queue.max_queued);
      to.set_oldest_us(us(queue.oldest));
      to.set_queued_peak(queue.queued_peak);
      to.set_draining(queue.draining);
    }
    return {};
  });
}

ControlService::Reactor* ControlService::Drain(Context* context, const v1::DrainRequest* request, v1::DrainResponse*) {
  const TimePoint until = deadline_or(*context, backend_.clock, std::chrono::seconds(60));
  return answer_later(backend_.blocking, callers_, context, Right::administrator,
                      [this, context, request, until](const Caller&) -> Result<> {
                        switch (request->what_case()) {
                          case v1::DrainRequest::kDevice: {
                            auto handle = device(request->device());
                            if (!handle) {
                              return std::unexpected(handle.error());
                            }
                            return wait_while_wanted(*context, backend_.clock, until,
                                                     [&](TimePoint piece) { return (*handle)->arbiter->drain(piece); });
                          }
                          case v1::DrainRequest::kModel:
                            return wait_while_wanted(*context, backend_.clock, until, [&](TimePoint piece) {
                              return backend_.server.drain_model(request->model(), piece);
                            });
                          case v1::DrainRequest::WHAT_NOT_SET:
                            break;
                        }
                        return fail(ErrorCode::invalid_argument, "say what to drain: a device or a model");
                      });
}

ControlService::Reactor* ControlService::Resume(Context* context, const v1::ResumeRequest* request,
                                                v1::ResumeResponse*) {
  return answer_now(callers_, context, Right::administrator, [&](const Caller&) -> Result<> {
    switch (request->what_case()) {
      case v1::ResumeRequest::kDevice: {
        auto handle = device(request->device());
        if (!handle) {
          return std::unexpected(handle.error());
        }
        (*handle)->arbiter->resume();
        return {};
      }
      case v1::ResumeRequest::kModel:
        return backend_.server.resume_model(request->model());
      case v1::ResumeRequest::WHAT_NOT_SET:
        break;
    }
    return fail(ErrorCode::invalid_argument, "say what to resume: a device or a model");
  });
}

ControlService::Reactor* ControlService::ResetDevice(Context* context, const v1::ResetDeviceRequest* request,
                                                     v1::ResetDeviceResponse* out) {
  return answer_later(backend_.blocking, callers_, context, Right::administrator,
                      [this, request, out](const Caller&) -> Result<> {
                        auto handle = device(request->device());
                        if (!handle) {
                          return std::unexpected(handle.error());
                        }
                        auto evicted = (*handle)->arbiter->reset(
                            [handle = *handle]() -> Result<> { return handle->reset ? handle->reset() : Result<>{}; });
                        if (!evicted) {
                          return std::unexpected(evicted.error());
                        }
                        out->set_evicted(*evicted);
                        return {};
                      });
}

// A model that runs whole on one device has one node: the graph.
ControlService::Reactor* ControlService::Explain(Context* context, const v1::ExplainRequest* request,
                                                 v1::ExplainResponse* out) {
  return answer_now(callers_, context, Right::anybody, [&](const Caller&) -> Result<> {
    auto wanted = decode_version(request->version());
    if (!wanted) {
      return std::unexpected(wanted.error());
    }
    auto servable = backend_.server.find(request->model(), *wanted);
    if (!servable) {
      return std::unexpected(servable.error());
    }
    const std::int64_t number = (*servable)->version();
    auto metadata = backend_.repository.metadata(request->model(), number);
    if (!metadata) {
      return std::unexpected(metadata.error());
    }
    out->set_model(request->model());
    out->set_version(number);
    if (const auto placements = (*servable)->placements(); !placements.empty()) {
      explain_nodes(placements, *out);
      return {};
    }
    auto property = [&](const char* name) {
      return metadata->properties.contains(name) ? metadata->properties.at(name) : "";
    };
    const std::string program = std::format("{}:{}", request->model(), number);
    for (const DeviceHandle& handle : backend_.devices) {
      const ArbiterSnapshot arbiter = handle.arbiter->snapshot();
      for (const ProgramSnapshot& from : arbiter.programs) {
        if (from.name != program && !from.name.starts_with(program + "/")) {
          continue;
        }
        auto& node = *out->add_nodes();
        node.set_name(from.name == program ? "(the whole graph)" : from.name.substr(program.size() + 1));
        node.set_op("graph");
        node.set_device(arbiter.device);
        node.set_precision(property("precision"));
        node.set_reason(
            std::format("{} runs it; {}", metadata->platform,
                        from.state == ResidencyState::resident ? "resident" : "cold: the next request brings it in"));
        node.set_weight_bytes(from.footprint.bytes);
        node.set_runs(from.runs);
      }
    }
    out->set_summary(std::format("{} node(s); configured device: {}", out->nodes_size(),
                                 property("device").empty() ? "host" : property("device")));
    return {};
  });
}

grpc::ServerWriteReactor<v1::Event>* ControlService::WatchEvents(Context* context,
                                                                 const v1::WatchEventsRequest* request) {
  if (auto caller = admitted(callers_, *context, Right::anybody); !caller) {
    return refused_stream<v1::Event>(to_status(caller.error()));
  }
  return new EventStream(backend_, *request);
}

}  // namespace npud::api
