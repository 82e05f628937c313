// SPDX-License-Identifier: GPL-2.0-only
#include <linux/dma-resv.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <drm/drm_file.h>
#include <drm/drm_print.h>

#include "rknpu_bo.h"
#include "rknpu_check.h"
#include "rknpu_compat.h"
#include "rknpu_deps.h"
#include "rknpu_device.h"
#include "rknpu_fence.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_prime.h"
#include "rknpu_sched.h"
#include "rknpu_trace.h"
#include "rknpu_vm.h"

static uint default_timeout_ms = 6000;
module_param(default_timeout_ms, uint, 0644);
MODULE_PARM_DESC(default_timeout_ms, "Time limit of a job that names none, from its start");

static uint max_timeout_ms = 60000;
module_param(max_timeout_ms, uint, 0644);
MODULE_PARM_DESC(max_timeout_ms, "Longest time limit that a job can have");

static uint cancel_grace_ms = 20;
module_param(cancel_grace_ms, uint, 0644);
MODULE_PARM_DESC(cancel_grace_ms, "Time that a running job has to end by itself when it is cancelled, before its cores are reset");

/* --- states and lifetime ---------------------------------------------------------------------------------------------------- */

static const char * const state_names[] = {
	"new", "waiting", "queued", "running", "done", "failed", "cancelled",
};

const char *rknpu_job_state_name(enum rknpu_job_state state)
{
	return state_names[state];
}

bool rknpu_job_final(const struct rknpu_job *job)
{
	return job->state >= RKNPU_JOB_DONE;
}

void rknpu_job_move(struct rknpu_job *job, enum rknpu_job_state to)
{
	struct rknpu_device *rdev = job->rdev;
	enum rknpu_job_state from = job->state;

	lockdep_assert_held(&rdev->lock);
	WARN_ON(rknpu_job_final(job) || (to == RKNPU_JOB_RUNNING && from != RKNPU_JOB_QUEUED) ||
		(to == RKNPU_JOB_DONE && from != RKNPU_JOB_RUNNING) || (to == RKNPU_JOB_WAITING && from != RKNPU_JOB_NEW));

	if (from == RKNPU_JOB_QUEUED) {
		list_del_init(&job->entry.link);
		rdev->jobs_queued--;
	} else if (from == RKNPU_JOB_RUNNING) {
		rdev->jobs_running--;
	}
	job->state = to;
	if (to == RKNPU_JOB_QUEUED) {
		if (from == RKNPU_JOB_WAITING)
			job->space->gap_ns = ktime_get_ns() - job->space->ended_ns;
		rknpu_queue_add(&rdev->queue, &job->entry);
		rdev->jobs_queued++;
		trace_job_queued(job);
	} else if (to == RKNPU_JOB_RUNNING) {
		rdev->jobs_running++;
	} else if (rknpu_job_final(job)) {
		list_del_init(&job->file_link);
		job->file->jobs_active--;
		job->file->jobs_done += to == RKNPU_JOB_DONE;
		job->file->jobs_failed += to == RKNPU_JOB_FAILED;
		job->file->jobs_cancelled += to == RKNPU_JOB_CANCELLED;
	}
}

/*
 * On the reaper: what a job holds may be the last of its kind,
 * and taking that apart takes locks and may wait for the worker.
 */
static void job_reap(struct work_struct *work)
{
	struct rknpu_job *job = container_of(work, struct rknpu_job, reap);
	unsigned int i;

	rknpu_deps_fini(job);
	for (i = 0; i < ARRAY_SIZE(job->parts); i++)
		kvfree(job->parts[i].chunks);
	dma_fence_put(job->fence);
	if (job->task_bo)
		drm_gem_object_put(&job->task_bo->base.base);
	if (job->space)
		rknpu_space_put(job->space);
	rknpu_file_put(job->file);
	kfree(job);
}

static void job_release(struct kref *ref)
{
	struct rknpu_job *job = container_of(ref, struct rknpu_job, ref);

	INIT_WORK(&job->reap, job_reap);
	queue_work(rknpu_reaper, &job->reap);
}

struct rknpu_job *rknpu_job_get(struct rknpu_job *job)
{
	kref_get(&job->ref);
	return job;
}

void rknpu_job_put(struct rknpu_job *job)
{
	kref_put(&job->ref, job_release);
}

static void job_write_back(struct rknpu_job *job)
{
	unsigned int i;

	for (i = 0; i < job->nr_parts; i++) {
		size_t at = job->parts[i].last_task * sizeof(struct rknpu_task) +
			    offsetof(struct rknpu_task, int_status);

		/* The bounds were checked when the tasks were copied, and the buffer can't shrink. */
		if (!job->parts[i].tasks_done)
			continue;
		iosys_map_wr(&job->task_map, at, u32, job->parts[i].int_status);
		rknpu_bo_push(job->task_bo, at, sizeof(u32));
	}
}

/* Under rdev->lock: the end is decided. */
static void job_settle(struct rknpu_job *job, enum rknpu_job_state to, int result)
{
	unsigned int i;

	for (i = 0; i < job->nr_parts; i++)
		job->tasks_done += job->parts[i].tasks_done;
	if (job->started_ns)
		job->elapsed_ns = ktime_get_ns() - job->started_ns;
	job->result = result;
	rknpu_job_move(job, to);
	trace_job_ended(job);
}

/* … and said, once, by whoever decided it. */
static void job_announce(struct rknpu_job *job)
{
	job_write_back(job);
	rknpu_uid_uncharge_job(job->file->uid);
	rknpu_fence_signal(job->fence, job->result);
	complete_all(&job->done);
	rknpu_job_put(job);
}

void rknpu_job_end(struct rknpu_job *job, enum rknpu_job_state to, int result)
{
	struct rknpu_device *rdev = job->rdev;
	bool mine;

	spin_lock_irq(&rdev->lock);
	mine = !rknpu_job_final(job);
	if (mine)
		job_settle(job, to, result);
	spin_unlock_irq(&rdev->lock);
	if (mine)
		job_announce(job);
}

/* --- cancelling --------------------------------------------------------------------------------------------------------------- */

void rknpu_job_cancel(struct rknpu_job *job, int error)
{
	struct rknpu_device *rdev = job->rdev;
	bool mine = false;

	spin_lock_irq(&rdev->lock);
	if (job->state == RKNPU_JOB_RUNNING) {
		if (!job->cancel) {
			job->cancel = true;
			job->cancel_error = error;
			job->cancel_at_ns = ktime_get_ns() + (u64)cancel_grace_ms * NSEC_PER_MSEC;
		}
	} else if (!rknpu_job_final(job)) {
		job_settle(job, RKNPU_JOB_CANCELLED, error);
		mine = true;
	}
	spin_unlock_irq(&rdev->lock);
	if (mine) {
		rknpu_deps_disarm(job);
		job_announce(job);
	} else {
		rknpu_sched_kick(rdev);
	}
}

/*
 * Under rdev->lock.
 * What is to be cancelled next, jobs that don't run first, or one more of those that end would start another.
 */
static struct rknpu_job *job_next_to_cancel(struct rknpu_file *file, u32 cores, u64 last, bool *told)
{
	struct rknpu_job *job, *running = NULL, *ending = NULL;

	*told = false;
	list_for_each_entry(job, &file->jobs, file_link) {
		if (!(job->entry.cores & cores) || job->entry.seq > last)
			continue;
		if (job->state != RKNPU_JOB_RUNNING)
			return job;
		if (job->cancel)
			ending = job;
		else
			running = job;
	}
	*told = !running;
	return running ?: ending;
}

void rknpu_job_cancel_file(struct rknpu_file *file, u32 cores, int error)
{
	struct rknpu_device *rdev = file->rdev;
	u64 last = atomic64_read(&rdev->job_seq);
	struct rknpu_job *job;
	bool told;

	/* Those that were there when the call came; a file that must not get more was told so before. */
	do {
		spin_lock_irq(&rdev->lock);
		job = job_next_to_cancel(file, cores, last, &told);
		if (job)
			rknpu_job_get(job);
		spin_unlock_irq(&rdev->lock);
		if (!job)
			break;
		if (told)
			wait_for_completion(&job->done);
		else
			rknpu_job_cancel(job, error);
		rknpu_job_put(job);
	} while (true);
}

/* --- submit ------------------------------------------------------------------------------------------------------------------- */

/*
 * What the cores will be given, copied while nobody else can change the copy.
 * Only the first task of a chunk, which the program controller is pointed at, and the last, whose interrupt
 * ends it, count; what is between is chained by the commands themselves, which the page tables keep within the
 * space.
 */
static int job_copy_part(struct rknpu_job *job, struct rknpu_part *part, u32 start, u32 number, const char **why)
{
	const struct rknpu_soc *soc = job->rdev->soc;
	u32 most = GENMASK(soc->task_bits - 1, 0), i;
	int ret;

	*why = "tasks beyond the task array";
	ret = rknpu_check_tasks(start, number, job->task_bo->base.base.size);
	if (ret)
		return ret;
	*why = NULL;
	part->nr_chunks = DIV_ROUND_UP(number, most);
	part->chunks = kvcalloc(part->nr_chunks, sizeof(*part->chunks), GFP_KERNEL);
	if (!part->chunks)
		return -ENOMEM;
	part->last_task = start + number - 1;
	part->core = -1;
	for (i = 0; i < part->nr_chunks; i++) {
		struct rknpu_chunk *chunk = &part->chunks[i];
		u32 first = start + i * most;
		struct rknpu_task task;

		chunk->tasks = min(number - i * most, most);
		iosys_map_memcpy_from(&task, &job->task_map, first * sizeof(task), sizeof(task));
		ret = rknpu_check_task(soc, &task, why);
		if (ret)
			return ret;
		chunk->regcmd = task.regcmd_addr;
		chunk->amount = rknpu_pc_amount(soc, task.regcfg_amount);
		chunk->int_clear = task.int_mask;
		iosys_map_memcpy_from(&task, &job->task_map, (first + chunk->tasks - 1) * sizeof(task), sizeof(task));
		ret = rknpu_check_task(soc, &task, why);
		if (ret)
			return ret;
		chunk->int_mask = task.int_mask;
	}
	return 0;
}

/* The priority that is asked for is a wish, and becomes what the file may have. */
static int job_check_rights(struct rknpu_file *file, struct rknpu_submit *args, struct rknpu_split *split)
{
	u32 allowed;
	s32 urgent;

	spin_lock_irq(&file->rdev->lock);
	allowed = file->core_mask;
	urgent = file->priority;
	spin_unlock_irq(&file->rdev->lock);

	if (split->any)
		split->cores &= allowed;
	if (!split->cores || (split->cores & ~allowed)) {
		drm_dbg(&file->rdev->drm, "SUBMIT: cores %#x, of which this file may use %#x\n", args->core_mask, allowed);
		return -EPERM;
	}
	args->priority = rknpu_clamp_priority(args->priority, urgent, args->priority >= 0 || capable(CAP_SYS_NICE));
	return 0;
}

/*
 * The last that can fail: from here on the job is the scheduler's, too.
 * -ESTALE: a buffer of the file was shared since @shared_gen, and must hear of the job.
 */
static int job_publish(struct rknpu_job *job, unsigned int shared_gen)
{
	struct rknpu_device *rdev = job->rdev;
	struct rknpu_file *file = job->file;
	int ret;

	ret = rknpu_uid_charge_job(file->uid);
	if (ret)
		return ret;
	spin_lock_irq(&rdev->lock);
	if (rdev->dead || rdev->gone || file->revoked) {
		ret = -ENODEV;
	} else if (file->jobs_active >= file->jobs_limit) {
		ret = -EAGAIN;
	} else if (READ_ONCE(file->shared_gen) != shared_gen) {
		ret = -ESTALE;
	} else {
		job->entry.seq = atomic64_inc_return(&rdev->job_seq);
		list_add_tail(&job->file_link, &file->jobs);
		file->jobs_active++;
		rknpu_job_get(job);
		rknpu_job_move(job, RKNPU_JOB_WAITING);
	}
	spin_unlock_irq(&rdev->lock);
	if (ret)
		rknpu_uid_uncharge_job(file->uid);
	return ret;
}

/*
 * Publishes the job and leaves its fence with each shared buffer,
 * all of which are locked at once, so that two who share several of them see one order.
 * The fence will signal, whatever becomes of the job.
 */
static int job_publish_once(struct rknpu_job *job)
{
	struct ww_acquire_ctx acquire;
	struct drm_gem_object **objs;
	unsigned int count, gen, i;
	int ret;

	ret = rknpu_prime_get_shared(job->file, job->space, &objs, &count, &gen);
	if (ret)
		return ret;
	if (!count)
		return job_publish(job, gen);
	ret = drm_gem_lock_reservations(objs, count, &acquire);
	if (ret)
		goto out;
	for (i = 0; i < count && !ret; i++) {
		ret = dma_resv_reserve_fences(objs[i]->resv, 1);
		ret = ret ?: rknpu_deps_add_resv(job, objs[i]->resv);
	}
	ret = ret ?: job_publish(job, gen);
	for (i = 0; i < count && !ret; i++)
		dma_resv_add_fence(objs[i]->resv, job->fence, DMA_RESV_USAGE_WRITE);
	drm_gem_unlock_reservations(objs, count, &acquire);
out:
	for (i = 0; i < count; i++)
		drm_gem_object_put(objs[i]);
	kvfree(objs);
	return ret;
}

static int job_publish_shared(struct rknpu_job *job)
{
	int ret;

	do {
		ret = job_publish_once(job);
	} while (ret == -ESTALE);
	return ret;
}

static int job_fill(struct rknpu_job *job, const struct rknpu_submit *args, const struct rknpu_split *split,
		    const char **why)
{
	unsigned int i;
	int ret;

	job->task_bo = rknpu_file_lookup(job->file, args->task_obj_addr);
	if (!job->task_bo) {
		*why = "task_obj_addr is no buffer of this file";
		return -EINVAL;
	}
	ret = rknpu_bo_vmap(job->task_bo, &job->task_map);
	if (ret)
		return ret;
	for (i = 0; i < split->parts; i++) {
		ret = job_copy_part(job, &job->parts[i], split->start[i], split->number[i], why);
		if (ret)
			return ret;
		job->nr_parts++;
	}
	job->space = rknpu_file_space(job->file, args->iommu_domain_id);
	if (IS_ERR(job->space)) {
		ret = PTR_ERR(job->space);
		job->space = NULL;
		return ret;
	}
	ret = rknpu_bo_map_imports(job->file, args->iommu_domain_id);
	if (ret)
		return ret;
	job->entry.space = job->space;
	job->entry.cores = split->cores;
	job->entry.any = split->any;
	job->entry.priority = args->priority;
	job->pingpong = args->flags & RKNPU_JOB_PINGPONG;
	job->task_base = args->task_base_addr;
	job->timeout_ms = clamp(args->timeout ?: default_timeout_ms, 1u, max(max_timeout_ms, 1u));
	return args->flags & RKNPU_JOB_FENCE_IN ? rknpu_deps_add_fd(job, args->fence_fd) : 0;
}

static struct rknpu_job *job_alloc(struct rknpu_device *rdev, struct rknpu_file *file)
{
	struct rknpu_job *job = kzalloc(sizeof(*job), GFP_KERNEL);

	if (!job)
		return NULL;
	job->fence = rknpu_fence_create(file->id);
	if (!job->fence) {
		kfree(job);
		return NULL;
	}
	kref_init(&job->ref);
	kref_get(&file->ref);
	job->file = file;
	job->rdev = rdev;
	INIT_LIST_HEAD(&job->entry.link);
	INIT_LIST_HEAD(&job->file_link);
	mutex_init(&job->deps_lock);
	atomic_set(&job->deps_left, 1);
	init_completion(&job->done);
	return job;
}

int rknpu_ioctl_submit(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct rknpu_device *rdev = to_rknpu_device(drm);
	struct rknpu_file *file = drm_file->driver_priv;
	struct rknpu_submit *args = data;
	struct rknpu_split split;
	struct rknpu_job *job;
	struct file *sync = NULL;
	const char *why = NULL;
	int ret, fd = -1;

	args->task_counter = 0;
	args->hw_elapse_time = 0;
	ret = rknpu_check_submit(args, rknpu_all_cores(rdev), &why);
	ret = ret ?: rknpu_split_job(args, rknpu_all_cores(rdev), &split);
	ret = ret ?: job_check_rights(file, args, &split);
	if (ret)
		goto err;

	job = job_alloc(rdev, file);
	if (!job)
		return -ENOMEM;
	ret = job_fill(job, args, &split, &why);
	if (ret)
		goto err_job;
	if (args->flags & RKNPU_JOB_FENCE_OUT) {
		fd = rknpu_fence_fd(job->fence, &sync);
		if (fd < 0) {
			ret = fd;
			goto err_job;
		}
	}
	ret = job_publish_shared(job);
	if (ret)
		goto err_fd;
	if (sync) {
		fd_install(fd, sync);
		args->fence_fd = fd;
	}
	rknpu_deps_arm(job);

	if (!(args->flags & RKNPU_JOB_NONBLOCK)) {
		/* A suspend doesn't wait for the job; the job's time limit doesn't stand still for it. */
		ret = wait_for_completion_state(&job->done, TASK_KILLABLE | TASK_FREEZABLE);
		if (ret) {
			/* The caller dies; what it held goes when the core has let go of it. */
			rknpu_job_cancel(job, -EINTR);
			ret = -EINTR;
		} else {
			ret = job->result;
			args->task_counter = job->tasks_done;
			args->hw_elapse_time = job->elapsed_ns;
		}
	}
	rknpu_job_put(job);
	return ret;

err_fd:
	if (sync) {
		put_unused_fd(fd);
		fput(sync);
	}
err_job:
	/* A fence that was never shown must be signalled all the same. */
	rknpu_fence_signal(job->fence, ret);
	rknpu_job_put(job);
err:
	drm_dbg(drm, "SUBMIT of %u tasks, flags %#x, cores %#x: %s (%d)\n", args->task_number, args->flags, args->core_mask,
		why ?: "refused", ret);
	return ret;
}
