/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_BO_H
#define RKNPU_BO_H

#include <linux/iosys-map.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <drm/drm_gem_shmem_helper.h>

struct drm_device;
struct drm_file;
struct rknpu_device;
struct rknpu_file;
struct rknpu_handle;
struct rknpu_mapping;
struct rknpu_space;

/**
 * struct rknpu_bo - a buffer: shmem pages of ours, or an import
 * @lock: all down to @attachments; taken within the reservation lock
 * @mappings: in all files' spaces
 * @handles: struct rknpu_handle, one for each file's handle
 * @attachments: other devices' to the exported dma-buf
 * @map_lock: the next two; the reservation lock is taken within it
 * @map: the kernel's mapping, made on first use, kept until the buffer goes
 */
struct rknpu_bo {
	struct drm_gem_shmem_object base;
	bool cacheable;
	struct mutex lock;		/* down to @attachments */
	struct list_head mappings;
	struct list_head handles;
	unsigned int attachments;
	struct mutex map_lock;		/* the next two */
	struct iosys_map map;
	bool mapped;
};

static inline struct rknpu_bo *to_rknpu_bo(struct drm_gem_object *obj)
{
	return container_of(to_drm_gem_shmem_obj(obj), struct rknpu_bo, base);
}

static inline bool rknpu_bo_imported(const struct rknpu_bo *bo)
{
	return bo->base.base.import_attach;
}

struct drm_gem_object *rknpu_gem_create_object(struct drm_device *drm, size_t size);

/* The kernel's address of the whole buffer. It stays valid as long as the buffer. */
int rknpu_bo_vmap(struct rknpu_bo *bo, struct iosys_map *map);
/*
 * What the kernel wrote there reaches memory, so that a later sync from the device,
 * which throws away what the CPU's caches have, can't undo it.
 * Any context.
 */
void rknpu_bo_push(struct rknpu_bo *bo, u64 offset, u64 bytes);
/* Maps every import of the file that is not yet in the space where it can be, at the address it has elsewhere. */
int rknpu_bo_map_imports(struct rknpu_file *file, unsigned int domain);

/* Under bo->lock: the first handle of @file; the mapping in @space. NULL if there is none. */
struct rknpu_handle *rknpu_bo_find_handle(struct rknpu_bo *bo, const struct rknpu_file *file);
struct rknpu_mapping *rknpu_bo_find_mapping(struct rknpu_bo *bo, const struct rknpu_space *space);

int rknpu_ioctl_mem_create(struct drm_device *drm, void *data, struct drm_file *drm_file);
int rknpu_ioctl_mem_map(struct drm_device *drm, void *data, struct drm_file *drm_file);
int rknpu_ioctl_mem_destroy(struct drm_device *drm, void *data, struct drm_file *drm_file);
int rknpu_ioctl_mem_sync(struct drm_device *drm, void *data, struct drm_file *drm_file);

#endif /* RKNPU_BO_H */
