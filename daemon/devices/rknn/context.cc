// SPDX-License-Identifier: Apache-2.0
#include "devices/rknn/context.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <format>
#include <functional>
#include <set>
#include <thread>
#include <utility>

namespace npud::rknn {
namespace {

constexpr std::uint32_t most_tensors = 1024;
constexpr std::uint64_t most_elements = std::uint64_t{1} << 30;

std::uint64_t element_bytes(int type) {
  switch (type) {
    case abi::kFloat32:
    case abi::kInt32:
    case abi::kUint32:
      return 4;
    case abi::kFloat16:
    case abi::kInt16:
    case abi::kUint16:
    case abi::kBfloat16:
      return 2;
    case abi::kInt64:
      return 8;
    default:
      return 1;
  }
}

// The runtime's answer is data like any other: checked before it is used.
Result<TensorAttributes> checked(const abi::TensorAttr& attr, const char* what, std::uint32_t index) {
  auto nonsense = [&](const std::string& why) {
    return fail(ErrorCode::data_loss, std::format("the runtime tells nonsense of {} {}: {}", what, index, why));
  };
  TensorAttributes tensor;
  tensor.name.assign(attr.name, ::strnlen(attr.name, sizeof attr.name));
  if (tensor.name.empty()) tensor.name = std::format("{}{}", what, index);
  if (attr.n_dims == 0 || attr.n_dims > abi::kMaxDims) return nonsense(std::format("{} dimensions", attr.n_dims));
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < attr.n_dims; ++i) {
    if (attr.dims[i] == 0 || attr.dims[i] > most_elements / elements)
      return nonsense(std::format("a dimension of {}", attr.dims[i]));
    elements *= attr.dims[i];
    tensor.dims.push_back(attr.dims[i]);
  }
  if (attr.n_elems != elements)
    return nonsense(std::format("{} elements where its dimensions make {}", attr.n_elems, elements));
  if (attr.type < abi::kFloat32 || attr.type > abi::kBfloat16) return nonsense(std::format("type {}", attr.type));
  if (attr.fmt < abi::kNchw || attr.fmt > abi::kUndefined) return nonsense(std::format("format {}", attr.fmt));
  if (attr.qnt_type < abi::kQntNone || attr.qnt_type > abi::kQntAffineAsymmetric)
    return nonsense(std::format("quantisation {}", attr.qnt_type));
  tensor.type = static_cast<abi::Type>(attr.type);
  tensor.format = static_cast<abi::Format>(attr.fmt);
  tensor.quantisation = static_cast<abi::Quantisation>(attr.qnt_type);
  tensor.fraction_bits = attr.fl;
  tensor.zero_point = attr.zp;
  tensor.scale = attr.scale;
  return tensor;
}

Result<std::vector<TensorAttributes>> ask_tensors(const Library& library, abi::Context handle, int query,
                                                  std::uint32_t count, const char* what) {
  std::vector<TensorAttributes> tensors;
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < count; ++i) {
    abi::TensorAttr attr{};
    attr.index = i;
    if (const int status = library.query(handle, query, &attr, sizeof attr); status != abi::kSuccess)
      return std::unexpected(library.error("rknn_query of a tensor", status));
    auto tensor = checked(attr, what, i);
    if (!tensor) return std::unexpected(tensor.error());
    if (!names.insert(tensor->name).second)
      return fail(ErrorCode::data_loss, std::format("the model has the {} '{}' twice", what, tensor->name));
    tensors.push_back(std::move(*tensor));
  }
  return tensors;
}

std::uint64_t bytes_of(const std::vector<TensorAttributes>& tensors) {
  std::uint64_t bytes = 0;
  for (const TensorAttributes& tensor : tensors) {
    std::uint64_t elements = 1;
    for (const std::int64_t dim : tensor.dims) elements *= static_cast<std::uint64_t>(dim);
    bytes += elements * element_bytes(tensor.type);
  }
  return bytes;
}

int core_mask(std::optional<std::uint32_t> core) { return core ? 1 << *core : 0; }

}  // namespace

std::vector<CondemnedContexts::Entry> CondemnedContexts::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (const auto& [id, entry] : entries_) entries.push_back(entry);
  return entries;
}

void CondemnedContexts::add(const void* id, Entry entry) {
  const std::lock_guard lock(mutex_);
  entries_[id] = std::move(entry);
}

void CondemnedContexts::remove(const void* id) {
  const std::lock_guard lock(mutex_);
  entries_.erase(id);
}

// Shared by the object and its thread; the thread outlives the object when a call is overdue.
struct Context::State : std::enable_shared_from_this<Context::State> {
  std::shared_ptr<Library> library;
  ContextOptions options;

  // The thread's alone while a task runs; else of who calls.
  abi::Context handle = 0;
  std::vector<TensorAttributes> inputs, outputs;
  std::atomic<std::uint64_t> weight_bytes{0}, own_bytes{0};  // also told while a call is overdue
  int mask = 0;

  std::mutex mutex;  // all below
  std::condition_variable changed;
  std::function<Result<>()> task;
  std::function<void()> undo;  // after a task that nobody waited for to its end
  std::optional<Result<>> outcome;
  bool stopping = false, condemned = false, gone = false;

  static std::shared_ptr<State> start(std::shared_ptr<Library> library, const ContextOptions& options) {
    auto state = std::make_shared<State>();
    state->library = std::move(library);
    state->options = options;
    std::thread([state] { state->serve(); }).detach();
    return state;
  }

  static Result<> guarded(const std::function<Result<>()>& work) {
    try {
      return work();
    } catch (const std::exception& e) {
      return fail(ErrorCode::internal, std::format("a call of the runtime threw an exception: {}", e.what()));
    }
  }

  void serve() {
    std::unique_lock lock(mutex);
    while (!condemned) {
      changed.wait(lock, [&] { return task || stopping; });
      if (!task) break;
      const auto work = std::exchange(task, nullptr);
      lock.unlock();
      Result<> result = guarded(work);
      lock.lock();
      outcome = std::move(result);
      changed.notify_all();
    }
    const auto late = condemned ? std::exchange(undo, nullptr) : nullptr;
    lock.unlock();
    if (late) late();
    if (handle != 0) library->destroy(handle);
    lock.lock();
    handle = 0;
    gone = true;
    if (options.condemned) options.condemned->remove(this);
    changed.notify_all();
  }

  // Runs `work` on the thread. It captures nothing of the caller's that may go.
  Result<> call(const char* what, Duration timeout, std::function<Result<>()> work,
                std::function<void()> undo_late = {}) {
    std::unique_lock lock(mutex);
    if (condemned) return std::unexpected(overdue_error(what));
    outcome.reset();
    task = std::move(work);
    undo = std::move(undo_late);
    changed.notify_all();
    if (!changed.wait_for(lock, timeout, [&] { return outcome.has_value(); })) {
      condemn(what);
      return std::unexpected(overdue_error(what));
    }
    undo = nullptr;
    return *std::exchange(outcome, std::nullopt);
  }

  // mutex held
  void condemn(const char* what) {
    condemned = true;
    if (options.condemned)
      options.condemned->add(
          this, {std::format("model '{}': {} has not returned", options.name, what), weight_bytes + own_bytes});
  }

  Error overdue_error(const char* what) const {
    return Error{
        ErrorCode::unavailable,
        std::format(
            "{} didn't return in time [{}]; its context is given up until it does; restart npud if it never does", what,
            library->versions()),
        {},
        {},
        {}};
  }

  // On the thread: all that is to be known of a context that was just made.
  Result<> ask(bool shares_weights) {
    abi::SdkVersion version{};
    if (const int status = library->query(handle, abi::kQuerySdkVersion, &version, sizeof version);
        status != abi::kSuccess)
      return std::unexpected(library->error("rknn_query of the version", status));
    if (auto ok = library->learn(version); !ok) return ok;
    abi::InOutNum count{};
    if (const int status = library->query(handle, abi::kQueryInOutNum, &count, sizeof count); status != abi::kSuccess)
      return std::unexpected(library->error("rknn_query of the number of tensors", status));
    if (count.inputs == 0 || count.outputs == 0 || count.inputs > most_tensors || count.outputs > most_tensors)
      return fail(ErrorCode::data_loss,
                  std::format("the runtime tells of {} inputs and {} outputs", count.inputs, count.outputs));
    auto ins = ask_tensors(*library, handle, abi::kQueryInputAttr, count.inputs, "input");
    if (!ins) return std::unexpected(ins.error());
    auto outs = ask_tensors(*library, handle, abi::kQueryOutputAttr, count.outputs, "output");
    if (!outs) return std::unexpected(outs.error());
    abi::MemSize memory{};
    if (const int status = library->query(handle, abi::kQueryMemSize, &memory, sizeof memory); status != abi::kSuccess)
      return std::unexpected(library->error("rknn_query of the memory", status));
    inputs = std::move(*ins);
    outputs = std::move(*outs);
    const std::uint64_t told = memory.internal_bytes + bytes_of(inputs) + bytes_of(outputs);
    weight_bytes = shares_weights ? 0 : memory.weight_bytes;
    // What was allocated in all is known of a context that shares nothing.
    own_bytes =
        shares_weights || memory.dma_bytes < weight_bytes ? told : std::max(told, memory.dma_bytes - weight_bytes);
    return {};
  }
};

Result<std::unique_ptr<Context>> Context::open(std::shared_ptr<Library> library,
                                               std::shared_ptr<const std::vector<std::byte>> model,
                                               const ContextOptions& options) {
  std::unique_ptr<Context> context(new Context(State::start(std::move(library), options)));
  State* state = context->state_.get();  // lives as long as its thread
  auto opened = state->call("rknn_init", options.open_timeout, [state, model]() -> Result<> {
    // The interface isn't const; no runtime is known to write into the file.
    const int status = state->library->init(&state->handle, const_cast<std::byte*>(model->data()),
                                            static_cast<std::uint32_t>(model->size()), 0, nullptr);
    if (status != abi::kSuccess) {
      state->handle = 0;
      return std::unexpected(state->library->error("rknn_init", status));
    }
    return state->ask(false);
  });
  if (!opened) return std::unexpected(opened.error());
  return context;
}

Result<std::unique_ptr<Context>> Context::duplicate() {
  if (state_->library->dup_context == nullptr) return nullptr;
  std::unique_ptr<Context> copy(new Context(State::start(state_->library, state_->options)));
  auto handle = std::make_shared<abi::Context>(0);
  State* from = state_.get();
  auto made = from->call(
      "rknn_dup_context", from->options.open_timeout,
      [from, handle]() -> Result<> {
        const int status = from->library->dup_context(&from->handle, handle.get());
        if (status == abi::kSuccess) return {};
        *handle = 0;
        return std::unexpected(from->library->error("rknn_dup_context", status));
      },
      [library = from->library, handle] {
        if (*handle != 0) library->destroy(*handle);
      });
  if (!made) return std::unexpected(made.error());
  State* to = copy->state_.get();
  auto asked = to->call("rknn_query", to->options.open_timeout, [to, handle]() -> Result<> {
    to->handle = *handle;
    return to->ask(true);
  });
  if (!asked) return std::unexpected(asked.error());
  if (to->inputs != from->inputs || to->outputs != from->outputs)
    return fail(ErrorCode::data_loss, "a copy of the context has other tensors than the context itself");
  return copy;
}

Context::~Context() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  if (state_->condemned) return;
  if (!state_->changed.wait_for(lock, state_->options.run_timeout, [&] { return state_->gone; }))
    state_->condemn("rknn_destroy");
}

const std::vector<TensorAttributes>& Context::inputs() const { return state_->inputs; }
const std::vector<TensorAttributes>& Context::outputs() const { return state_->outputs; }
std::uint64_t Context::weight_bytes() const { return state_->weight_bytes; }
std::uint64_t Context::own_bytes() const { return state_->own_bytes; }

bool Context::condemned() const {
  const std::lock_guard lock(state_->mutex);
  return state_->condemned;
}

bool Context::gone() const {
  const std::lock_guard lock(state_->mutex);
  return state_->gone;
}

Result<std::vector<Buffer>> Context::run(std::optional<std::uint32_t> core, std::vector<Input> inputs,
                                         std::vector<OutputWanted> outputs) {
  if (inputs.size() != state_->inputs.size() || outputs.size() != state_->outputs.size())
    return fail(ErrorCode::internal, "a run needs all inputs and outputs of the model");
  struct Work {
    std::vector<Input> inputs;
    std::vector<OutputWanted> wanted;
    std::vector<Buffer> results;
  };
  auto work = std::make_shared<Work>(std::move(inputs), std::move(outputs));
  for (const OutputWanted& wanted : work->wanted) work->results.push_back(Buffer::allocate(wanted.bytes));

  State* state = state_.get();
  auto ran = state->call("rknn_run", state->options.run_timeout, [state, work, mask = core_mask(core)]() -> Result<> {
    const Library& library = *state->library;
    if (library.set_core_mask != nullptr && mask != state->mask) {
      if (const int status = library.set_core_mask(state->handle, mask); status != abi::kSuccess)
        return std::unexpected(library.error(std::format("rknn_set_core_mask({})", mask).c_str(), status));
      state->mask = mask;
    }
    std::vector<abi::Input> ins;
    for (Input& input : work->inputs) {
      ins.push_back({static_cast<std::uint32_t>(ins.size()), input.data.bytes().data(),
                     static_cast<std::uint32_t>(input.data.size_bytes()), 0, input.type, input.format});
    }
    if (const int status = library.inputs_set(state->handle, static_cast<std::uint32_t>(ins.size()), ins.data());
        status != abi::kSuccess)
      return std::unexpected(library.error("rknn_inputs_set", status));
    if (const int status = library.run(state->handle, nullptr); status != abi::kSuccess)
      return std::unexpected(library.error("rknn_run", status));
    std::vector<abi::Output> outs;
    for (std::size_t i = 0; i < work->results.size(); ++i) {
      outs.push_back({work->wanted[i].as_float, 1, static_cast<std::uint32_t>(i), work->results[i].bytes().data(),
                      static_cast<std::uint32_t>(work->wanted[i].bytes)});
    }
    const auto count = static_cast<std::uint32_t>(outs.size());
    if (const int status = library.outputs_get(state->handle, count, outs.data(), nullptr); status != abi::kSuccess)
      return std::unexpected(library.error("rknn_outputs_get", status));
    Result<> whole;
    for (std::size_t i = 0; i < outs.size(); ++i) {
      if (outs[i].buf != work->results[i].bytes().data() || outs[i].size != work->wanted[i].bytes) {
        whole = fail(ErrorCode::data_loss,
                     std::format("output '{}' came with {} bytes instead of {} [{}]", state->outputs[i].name,
                                 outs[i].size, work->wanted[i].bytes, library.versions()));
      }
    }
    if (const int status = library.outputs_release(state->handle, count, outs.data()); status != abi::kSuccess)
      return std::unexpected(library.error("rknn_outputs_release", status));
    return whole;
  });
  if (!ran) return std::unexpected(ran.error());
  return std::move(work->results);
}

Result<std::optional<std::uint64_t>> ask_memory(const std::shared_ptr<Library>& library,
                                                std::shared_ptr<const std::vector<std::byte>> model,
                                                const ContextOptions& options) {
  // On a thread of its own like every call; it is gone with the answer.
  struct Answer {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<std::optional<std::uint64_t>> bytes;
  };
  auto answer = std::make_shared<Answer>();
  std::thread([library, model, answer] {
    std::optional<std::uint64_t> bytes;
    abi::Context handle = 0;
    if (library->init(&handle, const_cast<std::byte*>(model->data()), static_cast<std::uint32_t>(model->size()),
                      abi::kFlagCollectModelInfoOnly, nullptr) == abi::kSuccess) {
      abi::MemSize memory{};
      if (library->query(handle, abi::kQueryMemSize, &memory, sizeof memory) == abi::kSuccess)
        bytes = std::uint64_t{memory.weight_bytes} + memory.internal_bytes;
      library->destroy(handle);
    }
    const std::lock_guard lock(answer->mutex);
    answer->bytes = bytes;
    answer->changed.notify_all();
  }).detach();
  std::unique_lock lock(answer->mutex);
  if (!answer->changed.wait_for(lock, options.open_timeout, [&] { return answer->bytes.has_value(); })) {
    return fail(ErrorCode::unavailable,
                std::format("rknn_init, only asked for the memory it would take, didn't return in time [{}]",
                            library->versions()));
  }
  return *answer->bytes;
}

}  // namespace npud::rknn
