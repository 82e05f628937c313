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
 * Has @cores stopped and reset, with what runs there if it began before @since_ns, and waits for it. For those who saw at that time that a
 * core won't forget what it knows of memory. What began later is another job, which has no part in that: look again. Not from the worker.
 */
void rknpu_sched_reset_cores(struct rknpu_device *rdev, u32 cores, u64 since_ns);
/* Resets all cores that run nothing, dead ones, too, which live again if they answer. */
void rknpu_sched_revive(struct rknpu_device *rdev);
/*
 * Nothing starts until rknpu_sched_resume() has been called as often. True if nothing runs any more; the thread leaves the hardware alone then.
 * False if that took longer than @ms.
 */
bool rknpu_sched_pause(struct rknpu_device *rdev, unsigned int ms);
void rknpu_sched_resume(struct rknpu_device *rdev);
/* The hardware goes: fails what is there, starts nothing any more. */
void rknpu_sched_stop(struct rknpu_device *rdev);

#endif /* RKNPU_SCHED_H */
