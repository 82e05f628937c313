// SPDX-License-Identifier: GPL-2.0-only
#include <linux/module.h>
#include <linux/ratelimit.h>
#include <linux/slab.h>
#include <drm/drm_drv.h>

#include "rknpu_bo.h"
#include "rknpu_device.h"
#include "rknpu_file.h"
#include "rknpu_mmu.h"
#include "rknpu_sched.h"
#include "rknpu_vm.h"
#include "../include/uapi/drm/rknpu_drm.h"

/*
 * Addresses have 32 bits.
 * The ends stay free, so that a null pointer with an offset, or one that wraps, faults.
 */
#define WINDOW_START	0x100000ull
#define WINDOW_END	0xfff00000ull

static uint window_mib;
module_param(window_mib, uint, 0444);
MODULE_PARM_DESC(window_mib, "MiB of device addresses in each address space (default: all, 4094)");

struct rknpu_space *rknpu_space_create(struct rknpu_file *file, unsigned int id)
{
	struct rknpu_device *rdev = file->rdev;
	u64 bytes = WINDOW_END - WINDOW_START;
	struct rknpu_space *space;
	int ret;

	space = kzalloc(sizeof(*space), GFP_KERNEL);
	if (!space)
		return ERR_PTR(-ENOMEM);
	kref_init(&space->ref);
	mutex_init(&space->lock);
	space->rdev = rdev;
	space->id = id;
	space->file_id = file->id;
	space->pid = file->pid;
	if (window_mib && (u64)window_mib << 20 < bytes)
		bytes = (u64)window_mib << 20;
	ret = rdev->mmu->space_init(space);
	if (ret) {
		kfree(space);
		return ERR_PTR(ret);
	}
	rknpu_window_init(&space->window, WINDOW_START, bytes);
	drm_dev_get(&rdev->drm);
	mutex_lock(&rdev->list_lock);
	list_add_tail(&space->link, &rdev->spaces);
	rdev->nr_spaces++;
	mutex_unlock(&rdev->list_lock);
	return space;
}

struct rknpu_space *rknpu_space_get(struct rknpu_space *space)
{
	kref_get(&space->ref);
	return space;
}

/*
 * @forget takes what hardware knows of the space out of it.
 * An MMU doesn't stall while its core is in DMA or stands in a page fault:
 * then the worker lets what runs there come to its end, starts nothing behind it, and resets it if it still refuses.
 * What starts later knows only what is in the tables by then, so a client that keeps cores busy can't make this fail.
 * 0, or the cores that don't let go whatever is done: broken hardware.
 */
static u32 space_make_forget(struct rknpu_space *space, u32 (*forget)(struct rknpu_space *space))
{
	u32 refused = forget(space);

	return refused ? rknpu_sched_forget(space->rdev, space, refused) : 0;
}

/*
 * Nobody uses the space any more, but units may still translate by it, for it costs nothing to leave it there.
 * If one doesn't let go, the tables stay: memory that hardware may walk is never freed.
 */
static void space_release(struct kref *ref)
{
	struct rknpu_space *space = container_of(ref, struct rknpu_space, ref);
	struct rknpu_device *rdev = space->rdev;
	u32 cores = space_make_forget(space, rknpu_mmu_evict_space);

	space->stuck |= cores;
	mutex_lock(&rdev->list_lock);
	list_del(&space->link);
	rdev->nr_spaces--;
	mutex_unlock(&rdev->list_lock);
	rknpu_window_fini(&space->window);
	if (space->stuck) {
		atomic64_inc(&rdev->leaks);
		__module_get(THIS_MODULE);
		dev_err(rknpu_dma_dev(rdev), "page tables of an address space are kept: cores %#x don't let go\n", cores);
	} else {
		rdev->mmu->space_fini(space);
		mutex_destroy(&space->lock);
		kfree(space);
	}
	drm_dev_put(&rdev->drm);
}

void rknpu_space_put(struct rknpu_space *space)
{
	kref_put(&space->ref, space_release);
}

static void space_log_full(struct rknpu_space *space, u64 bytes)
{
	dev_warn_ratelimited(rknpu_dma_dev(space->rdev),
			     "address space %u of pid %d is full: %llu bytes wanted, %llu free, largest hole %llu\n", space->id,
			     space->pid, bytes, space->window.bytes - space->window.used,
			     rknpu_window_largest_hole(&space->window));
}

int rknpu_space_check_room(struct rknpu_space *space, u64 bytes)
{
	int ret = 0;

	mutex_lock(&space->lock);
	if (bytes > rknpu_window_largest_hole(&space->window)) {
		space_log_full(space, bytes);
		ret = -ENOSPC;
	}
	mutex_unlock(&space->lock);
	return ret;
}

struct rknpu_mapping *rknpu_mapping_create(struct rknpu_space *space, struct rknpu_bo *bo, u64 at, bool high)
{
	struct rknpu_device *rdev = space->rdev;
	u64 bytes = bo->base.base.size;
	struct rknpu_mapping *mapping;
	int ret;

	lockdep_assert_held(&bo->lock);
	mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
	if (!mapping)
		return ERR_PTR(-ENOMEM);

	mutex_lock(&space->lock);
	if (space->stuck)
		ret = -ENODEV;
	else if (at)
		ret = rknpu_window_insert_at(&space->window, &mapping->range, at, bytes);
	else
		ret = rknpu_window_insert(&space->window, &mapping->range, bytes, high);
	if (ret) {
		if (ret == -ENOSPC && !at)
			space_log_full(space, bytes);
		goto err_unlock;
	}
	ret = rdev->mmu->map(space, rknpu_mapping_iova(mapping), bo->base.sgt, bytes);
	if (ret)
		goto err_window;
	rknpu_mmu_mapped(space, rknpu_mapping_iova(mapping), rknpu_mapping_iova(mapping) + bytes - 1);
	mutex_unlock(&space->lock);

	atomic64_add(bytes, &rdev->iova_bytes);
	mapping->space = rknpu_space_get(space);
	mapping->bo = bo;
	list_add_tail(&mapping->link, &bo->mappings);
	return mapping;

err_window:
	rknpu_window_remove(&space->window, &mapping->range);
err_unlock:
	mutex_unlock(&space->lock);
	kfree(mapping);
	return ERR_PTR(ret);
}

/*
 * The order that makes freed pages unreachable:
 * entries out, cached translations out, and only then the range and the pages.
 * The lock of the space isn't held for the second step, which may take until what runs there ends;
 * the range still belongs to this mapping.
 * If not even a reset helps, the buffer, its range and this module are kept for ever,
 * and the space takes nothing more: what can be lost is what was there.
 */
void rknpu_mapping_destroy(struct rknpu_mapping *mapping)
{
	struct rknpu_space *space = mapping->space;
	struct rknpu_device *rdev = space->rdev;
	u64 bytes = mapping->range.bytes;
	u32 cores;

	lockdep_assert_held(&mapping->bo->lock);
	mutex_lock(&space->lock);
	rdev->mmu->unmap(space, rknpu_mapping_iova(mapping), bytes);
	mutex_unlock(&space->lock);
	cores = space_make_forget(space, rknpu_mmu_zap_space);
	if (cores) {
		dev_err(rknpu_dma_dev(rdev), "%llu bytes at %#llx are kept: cores %#x don't let go\n", bytes, rknpu_mapping_iova(mapping),
			cores);
		mutex_lock(&space->lock);
		space->stuck = true;
		mutex_unlock(&space->lock);
		atomic64_inc(&rdev->leaks);
		__module_get(THIS_MODULE);
		drm_gem_object_get(&mapping->bo->base.base);
		list_del(&mapping->link);
		return;
	}

	mutex_lock(&space->lock);
	rknpu_window_remove(&space->window, &mapping->range);
	mutex_unlock(&space->lock);
	atomic64_sub(bytes, &rdev->iova_bytes);
	list_del(&mapping->link);
	kfree(mapping);
	rknpu_space_put(space);
}

struct rknpu_bo *rknpu_space_find(struct rknpu_space *space, u64 iova, u64 *offset)
{
	struct rknpu_bo *bo = NULL;
	struct rknpu_mapping *mapping;
	struct drm_mm_node *node;

	mutex_lock(&space->lock);
	drm_mm_for_each_node_in_range(node, &space->window.mm, iova, iova + 1) {
		mapping = container_of(node, struct rknpu_mapping, range.node);
		/* The handle that the mapping belongs to holds the buffer; one that is being made has none yet. */
		bo = mapping->bo;
		*offset = iova - node->start;
		if (bo && *offset < bo->base.base.size)
			drm_gem_object_get(&bo->base.base);
		else
			bo = NULL;
	}
	mutex_unlock(&space->lock);
	return bo;
}

void rknpu_space_info(struct rknpu_space *space, struct rknpu_npud_space_info *info)
{
	mutex_lock(&space->lock);
	info->iova_start = space->window.start;
	info->iova_bytes = space->window.bytes;
	info->used_bytes = space->window.used;
	info->largest_hole_bytes = rknpu_window_largest_hole(&space->window);
	info->mappings = space->window.ranges;
	info->table_bytes = space->pgt.bytes;
	mutex_unlock(&space->lock);
}
