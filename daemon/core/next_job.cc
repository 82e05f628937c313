// SPDX-License-Identifier: Apache-2.0
#include "core/next_job.h"

namespace npud {

FairQueue::Choice next_job(const FairQueue& queue, Residency& residency, TimePoint now) {
  const auto place = [&](ProgramKey key) { return residency.place(key, now); };
  // Room that was kept for a program whose jobs have all gone is nobody's.
  if (queue.waiting_for(residency.reserved()) == 0) residency.reserve(0, now);
  FairQueue::Choice choice = queue.choose(now, place, residency.reserved());
  const bool changed = choice.wait_for != residency.reserved();
  if (changed || choice.wait_for != 0) residency.reserve(choice.wait_for, now);
  // Keeping room for one changes what the others may do: decide again with that in force.
  if (changed) choice = queue.choose(now, place, residency.reserved());
  return choice;
}

}  // namespace npud
