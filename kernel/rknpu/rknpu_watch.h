/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_WATCH_H
#define RKNPU_WATCH_H

#include <linux/minmax.h>
#include <linux/time64.h>
#include <linux/types.h>

struct rknpu_device;

#define RKNPU_WATCH_MS		50	/* between two looks at a running core, in case its interrupt got lost */

static inline u64 rknpu_ms_to_ns(unsigned int n)
{
	return (u64)n * NSEC_PER_MSEC;
}

static inline void rknpu_note_next(u64 *next, u64 at)
{
	*next = min(*next, at);
}

/*
 * Looks at all running jobs, ends those that are over, and lowers *next to when the thread must look again.
 * On the scheduler's thread only.
 */
void rknpu_watch_jobs(struct rknpu_device *rdev, u64 now, u64 *next);

#endif /* RKNPU_WATCH_H */
