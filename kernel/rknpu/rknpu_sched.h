/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_SCHED_H
#define RKNPU_SCHED_H

#include <linux/types.h>

struct rknpu_device;
struct rknpu_space;

int rknpu_sched_init(struct rknpu_device *rdev);
/* No core may run; all jobs must have ended. */
void rknpu_sched_fini(struct rknpu_device *rdev);
/* Something changed: look. Any context. */
void rknpu_sched_kick(struct rknpu_device *rdev);
/*
 * For those who found that @units, a bit each, don't let go of what they know of @space:
 * waits until what runs behind them now has ended, which its time limit bounds, and they were made to.
 * Returns the cores behind those that didn't, whatever was done.
 * Not from the worker.
 */
u32 rknpu_sched_forget(struct rknpu_device *rdev, const struct rknpu_space *space, u32 units);
/* Resets all cores that run nothing, dead ones, too, which live again if they answer. */
void rknpu_sched_revive(struct rknpu_device *rdev);
/*
 * Nothing starts until rknpu_sched_resume() has been called as often.
 * True if nothing runs any more; the thread leaves the hardware alone then.
 * False if that took longer than @ms.
 */
bool rknpu_sched_pause(struct rknpu_device *rdev, unsigned int ms);
/* While paused: what still runs ends, by a reset. Nothing runs any more when it returns. */
void rknpu_sched_end_running(struct rknpu_device *rdev);
void rknpu_sched_resume(struct rknpu_device *rdev);
/*
 * The hardware goes: fails what is there, starts nothing any more.
 * When it returns no ioctl is under way, nor will be.
 */
void rknpu_sched_stop(struct rknpu_device *rdev);

#endif /* RKNPU_SCHED_H */
