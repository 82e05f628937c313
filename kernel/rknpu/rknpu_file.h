/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_FILE_H
#define RKNPU_FILE_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pm_qos.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/xarray.h>

#include "../include/uapi/drm/rknpu_drm.h"

struct drm_device;
struct drm_file;
struct file;
struct rknpu_bo;
struct rknpu_device;
struct rknpu_space;
struct rknpu_uid;
struct seq_file;

/**
 * struct rknpu_handle - one handle of one file to a buffer
 * @cookie: what the file knows as obj_addr: an index into file->handles below, the file's number above
 * @link: in bo->handles, under bo->lock
 * @import_link: in file->imports, if the buffer is an import; under file->lock
 * @shared_link: in file->shared, if others have the buffer, too; under bo->lock and file->shared_lock
 */
struct rknpu_handle {
	struct rknpu_file *file;
	struct rknpu_bo *bo;
	u32 index;
	struct list_head link;
	struct list_head import_link;
	struct list_head shared_link;
};

/**
 * struct rknpu_file - an open file
 * @ref: held by the DRM file and by each job
 * @id: its number, never used again
 * @lock: all down to @floor
 * @space_imports: import generation for which a space has all imports
 */
struct rknpu_file {
	struct kref ref;
	struct rknpu_device *rdev;
	struct list_head link;		/* rdev->files */
	u64 id;
	pid_t pid;
	char comm[TASK_COMM_LEN];
	struct rknpu_uid *uid;

	struct mutex lock;		/* down to @floor */
	struct rknpu_space *spaces[RKNPU_MAX_DOMAINS];
	unsigned int domain;
	struct list_head imports;
	unsigned int import_gen;
	unsigned int space_imports[RKNPU_MAX_DOMAINS];
	u64 bytes;
	u64 bytes_limit;
	unsigned int nr_handles;
	bool closing;			/* no new spaces */
	bool powered;			/* by POWER_ON */
	struct dev_pm_qos_request floor;	/* by SET_FREQ; active if there is one */

	spinlock_t shared_lock;		/* the next three; taken last */
	struct list_head shared;	/* handles of buffers that others have, too */
	unsigned int nr_shared;
	unsigned int shared_gen;	/* grows with each that is added */

	struct xarray handles;		/* index → struct rknpu_handle */
	u32 next_handle;

	/* under rdev->lock */
	struct list_head jobs;		/* active ones */
	unsigned int jobs_active;
	unsigned int jobs_limit;
	u32 core_mask;
	s32 priority;
	bool revoked;
	u64 jobs_done;
	u64 jobs_failed;
	u64 jobs_cancelled;
	u64 page_faults;
	u64 fault_iova;
	u32 fault_flags;
	u32 fault_space;
	u64 busy_ns[3];
};

int rknpu_file_open(struct drm_device *drm, struct drm_file *drm_file);
void rknpu_file_postclose(struct drm_device *drm, struct drm_file *drm_file);
/* Before the DRM core takes the handles away: the file's jobs end. */
void rknpu_file_quiesce(struct rknpu_file *file);
void rknpu_file_put(struct rknpu_file *file);
/*
 * The open file with the lowest number above @id, with a reference, or NULL:
 * for who does something to each without list_lock.
 */
struct rknpu_file *rknpu_file_next(struct rknpu_device *rdev, u64 id);
/* The hardware goes: the file keeps neither its power nor its clock. */
void rknpu_file_let_go(struct rknpu_file *file);
bool rknpu_file_revoked(struct rknpu_file *file);

/*
 * The space @domain, made on first use; -EINVAL if there can't be one of that number.
 * Returns a reference.
 */
struct rknpu_space *rknpu_file_space(struct rknpu_file *file, int domain);

/* For the GEM open and close callbacks: accounting and cookies. */
struct rknpu_handle *rknpu_file_add_handle(struct rknpu_file *file, struct rknpu_bo *bo);
void rknpu_file_remove_handle(struct rknpu_handle *handle);
u64 rknpu_handle_cookie(const struct rknpu_handle *handle);
/* The buffer with this cookie, with a reference, or NULL. */
struct rknpu_bo *rknpu_file_lookup(struct rknpu_file *file, u64 cookie);

/* The user's jobs: -EAGAIN beyond his limit. */
int rknpu_uid_charge_job(struct rknpu_uid *uid);
void rknpu_uid_uncharge_job(struct rknpu_uid *uid);

int rknpu_ioctl_npud_limit(struct drm_device *drm, void *data, struct drm_file *drm_file);
int rknpu_ioctl_npud_revoke(struct drm_device *drm, void *data, struct drm_file *drm_file);
int rknpu_ioctl_npud_query(struct drm_device *drm, void *data, struct drm_file *drm_file);

void rknpu_file_show_fdinfo(struct seq_file *m, struct file *filp);

#endif /* RKNPU_FILE_H */
