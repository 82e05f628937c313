/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_WINDOW_H
#define RKNPU_WINDOW_H

#include <linux/types.h>
#include <drm/drm_mm.h>

/* An unmapped page follows each range, so that running over its end faults instead of reaching the next buffer. */
#define RKNPU_WINDOW_GUARD	4096ull

/**
 * struct rknpu_window - who has which part of one device address space; counts exactly
 * @used: bytes given out, guards not counted
 * @ranges: how many ranges that is
 *
 * The caller serialises all calls.
 */
struct rknpu_window {
	struct drm_mm mm;
	u64 start;
	u64 bytes;
	u64 used;
	u64 ranges;
};

struct rknpu_range {
	struct drm_mm_node node;
	u64 bytes;
};

void rknpu_window_init(struct rknpu_window *win, u64 start, u64 bytes);
/* All ranges must have been removed. */
void rknpu_window_fini(struct rknpu_window *win);
/*
 * -ENOSPC: no hole is large enough.
 * @high searches from the top, for ranges that other windows should be able to have, too.
 */
int rknpu_window_insert(struct rknpu_window *win, struct rknpu_range *range, u64 bytes, bool high);
/* -ENOSPC: [start, start + bytes) isn't free. */
int rknpu_window_insert_at(struct rknpu_window *win, struct rknpu_range *range, u64 start, u64 bytes);
void rknpu_window_remove(struct rknpu_window *win, struct rknpu_range *range);
/* The most bytes that an insert could get now. */
u64 rknpu_window_largest_hole(struct rknpu_window *win);

#endif /* RKNPU_WINDOW_H */
