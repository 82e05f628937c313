// SPDX-License-Identifier: Apache-2.0
// One context of Rockchip's runtime: a compiled model with its memory. Every call for it is made on a thread of its
// own, so that a call that never comes back costs this thread and this context, and nobody who waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/tensor.h"
#include "devices/rknn/library.h"

namespace npud::rknn {

// What the runtime says of an input or output, checked: named, with at least one and at most 2^30 elements.
struct TensorAttributes {
  std::string name;
  abi::Type type = abi::kFloat32;
  abi::Format format = abi::kUndefined;
  std::vector<std::int64_t> dims;  // in the order of `format`
  abi::Quantisation quantisation = abi::kQntNone;
  std::int8_t fraction_bits = 0;  // kQntDfp
  int zero_point = 0;             // kQntAffineAsymmetric, as is `scale`
  float scale = 1;
  bool operator==(const TensorAttributes&) const = default;
};

// Contexts in which a call is overdue: their memory isn't provably free before it returns. Thread-safe.
class CondemnedContexts {
 public:
  struct Entry {
    std::string what;  // "model 'a:1': rknn_run has not returned"
    std::uint64_t bytes = 0;
  };
  std::vector<Entry> all() const;

 private:
  friend class Context;
  void add(const void* id, Entry entry);
  void remove(const void* id);
  mutable std::mutex mutex_;
  std::map<const void*, Entry> entries_;
};

struct ContextOptions {
  std::string name;                                 // for messages: "a:1"
  Duration open_timeout{std::chrono::seconds(60)};  // of making one, or a copy
  Duration run_timeout{std::chrono::seconds(10)};   // of one run; also of its end
  std::shared_ptr<CondemnedContexts> condemned;
};

// Used from one thread at a time. After a call was overdue every call fails with `unavailable`; when the overdue one
// comes back its thread destroys the context and gone() becomes true.
class Context {
 public:
  // `model` is a whole .rknn file (model_file.h). Errors are the library's, or `unavailable` for what was overdue.
  static Result<std::unique_ptr<Context>> open(std::shared_ptr<Library> library,
                                               std::shared_ptr<const std::vector<std::byte>> model,
                                               const ContextOptions& options);
  // Another context of the same model that shares its weights; null where the runtime can't.
  Result<std::unique_ptr<Context>> duplicate();
  // Destroys it and waits until it is gone, or run_timeout has passed.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const std::vector<TensorAttributes>& inputs() const;
  const std::vector<TensorAttributes>& outputs() const;
  std::uint64_t weight_bytes() const;
  std::uint64_t own_bytes() const;  // activations, inputs and outputs; of what was allocated the rest

  struct Input {
    Buffer data;  // must live on: shared with the thread
    abi::Type type = abi::kFloat32;
    abi::Format format = abi::kUndefined;
  };
  struct OutputWanted {
    bool as_float = false;  // else in the model's own type
    std::uint64_t bytes = 0;
  };
  // One run on core `core` (where the runtime lets it be chosen; none: as it likes). All inputs and all outputs in
  // order.
  Result<std::vector<Buffer>> run(std::optional<std::uint32_t> core, std::vector<Input> inputs,
                                  std::vector<OutputWanted> outputs);

  bool condemned() const;
  bool gone() const;  // what was condemned has given its memory back

 private:
  struct State;
  explicit Context(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State> state_;
};

// What it would take, without taking it: a context for information only. nullopt: this runtime doesn't tell.
Result<std::optional<std::uint64_t>> ask_memory(const std::shared_ptr<Library>& library,
                                                std::shared_ptr<const std::vector<std::byte>> model,
                                                const ContextOptions& options);

}  // namespace npud::rknn
