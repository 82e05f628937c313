// SPDX-License-Identifier: Apache-2.0
// A request's tensors against a model's signature, and a run's outputs against what was asked for.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/request.h"
#include "core/servable.h"

namespace npud {

// What a batch needs to know of a request that fits.
struct InputSummary {
  std::int64_t batch_elements = 1;  // the batch dimension where the model has one
  std::uint64_t shape = 0;          // equal for requests whose inputs may be joined along the batch dimension
};

// invalid_argument names the tensor, what came and what was expected: unknown, double or missing inputs, data type,
// rank, dimensions, batch size, byte count, broken BYTES, unknown or double outputs.
[[nodiscard]] Result<InputSummary> check_inputs(const Signature& signature, const Request& request);

// Brings a run's outputs into the request's order, leaves out what wasn't asked for, and copies into the client's
// memory what the run didn't put there itself. Afterwards outputs with a destination have empty data.
[[nodiscard]] Result<> finish_outputs(const Request& request, Response& response);

}  // namespace npud
