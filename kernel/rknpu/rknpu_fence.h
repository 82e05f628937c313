/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_FENCE_H
#define RKNPU_FENCE_H

#include <linux/dma-fence.h>

/*
 * A job's fence.
 * Jobs of one file may overtake each other (by priority, by core), so each fence is a timeline of its own:
 * fences of one timeline must signal in order, and those that merge them drop all but the last.
 */
struct dma_fence *rknpu_fence_create(u64 file_id);
/* True of the fence of a job of that file. */
bool rknpu_fence_is_of_file(const struct dma_fence *fence, u64 file_id);
/* The outcome becomes the fence's error; signals. Once. */
void rknpu_fence_signal(struct dma_fence *fence, int result);
/* A file descriptor for @fence, not yet installed: fd_install(fd, file), or put_unused_fd() and fput(). */
int rknpu_fence_fd(struct dma_fence *fence, struct file **file);

#endif /* RKNPU_FENCE_H */
