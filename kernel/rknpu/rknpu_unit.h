/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_UNIT_H
#define RKNPU_UNIT_H

#include <linux/types.h>

struct rknpu_device;
struct rknpu_job;
struct rknpu_mmu_unit;

/*
 * On the scheduler's thread, the unit's cores powered: makes the job's space what @unit translates by.
 * If it was another file's before, what its cores know of that is wiped first.
 * Once for each core of a job, with rknpu_unit_leave() when the core is off it.
 */
int rknpu_unit_take(struct rknpu_mmu_unit *unit, struct rknpu_job *job);
void rknpu_unit_leave(struct rknpu_mmu_unit *unit);
/* Under rdev->lock: until when it waits for the next job of the space it has; 0 if it doesn't. */
u64 rknpu_unit_linger_end(const struct rknpu_mmu_unit *unit);
/* Lowers *next to when a unit stops waiting while others are queued. */
void rknpu_note_linger(struct rknpu_device *rdev, u64 now, u64 *next);

#endif /* RKNPU_UNIT_H */
