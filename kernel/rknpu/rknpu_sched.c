// SPDX-License-Identifier: GPL-2.0-only
/*
 * The one thread that starts and stops cores. Interrupts, timers, submitters and those who take something away only leave word and
 * kick it, so that no two of these ever meet at the hardware.
 */
#include <linux/delay.h>
#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <drm/drm_drv.h>

#include "rknpu_compat.h"
#include "rknpu_core.h"
#include "rknpu_device.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_mmu.h"
#include "rknpu_power.h"
#include "rknpu_regs.h"
#include "rknpu_sched.h"
#include "rknpu_vm.h"

#define WATCH_MS		50	/* between two looks at a running core, in case its interrupt got lost */
#define DRAIN_MS		1	/* between two looks at a core that is done but still writes */
#define FAULT_GRACE_MS		20	/* for a core to show that a fault that can't be told apart was not its own */
#define START_ATTEMPTS		3
#define START_RETRY_MS		10
#define PROBE_ADDRESS		0x1000	/* below every window, so that no space maps it */
#define PROBE_MS		50

static uint core_strikes = 4;
module_param(core_strikes, uint, 0644);
MODULE_PARM_DESC(core_strikes, "Failures in a row, without a single task completed, after which a core is asked whether it lives (0: never)");

static u64 ms(unsigned int n)
{
	return (u64)n * NSEC_PER_MSEC;
}

static void note_next(u64 *next, u64 at)
{
	*next = min(*next, at);
}

/* --- dead cores --------------------------------------------------------------------------------------------------------------- */

static void say_dead(struct rknpu_device *rdev)
{
	char *env[2] = { "RKNPU=DEAD", NULL };

	dev_err(rknpu_dma_dev(rdev), "no core works any more: the device is dead until it is reset (debugfs) or bound again\n");
	kobject_uevent_env(&rknpu_dma_dev(rdev)->kobj, KOBJ_CHANGE, env);
}

static void core_set_dead(struct rknpu_core *core)
{
	struct rknpu_device *rdev = core->rdev;
	bool last;

	spin_lock_irq(&rdev->lock);
	rdev->dead_cores |= BIT(core->index);
	last = rdev->dead_cores == rknpu_all_cores(rdev) && !rdev->dead;
	if (last)
		rdev->dead = true;
	spin_unlock_irq(&rdev->lock);
	dev_err(rknpu_core_dev(core), "core %u is dead\n", core->index);
	if (last)
		say_dead(rdev);
}

/* --- the end of a job --------------------------------------------------------------------------------------------------------- */

/* The core is off the job: stopped, or done and drained. */
static void core_release(struct rknpu_core *core, struct rknpu_job *job)
{
	struct rknpu_device *rdev = core->rdev;
	u64 ran = ktime_get_ns() - core->started_ns;

	spin_lock_irq(&rdev->lock);
	core->busy_ns += ran;
	job->file->busy_ns[core->index] += ran;
	core->job = NULL;
	spin_unlock_irq(&rdev->lock);
	core->part = NULL;
	if (!--core->unit->running)
		core->unit->running_space = NULL;
	rknpu_power_put(core);
}

static void job_release_cores(struct rknpu_job *job)
{
	struct rknpu_device *rdev = job->rdev;
	unsigned int i;

	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job == job)
			core_release(&rdev->cores[i], job);
}

/*
 * Stops cores, all of them before any MMU is touched: those of a gang may share one. Where another job goes on behind a core's MMU that
 * stays as it is, and nothing new starts behind it until that job is over.
 */
static void stop_cores(struct rknpu_device *rdev, u32 cores)
{
	unsigned int i, k;

	for (i = 0; i < rdev->nr_cores; i++)
		if ((cores & BIT(i)) && rknpu_core_halt(&rdev->cores[i]))
			core_set_dead(&rdev->cores[i]);
	for (i = 0; i < rdev->nr_units; i++) {
		struct rknpu_mmu_unit *unit = &rdev->units[i];
		bool others = false;

		if (!(unit->cores & cores))
			continue;
		for (k = 0; k < rdev->nr_cores; k++)
			if (unit->cores & ~cores & BIT(k))
				others |= rdev->cores[k].job && !rdev->cores[k].finished;
		if (others) {
			rknpu_mmu_must_reattach(unit);
		} else if (rknpu_mmu_after_reset(unit)) {
			for (k = 0; k < rdev->nr_cores; k++)
				if (unit->cores & cores & BIT(k))
					core_set_dead(&rdev->cores[k]);
		}
	}
}

/* Stops all cores of the job, the guilty one and those that worked with it, then says why. */
static void job_fail(struct rknpu_job *job, enum rknpu_job_state to, int result)
{
	struct rknpu_device *rdev = job->rdev;
	unsigned int i;
	u32 cores = 0;

	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job == job && !rdev->cores[i].finished)
			cores |= BIT(i);
	stop_cores(rdev, cores);
	job_release_cores(job);
	rknpu_job_end(job, to, result);
}

/*
 * Does the core do anything at all? It is pointed at an address that is mapped nowhere, behind an MMU without a space: a core that works faults
 * there. What a client's commands do to a core says nothing about that. Nothing may run behind its MMU.
 */
static bool core_answers(struct rknpu_core *core)
{
	static const struct rknpu_chunk nowhere = {
		.regcmd = PROBE_ADDRESS, .amount = 1, .int_mask = 0x300, .int_clear = 0x300, .tasks = 1,
	};
	unsigned int attempt, waited;
	bool alive = false;

	if (rknpu_power_get(core))
		return true;
	for (attempt = 0; attempt < START_ATTEMPTS && !alive; attempt++) {
		if (rknpu_core_stop(core))
			break;
		if (rknpu_mmu_probe_begin(core->unit)) {
			/* That is the MMU's failure. Without it the core can't be judged. */
			alive = true;
			break;
		}
		rknpu_core_start(core, &nowhere, false, 0);
		for (waited = 0; waited < PROBE_MS && !alive; waited++) {
			usleep_range(1000, 1500);
			spin_lock_irq(&core->irq_lock);
			alive = core->fault.valid && core->fault.iova >> 12 == PROBE_ADDRESS >> 12;
			spin_unlock_irq(&core->irq_lock);
		}
		/* As everywhere: the core first, then its MMU. */
		if (rknpu_core_halt(core))
			alive = false;
		rknpu_mmu_probe_end(core->unit);
		if (rknpu_mmu_after_reset(core->unit))
			alive = false;
	}
	rknpu_power_put(core);
	return alive;
}

/*
 * After a failure, its job's cores stopped. One without any progress counts, but proves nothing, for a client can make any number of them: at
 * the limit the core itself is asked; if others run behind its MMU, after its next failure.
 */
static void core_strike(struct rknpu_core *core, bool progress)
{
	core->strikes = progress ? 0 : core->strikes + 1;
	if (!core_strikes || core->strikes < core_strikes || core->unit->running)
		return;
	if (core_answers(core))
		core->strikes = 1;
	else
		core_set_dead(core);
}

static void core_timeout(struct rknpu_core *core, const char *why, u32 raw, int result)
{
	struct rknpu_job *job = core->job;
	bool progress;

	atomic64_inc(&core->rdev->timeouts);
	dev_warn_ratelimited(rknpu_core_dev(core),
			     "core %u, job %llu of pid %d (%s): %s after %llu ms, %u of %u tasks done, status %#x\n",
			     core->index, job->entry.seq, job->file->pid, job->file->comm, why,
			     (ktime_get_ns() - job->started_ns) / NSEC_PER_MSEC, core->seen_tasks, core->want_tasks, raw);
	progress = core->part->tasks_done || core->seen_tasks;
	job_fail(job, RKNPU_JOB_FAILED, result);
	core_strike(core, progress);
}

static void core_page_fault(struct rknpu_core *core, const struct rknpu_fault *fault)
{
	struct rknpu_device *rdev = core->rdev;
	struct rknpu_job *job = core->job;
	struct rknpu_file *file = job->file;

	atomic64_inc(&rdev->page_faults);
	spin_lock_irq(&rdev->lock);
	file->page_faults++;
	file->fault_iova = fault->iova;
	file->fault_flags = RKNPU_NPUD_FAULT_VALID | (fault->write ? RKNPU_NPUD_FAULT_WRITE : 0);
	file->fault_space = job->space->id;
	spin_unlock_irq(&rdev->lock);
	dev_warn_ratelimited(rknpu_core_dev(core), "core %u, job %llu of pid %d (%s), space %u: %s at %#llx, %s\n", core->index,
			     job->entry.seq, file->pid, file->comm, job->space->id,
			     fault->bus_error ? "bus error" : "page fault", fault->iova, fault->write ? "write" : "read");
	job_fail(job, RKNPU_JOB_FAILED, -EFAULT);
}

/* --- looking at a core -------------------------------------------------------------------------------------------------------- */

/* The chunk is complete. True if the core goes on with the next one. */
static void core_chunk_done(struct rknpu_core *core)
{
	struct rknpu_part *part = core->part;
	const struct rknpu_chunk *chunk = &part->chunks[part->next];

	spin_lock_irq(&core->irq_lock);
	core->armed = false;
	core->complete = false;
	part->int_status = core->seen_bits;
	spin_unlock_irq(&core->irq_lock);
	part->tasks_done += chunk->tasks;
	part->next++;
	core->strikes = 0;
	core->fault_held = false;
	core->watch_at_ns = ktime_get_ns() + ms(WATCH_MS);
	if (part->next < part->nr_chunks)
		rknpu_core_start(core, &part->chunks[part->next], core->job->pingpong, core->job->task_base);
	else
		core->finished = true;
}

/*
 * One running core. The job may be gone after this. Events are looked at in the order of what they prove: a core that is complete and idle
 * did its work, whatever else was seen.
 */
static void core_check(struct rknpu_core *core, u64 now, u64 *next)
{
	struct rknpu_job *job = core->job;
	struct rknpu_fault fault;
	bool complete, watch = now >= core->watch_at_ns;
	u32 raw = 0;

	spin_lock_irq(&core->irq_lock);
	complete = core->complete;
	fault = core->fault;
	spin_unlock_irq(&core->irq_lock);

	if (!complete && (watch || now >= job->deadline_ns)) {
		complete = rknpu_core_poll(core, &raw);
		if (complete)
			atomic64_inc(&core->rdev->lost_irqs);
	}
	if (complete && !(fault.valid && fault.certain)) {
		/*
		 * The interrupt may come before the last write has left the core. Who waits for the job reads the result at once, and what
		 * the job used may be freed: both need the writes to be over.
		 */
		if (rknpu_mmu_idle(core->unit)) {
			core_chunk_done(core);
			return;
		}
		if (now < job->deadline_ns) {
			note_next(next, now + ms(DRAIN_MS));
			return;
		}
		core_timeout(core, "done but never idle", raw, -ETIMEDOUT);
		return;
	}
	if (fault.valid && !fault.certain) {
		if (!core->fault_held) {
			core->fault_held = true;
			core->fault_at_ns = now;
		}
		if (now < core->fault_at_ns + ms(FAULT_GRACE_MS)) {
			note_next(next, core->fault_at_ns + ms(FAULT_GRACE_MS));
			return;
		}
	}
	if (fault.valid) {
		core_page_fault(core, &fault);
		return;
	}
	if (now >= job->deadline_ns) {
		core_timeout(core, "timed out", raw, -ETIMEDOUT);
		return;
	}
	if (watch)
		core->watch_at_ns = now + ms(WATCH_MS);
	note_next(next, min(job->deadline_ns, core->watch_at_ns));
}

/* A whole job: its cores, its cancellation, its end. */
static void job_check(struct rknpu_job *job, u64 now, u64 *next)
{
	struct rknpu_device *rdev = job->rdev;
	u32 running = 0;
	bool cancel;
	unsigned int i;

	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];

		if (core->job != job || core->finished)
			continue;
		core_check(core, now, next);
		if (core->job != job)
			return;	/* it failed */
		running |= core->finished ? 0 : BIT(i);
	}

	spin_lock_irq(&rdev->lock);
	cancel = job->cancel;
	spin_unlock_irq(&rdev->lock);
	if (!running) {
		job_release_cores(job);
		rknpu_job_end(job, cancel ? RKNPU_JOB_CANCELLED : RKNPU_JOB_DONE, cancel ? job->cancel_error : 0);
	} else if (cancel) {
		if (now >= job->cancel_at_ns)
			job_fail(job, RKNPU_JOB_CANCELLED, job->cancel_error);
		else
			note_next(next, job->cancel_at_ns);
	}
}

static void check_jobs(struct rknpu_device *rdev, u64 now, u64 *next)
{
	unsigned int i;

	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_job *job = rdev->cores[i].job;

		/* A gang is looked at once, by its first core. */
		if (job && __ffs(job->cores) == i) {
			rknpu_job_get(job);
			job_check(job, now, next);
			rknpu_job_put(job);
		}
	}
}

/* --- resets that someone waits for -------------------------------------------------------------------------------------------- */

static void do_resets(struct rknpu_device *rdev)
{
	u64 since_ns[RKNPU_MAX_CORES];
	u32 wanted;
	bool revive;
	unsigned int i;

	spin_lock_irq(&rdev->lock);
	wanted = rdev->reset_wanted;
	memcpy(since_ns, rdev->reset_since_ns, sizeof(since_ns));
	revive = rdev->revive_wanted;
	rdev->revive_wanted = false;
	spin_unlock_irq(&rdev->lock);
	if (!wanted && !revive)
		return;

	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];
		bool mine = wanted & BIT(i);

		if (core->job && mine) {
			/* Between the request and now the core may have been reset for its own failure and given to somebody else. */
			if (core->started_ns < since_ns[i])
				job_fail(core->job, RKNPU_JOB_FAILED, -EIO);
		} else if (!core->job && (mine || revive) && !rdev->gone && !rknpu_power_get(core)) {
			/* It lives until the stop says otherwise. */
			if (revive) {
				core->strikes = 0;
				spin_lock_irq(&rdev->lock);
				rdev->dead_cores &= ~BIT(i);
				rdev->dead = false;
				spin_unlock_irq(&rdev->lock);
			}
			stop_cores(rdev, BIT(i));
			rknpu_power_put(core);
		}
	}
	spin_lock_irq(&rdev->lock);
	rdev->reset_wanted &= ~wanted;
	spin_unlock_irq(&rdev->lock);
	wake_up_all(&rdev->reset_done);
}

/* --- starting ----------------------------------------------------------------------------------------------------------------- */

static struct rknpu_job *pick(struct rknpu_device *rdev, u32 *cores)
{
	struct rknpu_queue_core state[RKNPU_MAX_CORES];
	struct rknpu_queue_entry *entry;
	struct rknpu_job *job = NULL;
	unsigned int i;

	spin_lock_irq(&rdev->lock);
	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];

		state[i] = (struct rknpu_queue_core) {
			.dead = rdev->dead_cores & BIT(i),
			.busy = core->job,
			.suspect = core->strikes,
			.unit = core->unit->index,
			.live = core->unit->live,
			/* Behind one that must be attached anew no space fits until all is idle. */
			.running_space = core->unit->running && core->unit->reattach ? core->unit :
					 (const void *)core->unit->running_space,
			.busy_ns = core->busy_ns,
		};
	}
	entry = rdev->gone ? NULL : rknpu_queue_pick(&rdev->queue, state, rdev->nr_cores, cores);
	if (entry) {
		job = container_of(entry, struct rknpu_job, entry);
		rknpu_job_move(job, RKNPU_JOB_RUNNING);
		for (i = 0; i < rdev->nr_cores; i++)
			if (*cores & BIT(i))
				rdev->cores[i].job = job;
	}
	spin_unlock_irq(&rdev->lock);
	return job;
}

/* Power and space for one core; nothing runs yet. */
static int core_prepare(struct rknpu_core *core, struct rknpu_job *job)
{
	int ret;

	ret = rknpu_power_get(core);
	if (ret)
		return ret;
	ret = rknpu_mmu_switch(core->unit, job->space);
	if (ret && !core->unit->running) {
		/* An idle unit that wouldn't switch: once more after a reset, which nobody else on this unit can feel. */
		if (rknpu_core_stop(core))
			core_set_dead(core);
		else
			ret = rknpu_mmu_switch(core->unit, job->space);
	}
	if (ret) {
		rknpu_power_put(core);
		return ret;
	}
	core->unit->running++;
	core->unit->running_space = job->space;
	return 0;
}

static void start(struct rknpu_device *rdev, struct rknpu_job *job, u32 cores)
{
	u32 prepared = 0;
	unsigned int i, n = 0;
	bool again;
	int ret;

	job->cores = cores;
	ret = cores ? atomic_read(&job->deps_error) : -EIO;
	for (i = 0; i < rdev->nr_cores && !ret; i++) {
		if (!(cores & BIT(i)))
			continue;
		ret = core_prepare(&rdev->cores[i], job);
		if (!ret)
			prepared |= BIT(i);
		else
			/* It says something about the MMU, little about the core: others are preferred until it works. */
			rdev->cores[i].strikes = max(rdev->cores[i].strikes, 1u);
	}
	if (ret)
		goto err;

	job->started_ns = ktime_get_ns();
	job->deadline_ns = job->started_ns + ms(job->timeout_ms);
	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];

		if (!(cores & BIT(i)))
			continue;
		core->part = &job->parts[n++];
		core->part->core = i;
		core->finished = false;
		core->fault_held = false;
		core->watch_at_ns = job->started_ns + ms(WATCH_MS);
		core->started_ns = job->started_ns;
		rknpu_core_start(core, &core->part->chunks[0], job->pingpong, job->task_base);
	}
	return;

err:
	/* Nothing ran, so it may run another time, in its old place. */
	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];

		if (prepared & BIT(i)) {
			if (!--core->unit->running)
				core->unit->running_space = NULL;
			rknpu_power_put(core);
		}
	}
	spin_lock_irq(&rdev->lock);
	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job == job)
			rdev->cores[i].job = NULL;
	again = cores && !atomic_read(&job->deps_error) && !job->cancel && !rdev->gone && ++job->attempts < START_ATTEMPTS;
	if (again) {
		rdev->start_after = ktime_get_ns() + ms(START_RETRY_MS);
		rknpu_job_move(job, RKNPU_JOB_QUEUED);
	}
	spin_unlock_irq(&rdev->lock);
	if (again)
		return;
	if (job->cancel) {
		rknpu_job_end(job, RKNPU_JOB_CANCELLED, job->cancel_error);
		return;
	}
	if (cores && !atomic_read(&job->deps_error)) {
		dev_err_ratelimited(rknpu_dma_dev(rdev), "job %llu of pid %d can't be started on cores %#x: %d\n", job->entry.seq,
				    job->file->pid, cores, ret);
		ret = -EIO;
	}
	rknpu_job_end(job, RKNPU_JOB_FAILED, ret);
}

static void fail_all(struct rknpu_device *rdev)
{
	struct rknpu_job *job;
	unsigned int i;

	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job)
			job_fail(rdev->cores[i].job, RKNPU_JOB_FAILED, -ENODEV);
	do {
		spin_lock_irq(&rdev->lock);
		job = list_first_entry_or_null(&rdev->queue.entries, struct rknpu_job, entry.link);
		if (job)
			rknpu_job_get(job);
		spin_unlock_irq(&rdev->lock);
		if (job) {
			rknpu_job_end(job, RKNPU_JOB_FAILED, -ENODEV);
			rknpu_job_put(job);
		}
	} while (job);
}

/* --- the thread --------------------------------------------------------------------------------------------------------------- */

static void run(struct rknpu_device *rdev)
{
	u64 now = ktime_get_ns(), next = U64_MAX;
	struct rknpu_job *job;
	bool dead, gone;
	unsigned int i;
	u32 cores;

	do_resets(rdev);
	check_jobs(rdev, now, &next);

	spin_lock_irq(&rdev->lock);
	dead = rdev->dead;
	gone = rdev->gone;
	spin_unlock_irq(&rdev->lock);
	if (dead || gone) {
		fail_all(rdev);
	} else if (now >= rdev->start_after) {
		while (rdev->start_after <= now && (job = pick(rdev, &cores))) {
			rknpu_job_get(job);
			start(rdev, job, cores);
			rknpu_job_put(job);
		}
	}
	if (rdev->start_after > now)
		note_next(&next, rdev->start_after);

	now = ktime_get_ns();
	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job)
			note_next(&next, min(rdev->cores[i].watch_at_ns, rdev->cores[i].job->deadline_ns));
	if (next != U64_MAX)
		kthread_mod_delayed_work(rdev->worker, &rdev->tick,
					 next > now ? nsecs_to_jiffies(next - now) + 1 : 1);
}

static void work_fn(struct kthread_work *work)
{
	run(container_of(work, struct rknpu_device, work));
}

static void tick_fn(struct kthread_work *work)
{
	run(container_of(work, struct rknpu_device, tick.work));
}

void rknpu_sched_kick(struct rknpu_device *rdev)
{
	kthread_queue_work(rdev->worker, &rdev->work);
}

void rknpu_sched_reset_cores(struct rknpu_device *rdev, u32 cores, u64 since_ns)
{
	unsigned int i;

	spin_lock_irq(&rdev->lock);
	for (i = 0; i < rdev->nr_cores; i++) {
		if (!(cores & BIT(i)))
			continue;
		if (!(rdev->reset_wanted & BIT(i)))
			rdev->reset_since_ns[i] = 0;
		rdev->reset_since_ns[i] = max(rdev->reset_since_ns[i], since_ns);
	}
	rdev->reset_wanted |= cores;
	spin_unlock_irq(&rdev->lock);
	rknpu_sched_kick(rdev);
	wait_event(rdev->reset_done, !(READ_ONCE(rdev->reset_wanted) & cores));
}

void rknpu_sched_revive(struct rknpu_device *rdev)
{
	spin_lock_irq(&rdev->lock);
	rdev->revive_wanted = true;
	spin_unlock_irq(&rdev->lock);
	rknpu_sched_kick(rdev);
	kthread_flush_work(&rdev->work);
}

void rknpu_sched_stop(struct rknpu_device *rdev)
{
	struct rknpu_file *file;

	spin_lock_irq(&rdev->lock);
	rdev->gone = true;
	spin_unlock_irq(&rdev->lock);
	rknpu_sched_kick(rdev);
	kthread_flush_work(&rdev->work);

	/* What waits for fences isn't in the queue. */
	mutex_lock(&rdev->list_lock);
	list_for_each_entry(file, &rdev->files, link)
		rknpu_job_cancel_file(file, ~0u, -ENODEV);
	mutex_unlock(&rdev->list_lock);
}

int rknpu_sched_init(struct rknpu_device *rdev)
{
	spin_lock_init(&rdev->lock);
	rknpu_queue_init(&rdev->queue);
	init_waitqueue_head(&rdev->reset_done);
	kthread_init_work(&rdev->work, work_fn);
	kthread_init_delayed_work(&rdev->tick, tick_fn);
	rdev->worker = rknpu_run_worker("rknpu");
	if (IS_ERR(rdev->worker))
		return PTR_ERR(rdev->worker);
	sched_set_fifo_low(rdev->worker->task);
	return 0;
}

void rknpu_sched_fini(struct rknpu_device *rdev)
{
	kthread_cancel_delayed_work_sync(&rdev->tick);
	kthread_destroy_worker(rdev->worker);
}
