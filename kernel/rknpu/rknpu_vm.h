/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_VM_H
#define RKNPU_VM_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>

#include "rknpu_pgtable.h"
#include "rknpu_window.h"

struct iommu_domain;
struct rknpu_bo;
struct rknpu_device;
struct rknpu_file;
struct rknpu_npud_space_info;

/**
 * struct rknpu_space - one device address space of one open file
 * @ref: held by the file, by each mapping and by each job
 * @id: the file's iommu_domain_id
 * @file_id, @pid: whose, for debugfs
 * @lock: the window and the tables
 * @stuck: hardware would not let go of it: its tables, and what was mapped, are kept for ever, and nothing more is mapped
 * @ended_ns: when its last job ended; @gap_ns: how long after that the next one came. Under rdev->lock
 */
struct rknpu_space {
	struct kref ref;
	struct rknpu_device *rdev;
	struct list_head link;		/* rdev->spaces */
	unsigned int id;
	u64 file_id;
	pid_t pid;

	struct mutex lock;		/* the window and the tables */
	struct rknpu_window window;
	bool stuck;
	u64 ended_ns;
	u64 gap_ns;

	struct rknpu_pgtable pgt;	/* bank */
	struct iommu_domain *domain;	/* iommu */
};

/**
 * struct rknpu_mapping - a buffer in a space
 * @link: in bo->mappings, under bo->lock
 *
 * Belongs to a handle of the space's file and goes with it, so it needs no reference to the buffer.
 */
struct rknpu_mapping {
	struct list_head link;
	struct rknpu_space *space;
	struct rknpu_bo *bo;
	struct rknpu_range range;
};

struct rknpu_space *rknpu_space_create(struct rknpu_file *file, unsigned int id);
struct rknpu_space *rknpu_space_get(struct rknpu_space *space);
/* Process context; not under rdev->lock or a unit's lock, and not on the worker. */
void rknpu_space_put(struct rknpu_space *space);

/*
 * Under bo->lock.
 * Maps all of @bo into @space: at @at, or if that is 0 wherever there is room (@high: from the top).
 * The buffer must have its pages.
 * -ENOSPC: no room, and the log says how much there is.
 */
struct rknpu_mapping *rknpu_mapping_create(struct rknpu_space *space, struct rknpu_bo *bo, u64 at, bool high);
/*
 * Under bo->lock.
 * When it returns the device can't reach the buffer through this mapping; it can't fail.
 */
void rknpu_mapping_destroy(struct rknpu_mapping *mapping);

static inline u64 rknpu_mapping_iova(const struct rknpu_mapping *mapping)
{
	return mapping->range.node.start;
}

/* The buffer that is mapped at @iova, with a reference, and where in it that is; NULL if there is none. */
struct rknpu_bo *rknpu_space_find(struct rknpu_space *space, u64 iova, u64 *offset);

/* -ENOSPC, with the same words in the log, if no hole has @bytes now. */
int rknpu_space_check_room(struct rknpu_space *space, u64 bytes);
void rknpu_space_info(struct rknpu_space *space, struct rknpu_npud_space_info *info);

#endif /* RKNPU_VM_H */
