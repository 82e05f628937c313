// SPDX-License-Identifier: Apache-2.0
// FairQueue and Residency put together: the one decision that DeviceArbiter and the simulation make whenever a core is
// free.
#pragma once

#include "core/fair_queue.h"
#include "core/residency.h"

namespace npud {

// What to run now on a free core, if anything; room is kept for (or released from) the program that Choice::wait_for
// names. The caller takes the job from the queue and, if its program is cold, begins to bring it in.
[[nodiscard]] FairQueue::Choice next_job(const FairQueue& queue, Residency& residency, TimePoint now);

}  // namespace npud
