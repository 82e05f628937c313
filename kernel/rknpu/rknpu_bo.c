// SPDX-License-Identifier: GPL-2.0-only
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <drm/drm_file.h>
#include <drm/drm_prime.h>
#include <drm/drm_print.h>

#include "rknpu_bo.h"
#include "rknpu_check.h"
#include "rknpu_compat.h"
#include "rknpu_device.h"
#include "rknpu_file.h"
#include "rknpu_prime.h"
#include "rknpu_vm.h"

/* --- object functions -------------------------------------------------------------------------------------------------- */

static void bo_free(struct drm_gem_object *obj)
{
	struct rknpu_bo *bo = to_rknpu_bo(obj);

	WARN_ON(!list_empty(&bo->mappings) || !list_empty(&bo->handles));
	if (bo->mapped)
		rknpu_gem_vunmap(obj, &bo->map);
	mutex_destroy(&bo->map_lock);
	mutex_destroy(&bo->lock);
	drm_gem_shmem_free(&bo->base);
}

static int bo_open(struct drm_gem_object *obj, struct drm_file *drm_file)
{
	struct rknpu_bo *bo = to_rknpu_bo(obj);
	struct rknpu_handle *handle = rknpu_file_add_handle(drm_file->driver_priv, bo);
	int ret;

	if (IS_ERR(handle))
		return PTR_ERR(handle);
	ret = rknpu_prime_add_handle(bo, handle);
	if (ret)
		rknpu_file_remove_handle(handle);
	return ret;
}

/* A file's last handle takes the mappings in the file's spaces with it. */
static void bo_close(struct drm_gem_object *obj, struct drm_file *drm_file)
{
	struct rknpu_file *file = drm_file->driver_priv;
	struct rknpu_bo *bo = to_rknpu_bo(obj);
	struct rknpu_handle *pos, *handle = NULL;
	struct rknpu_mapping *mapping, *next;
	bool last = true;

	mutex_lock(&bo->lock);
	list_for_each_entry(pos, &bo->handles, link) {
		if (pos->file != file)
			continue;
		if (handle)
			last = false;
		else
			handle = pos;
	}
	if (handle)
		rknpu_prime_remove_handle(bo, handle);
	if (handle && last)
		list_for_each_entry_safe(mapping, next, &bo->mappings, link)
			if (mapping->space->file_id == file->id)
				rknpu_mapping_destroy(mapping);
	mutex_unlock(&bo->lock);
	if (handle)
		rknpu_file_remove_handle(handle);
}

static const struct drm_gem_object_funcs bo_funcs = {
	.free = bo_free,
	.open = bo_open,
	.close = bo_close,
	.export = rknpu_prime_export,
	.print_info = drm_gem_shmem_object_print_info,
	.pin = drm_gem_shmem_object_pin,
	.unpin = drm_gem_shmem_object_unpin,
	.get_sg_table = drm_gem_shmem_object_get_sg_table,
	.vmap = drm_gem_shmem_object_vmap,
	.vunmap = drm_gem_shmem_object_vunmap,
	.mmap = drm_gem_shmem_object_mmap,
	.vm_ops = &drm_gem_shmem_vm_ops,
};

struct drm_gem_object *rknpu_gem_create_object(struct drm_device *drm, size_t size)
{
	struct rknpu_bo *bo = kzalloc(sizeof(*bo), GFP_KERNEL);

	if (!bo)
		return ERR_PTR(-ENOMEM);
	bo->base.base.funcs = &bo_funcs;
	mutex_init(&bo->lock);
	mutex_init(&bo->map_lock);
	INIT_LIST_HEAD(&bo->mappings);
	INIT_LIST_HEAD(&bo->handles);
	return &bo->base.base;
}

/* --- kernel mapping ----------------------------------------------------------------------------------------------------------- */

int rknpu_bo_vmap(struct rknpu_bo *bo, struct iosys_map *map)
{
	int ret = 0;

	mutex_lock(&bo->map_lock);
	if (!bo->mapped) {
		ret = rknpu_gem_vmap(&bo->base.base, &bo->map);
		bo->mapped = !ret;
	}
	*map = bo->map;
	mutex_unlock(&bo->map_lock);
	return ret;
}

static void bo_sync_range(struct rknpu_bo *bo, u64 offset, u64 bytes, u32 flags)
{
	struct device *dev = bo->base.base.dev->dev;
	struct scatterlist *sg;
	unsigned int i;

	if (!bytes || !bo->base.sgt)
		return;
	for_each_sgtable_dma_sg(bo->base.sgt, sg, i) {
		u64 len = sg_dma_len(sg), part;

		if (offset >= len) {
			offset -= len;
			continue;
		}
		part = min(len - offset, bytes);
		if (flags & RKNPU_MEM_SYNC_TO_DEVICE)
			dma_sync_single_range_for_device(dev, sg_dma_address(sg), offset, part, DMA_TO_DEVICE);
		if (flags & RKNPU_MEM_SYNC_FROM_DEVICE)
			dma_sync_single_range_for_cpu(dev, sg_dma_address(sg), offset, part, DMA_FROM_DEVICE);
		bytes -= part;
		offset = 0;
		if (!bytes)
			break;
	}
}

void rknpu_bo_push(struct rknpu_bo *bo, u64 offset, u64 bytes)
{
	if (bo->cacheable || rknpu_bo_imported(bo))
		bo_sync_range(bo, offset, bytes, RKNPU_MEM_SYNC_TO_DEVICE);
}

/* --- mappings ----------------------------------------------------------------------------------------------------------------- */

struct rknpu_handle *rknpu_bo_find_handle(struct rknpu_bo *bo, const struct rknpu_file *file)
{
	struct rknpu_handle *handle;

	lockdep_assert_held(&bo->lock);
	list_for_each_entry(handle, &bo->handles, link)
		if (handle->file == file)
			return handle;
	return NULL;
}

struct rknpu_mapping *rknpu_bo_find_mapping(struct rknpu_bo *bo, const struct rknpu_space *space)
{
	struct rknpu_mapping *mapping;

	lockdep_assert_held(&bo->lock);
	list_for_each_entry(mapping, &bo->mappings, link)
		if (mapping->space == space)
			return mapping;
	return NULL;
}

/* Any of the file's, if it has one. */
static struct rknpu_mapping *bo_find_home(struct rknpu_bo *bo, const struct rknpu_file *file)
{
	struct rknpu_mapping *mapping;

	list_for_each_entry(mapping, &bo->mappings, link)
		if (mapping->space->file_id == file->id)
			return mapping;
	return NULL;
}

/*
 * The address of @bo for @file in @space.
 * A buffer of the device has one home; an import (and a buffer of another file) is mapped into each space that
 * asks, at the address that it has in the file's other ones if that is free.
 *
 * Mappings go with the file's last handle.
 * Another thread may close that at any time, so none is made without looking for it under the same lock.
 */
static int bo_address(struct rknpu_file *file, struct rknpu_bo *bo, struct rknpu_space *space, bool owned, u64 *iova,
		      u64 *cookie)
{
	struct rknpu_mapping *mapping, *home;
	struct rknpu_handle *handle;
	bool shared;
	int ret = 0;

	mutex_lock(&bo->lock);
	handle = rknpu_bo_find_handle(bo, file);
	if (!handle) {
		ret = -ENOENT;
		goto out;
	}
	*cookie = rknpu_handle_cookie(handle);
	shared = !owned && (rknpu_bo_imported(bo) || !bo_find_home(bo, file));
	mapping = rknpu_bo_find_mapping(bo, space);
	home = bo_find_home(bo, file);
	if (!mapping && home && !shared)
		mapping = home;
	if (!mapping && home) {
		mapping = rknpu_mapping_create(space, bo, rknpu_mapping_iova(home), true);
		if (IS_ERR(mapping) && PTR_ERR(mapping) == -ENOSPC)
			mapping = NULL;
	}
	if (!mapping)
		mapping = rknpu_mapping_create(space, bo, 0, shared);
	if (IS_ERR(mapping))
		ret = PTR_ERR(mapping);
	else
		*iova = rknpu_mapping_iova(mapping);
out:
	mutex_unlock(&bo->lock);
	return ret;
}

int rknpu_bo_map_imports(struct rknpu_file *file, unsigned int domain)
{
	struct rknpu_space *space = rknpu_file_space(file, domain);
	struct rknpu_handle *handle;
	int ret = 0;

	if (IS_ERR(space))
		return PTR_ERR(space);
	mutex_lock(&file->lock);
	if (file->space_imports[domain] == file->import_gen)
		goto out;
	list_for_each_entry(handle, &file->imports, import_link) {
		struct rknpu_bo *bo = handle->bo;
		struct rknpu_mapping *home, *mapping;

		mutex_lock(&bo->lock);
		home = bo_find_home(bo, file);
		/* Without an address anywhere no command can name it. */
		if (home && rknpu_bo_find_handle(bo, file) && !rknpu_bo_find_mapping(bo, space)) {
			mapping = rknpu_mapping_create(space, bo, rknpu_mapping_iova(home), true);
			/* Taken there by another buffer, which then is what this space means by the address. */
			if (IS_ERR(mapping) && PTR_ERR(mapping) != -ENOSPC)
				ret = PTR_ERR(mapping);
		}
		mutex_unlock(&bo->lock);
		if (ret)
			goto out;
	}
	file->space_imports[domain] = file->import_gen;
out:
	mutex_unlock(&file->lock);
	rknpu_space_put(space);
	return ret;
}

/* --- ioctls ------------------------------------------------------------------------------------------------------------------- */

/* The addresses of a buffer that exists. Takes the reference to it over. */
static int bo_find(struct drm_file *drm_file, struct drm_gem_object *obj, struct rknpu_mem_create *args)
{
	struct rknpu_file *file = drm_file->driver_priv;
	struct rknpu_space *space;
	struct rknpu_bo *bo;
	int ret;

	bo = to_rknpu_bo(obj);
	/*
	 * An import that was made while another space was current belongs there,
	 * for those who don't say which they mean.
	 */
	space = rknpu_file_space(file, args->iommu_domain_id ?: (int)READ_ONCE(file->domain));
	if (IS_ERR(space)) {
		ret = PTR_ERR(space);
		goto out_obj;
	}
	if (!bo->base.sgt) {
		struct sg_table *sgt = drm_gem_shmem_get_pages_sgt(&bo->base);

		if (IS_ERR(sgt)) {
			ret = PTR_ERR(sgt);
			goto out_space;
		}
	}
	ret = bo_address(file, bo, space, false, &args->dma_addr, &args->obj_addr);
	if (ret)
		goto out_space;
	args->size = obj->size;
	args->sram_size = 0;
	/* A new address makes the import known to other spaces on their next job. */
	mutex_lock(&file->lock);
	if (rknpu_bo_imported(bo))
		file->import_gen++;
	mutex_unlock(&file->lock);
out_space:
	rknpu_space_put(space);
out_obj:
	drm_gem_object_put(obj);
	return ret;
}

static gfp_t bo_gfp(const struct rknpu_device *rdev, u32 flags)
{
	gfp_t gfp = GFP_HIGHUSER | __GFP_RETRY_MAYFAIL | __GFP_NOWARN;

	if ((flags & RKNPU_MEM_DMA32) || rdev->soc->dma_bits <= 32) {
		gfp &= ~__GFP_HIGHMEM;
		gfp |= __GFP_DMA32;
	}
	return gfp;
}

static int bo_alloc(struct rknpu_device *rdev, struct drm_file *drm_file, struct rknpu_mem_create *args)
{
	struct rknpu_file *file = drm_file->driver_priv;
	struct drm_gem_shmem_object *shmem;
	struct rknpu_space *space;
	struct sg_table *sgt;
	struct rknpu_bo *bo;
	u64 size;
	int ret;

	ret = rknpu_check_mem_size(args->size, &size);
	if (ret)
		return ret;
	space = rknpu_file_space(file, args->iommu_domain_id);
	if (IS_ERR(space))
		return PTR_ERR(space);

	/*
	 * Before memory is taken, since what doesn't fit may be gigabytes.
	 * The mapping itself asks again.
	 */
	ret = rknpu_space_check_room(space, size);
	if (ret)
		goto out_space;
	shmem = drm_gem_shmem_create(&rdev->drm, size);
	if (IS_ERR(shmem)) {
		ret = PTR_ERR(shmem);
		goto out_space;
	}
	bo = to_rknpu_bo(&shmem->base);
	bo->cacheable = args->flags & RKNPU_MEM_CACHEABLE;
	shmem->map_wc = !bo->cacheable;
	mapping_set_gfp_mask(shmem->base.filp->f_mapping, bo_gfp(rdev, args->flags));

	/* The handle comes first, for it charges the file's and the user's limits before pages are taken. */
	ret = drm_gem_handle_create(drm_file, &shmem->base, &args->handle);
	if (ret)
		goto out_obj;
	sgt = drm_gem_shmem_get_pages_sgt(shmem);
	if (IS_ERR(sgt)) {
		ret = PTR_ERR(sgt);
		goto err_handle;
	}
	ret = bo_address(file, bo, space, true, &args->dma_addr, &args->obj_addr);
	args->size = size;
	args->sram_size = 0;
err_handle:
	if (ret)
		drm_gem_handle_delete(drm_file, args->handle);
out_obj:
	drm_gem_object_put(&shmem->base);
out_space:
	rknpu_space_put(space);
	return ret;
}

int rknpu_ioctl_mem_create(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct rknpu_device *rdev = to_rknpu_device(drm);
	struct rknpu_mem_create *args = data;
	struct drm_gem_object *obj;
	int ret;

	if ((args->core_mask & ~rknpu_all_cores(rdev)) || (args->flags & ~RKNPU_MEM_MASK)) {
		ret = -EINVAL;
		goto out;
	}
	/*
	 * As in the vendor's driver (w568w/rknpu-module, rknpu_gem.c):
	 * a handle that names nothing asks for a new buffer.
	 */
	obj = args->handle ? drm_gem_object_lookup(drm_file, args->handle) : NULL;
	if (obj)
		ret = bo_find(drm_file, obj, args);
	else if (args->flags & RKNPU_MEM_SECURE)
		ret = -EOPNOTSUPP;
	else
		ret = bo_alloc(rdev, drm_file, args);
out:
	if (ret)
		drm_dbg(drm, "MEM_CREATE of %llu bytes, flags %#x, domain %d, cores %#x: %d\n", args->size, args->flags,
			args->iommu_domain_id, args->core_mask, ret);
	return ret;
}

int rknpu_ioctl_mem_map(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct rknpu_mem_map *args = data;
	struct drm_gem_object *obj;
	int ret;

	obj = drm_gem_object_lookup(drm_file, args->handle);
	if (!obj)
		return -ENOENT;
	/* An import is mapped through its own file, where its exporter sees to the caches. */
	if (obj->import_attach) {
		ret = -EINVAL;
	} else {
		ret = drm_gem_create_mmap_offset(obj);
		if (!ret)
			args->offset = drm_vma_node_offset_addr(&obj->vma_node);
	}
	drm_gem_object_put(obj);
	return ret;
}

int rknpu_ioctl_mem_destroy(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct rknpu_mem_destroy *args = data;

	if (args->obj_addr) {
		struct rknpu_bo *bo = rknpu_file_lookup(drm_file->driver_priv, args->obj_addr);
		struct drm_gem_object *obj = drm_gem_object_lookup(drm_file, args->handle);
		bool same = bo && obj == &bo->base.base;

		if (bo)
			drm_gem_object_put(&bo->base.base);
		if (obj)
			drm_gem_object_put(obj);
		if (!same) {
			drm_dbg(drm, "MEM_DESTROY: handle %u isn't obj_addr %#llx\n", args->handle, args->obj_addr);
			return -EINVAL;
		}
	}
	return drm_gem_handle_delete(drm_file, args->handle);
}

/*
 * An import goes through its exporter, which knows what its own mappings need and whose fences are to be waited
 * for.
 * Its mapping for this device is seen to as well, for some exporters (udmabuf) look after their own only.
 */
static int bo_sync_import(struct rknpu_bo *bo, u64 offset, u64 bytes, u32 flags)
{
	struct dma_buf *dma_buf = bo->base.base.import_attach->dmabuf;
	int ret = 0;

	if (flags & RKNPU_MEM_SYNC_FROM_DEVICE)
		ret = dma_buf_begin_cpu_access(dma_buf, DMA_FROM_DEVICE);
	if (!ret)
		bo_sync_range(bo, offset, bytes, flags);
	/* udmabuf refuses an end without a beginning, and has nothing to do then. */
	if (!ret && (flags & RKNPU_MEM_SYNC_TO_DEVICE))
		dma_buf_end_cpu_access(dma_buf, DMA_TO_DEVICE);
	return ret;
}

int rknpu_ioctl_mem_sync(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct rknpu_mem_sync *args = data;
	struct rknpu_bo *bo;
	int ret = 0;
	u64 bytes;

	if (args->flags & ~RKNPU_MEM_SYNC_MASK) {
		drm_dbg(drm, "MEM_SYNC: unknown flags in %#x\n", args->flags);
		return -EINVAL;
	}
	bo = rknpu_file_lookup(drm_file->driver_priv, args->obj_addr);
	if (!bo) {
		drm_dbg(drm, "MEM_SYNC: obj_addr %#llx is no buffer of this file\n", args->obj_addr);
		return -EINVAL;
	}
	bytes = rknpu_clamp_range(args->offset, args->size, bo->base.base.size);
	if (bytes && args->flags && rknpu_bo_imported(bo))
		ret = bo_sync_import(bo, args->offset, bytes, args->flags);
	else if (bo->cacheable)
		bo_sync_range(bo, args->offset, bytes, args->flags);
	drm_gem_object_put(&bo->base.base);
	return ret;
}
