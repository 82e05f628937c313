// SPDX-License-Identifier: GPL-2.0-only
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/sync_file.h>

#include "rknpu_fence.h"

struct rknpu_fence {
	struct dma_fence base;
	spinlock_t lock;	/* of @base */
	u64 file_id;
};

static const char *fence_driver_name(struct dma_fence *fence)
{
	return "rknpu";
}

static const char *fence_timeline_name(struct dma_fence *fence)
{
	return "npu-job";
}

static void fence_release(struct dma_fence *fence)
{
	dma_fence_free(fence);
	module_put(THIS_MODULE);
}

static const struct dma_fence_ops fence_ops = {
	.get_driver_name = fence_driver_name,
	.get_timeline_name = fence_timeline_name,
	.release = fence_release,
};

struct dma_fence *rknpu_fence_create(u64 file_id)
{
	struct rknpu_fence *fence = kzalloc(sizeof(*fence), GFP_KERNEL);

	BUILD_BUG_ON(offsetof(struct rknpu_fence, base));	/* dma_fence_free() frees the whole */
	if (!fence)
		return NULL;
	/* A sync_file may outlive the device and all its files. */
	__module_get(THIS_MODULE);
	spin_lock_init(&fence->lock);
	fence->file_id = file_id;
	dma_fence_init(&fence->base, &fence_ops, &fence->lock, dma_fence_context_alloc(1), 1);
	return &fence->base;
}

bool rknpu_fence_is_of_file(const struct dma_fence *fence, u64 file_id)
{
	/* Some kernels have it as an RCU pointer; only its value counts here. */
	const void *ops = (__force const void *)READ_ONCE(fence->ops);

	return ops == &fence_ops && container_of(fence, struct rknpu_fence, base)->file_id == file_id;
}

void rknpu_fence_signal(struct dma_fence *fence, int result)
{
	if (result)
		dma_fence_set_error(fence, result);
	dma_fence_signal(fence);
}

int rknpu_fence_fd(struct dma_fence *fence, struct file **file)
{
	struct sync_file *sync;
	int fd = get_unused_fd_flags(O_CLOEXEC);

	if (fd < 0)
		return fd;
	sync = sync_file_create(fence);
	if (!sync) {
		put_unused_fd(fd);
		return -ENOMEM;
	}
	*file = sync->file;
	return fd;
}
