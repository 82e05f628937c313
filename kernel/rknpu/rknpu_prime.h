/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_PRIME_H
#define RKNPU_PRIME_H

#include <linux/types.h>

struct dma_buf;
struct drm_device;
struct drm_gem_object;
struct rknpu_bo;
struct rknpu_file;
struct rknpu_handle;
struct rknpu_space;

/*
 * Buffers that others have, too.
 *
 * A buffer is shared if it is an import, if handles of two files name it,
 * or if something is attached to its dma-buf.
 * That it was exported says nothing: librknnrt exports every buffer, and hands few of them on.
 * Each file has a list of its shared buffers,
 * so that a submit doesn't look at the others, however many there are.
 */

struct dma_buf *rknpu_prime_export(struct drm_gem_object *obj, int flags);
struct drm_gem_object *rknpu_prime_import(struct drm_device *drm, struct dma_buf *dma_buf);

/*
 * The buffer got @handle.
 * Where that makes it shared, the fences of jobs under way that may use it are left with it.
 * On failure the handle is out of bo->handles again.
 */
int rknpu_prime_add_handle(struct rknpu_bo *bo, struct rknpu_handle *handle);
/* Under bo->lock. The buffer loses @handle. */
void rknpu_prime_remove_handle(struct rknpu_bo *bo, struct rknpu_handle *handle);

/*
 * The shared buffers that @file has in @space.
 * References, in an array for kvfree(); none gives no array.
 * *gen is what file->shared_gen was: if it is another when the job is published,
 * a buffer was shared meanwhile and is missing here.
 */
int rknpu_prime_get_shared(struct rknpu_file *file, struct rknpu_space *space, struct drm_gem_object ***objs,
			   unsigned int *count, unsigned int *gen);

#endif /* RKNPU_PRIME_H */
