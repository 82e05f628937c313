/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_JOB_H
#define RKNPU_JOB_H

#include <linux/completion.h>
#include <linux/dma-fence.h>
#include <linux/iosys-map.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>

#include "rknpu_queue.h"
#include "rknpu_soc.h"

struct drm_device;
struct drm_file;
struct rknpu_bo;
struct rknpu_device;
struct rknpu_file;
struct rknpu_space;

/*
 * waiting → queued → running → done | failed | cancelled;
 * waiting and queued may end at once; running goes back to queued if it could not be started.
 * All moves are in rknpu_job_move(), under rdev->lock.
 */
enum rknpu_job_state {
	RKNPU_JOB_NEW,
	RKNPU_JOB_WAITING,	/* for fences */
	RKNPU_JOB_QUEUED,
	RKNPU_JOB_RUNNING,
	RKNPU_JOB_DONE,
	RKNPU_JOB_FAILED,
	RKNPU_JOB_CANCELLED,
};

/* What one start of a core runs: at most as many tasks as PC_TASK_CONTROL counts. */
struct rknpu_chunk {
	u32 regcmd;
	u32 amount;
	u32 int_mask;
	u32 int_clear;
	u32 tasks;
};

/* What one core runs. @last_task: index into the task array, where int_status goes. */
struct rknpu_part {
	struct rknpu_chunk *chunks;
	unsigned int nr_chunks;
	unsigned int next;
	u32 last_task;
	u32 tasks_done;
	u32 int_status;
	int core;
};

struct rknpu_job_dep {
	struct dma_fence_cb cb;
	struct rknpu_job *job;
	struct dma_fence *fence;
	bool explicit;			/* asked for: its error is the job's */
};

/**
 * struct rknpu_job - one submit
 * @ref: the submitter's, the scheduler's (until the job ends), and one for each unsignalled fence it waits for
 * @space: a reference; the address space lives as long as the job
 * @task_bo: a reference; the task array, copied at submit, and the place for int_status
 */
struct rknpu_job {
	struct kref ref;
	struct rknpu_device *rdev;
	struct rknpu_file *file;
	struct rknpu_space *space;
	struct rknpu_bo *task_bo;
	struct iosys_map task_map;
	struct dma_fence *fence;
	struct work_struct reap;

	bool pingpong;
	u32 task_base;
	unsigned int timeout_ms;
	struct rknpu_part parts[RKNPU_MAX_CORES];
	unsigned int nr_parts;

	struct rknpu_job_dep *deps;
	unsigned int nr_deps;
	struct mutex deps_lock;		/* adding and removing callbacks */
	atomic_t deps_left;		/* and one while they are being added */
	atomic_t deps_error;

	/* under rdev->lock */
	enum rknpu_job_state state;
	struct rknpu_queue_entry entry;
	struct list_head file_link;
	bool cancel;			/* stop it, with @cancel_error, when @cancel_at has passed */
	int cancel_error;
	u64 cancel_at_ns;

	/* worker */
	u32 cores;			/* that it runs on */
	unsigned int attempts;		/* failed starts */
	u64 started_ns;
	u64 deadline_ns;

	/* final once @done */
	int result;
	u64 elapsed_ns;
	u32 tasks_done;
	struct completion done;
};

int rknpu_ioctl_submit(struct drm_device *drm, void *data, struct drm_file *drm_file);

struct rknpu_job *rknpu_job_get(struct rknpu_job *job);
void rknpu_job_put(struct rknpu_job *job);

/* Under rdev->lock. */
void rknpu_job_move(struct rknpu_job *job, enum rknpu_job_state to);
bool rknpu_job_final(const struct rknpu_job *job);
/*
 * Ends the job with @result: 0 is done, -ECANCELED (or cancel_error) cancelled, all else failed.
 * Its fence signals, whoever waits wakes, the scheduler's reference goes.
 * Any context that may sleep; harmless if it ended already.
 * Cores must be off it.
 */
void rknpu_job_end(struct rknpu_job *job, enum rknpu_job_state to, int result);
/* Asks for the end of a job; it comes at once if the job doesn't run, else after a short grace. */
void rknpu_job_cancel(struct rknpu_job *job, int error);
/* All jobs of @file that may run on @cores; waits for their ends. */
void rknpu_job_cancel_file(struct rknpu_file *file, u32 cores, int error);

const char *rknpu_job_state_name(enum rknpu_job_state state);

#endif /* RKNPU_JOB_H */
