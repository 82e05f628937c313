/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_OBSERVE_H
#define RKNPU_OBSERVE_H

#include <linux/types.h>

struct dentry;
struct rknpu_core;
struct rknpu_device;

#define RKNPU_OBSERVE_BANKS	2

/*
 * What parameter board_check asks for.
 * All but the first change what the driver does: for npud-board-check, on a board that may hang.
 */
#define RKNPU_CHECK_OBSERVE	1	/* keep what registers show */
#define RKNPU_CHECK_STALL	2	/* try to stall an MMU that stands in a page fault */
#define RKNPU_CHECK_NO_CORE	4	/* start jobs without the core's number in S_POINTER */

enum rknpu_moment {
	RKNPU_AT_START,		/* a chunk was started just now */
	RKNPU_AT_LOOK,		/* it runs as far as is known */
	RKNPU_AT_END,		/* it was seen to be over */
	RKNPU_AT_HALT,		/* the core is about to be reset */
	RKNPU_AT_RESET,		/* it was reset, and nothing written since */
	RKNPU_MOMENTS,
};

/**
 * struct rknpu_observation - a core's registers at one kind of moment, the last such
 * @count: how many there have been
 * @running: S_STATUS of CNA, CORE and DPU, of all moments together
 * @stall: microseconds until a stall was active, or -ETIMEDOUT; 0 if none was tried
 */
struct rknpu_observation {
	u32 count;
	u32 running;
	u32 data_addr;
	u32 int_mask;
	u32 int_raw;
	u32 task_control;
	u32 task_status;
	unsigned int banks;
	u32 mmu_status[RKNPU_OBSERVE_BANKS];
	u32 mmu_dir[RKNPU_OBSERVE_BANKS];
	int stall;
};

/* Whether parameter board_check has @what. */
bool rknpu_check_wants(unsigned int what);
/*
 * Reads only, except where RKNPU_CHECK_STALL is asked for.
 * The core is powered and out of reset.
 * Any context.
 */
void rknpu_observe(struct rknpu_core *core, enum rknpu_moment moment);
void rknpu_observe_debugfs(struct rknpu_device *rdev, struct dentry *dir);

#endif /* RKNPU_OBSERVE_H */
