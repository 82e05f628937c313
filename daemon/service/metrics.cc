// SPDX-License-Identifier: Apache-2.0
#include "service/metrics.h"

#include <prometheus/metric_family.h>

#include <exception>
#include <format>
#include <map>

namespace npud {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
  void counter(const std::string& name, const char* help, Labels labels, double value) {
    ClientMetric& metric = add(name, help, MetricType::Counter, std::move(labels));
    metric.counter.value = value;
  }
  void gauge(const std::string& name, const char* help, Labels labels, double value) {
    ClientMetric& metric = add(name, help, MetricType::Gauge, std::move(labels));
    metric.gauge.value = value;
  }
  std::vector<MetricFamily> take() {
    std::vector<MetricFamily> out;
    for (auto& [name, family] : families_) {
      out.push_back(std::move(family));
    }
    return out;
  }

 private:
  ClientMetric& add(const std::string& name, const char* help, MetricType type, Labels labels) {
    MetricFamily& family = families_[name];
    family.name = name;
    family.help = help;
    family.type = type;
    family.metric.emplace_back().label = std::move(labels);
    return family.metric.back();
  }
  std::map<std::string, MetricFamily> families_;
};

double number(std::uint64_t v) { return static_cast<double>(v); }
double us(Duration d) { return static_cast<double>(d.count()); }

void add_models(Families& out, const api::Backend& backend) {
  for (const ModelStatisticsSnapshot& m : backend.server.statistics("", std::nullopt)) {
    const Labels labels = {{"model", m.model}, {"version", std::to_string(m.version)}};
    out.counter("nv_inference_request_success", "Requests that succeeded", labels, number(m.success.count));
    out.counter("nv_inference_request_failure", "Requests that failed", labels, number(m.fail.count));
    out.counter("nv_inference_count", "Elements along the batch dimension", labels, number(m.inference_count));
    out.counter("nv_inference_exec_count", "Runs", labels, number(m.execution_count));
    out.counter("nv_inference_request_duration_us", "From received to finished, of the successful", labels,
                us(m.success.total));
    out.counter("nv_inference_queue_duration_us", "Waiting for a worker", labels, us(m.queue.total));
    out.counter("nv_inference_compute_input_duration_us", "Preparing inputs", labels, us(m.compute_input.total));
    out.counter("nv_inference_compute_infer_duration_us", "Running the model", labels, us(m.compute_infer.total));
    out.counter("nv_inference_compute_output_duration_us", "Preparing outputs", labels, us(m.compute_output.total));
  }
}

void add_server(Families& out, const api::Backend& backend, const ServerSnapshot& server) {
  for (const QueueSnapshot& q : server.queues) {
    if (q.retired) {
      continue;
    }
    const Labels labels = {{"model", q.model}, {"version", std::to_string(q.version)}};
    out.gauge("nv_inference_pending_request_count", "Requests that wait in the model's queue", labels, q.queued);
    out.gauge("npud_queue_limit", "Requests that may wait in the model's queue", labels, q.max_queued);
  }
  out.gauge("npud_requests_in_flight", "Requests queued or running", {}, number(server.in_flight));
  out.gauge("npud_payload_bytes", "Bytes held for requests in flight", {}, number(server.payload_bytes));
  out.gauge("npud_workers", "Worker threads", {}, server.workers);
  out.gauge("npud_workers_busy", "Worker threads that run a batch", {}, server.workers_busy);
  for (const TenantSnapshot& t : server.tenants) {
    const Labels labels = {{"tenant", backend.tenants.name(t.tenant)}};
    out.counter("npud_tenant_requests_succeeded", "Requests that succeeded", labels, number(t.succeeded));
    out.counter("npud_tenant_requests_failed", "Requests that failed", labels, number(t.failed));
    out.counter("npud_tenant_requests_rejected", "Requests refused for a cap or a full queue", labels,
                number(t.rejected));
    out.gauge("npud_tenant_requests_in_flight", "Requests queued or running", labels, t.in_flight);
    out.gauge("npud_tenant_payload_bytes", "Bytes held for requests in flight", labels, number(t.bytes));
  }
}

void add_devices(Families& out, const api::Backend& backend) {
  for (const api::DeviceHandle& handle : backend.devices) {
    const ArbiterSnapshot a = handle.arbiter->snapshot();
    const Labels labels = {{"device", a.device}};
    out.gauge("npud_device_slots", "Programs that can be resident", labels, a.slots);
    out.gauge("npud_device_slots_used", "Programs that are resident", labels, a.slots_used);
    out.gauge("npud_device_aperture_bytes", "Bytes that resident programs may have together; 0: no limit", labels,
              number(a.aperture_bytes));
    out.gauge("npud_device_aperture_used_bytes", "Bytes of resident programs", labels, number(a.used_bytes));
    out.gauge("npud_device_cores_busy", "Cores that run a job", labels, a.cores_busy);
    out.gauge("npud_device_jobs_waiting", "Jobs that wait for their turn", labels, number(a.waiting.size()));
    out.gauge("npud_device_dead", "1: the device is dead", labels, a.dead ? 1 : 0);
    out.counter("npud_device_jobs_done", "Jobs that ended well", labels, number(a.jobs_done));
    out.counter("npud_device_jobs_failed", "Jobs that failed", labels, number(a.jobs_failed));
    out.counter("npud_device_brought_in", "Times a cold program was made resident", labels, number(a.brought_in));
    out.counter("npud_device_evicted", "Times a program left for another", labels, number(a.evicted));
    out.counter("npud_device_busy_us", "Core time in jobs", labels, us(a.busy));
    out.counter("npud_device_switching_us", "Time bringing in and evicting", labels, us(a.switching));
    for (const ArbiterTenantSnapshot& t : a.tenants) {
      const Labels both = {{"device", a.device}, {"tenant", backend.tenants.name(t.tenant)}};
      out.counter("npud_tenant_device_us", "Core time charged to the tenant", both, us(t.charged));
      out.counter("npud_tenant_wait_us", "Time the tenant's jobs waited for their turn", both, us(t.waited));
    }
  }
}

}  // namespace

class Metrics::Collector final : public prometheus::Collectable {
 public:
  Collector(const api::Backend& backend, std::function<ConnectionCounts()> connections)
      : backend_(backend), connections_(std::move(connections)) {}

  std::vector<MetricFamily> Collect() const override {
    Families out;
    add_models(out, backend_);
    add_server(out, backend_, backend_.server.snapshot());
    add_devices(out, backend_);
    const ConnectionCounts c = connections_();
    out.gauge("npud_connections", "Connections that are served", {}, c.open);
    out.gauge("npud_connections_silent", "Connections that have said nothing yet", {}, c.silent);
    out.counter("npud_connections_accepted", "Connections taken", {}, number(c.accepted));
    out.counter("npud_connections_refused", "Connections refused for a limit", {}, number(c.refused));
    out.counter("npud_connections_timed_out", "Connections closed because they said nothing, or no HTTP/2", {},
                number(c.timed_out));
    if (backend_.regions != nullptr) {
      out.gauge("npud_shared_memory_regions", "Registered regions", {}, number(backend_.regions->region_count()));
      out.gauge("npud_shared_memory_in_flight_bytes", "Copies of inputs held for requests", {},
                number(backend_.regions->bytes_in_flight()));
    }
    return out.take();
  }

 private:
  const api::Backend& backend_;
  const std::function<ConnectionCounts()> connections_;
};

Result<std::unique_ptr<Metrics>> Metrics::start(const std::string& address, const api::Backend& backend,
                                                std::function<ConnectionCounts()> connections) {
  std::unique_ptr<Metrics> metrics(new Metrics);
  metrics->collector_ = std::make_shared<Collector>(backend, std::move(connections));
  try {
    metrics->exposer_ = std::make_unique<prometheus::Exposer>(address, 2);
    metrics->exposer_->RegisterCollectable(metrics->collector_);
  } catch (const std::exception& error) {
    return fail(ErrorCode::unavailable, std::format("metrics.address: can't serve on {}: {}", address, error.what()));
  }
  return metrics;
}

}  // namespace npud
