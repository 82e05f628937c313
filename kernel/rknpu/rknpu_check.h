/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_CHECK_H
#define RKNPU_CHECK_H

#include <linux/types.h>

#include "rknpu_soc.h"
#include "../include/uapi/drm/rknpu_drm.h"

/* What user space may ask for, as predicates without state. Errors are negative errnos. */

/* Bytes of a buffer, rounded up to pages. -EINVAL: nothing; -ENOSPC: more than any address space has. */
int rknpu_check_mem_size(u64 size, u64 *rounded);
/* [offset, offset + bytes) within a buffer. */
int rknpu_check_range(u64 offset, u64 bytes, u64 buffer_bytes);
/* Tasks [start, start + number) within a task array of @buffer_bytes. */
int rknpu_check_tasks(u32 start, u32 number, u64 buffer_bytes);
/* One task that starts or ends a chunk. */
int rknpu_check_task(const struct rknpu_soc *soc, const struct rknpu_task *task);
/* Flags, reserved fields, core mask, priority and addresses of a submit. */
int rknpu_check_submit(const struct rknpu_submit *args, u32 all_cores);

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
 * Which tasks go to which core. A single core takes its own subcore_task entry, or the first that isn't empty, or task_start and
 * task_number; two cores take entries 0 and 1, three take 2 to 4. Cores of a gang without tasks are left out.
 */
int rknpu_split_job(const struct rknpu_submit *args, u32 all_cores, struct rknpu_split *split);

#endif /* RKNPU_CHECK_H */
