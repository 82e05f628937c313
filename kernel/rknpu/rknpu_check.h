/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_CHECK_H
#define RKNPU_CHECK_H

#include <linux/types.h>

#include "rknpu_soc.h"
#include "../include/uapi/drm/rknpu_drm.h"

/*
 * What user space may ask for, as predicates without state.
 * Errors are negative errnos; @why then says in a few words what was wrong, for who debugs a client.
 */

/*
 * Bytes of a buffer, rounded up to pages.
 * -EINVAL: nothing; -ENOSPC: more than any address space has.
 */
int rknpu_check_mem_size(u64 size, u64 *rounded);
/* How many of [offset, offset + bytes) lie in a buffer. */
u64 rknpu_clamp_range(u64 offset, u64 bytes, u64 buffer_bytes);
/* Tasks [start, start + number) within a task array of @buffer_bytes. */
int rknpu_check_tasks(u32 start, u32 number, u64 buffer_bytes);
/* One task that starts or ends a chunk. */
int rknpu_check_task(const struct rknpu_soc *soc, const struct rknpu_task *task, const char **why);
/* Flags, core mask and addresses of a submit. */
int rknpu_check_submit(const struct rknpu_submit *args, u32 all_cores, const char **why);
/*
 * The priority that a job gets for the one it asks for:
 * no more urgent than @most_urgent, and than 0 without the privilege.
 * The vendor's driver takes any value and ignores it, so callers expect no error.
 */
s32 rknpu_clamp_priority(s32 priority, s32 most_urgent, bool privileged);

/* The value of PC_DATA_AMOUNT for a task's regcfg_amount: ceil((amount + 4) / scale) - 1. */
u32 rknpu_pc_amount(const struct rknpu_soc *soc, u32 regcfg_amount);

/* What each core of a job runs. */
struct rknpu_split {
	u32 cores;	/* the cores, or with @any those that may be chosen from */
	bool any;	/* one core, whichever */
	unsigned int parts;
	u32 start[RKNPU_MAX_CORES];	/* of the n-th core in @cores */
	u32 number[RKNPU_MAX_CORES];
};

/*
 * Which tasks go to which core.
 * A single core takes its own subcore_task entry, or the first that isn't empty,
 * or task_start and task_number; two cores take entries 0 and 1, three take 2 to 4.
 * Cores of a gang without tasks are left out.
 */
int rknpu_split_job(const struct rknpu_submit *args, u32 all_cores, struct rknpu_split *split);

#endif /* RKNPU_CHECK_H */
