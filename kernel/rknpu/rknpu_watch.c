// SPDX-License-Identifier: GPL-2.0-only
/* Looking at cores that run: what is done, what failed, when to look again. */
#include <linux/device.h>

#include "rknpu_core.h"
#include "rknpu_device.h"
#include "rknpu_job.h"
#include "rknpu_mmu.h"
#include "rknpu_recover.h"
#include "rknpu_watch.h"

#define DRAIN_MS		1	/* between two looks at a core that is done but still writes, or that may be done */
#define FAULT_GRACE_MS		20	/* for a core to show that a fault that can't be told apart was not its own */

/* The chunk is complete. True if the core goes on with the next one. */
static void watch_chunk_done(struct rknpu_core *core)
{
	struct rknpu_part *part = core->part;
	const struct rknpu_chunk *chunk = &part->chunks[part->next];

	spin_lock_irq(&core->irq_lock);
	core->armed = false;
	core->complete = false;
	/* Somebody who looked saw bits that nobody asked for. */
	part->int_status = core->done.seen_bits & chunk->int_mask;
	if (!core->done.line)
		atomic64_inc(&core->rdev->lost_irqs);
	spin_unlock_irq(&core->irq_lock);
	part->tasks_done += chunk->tasks;
	part->next++;
	core->strikes = 0;
	core->unstarted = 0;
	core->fault_held = false;
	core->watch_ms = 0;
	core->watch_at_ns = ktime_get_ns() + rknpu_ms_to_ns(RKNPU_WATCH_MS);
	if (part->next < part->nr_chunks)
		rknpu_core_start(core, &part->chunks[part->next], core->job->pingpong, core->job->task_base);
	else
		core->finished = true;
}

/*
 * When to look at the core next.
 * An end that something objects to is looked at again soon; that is over in a moment or takes long,
 * and the registers of a core at work aren't to be read a thousand times a second.
 */
static void watch_core_next(struct rknpu_core *core, u64 now, bool doubt)
{
	if (!doubt)
		core->watch_ms = 0;
	else
		core->watch_ms = core->watch_ms ? min_t(unsigned int, 2 * core->watch_ms, RKNPU_WATCH_MS) : DRAIN_MS;
	core->watch_at_ns = now + rknpu_ms_to_ns(core->watch_ms ?: RKNPU_WATCH_MS);
}

/*
 * One running core.
 * The job may be gone after this.
 * Events are looked at in the order of what they prove:
 * a core that is complete and idle did its work, whatever else was seen.
 */
static void watch_core_check(struct rknpu_core *core, u64 now, u64 *next)
{
	struct rknpu_job *job = core->job;
	struct rknpu_fault fault;
	bool complete, doubt, watch = now >= core->watch_at_ns;
	u32 raw = 0;

	spin_lock_irq(&core->irq_lock);
	complete = core->complete;
	doubt = core->done.doubt;
	fault = core->fault;
	spin_unlock_irq(&core->irq_lock);

	if (!complete && (watch || now >= job->deadline_ns)) {
		enum rknpu_verdict verdict = rknpu_core_poll(core, now >= job->deadline_ns, &raw);

		complete = verdict == RKNPU_DONE;
		watch_core_next(core, now, verdict == RKNPU_LOOK_AGAIN);
	} else if (doubt && !core->watch_ms) {
		/* So said the interrupt handler. */
		watch_core_next(core, now, true);
	}
	if (complete && !(fault.valid && fault.certain)) {
		/*
		 * The interrupt may come before the last write has left the core.
		 * Who waits for the job reads the result at once, and what the job used may be freed:
		 * both need the writes to be over.
		 */
		if (rknpu_mmu_idle(core)) {
			watch_chunk_done(core);
			return;
		}
		if (now < job->deadline_ns) {
			rknpu_note_next(next, now + rknpu_ms_to_ns(DRAIN_MS));
			return;
		}
		rknpu_core_timed_out(core, "done but never idle", raw, -ETIMEDOUT);
		return;
	}
	if (fault.valid && !fault.certain) {
		if (!core->fault_held) {
			core->fault_held = true;
			core->fault_at_ns = now;
		}
		if (now < core->fault_at_ns + rknpu_ms_to_ns(FAULT_GRACE_MS)) {
			rknpu_note_next(next, core->fault_at_ns + rknpu_ms_to_ns(FAULT_GRACE_MS));
			return;
		}
	}
	if (fault.valid) {
		rknpu_core_page_fault(core, &fault);
		return;
	}
	if (now >= job->deadline_ns) {
		rknpu_core_timed_out(core, "timed out", raw, -ETIMEDOUT);
		return;
	}
	rknpu_note_next(next, min(job->deadline_ns, core->watch_at_ns));
}

/* A whole job: its cores, its cancellation, its end. */
static void watch_job_check(struct rknpu_job *job, u64 now, u64 *next)
{
	struct rknpu_device *rdev = job->rdev;
	u32 running = 0;
	bool cancel;
	unsigned int i;

	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];

		if (core->job != job || core->finished)
			continue;
		watch_core_check(core, now, next);
		if (core->job != job)
			return;	/* it failed */
		running |= core->finished ? 0 : BIT(i);
	}

	spin_lock_irq(&rdev->lock);
	cancel = job->cancel;
	spin_unlock_irq(&rdev->lock);
	if (!running) {
		rknpu_job_release_cores(job);
		rknpu_job_end(job, cancel ? RKNPU_JOB_CANCELLED : RKNPU_JOB_DONE, cancel ? job->cancel_error : 0);
	} else if (cancel) {
		if (now >= job->cancel_at_ns)
			rknpu_job_fail(job, RKNPU_JOB_CANCELLED, job->cancel_error);
		else
			rknpu_note_next(next, job->cancel_at_ns);
	}
}

void rknpu_watch_jobs(struct rknpu_device *rdev, u64 now, u64 *next)
{
	unsigned int i;

	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_job *job = rdev->cores[i].job;

		/* A gang is looked at once, by its first core. */
		if (job && __ffs(job->cores) == i) {
			rknpu_job_get(job);
			watch_job_check(job, now, next);
			rknpu_job_put(job);
		}
	}
}
