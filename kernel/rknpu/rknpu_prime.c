// SPDX-License-Identifier: GPL-2.0-only
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/slab.h>
#include <drm/drm_drv.h>
#include <drm/drm_gem.h>
#include <drm/drm_prime.h>

#include "rknpu_bo.h"
#include "rknpu_compat.h"
#include "rknpu_device.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_prime.h"

RKNPU_IMPORT_DMA_BUF;

/* --- jobs under way ----------------------------------------------------------------------------------------------------------- */

/* Fences of jobs, with references. */
struct prime_fences {
	struct dma_fence **array;
	unsigned int count;
};

static void prime_put_fences(struct prime_fences *fences)
{
	while (fences->count)
		dma_fence_put(fences->array[--fences->count]);
	kvfree(fences->array);
}

/*
 * Those of all jobs whose space has the buffer.
 * A job that is published after this began may be missing:
 * a submitter who didn't know that the buffer is shared is told so by file->shared_gen, and begins again.
 */
static int prime_get_fences(struct rknpu_bo *bo, struct prime_fences *fences)
{
	struct rknpu_device *rdev = to_rknpu_device(bo->base.base.dev);
	struct rknpu_file *last = NULL;
	struct rknpu_handle *handle;
	struct rknpu_job *job;
	unsigned int most = 0;

	lockdep_assert_held(&bo->lock);
	spin_lock_irq(&rdev->lock);
	list_for_each_entry(handle, &bo->handles, link)
		most += handle->file->jobs_active;
	spin_unlock_irq(&rdev->lock);
	if (!most)
		return 0;
	fences->array = kvmalloc_array(most, sizeof(*fences->array), GFP_KERNEL);
	if (!fences->array)
		return -ENOMEM;
	spin_lock_irq(&rdev->lock);
	list_for_each_entry(handle, &bo->handles, link) {
		if (handle->file == last)
			continue;
		last = handle->file;
		list_for_each_entry(job, &last->jobs, file_link)
			if (fences->count < most && rknpu_bo_find_mapping(bo, job->space))
				fences->array[fences->count++] = dma_fence_get(job->fence);
	}
	spin_unlock_irq(&rdev->lock);
	return 0;
}

/* --- which buffers are shared ------------------------------------------------------------------------------------------------- */

static bool prime_is_shared(struct rknpu_bo *bo)
{
	struct rknpu_handle *first, *handle;

	if (rknpu_bo_imported(bo) || bo->attachments)
		return true;
	first = list_first_entry_or_null(&bo->handles, struct rknpu_handle, link);
	list_for_each_entry(handle, &bo->handles, link)
		if (handle->file != first->file)
			return true;
	return false;
}

static void prime_mark(struct rknpu_handle *handle, bool shared)
{
	struct rknpu_file *file = handle->file;

	if (shared == !list_empty(&handle->shared_link))
		return;
	spin_lock(&file->shared_lock);
	if (shared) {
		list_add_tail(&handle->shared_link, &file->shared);
		file->nr_shared++;
		WRITE_ONCE(file->shared_gen, file->shared_gen + 1);
	} else {
		list_del_init(&handle->shared_link);
		file->nr_shared--;
	}
	spin_unlock(&file->shared_lock);
}

static void prime_mark_all(struct rknpu_bo *bo, bool shared)
{
	struct rknpu_handle *handle;

	lockdep_assert_held(&bo->lock);
	list_for_each_entry(handle, &bo->handles, link)
		prime_mark(handle, shared);
}

/*
 * Somebody else has the buffer now.
 * What was submitted before left no fence with it, and does so here, before the other can use it:
 * marked first, so that who submits from now on knows, then looked for.
 */
static int prime_share(struct rknpu_bo *bo)
{
	struct dma_resv *resv = bo->base.base.resv;
	struct prime_fences fences = {};
	unsigned int i;
	int ret;

	dma_resv_lock(resv, NULL);
	mutex_lock(&bo->lock);
	prime_mark_all(bo, true);
	ret = prime_get_fences(bo, &fences);
	mutex_unlock(&bo->lock);
	if (!ret && fences.count)
		ret = dma_resv_reserve_fences(resv, fences.count);
	for (i = 0; i < fences.count && !ret; i++)
		dma_resv_add_fence(resv, fences.array[i], DMA_RESV_USAGE_WRITE);
	dma_resv_unlock(resv);
	prime_put_fences(&fences);
	return ret;
}

int rknpu_prime_add_handle(struct rknpu_bo *bo, struct rknpu_handle *handle)
{
	bool shared;
	int ret = 0;

	mutex_lock(&bo->lock);
	list_add_tail(&handle->link, &bo->handles);
	shared = prime_is_shared(bo);
	mutex_unlock(&bo->lock);
	if (shared)
		ret = prime_share(bo);
	if (ret) {
		mutex_lock(&bo->lock);
		rknpu_prime_remove_handle(bo, handle);
		mutex_unlock(&bo->lock);
	}
	return ret;
}

void rknpu_prime_remove_handle(struct rknpu_bo *bo, struct rknpu_handle *handle)
{
	lockdep_assert_held(&bo->lock);
	prime_mark(handle, false);
	list_del(&handle->link);
	if (!prime_is_shared(bo))
		prime_mark_all(bo, false);
}

static bool prime_is_first(struct rknpu_bo *bo, const struct rknpu_file *file, const struct rknpu_handle *handle,
			   const struct rknpu_space *space)
{
	bool first;

	mutex_lock(&bo->lock);
	/* Once, though the file may have several handles. */
	first = rknpu_bo_find_handle(bo, file) == handle && rknpu_bo_find_mapping(bo, space);
	mutex_unlock(&bo->lock);
	return first;
}

int rknpu_prime_get_shared(struct rknpu_file *file, struct rknpu_space *space, struct drm_gem_object ***objs,
			   unsigned int *count, unsigned int *gen)
{
	struct drm_gem_object **array = NULL;
	struct rknpu_handle **handles = NULL, *handle;
	unsigned int room = 0, n = 0, kept = 0, i;

	*objs = NULL;
	*count = 0;
	do {
		kvfree(array);
		array = NULL;
		if (room) {
			/*
			 * Both in one: the objects, and behind them the handles that they were found by,
			 * for comparing only.
			 */
			array = kvmalloc_array(room, 2 * sizeof(*array), GFP_KERNEL);
			if (!array)
				return -ENOMEM;
			handles = (struct rknpu_handle **)(array + room);
		}
		spin_lock(&file->shared_lock);
		*gen = file->shared_gen;
		if (file->nr_shared > room) {
			room = file->nr_shared;
			spin_unlock(&file->shared_lock);
			continue;
		}
		list_for_each_entry(handle, &file->shared, shared_link) {
			/* The handle, which is in the list, holds the buffer. */
			drm_gem_object_get(&handle->bo->base.base);
			array[n] = &handle->bo->base.base;
			handles[n++] = handle;
		}
		spin_unlock(&file->shared_lock);
		break;
	} while (true);

	for (i = 0; i < n; i++) {
		if (prime_is_first(to_rknpu_bo(array[i]), file, handles[i], space))
			array[kept++] = array[i];
		else
			drm_gem_object_put(array[i]);
	}
	if (!kept) {
		kvfree(array);
		array = NULL;
	}
	*objs = array;
	*count = kept;
	return 0;
}

/* --- export: the helpers' operations, and access by the CPU honoured ------------------------------------------------------------ */

static int prime_attach(struct dma_buf *dma_buf, struct dma_buf_attachment *attach)
{
	struct rknpu_bo *bo = to_rknpu_bo(dma_buf->priv);
	int ret;

	ret = drm_gem_map_attach(dma_buf, attach);
	if (ret)
		return ret;
	mutex_lock(&bo->lock);
	bo->attachments++;
	mutex_unlock(&bo->lock);
	ret = prime_share(bo);
	if (ret) {
		mutex_lock(&bo->lock);
		bo->attachments--;
		prime_mark_all(bo, prime_is_shared(bo));
		mutex_unlock(&bo->lock);
		drm_gem_map_detach(dma_buf, attach);
	}
	return ret;
}

static void prime_detach(struct dma_buf *dma_buf, struct dma_buf_attachment *attach)
{
	struct rknpu_bo *bo = to_rknpu_bo(dma_buf->priv);

	mutex_lock(&bo->lock);
	bo->attachments--;
	prime_mark_all(bo, prime_is_shared(bo));
	mutex_unlock(&bo->lock);
	drm_gem_map_detach(dma_buf, attach);
}

/* Jobs that use a buffer which nobody shares leave no fence with it, and are waited for all the same. */
static int prime_wait(struct rknpu_bo *bo, bool write)
{
	struct prime_fences fences = {};
	unsigned int i;
	long left;
	int ret;

	mutex_lock(&bo->lock);
	ret = prime_get_fences(bo, &fences);
	mutex_unlock(&bo->lock);
	for (i = 0; i < fences.count && !ret; i++)
		ret = dma_fence_wait(fences.array[i], true);
	prime_put_fences(&fences);
	if (ret)
		return ret;
	left = dma_resv_wait_timeout(bo->base.base.resv, dma_resv_usage_rw(write), true, MAX_SCHEDULE_TIMEOUT);
	return left < 0 ? left : 0;
}

/*
 * The DMA-BUF core waits for fences after this.
 * That is too late: what a device writes behind the invalidation,
 * or into a bounce buffer, the CPU would not see.
 */
static int prime_begin_cpu_access(struct dma_buf *dma_buf, enum dma_data_direction direction)
{
	struct drm_gem_object *obj = dma_buf->priv;
	struct rknpu_bo *bo = to_rknpu_bo(obj);
	int ret;

	ret = prime_wait(bo, direction != DMA_FROM_DEVICE);
	if (!ret && bo->base.sgt)
		dma_sync_sgtable_for_cpu(obj->dev->dev, bo->base.sgt, direction);
	return ret;
}

static int prime_end_cpu_access(struct dma_buf *dma_buf, enum dma_data_direction direction)
{
	struct drm_gem_object *obj = dma_buf->priv;
	struct rknpu_bo *bo = to_rknpu_bo(obj);

	if (bo->base.sgt)
		dma_sync_sgtable_for_device(obj->dev->dev, bo->base.sgt, direction);
	return 0;
}

static const struct dma_buf_ops prime_dma_buf_ops = {
	.attach = prime_attach,
	.detach = prime_detach,
	.map_dma_buf = drm_gem_map_dma_buf,
	.unmap_dma_buf = drm_gem_unmap_dma_buf,
	.release = drm_gem_dmabuf_release,
	.mmap = drm_gem_dmabuf_mmap,
	.vmap = drm_gem_dmabuf_vmap,
	.vunmap = drm_gem_dmabuf_vunmap,
	.begin_cpu_access = prime_begin_cpu_access,
	.end_cpu_access = prime_end_cpu_access,
};

struct dma_buf *rknpu_prime_export(struct drm_gem_object *obj, int flags)
{
	struct drm_device *drm = obj->dev;
	struct dma_buf_export_info info = {
		.exp_name = KBUILD_MODNAME,
		.owner = drm->driver->fops->owner,
		.ops = &prime_dma_buf_ops,
		.size = obj->size,
		.flags = flags,
		.priv = obj,
		.resv = obj->resv,
	};

	return drm_gem_dmabuf_export(drm, &info);
}

/* --- import --------------------------------------------------------------------------------------------------------------------- */

struct drm_gem_object *rknpu_prime_import(struct drm_device *drm, struct dma_buf *dma_buf)
{
	if (dma_buf->ops == &prime_dma_buf_ops) {
		struct drm_gem_object *obj = dma_buf->priv;

		/*
		 * One of ours, from another file: the same object,
		 * which that file's spaces and this one's map each for itself.
		 */
		if (obj->dev == drm) {
			drm_gem_object_get(obj);
			return obj;
		}
	}
	return drm_gem_prime_import(drm, dma_buf);
}
