// SPDX-License-Identifier: GPL-2.0-only
#include <linux/cred.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uidgid.h>
#include <drm/drm_file.h>

#include "rknpu_bo.h"
#include "rknpu_devfreq.h"
#include "rknpu_device.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_power.h"
#include "rknpu_vm.h"

static ulong max_mib_per_file;
module_param(max_mib_per_file, ulong, 0644);
MODULE_PARM_DESC(max_mib_per_file, "MiB of buffers that an open file may hold (default 0: no limit)");

static ulong max_mib_per_user;
module_param(max_mib_per_user, ulong, 0644);
MODULE_PARM_DESC(max_mib_per_user, "MiB of buffers that all files of a user may hold (default 0: no limit)");

static uint max_jobs_per_file = 256;
module_param(max_jobs_per_file, uint, 0644);
MODULE_PARM_DESC(max_jobs_per_file, "Jobs of an open file, queued or running");

static uint max_jobs_per_user = 1024;
module_param(max_jobs_per_user, uint, 0644);
MODULE_PARM_DESC(max_jobs_per_user, "Jobs of all files of a user, queued or running");

/* --- users -------------------------------------------------------------------------------------------------------------------- */

struct rknpu_uid {
	struct list_head link;
	unsigned int refs;
	kuid_t uid;
	atomic64_t bytes;
	atomic_t jobs;
};

static DEFINE_MUTEX(uids_lock);		/* the list and its references */
static LIST_HEAD(uids);

static struct rknpu_uid *file_uid_get(kuid_t uid)
{
	struct rknpu_uid *user;

	mutex_lock(&uids_lock);
	list_for_each_entry(user, &uids, link)
		if (uid_eq(user->uid, uid))
			goto found;
	user = kzalloc(sizeof(*user), GFP_KERNEL);
	if (!user)
		goto out;
	user->uid = uid;
	list_add(&user->link, &uids);
found:
	user->refs++;
out:
	mutex_unlock(&uids_lock);
	return user;
}

static void file_uid_put(struct rknpu_uid *user)
{
	mutex_lock(&uids_lock);
	if (!--user->refs) {
		WARN_ON(atomic64_read(&user->bytes) || atomic_read(&user->jobs));
		list_del(&user->link);
		kfree(user);
	}
	mutex_unlock(&uids_lock);
}

int rknpu_uid_charge_job(struct rknpu_uid *user)
{
	if (atomic_inc_return(&user->jobs) <= max_jobs_per_user)
		return 0;
	atomic_dec(&user->jobs);
	return -EAGAIN;
}

void rknpu_uid_uncharge_job(struct rknpu_uid *user)
{
	atomic_dec(&user->jobs);
}

/* --- opening and closing ------------------------------------------------------------------------------------------------------ */

static atomic64_t next_file_id;

int rknpu_file_open(struct drm_device *drm, struct drm_file *drm_file)
{
	struct rknpu_device *rdev = to_rknpu_device(drm);
	struct rknpu_file *file = kzalloc(sizeof(*file), GFP_KERNEL);

	if (!file)
		return -ENOMEM;
	file->uid = file_uid_get(current_euid());
	if (!file->uid) {
		kfree(file);
		return -ENOMEM;
	}
	kref_init(&file->ref);
	file->rdev = rdev;
	/* 31 bits are the part of a cookie that keeps other files out. */
	file->id = atomic64_inc_return(&next_file_id);
	file->pid = task_tgid_nr(current);
	get_task_comm(file->comm, current);
	mutex_init(&file->lock);
	INIT_LIST_HEAD(&file->imports);
	spin_lock_init(&file->shared_lock);
	INIT_LIST_HEAD(&file->shared);
	INIT_LIST_HEAD(&file->jobs);
	xa_init_flags(&file->handles, XA_FLAGS_ALLOC1);
	file->bytes_limit = max_mib_per_file ? (u64)max_mib_per_file << 20 : U64_MAX;
	file->jobs_limit = max_jobs_per_file;
	file->core_mask = rknpu_all_cores(rdev);
	file->priority = RKNPU_PRIORITY_HIGHEST;
	drm_file->driver_priv = file;

	mutex_lock(&rdev->list_lock);
	list_add_tail(&file->link, &rdev->files);
	rdev->nr_files++;
	mutex_unlock(&rdev->list_lock);
	return 0;
}

static void file_free(struct kref *ref)
{
	struct rknpu_file *file = container_of(ref, struct rknpu_file, ref);

	file_uid_put(file->uid);
	mutex_destroy(&file->lock);
	kfree(file);
}

void rknpu_file_put(struct rknpu_file *file)
{
	kref_put(&file->ref, file_free);
}

struct rknpu_file *rknpu_file_next(struct rknpu_device *rdev, u64 id)
{
	struct rknpu_file *file, *next = NULL;

	mutex_lock(&rdev->list_lock);
	list_for_each_entry(file, &rdev->files, link)
		if (file->id > id && (!next || file->id < next->id))
			next = file;
	if (next)
		kref_get(&next->ref);
	mutex_unlock(&rdev->list_lock);
	return next;
}

void rknpu_file_let_go(struct rknpu_file *file)
{
	mutex_lock(&file->lock);
	if (file->powered)
		rknpu_power_put_all(file->rdev);
	file->powered = false;
	rknpu_devfreq_drop_floor(file);
	mutex_unlock(&file->lock);
}

static void file_revoke(struct rknpu_file *file, int error)
{
	spin_lock_irq(&file->rdev->lock);
	file->revoked = true;
	spin_unlock_irq(&file->rdev->lock);
	rknpu_job_cancel_file(file, ~0u, error);
}

void rknpu_file_quiesce(struct rknpu_file *file)
{
	file_revoke(file, -ECANCELED);
}

void rknpu_file_postclose(struct drm_device *drm, struct drm_file *drm_file)
{
	struct rknpu_device *rdev = to_rknpu_device(drm);
	struct rknpu_file *file = drm_file->driver_priv;
	unsigned int i;

	/*
	 * What the file's jobs held is gone before the file is,
	 * so that its memory can be counted on when close() returns.
	 */
	flush_workqueue(rknpu_reaper);

	mutex_lock(&file->lock);
	file->closing = true;
	WARN_ON(file->bytes || file->nr_handles);
	mutex_unlock(&file->lock);
	/* While it is in the list, or the hardware could go in between. */
	rknpu_file_let_go(file);
	mutex_lock(&rdev->list_lock);
	list_del(&file->link);
	rdev->nr_files--;
	mutex_unlock(&rdev->list_lock);

	for (i = 0; i < RKNPU_MAX_DOMAINS; i++)
		if (file->spaces[i])
			rknpu_space_put(file->spaces[i]);
	WARN_ON(!xa_empty(&file->handles));
	xa_destroy(&file->handles);
	rknpu_file_put(file);
}

bool rknpu_file_revoked(struct rknpu_file *file)
{
	return READ_ONCE(file->revoked);
}

struct rknpu_space *rknpu_file_space(struct rknpu_file *file, int domain)
{
	struct rknpu_space *space;

	if (domain < 0 || domain >= RKNPU_MAX_DOMAINS)
		return ERR_PTR(-EINVAL);
	mutex_lock(&file->lock);
	space = file->spaces[domain];
	if (file->closing || rknpu_file_revoked(file)) {
		space = ERR_PTR(-ENODEV);
	} else if (!space) {
		space = rknpu_space_create(file, domain);
		if (!IS_ERR(space))
			file->spaces[domain] = space;
	}
	if (!IS_ERR(space))
		rknpu_space_get(space);
	mutex_unlock(&file->lock);
	return space;
}

/* --- handles ------------------------------------------------------------------------------------------------------------------ */

static int file_charge(struct rknpu_file *file, u64 bytes)
{
	u64 limit = max_mib_per_user ? (u64)max_mib_per_user << 20 : U64_MAX;

	lockdep_assert_held(&file->lock);
	if (bytes > file->bytes_limit || file->bytes > file->bytes_limit - bytes)
		return -EDQUOT;
	if ((u64)atomic64_add_return(bytes, &file->uid->bytes) > limit) {
		atomic64_sub(bytes, &file->uid->bytes);
		return -EDQUOT;
	}
	file->bytes += bytes;
	file->nr_handles++;
	return 0;
}

static void file_uncharge(struct rknpu_file *file, u64 bytes)
{
	lockdep_assert_held(&file->lock);
	atomic64_sub(bytes, &file->uid->bytes);
	file->bytes -= bytes;
	file->nr_handles--;
}

struct rknpu_handle *rknpu_file_add_handle(struct rknpu_file *file, struct rknpu_bo *bo)
{
	struct rknpu_handle *handle;
	int ret;

	handle = kzalloc(sizeof(*handle), GFP_KERNEL);
	if (!handle)
		return ERR_PTR(-ENOMEM);
	handle->file = file;
	handle->bo = bo;
	INIT_LIST_HEAD(&handle->import_link);
	INIT_LIST_HEAD(&handle->shared_link);

	mutex_lock(&file->lock);
	ret = file_charge(file, bo->base.base.size);
	if (ret)
		goto err;
	/* Numbers come round only after four billion, so a stale cookie finds nothing rather than something else. */
	ret = xa_alloc_cyclic(&file->handles, &handle->index, handle, XA_LIMIT(1, U32_MAX), &file->next_handle, GFP_KERNEL);
	if (ret < 0) {
		file_uncharge(file, bo->base.base.size);
		goto err;
	}
	if (bo->base.base.import_attach) {
		list_add_tail(&handle->import_link, &file->imports);
		file->import_gen++;
	}
	mutex_unlock(&file->lock);
	return handle;

err:
	mutex_unlock(&file->lock);
	kfree(handle);
	return ERR_PTR(ret);
}

void rknpu_file_remove_handle(struct rknpu_handle *handle)
{
	struct rknpu_file *file = handle->file;

	mutex_lock(&file->lock);
	xa_erase(&file->handles, handle->index);
	list_del(&handle->import_link);
	file_uncharge(file, handle->bo->base.base.size);
	mutex_unlock(&file->lock);
	kfree(handle);
}

#define COOKIE_FILE_MASK	0x7fffffffull

u64 rknpu_handle_cookie(const struct rknpu_handle *handle)
{
	return (handle->file->id & COOKIE_FILE_MASK) << 32 | handle->index;
}

struct rknpu_bo *rknpu_file_lookup(struct rknpu_file *file, u64 cookie)
{
	struct rknpu_bo *bo = NULL;
	struct rknpu_handle *handle;

	if (cookie >> 32 != (file->id & COOKIE_FILE_MASK))
		return NULL;
	xa_lock(&file->handles);
	handle = xa_load(&file->handles, lower_32_bits(cookie));
	/* As long as it is in the array the handle holds the buffer. */
	if (handle) {
		bo = handle->bo;
		drm_gem_object_get(&bo->base.base);
	}
	xa_unlock(&file->handles);
	return bo;
}

/* --- npud's ioctls ------------------------------------------------------------------------------------------------------------ */

int rknpu_ioctl_npud_limit(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct rknpu_file *file = drm_file->driver_priv;
	struct rknpu_device *rdev = file->rdev;
	struct rknpu_npud_limit *args = data;
	int ret = 0;

	if (!args->flags || (args->flags & ~RKNPU_NPUD_LIMIT_MASK) || args->reserved)
		return -EINVAL;
	if ((args->flags & RKNPU_NPUD_LIMIT_JOBS) && !args->jobs)
		return -EINVAL;
	if ((args->flags & RKNPU_NPUD_LIMIT_PRIORITY) &&
	    (args->priority < RKNPU_PRIORITY_HIGHEST || args->priority > RKNPU_PRIORITY_LOWEST))
		return -EINVAL;

	mutex_lock(&file->lock);
	spin_lock_irq(&rdev->lock);
	if ((args->flags & RKNPU_NPUD_LIMIT_CORES) && !(args->core_mask & file->core_mask)) {
		ret = -EINVAL;
		goto out;
	}
	if (args->flags & RKNPU_NPUD_LIMIT_CORES)
		file->core_mask &= args->core_mask;
	if (args->flags & RKNPU_NPUD_LIMIT_BYTES)
		file->bytes_limit = min(file->bytes_limit, args->bytes);
	if (args->flags & RKNPU_NPUD_LIMIT_PRIORITY)
		file->priority = max(file->priority, args->priority);
	if (args->flags & RKNPU_NPUD_LIMIT_JOBS)
		file->jobs_limit = min(file->jobs_limit, args->jobs);
	args->core_mask = file->core_mask;
	args->bytes = file->bytes_limit;
	args->priority = file->priority;
	args->jobs = file->jobs_limit;
out:
	spin_unlock_irq(&rdev->lock);
	mutex_unlock(&file->lock);
	return ret;
}

int rknpu_ioctl_npud_revoke(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct rknpu_npud_revoke *args = data;

	if (args->flags || args->reserved)
		return -EINVAL;
	file_revoke(drm_file->driver_priv, -ECANCELED);
	return 0;
}

static void file_query_file(struct rknpu_file *file, struct rknpu_npud_file_info *info)
{
	struct rknpu_device *rdev = file->rdev;
	unsigned int i;

	mutex_lock(&file->lock);
	info->bytes = file->bytes;
	info->bytes_limit = file->bytes_limit;
	info->objects = file->nr_handles;
	for (i = 0; i < RKNPU_MAX_DOMAINS; i++)
		info->spaces |= file->spaces[i] ? BIT(i) : 0;
	spin_lock_irq(&rdev->lock);
	info->core_mask = file->core_mask;
	info->priority = file->priority;
	info->jobs_limit = file->jobs_limit;
	info->jobs_active = file->jobs_active;
	info->jobs_done = file->jobs_done;
	info->jobs_failed = file->jobs_failed;
	info->jobs_cancelled = file->jobs_cancelled;
	info->page_faults = file->page_faults;
	info->last_fault_iova = file->fault_iova;
	info->last_fault_flags = file->fault_flags;
	info->last_fault_space = file->fault_space;
	for (i = 0; i < rdev->nr_cores; i++)
		info->busy_ns += file->busy_ns[i];
	spin_unlock_irq(&rdev->lock);
	mutex_unlock(&file->lock);
}

static int file_query_space(struct rknpu_file *file, u32 index, struct rknpu_npud_space_info *info)
{
	struct rknpu_space *space = NULL;

	if (index >= RKNPU_MAX_DOMAINS)
		return -EINVAL;
	mutex_lock(&file->lock);
	if (file->spaces[index])
		space = rknpu_space_get(file->spaces[index]);
	mutex_unlock(&file->lock);
	if (!space)
		return -ENOENT;
	rknpu_space_info(space, info);
	rknpu_space_put(space);
	return 0;
}

static void file_query_device(struct rknpu_device *rdev, struct rknpu_npud_device_info *info)
{
	info->cores = rdev->nr_cores;
	info->mmu_units = rdev->nr_units;
	info->mmu = rdev->mmu->id;
	mutex_lock(&rdev->list_lock);
	info->files = rdev->nr_files;
	info->spaces = rdev->nr_spaces;
	mutex_unlock(&rdev->list_lock);
	spin_lock_irq(&rdev->lock);
	info->flags = rdev->dead ? RKNPU_NPUD_DEVICE_DEAD : 0;
	info->jobs_queued = rdev->jobs_queued;
	info->jobs_running = rdev->jobs_running;
	spin_unlock_irq(&rdev->lock);
	info->resets = atomic64_read(&rdev->resets);
	info->timeouts = atomic64_read(&rdev->timeouts);
	info->page_faults = atomic64_read(&rdev->page_faults);
	info->switches = atomic64_read(&rdev->switches);
	info->iova_bytes = atomic64_read(&rdev->iova_bytes);
}

int rknpu_ioctl_npud_query(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct rknpu_file *file = drm_file->driver_priv;
	struct rknpu_npud_query *args = data;
	u32 what = args->what, index = args->index;

	memset(args, 0, sizeof(*args));
	args->what = what;
	args->index = index;
	if (what != RKNPU_NPUD_QUERY_SPACE && index)
		return -EINVAL;
	switch (what) {
	case RKNPU_NPUD_QUERY_FILE:
		file_query_file(file, &args->file);
		return 0;
	case RKNPU_NPUD_QUERY_SPACE:
		return file_query_space(file, index, &args->space);
	case RKNPU_NPUD_QUERY_DEVICE:
		file_query_device(file->rdev, &args->device);
		return 0;
	default:
		return -EINVAL;
	}
}

/* --- fdinfo: Documentation/gpu/drm-usage-stats.rst ------------------------------------------------------------------------------ */

void rknpu_file_show_fdinfo(struct seq_file *m, struct file *filp)
{
	struct drm_file *drm_file = filp->private_data;
	struct rknpu_file *file = drm_file->driver_priv;
	struct rknpu_device *rdev = file->rdev;
	struct rknpu_npud_file_info info = {};
	u64 busy[RKNPU_MAX_CORES], now;
	unsigned int i;

	file_query_file(file, &info);
	spin_lock_irq(&rdev->lock);
	now = ktime_get_ns();
	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];

		busy[i] = file->busy_ns[i];
		/* Time on a core counts while it passes, not when the job is over. */
		if (core->job && core->job->file == file && core->job->started_ns)
			busy[i] += now - core->job->started_ns;
	}
	spin_unlock_irq(&rdev->lock);

	seq_printf(m, "drm-driver:\t%s\n", RKNPU_DRM_NAME);
	seq_printf(m, "drm-client-id:\t%llu\n", file->id);
	for (i = 0; i < rdev->nr_cores; i++)
		seq_printf(m, "drm-engine-npu-core%u:\t%llu ns\n", i, busy[i]);
	seq_printf(m, "drm-memory-system:\t%llu KiB\n", info.bytes >> 10);
	seq_printf(m, "drm-total-system:\t%llu KiB\n", info.bytes >> 10);
	seq_printf(m, "npud-jobs-active:\t%u\n", info.jobs_active);
	seq_printf(m, "npud-jobs-done:\t%llu\n", info.jobs_done);
	seq_printf(m, "npud-jobs-failed:\t%llu\n", info.jobs_failed);
	seq_printf(m, "npud-page-faults:\t%llu\n", info.page_faults);
}
