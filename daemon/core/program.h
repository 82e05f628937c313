// SPDX-License-Identifier: Apache-2.0
// Something that can be made resident on a device: a session with its weights, a packed GEMM, a compiled model.
#pragma once

#include <cstdint>
#include <string>

#include "core/clock.h"
#include "core/error.h"

namespace npud {

struct Footprint {
  std::uint32_t slots = 1;  // hardware contexts (or configured sessions) it takes while resident
  std::uint64_t bytes = 0;  // of aperture, while resident
};

// Implemented by the engine, driven by the arbiter's residency, which never calls two of these at once for one program.
// Neither runs under a core lock. A program doesn't know whether it is resident: residency does.
class Program {
 public:
  virtual ~Program() = default;
  virtual const std::string& name() const = 0;       // "model:version" or "model:version/node"
  virtual Footprint footprint() const = 0;           // best knowledge; may be corrected after make_resident()
  virtual bool pinned() const = 0;                   // configuration says it never leaves
  virtual Duration bring_back_estimate() const = 0;  // upload + create, measured once it was done

  // Uploads, creates, and (on a device that has been seen to lie) runs the golden canary. On failure nothing is left on
  // the device.
  virtual Result<> make_resident() = 0;
  // When it returns, every byte and the slot are provably free.
  virtual void evict() noexcept = 0;
};

}  // namespace npud
