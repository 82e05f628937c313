// SPDX-License-Identifier: Apache-2.0
#include "engine/offload.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <format>
#include <fstream>
#include <functional>

#include "engine/offload_cache.h"
#include "engine/offload_graph.h"
#include "engine/offload_operators.h"

namespace npud {
namespace {

// Goes with its files; only this user can look in. Named as snapshots are, so that what a killed daemon leaves is
// removed with theirs.
class ScratchDirectory {
 public:
  static Result<std::unique_ptr<ScratchDirectory>> make(const std::filesystem::path& where) {
    std::string name = (where / "model-offload-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      return fail(ErrorCode::internal,
                  std::format("can't make a directory in {}: {}", where.string(), std::strerror(errno)));
    }
    auto made = std::make_unique<ScratchDirectory>();
    made->path_ = name;
    return made;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Result<onnx::ModelProto> optimised_graph(const ModelSource& source, const SessionSettings& settings,
                                         const std::filesystem::path& file, Runtime& runtime, HostDevice& host) {
  OptimizedGraphWriter writer(file);
  if (auto session = Session::create(runtime, host, source.model_file(), settings, &writer); !session)
    return std::unexpected(session.error());
  std::ifstream in(file, std::ios::binary);
  onnx::ModelProto model;
  if (!in || !model.ParseFromIstream(&in))
    return fail(ErrorCode::internal, "the graph that ONNX Runtime optimised can't be read back");
  return model;
}

Result<> write_graph(const onnx::ModelProto& model, const std::filesystem::path& file) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  if (!model.SerializeToOstream(&out) || !out.flush()) {
    return fail(ErrorCode::resource_exhausted, std::format("there is no room for a graph of {} bytes in {}",
                                                           model.ByteSizeLong(), file.parent_path().string()));
  }
  return {};
}

// All that the graph depends on, but for the hardware's limits and this code, which the cache's own version stands for.
Result<std::string> key_of(const ModelSource& source, const ModelPlan& plan, const std::string& device) {
  OffloadKey key;
  key.add("offloaded graph").add(Runtime::version()).add(device);
  key.add(plan.offload.precision == OffloadPrecision::int8 ? "int8" : "fp16");
  for (const auto* patterns : {&plan.offload.host_nodes, &plan.offload.int8_nodes, &plan.offload.fp16_nodes}) {
    key.add(std::to_string(patterns->size()));
    for (const std::string& pattern : *patterns) key.add(pattern);
  }
  for (const auto& file : source.files()) {
    if (auto ok = key.add_file(file); !ok) return std::unexpected(ok.error());
  }
  return key.hex();
}

// From the cache, or made and put there. What is wrong with the cache costs time and a notice, never the model.
Result<OffloadedGraph> cached_graph(const ModelSource& source, const ModelPlan& plan, const NpuTarget& target,
                                    const std::function<Result<OffloadedGraph>()>& make) {
  if (target.cache() == nullptr) return make();
  const auto key = key_of(source, plan, target.name());
  if (!key) return std::unexpected(key.error());
  auto found = target.cache()->find(*key);
  if (!found) {
    target.notice(found.error().message);
  } else if (*found) {
    return std::move(**found);
  }
  auto made = make();
  if (!made) return made;
  if (auto stored = target.cache()->store(*key, *made); !stored)
    target.notice(std::format("a packed model isn't kept: {}", stored.error().message));
  return made;
}

std::string why_nothing(const OffloadedGraph& graph) {
  if (graph.placements.empty()) return "it has no MatMul, Gemm or Conv";
  std::string why;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, graph.placements.size()); ++i) {
    why += std::format("{}{} '{}': {}", why.empty() ? "" : "; ", graph.placements[i].op, graph.placements[i].name,
                       graph.placements[i].reason);
  }
  return why;
}

std::optional<rknpu::Verify> verify_of(const OffloadSettings& settings) {
  if (!settings.verify) return std::nullopt;
  switch (*settings.verify) {
    case OffloadVerify::off:
      return rknpu::Verify::off;
    case OffloadVerify::sampled:
      return rknpu::Verify::sampled;
    case OffloadVerify::always:
      return rknpu::Verify::always;
  }
  return std::nullopt;
}

}  // namespace

Offload::Offload(std::unique_ptr<Session> session, std::shared_ptr<NpuProgram> program,
                 std::vector<NodePlacement> placements, bool host_nodes, bool automatic, PriorityClass best_class,
                 NpuTarget& target)
    : session_(std::move(session)),
      program_(std::move(program)),
      placements_(std::move(placements)),
      automatic_(automatic),
      best_class_(best_class),
      target_(target),
      path_(host_nodes ? target.name() + "+host" : target.name()) {}

Offload::~Offload() { target_.arbiter().forget(*program_); }

Result<std::unique_ptr<Offload>> Offload::create(const std::string& name, const ModelSource& source,
                                                 const ModelPlan& plan, const std::filesystem::path& scratch,
                                                 Runtime& runtime, HostDevice& host, NpuTarget& target) {
  std::error_code failed;
  const std::filesystem::path where = scratch.empty() ? std::filesystem::temp_directory_path(failed) : scratch;
  auto directory = ScratchDirectory::make(where);
  if (!directory) return std::unexpected(directory.error());
  auto graph = cached_graph(source, plan, target, [&]() -> Result<OffloadedGraph> {
    auto model = optimised_graph(source, plan.session, (*directory)->path() / "optimised.onnx", runtime, host);
    if (!model) return std::unexpected(model.error());
    return offload_graph(std::move(*model), plan.offload, target.name());
  });
  if (!graph) return std::unexpected(graph.error());
  if (graph->nodes.empty()) {
    if (plan.offload.automatic) return nullptr;
    return fail(ErrorCode::invalid_argument,
                std::format("nothing of it can run on {}: {}", target.name(), why_nothing(*graph)));
  }
  const std::filesystem::path file = (*directory)->path() / "offloaded.onnx";
  if (auto ok = write_graph(graph->model, file); !ok) return std::unexpected(ok.error());
  bool host_nodes = false;
  for (const auto& node : graph->model.graph().node()) host_nodes = host_nodes || node.domain() != "npud";
  graph->model.Clear();
  OffloadOperators operators;
  auto session = Session::create(runtime, host, file, plan.session, &operators);
  if (!session) return std::unexpected(session.error());
  auto program = std::make_shared<NpuProgram>(name, std::move(graph->nodes), verify_of(plan.offload),
                                              plan.residence.pinned, target.device(), target.clock());
  if (const std::uint64_t most = target.device().space_bytes(); program->packed_bytes() > most) {
    if (plan.offload.automatic) return nullptr;
    return fail(
        ErrorCode::resource_exhausted,
        std::format("its weights take {} bytes, and an address space of {} has {}; leave some nodes to the host "
                    "(npud.host_nodes)",
                    program->packed_bytes(), target.name(), most));
  }
  return std::unique_ptr<Offload>(new Offload(std::move(*session), std::move(program), std::move(graph->placements),
                                              host_nodes, plan.offload.automatic, plan.residence.best_class, target));
}

Result<> Offload::bring_in(TenantId tenant) {
  if (auto refusal = target_.admit()) {
    auto host = on_host(refusal->reason, refusal->rearm_after);
    return host ? Result<>{} : std::unexpected(host.error());
  }
  Job job{
      .tenant = tenant, .priority_class = PriorityClass::batch, .program = program_, .run = [] { return Result<>{}; }};
  auto report = target_.arbiter().submit_and_wait(std::move(job));
  if (report) return {};
  if (report.error().code == ErrorCode::resource_exhausted) {
    // Too large for what pinned programs leave is the configuration's fault; a full device may have room later.
    if (!automatic_ && !program_->lacked_room()) return std::unexpected(report.error());
    auto host = on_host(report.error().message, {});
    return host ? Result<>{} : std::unexpected(host.error());
  }
  const auto refusal = struck(tenant, report.error().message);
  auto host = on_host(refusal.reason, refusal.rearm_after);
  return host ? Result<>{} : std::unexpected(host.error());
}

Result<Offload::Attempt> Offload::on_host(std::string reason, std::optional<Duration> rearm_after) const {
  if (target_.host_fallback()) return Attempt{{}, std::move(reason), rearm_after};
  Error error{ErrorCode::unavailable,
              std::format("{} can't answer and the host may not stand in: {}", target_.name(), reason),
              rearm_after,
              {},
              {}};
  return std::unexpected(std::move(error));
}

NpuTarget::Refusal Offload::struck(TenantId tenant, const std::string& reason) {
  if (auto refusal = target_.failed(reason)) return *refusal;
  return rest(tenant, reason + "; the NPU is right otherwise, so only these requests leave it alone");
}

NpuTarget::Refusal Offload::rest(TenantId tenant, std::string reason) {
  const std::lock_guard lock(rests_mutex_);
  const TimePoint now = target_.clock().now();
  Rest& rest = rests_.try_emplace(tenant, Rest{{}, {}, target_.first_backoff()}).first->second;
  rest.reason = std::move(reason);
  rest.until = now + rest.next;
  NpuTarget::Refusal refusal{rest.reason, rest.next};
  rest.next = std::min(2 * rest.next, target_.most_backoff());
  return refusal;
}

std::optional<NpuTarget::Refusal> Offload::resting(TenantId tenant) {
  const std::lock_guard lock(rests_mutex_);
  const auto rest = rests_.find(tenant);
  if (rest == rests_.end()) return std::nullopt;
  const TimePoint now = target_.clock().now();
  if (now >= rest->second.until) return std::nullopt;
  return NpuTarget::Refusal{rest->second.reason, rest->second.until - now};
}

Result<Offload::Attempt> Offload::run(ExecutionContext& context, std::span<const Tensor> inputs,
                                      std::span<const OutputRequest> outputs) {
  const TenantId tenant = context.tenant();
  if (auto rest = resting(tenant)) return on_host(std::move(rest->reason), rest->rearm_after);
  if (auto refusal = target_.admit()) return on_host(std::move(refusal->reason), refusal->rearm_after);
  OffloadRun run(context, std::max(context.priority_class(), best_class_), program_, target_.arbiter());
  auto result = session_->run(inputs, outputs, context.cancelled());
  if (result) {
    target_.succeeded();
    const std::lock_guard lock(rests_mutex_);
    rests_.erase(tenant);
    return Attempt{std::move(*result), {}, {}};
  }
  // Without a failed job it is the request's own: what the host's session would say too.
  if (!run.failure()) return std::unexpected(result.error());
  const auto& [error, in_job] = *run.failure();
  if (context.cancelled().stop_requested()) return fail(ErrorCode::cancelled, "it was cancelled while it ran");
  if (!in_job && (error.code == ErrorCode::cancelled || error.code == ErrorCode::deadline_exceeded))
    return std::unexpected(error);
  // Others would be made to leave in vain each time.
  if (error.code == ErrorCode::resource_exhausted && !in_job && program_->lacked_room()) {
    auto refusal = rest(tenant, error.message);
    return on_host(std::move(refusal.reason), refusal.rearm_after);
  }
  // A value beyond fp16, a size without a plan, no room for activations: nothing is said against the device.
  if (error.code == ErrorCode::resource_exhausted || (in_job && error.code == ErrorCode::invalid_argument))
    return on_host(error.message, {});
  auto refusal = struck(tenant, error.message);
  return on_host(std::move(refusal.reason), refusal.rearm_after);
}

std::vector<NodePlacement> Offload::placements() const {
  std::vector<NodePlacement> told = placements_;
  for (std::size_t i = 0; i < program_->size(); ++i) program_->tell(i, told[i]);
  return told;
}

}  // namespace npud
