// SPDX-License-Identifier: GPL-2.0-only
/* What a job waits for before it is queued. */
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/slab.h>
#include <linux/sync_file.h>

#include "rknpu_deps.h"
#include "rknpu_device.h"
#include "rknpu_fence.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_sched.h"

/*
 * A fence signalled, or all were added: whoever brings the count to zero queues the job.
 * Any context.
 */
static void deps_done(struct rknpu_job *job)
{
	struct rknpu_device *rdev = job->rdev;
	unsigned long flags;

	if (!atomic_dec_and_test(&job->deps_left))
		return;
	spin_lock_irqsave(&rdev->lock, flags);
	if (job->state == RKNPU_JOB_WAITING)
		rknpu_job_move(job, RKNPU_JOB_QUEUED);
	spin_unlock_irqrestore(&rdev->lock, flags);
	rknpu_sched_kick(rdev);
}

static void deps_signalled(struct dma_fence *fence, struct dma_fence_cb *cb)
{
	struct rknpu_job_dep *dep = container_of(cb, struct rknpu_job_dep, cb);
	struct rknpu_job *job = dep->job;

	if (dep->explicit && fence->error)
		atomic_cmpxchg(&job->deps_error, 0, fence->error);
	deps_done(job);
	rknpu_job_put(job);
}

/* Arming and disarming exclude each other, or a callback could be removed that is just being added. */
void rknpu_deps_arm(struct rknpu_job *job)
{
	unsigned int i;

	mutex_lock(&job->deps_lock);
	for (i = 0; i < job->nr_deps; i++) {
		struct rknpu_job_dep *dep = &job->deps[i];

		dep->job = rknpu_job_get(job);
		atomic_inc(&job->deps_left);
		if (dma_fence_add_callback(dep->fence, &dep->cb, deps_signalled)) {
			/* signalled before */
			if (dep->explicit && dep->fence->error)
				atomic_cmpxchg(&job->deps_error, 0, dep->fence->error);
			atomic_dec(&job->deps_left);
			dep->job = NULL;
			rknpu_job_put(job);
		}
	}
	mutex_unlock(&job->deps_lock);
	deps_done(job);
}

void rknpu_deps_disarm(struct rknpu_job *job)
{
	unsigned int i;

	mutex_lock(&job->deps_lock);
	for (i = 0; i < job->nr_deps; i++)
		if (job->deps[i].job && dma_fence_remove_callback(job->deps[i].fence, &job->deps[i].cb))
			rknpu_job_put(job);
	mutex_unlock(&job->deps_lock);
}

/* Takes the reference over, in any case. */
static int deps_add(struct rknpu_job *job, struct dma_fence *fence, bool explicit)
{
	struct rknpu_job_dep *deps;

	deps = krealloc(job->deps, (job->nr_deps + 1) * sizeof(*deps), GFP_KERNEL);
	if (!deps) {
		dma_fence_put(fence);
		return -ENOMEM;
	}
	job->deps = deps;
	deps[job->nr_deps++] = (struct rknpu_job_dep) { .fence = fence, .explicit = explicit };
	return 0;
}

int rknpu_deps_add_fd(struct rknpu_job *job, int fd)
{
	struct dma_fence *fence = sync_file_get_fence(fd);

	return fence ? deps_add(job, fence, true) : -EINVAL;
}

/*
 * What others do with a buffer comes before this job:
 * a job names no buffers, so each shared one of its space counts as read and written.
 * Jobs of one file don't wait for each other;
 * they never did in this interface, and three threads on three cores live by it.
 */
int rknpu_deps_add_resv(struct rknpu_job *job, struct dma_resv *resv)
{
	struct dma_resv_iter cursor;
	struct dma_fence *fence;
	int ret;

	dma_resv_assert_held(resv);
	dma_resv_for_each_fence(&cursor, resv, DMA_RESV_USAGE_READ, fence) {
		if (rknpu_fence_is_of_file(fence, job->file->id) || dma_fence_is_signaled(fence))
			continue;
		ret = deps_add(job, dma_fence_get(fence), false);
		if (ret)
			return ret;
	}
	return 0;
}

void rknpu_deps_fini(struct rknpu_job *job)
{
	unsigned int i;

	for (i = 0; i < job->nr_deps; i++)
		dma_fence_put(job->deps[i].fence);
	kfree(job->deps);
}
