// SPDX-License-Identifier: GPL-2.0-only
#include "rknpu_window.h"

void rknpu_window_init(struct rknpu_window *win, u64 start, u64 bytes)
{
	win->start = start;
	win->bytes = bytes;
	win->used = 0;
	win->ranges = 0;
	drm_mm_init(&win->mm, start, bytes);
}

void rknpu_window_fini(struct rknpu_window *win)
{
	WARN_ON(win->used || win->ranges);
	drm_mm_takedown(&win->mm);
}

static void window_account(struct rknpu_window *win, struct rknpu_range *range, u64 bytes)
{
	range->bytes = bytes;
	win->used += bytes;
	win->ranges++;
}

int rknpu_window_insert(struct rknpu_window *win, struct rknpu_range *range, u64 bytes, bool high)
{
	int ret;

	if (!bytes || bytes > win->bytes)
		return -ENOSPC;
	memset(&range->node, 0, sizeof(range->node));
	ret = drm_mm_insert_node_generic(&win->mm, &range->node, bytes + RKNPU_WINDOW_GUARD, 4096, 0,
					 high ? DRM_MM_INSERT_HIGH : DRM_MM_INSERT_LOW);
	if (!ret)
		window_account(win, range, bytes);
	return ret;
}

int rknpu_window_insert_at(struct rknpu_window *win, struct rknpu_range *range, u64 start, u64 bytes)
{
	int ret;

	if (!bytes || bytes > win->bytes || start < win->start || start - win->start > win->bytes - bytes)
		return -ENOSPC;
	memset(&range->node, 0, sizeof(range->node));
	range->node.start = start;
	range->node.size = bytes + RKNPU_WINDOW_GUARD;
	ret = drm_mm_reserve_node(&win->mm, &range->node);
	if (!ret)
		window_account(win, range, bytes);
	return ret;
}

void rknpu_window_remove(struct rknpu_window *win, struct rknpu_range *range)
{
	win->used -= range->bytes;
	win->ranges--;
	drm_mm_remove_node(&range->node);
}

u64 rknpu_window_largest_hole(struct rknpu_window *win)
{
	struct drm_mm_node *pos;
	u64 start, end, most = 0;

	drm_mm_for_each_hole(pos, &win->mm, start, end)
		most = max(most, end - start);
	return most > RKNPU_WINDOW_GUARD ? most - RKNPU_WINDOW_GUARD : 0;
}
