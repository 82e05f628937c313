/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_RECOVER_H
#define RKNPU_RECOVER_H

#include <linux/types.h>

#include "rknpu_job.h"

struct rknpu_core;
struct rknpu_device;
struct rknpu_fault;

/* All on the scheduler's thread only. */

/* The core takes no more jobs. When it was the last one, the device is dead and says so. */
void rknpu_core_set_dead(struct rknpu_core *core);
/*
 * Stops cores, all of them before any MMU is touched: those of a gang may share one.
 * Where another job goes on behind a core's MMU that stays as it is,
 * and nothing new starts behind it until that job is over.
 */
void rknpu_stop_cores(struct rknpu_device *rdev, u32 cores);
/* The job's cores are stopped, or done and drained: they are free for others. */
void rknpu_job_release_cores(struct rknpu_job *job);
/* Stops all cores of the job, the guilty one and those that worked with it, then ends it. */
void rknpu_job_fail(struct rknpu_job *job, enum rknpu_job_state to, int result);
/*
 * What rdev->last_resort asks for, as soon as no core has a job.
 * False if it must wait, and nothing may start until then.
 */
bool rknpu_last_resort(struct rknpu_device *rdev);
/* The job's failure by this core. @raw is INT_RAW, for the log. The core may be dead afterwards. */
void rknpu_core_timed_out(struct rknpu_core *core, const char *why, u32 raw, int result);
void rknpu_core_page_fault(struct rknpu_core *core, const struct rknpu_fault *fault);
/*
 * Says that no core works any more, if that came about since the last call.
 * On the scheduler's thread, when the jobs have ended.
 */
void rknpu_tell_dead(struct rknpu_device *rdev);

#endif /* RKNPU_RECOVER_H */
