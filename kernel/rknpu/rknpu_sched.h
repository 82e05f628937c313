/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_SCHED_H
#define RKNPU_SCHED_H

#include <linux/types.h>

struct rknpu_device;

int rknpu_sched_init(struct rknpu_device *rdev);
/* No core may run; all jobs must have ended. */
void rknpu_sched_fini(struct rknpu_device *rdev);
/* Something changed: look. Any context. */
void rknpu_sched_kick(struct rknpu_device *rdev);
/*
 * Has @cores stopped and reset, with whatever runs there, and waits for it. For those who need to know that a core has no way to memory any
 * more. Not from the worker.
 */
void rknpu_sched_reset_cores(struct rknpu_device *rdev, u32 cores);
/* Resets all cores that run nothing, dead ones, too, which live again if they answer. */
void rknpu_sched_revive(struct rknpu_device *rdev);
/* The hardware goes: fails what is there, starts nothing any more. */
void rknpu_sched_stop(struct rknpu_device *rdev);

#endif /* RKNPU_SCHED_H */
