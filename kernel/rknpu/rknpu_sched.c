// SPDX-License-Identifier: GPL-2.0-only
/*
 * The one thread that starts and stops cores.
 * Interrupts, timers, submitters and those who take something away only leave word and kick it,
 * so that no two of these ever meet at the hardware.
 */
#include <linux/dma-fence.h>
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
#include "rknpu_recover.h"
#include "rknpu_sched.h"
#include "rknpu_trace.h"
#include "rknpu_unit.h"
#include "rknpu_vm.h"
#include "rknpu_watch.h"

#define START_ATTEMPTS		3
#define START_RETRY_MS		10
#define TICK_MIN_NS		(NSEC_PER_MSEC / 2)	/* a look that is overdue doesn't make the thread spin */

/* --- resets that someone waits for -------------------------------------------------------------------------------------------- */

static void sched_do_resets(struct rknpu_device *rdev)
{
	u32 wanted;
	bool revive;
	unsigned int i;

	spin_lock_irq(&rdev->lock);
	wanted = rdev->reset_wanted;
	revive = rdev->revive_wanted;
	rdev->revive_wanted = false;
	spin_unlock_irq(&rdev->lock);
	if (!wanted && !revive)
		return;

	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];
		bool mine = wanted & BIT(i);

		if (core->job && mine) {
			rknpu_job_fail(core->job, RKNPU_JOB_FAILED, -EIO);
		} else if (!core->job && (mine || revive) && !rdev->gone && !rknpu_power_get(core)) {
			/* It lives until the stop says otherwise. */
			if (revive) {
				core->strikes = 0;
				core->unstarted = 0;
				spin_lock_irq(&rdev->lock);
				rdev->dead_cores &= ~BIT(i);
				rdev->dead = false;
				spin_unlock_irq(&rdev->lock);
			}
			rknpu_stop_cores(rdev, BIT(i));
			rknpu_power_put(core);
		}
	}
	spin_lock_irq(&rdev->lock);
	rdev->reset_wanted &= ~wanted;
	spin_unlock_irq(&rdev->lock);
	wake_up_all(&rdev->settled);
}

/*
 * Nothing runs behind the unit.
 * If it won't forget, a core of it does what it was not told to: reset.
 */
static int sched_unit_forget(struct rknpu_mmu_unit *unit)
{
	struct rknpu_device *rdev = unit->rdev;
	struct rknpu_core *core = &rdev->cores[__ffs(unit->cores)];
	int ret = rknpu_mmu_forget(unit);

	if (!ret || rdev->gone)
		return ret;
	ret = rknpu_power_get(core);
	if (ret)
		return ret;
	rknpu_stop_cores(rdev, unit->cores);
	ret = rknpu_mmu_forget(unit);
	rknpu_power_put(core);
	return ret;
}

/* Units whose jobs are through; nothing new starts behind the others meanwhile. */
static void sched_do_forgets(struct rknpu_device *rdev)
{
	bool any = false;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rdev->units); i++) {
		struct rknpu_mmu_unit *unit = &rdev->units[i];
		unsigned long asked;
		bool stuck;

		spin_lock_irq(&rdev->lock);
		asked = unit->forgets_asked;
		spin_unlock_irq(&rdev->lock);
		if (asked == unit->forgets_done || unit->running)
			continue;
		stuck = sched_unit_forget(unit);
		spin_lock_irq(&rdev->lock);
		unit->forgets_done = asked;
		unit->stuck = stuck;
		spin_unlock_irq(&rdev->lock);
		any = true;
	}
	if (any)
		wake_up_all(&rdev->settled);
}

static bool sched_unit_has_forgotten(struct rknpu_mmu_unit *unit, unsigned long asked, bool *stuck)
{
	bool done;

	spin_lock_irq(&unit->rdev->lock);
	done = (long)(unit->forgets_done - asked) >= 0;
	*stuck = unit->stuck;
	spin_unlock_irq(&unit->rdev->lock);
	return done;
}

u32 rknpu_sched_forget(struct rknpu_device *rdev, const struct rknpu_space *space, u32 units)
{
	unsigned long asked[RKNPU_MAX_CORES];
	u32 kept = 0;
	unsigned int i;
	bool stuck;

	spin_lock_irq(&rdev->lock);
	for (i = 0; i < ARRAY_SIZE(rdev->units); i++) {
		struct rknpu_mmu_unit *unit = &rdev->units[i];

		/* One that was given to another space since has forgotten this one, and its jobs have no part in it. */
		if (unit->live && unit->live != space)
			units &= ~BIT(i);
		if (units & BIT(i))
			asked[i] = ++unit->forgets_asked;
	}
	spin_unlock_irq(&rdev->lock);
	rknpu_sched_kick(rdev);
	for (i = 0; i < ARRAY_SIZE(rdev->units); i++) {
		if (!(units & BIT(i)))
			continue;
		wait_event(rdev->settled, sched_unit_has_forgotten(&rdev->units[i], asked[i], &stuck));
		if (stuck)
			kept |= rdev->units[i].cores;
	}
	return kept;
}

/* --- starting ----------------------------------------------------------------------------------------------------------------- */

/*
 * What no space fits before all is idle behind it:
 * registers of its MMU may be lost, or somebody waits for it to forget.
 */
static bool sched_unit_must_drain(const struct rknpu_mmu_unit *unit)
{
	return unit->running && (unit->reattach || unit->forgets_asked != unit->forgets_done);
}

static struct rknpu_job *sched_pick(struct rknpu_device *rdev, u64 now, u32 *cores)
{
	struct rknpu_queue_core state[RKNPU_MAX_CORES];
	struct rknpu_queue_entry *entry;
	struct rknpu_job *job = NULL;
	unsigned int i;

	spin_lock_irq(&rdev->lock);
	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];
		struct rknpu_mmu_unit *unit = core->unit;

		state[i] = (struct rknpu_queue_core) {
			.dead = rdev->dead_cores & BIT(i),
			.busy = core->job,
			.suspect = core->strikes,
			.unit = unit->index,
			.live = unit->live,
			.slice = now < unit->slice_end_ns,
			.linger = now < rknpu_unit_linger_end(unit),
			.priority = unit->priority,
			.running_space = sched_unit_must_drain(unit) ? unit : (const void *)unit->running_space,
			.busy_ns = core->busy_ns,
		};
	}
	entry = rdev->gone || rdev->paused ? NULL : rknpu_queue_pick(&rdev->queue, state, rdev->nr_cores, cores);
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
static int sched_core_prepare(struct rknpu_core *core, struct rknpu_job *job)
{
	int ret;

	ret = rknpu_power_get(core);
	if (ret)
		return ret;
	ret = rknpu_unit_take(core->unit, job);
	if (ret && !core->unit->running) {
		/*
		 * An idle unit that wouldn't switch:
		 * once more after a reset, which nobody else on this unit can feel.
		 */
		if (rknpu_core_stop(core))
			rknpu_core_set_dead(core);
		else
			ret = rknpu_unit_take(core->unit, job);
	}
	if (ret) {
		rknpu_power_put(core);
		return ret;
	}
	return 0;
}

static void sched_start(struct rknpu_device *rdev, struct rknpu_job *job, u32 cores)
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
		ret = sched_core_prepare(&rdev->cores[i], job);
		if (!ret)
			prepared |= BIT(i);
		else
			/*
			 * It says something about the MMU, little about the core:
			 * others are preferred until it works.
			 */
			rdev->cores[i].strikes = max(rdev->cores[i].strikes, 1u);
	}
	if (ret)
		goto err;

	job->started_ns = ktime_get_ns();
	job->deadline_ns = job->started_ns + rknpu_ms_to_ns(job->timeout_ms);
	trace_job_started(job);
	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];

		if (!(cores & BIT(i)))
			continue;
		core->part = &job->parts[n++];
		core->part->core = i;
		core->finished = false;
		core->fault_held = false;
		core->watch_ms = 0;
		core->watch_at_ns = job->started_ns + rknpu_ms_to_ns(RKNPU_WATCH_MS);
		core->started_ns = job->started_ns;
		core->used = true;
		rknpu_core_start(core, &core->part->chunks[0], job->pingpong, job->task_base);
	}
	return;

err:
	/* Nothing ran, so it may run another time, in its old place. */
	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];

		if (prepared & BIT(i)) {
			rknpu_unit_leave(core->unit);
			rknpu_power_put(core);
		}
	}
	spin_lock_irq(&rdev->lock);
	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job == job)
			rdev->cores[i].job = NULL;
	again = cores && !atomic_read(&job->deps_error) && !job->cancel && !rdev->gone && ++job->attempts < START_ATTEMPTS;
	if (again) {
		rdev->start_after = ktime_get_ns() + rknpu_ms_to_ns(START_RETRY_MS);
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

static void sched_fail_all(struct rknpu_device *rdev)
{
	struct rknpu_job *job;
	unsigned int i;

	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job)
			rknpu_job_fail(rdev->cores[i].job, RKNPU_JOB_FAILED, -ENODEV);
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

static void sched_run(struct rknpu_device *rdev)
{
	u64 now = ktime_get_ns(), next = U64_MAX;
	struct rknpu_job *job;
	bool dead, gone, paused, busy, cookie = false;
	unsigned int i;
	u32 cores;

	spin_lock_irq(&rdev->lock);
	paused = rdev->paused;
	busy = rdev->jobs_running;
	gone = rdev->gone;
	spin_unlock_irq(&rdev->lock);
	/* Without power soon, if not yet. What is asked for waits. */
	if (paused && !busy && !gone)
		return;
	sched_do_resets(rdev);
	/*
	 * From here to a fence's signal nothing waits for memory, which may be waiting for the fence: lockdep looks.
	 * Not where the IOMMU core's group lock is taken, beneath which it allocates, and not at a start, which takes power:
	 * clocks and domains allocate beneath their locks, too.
	 */
	if (rdev->mmu->lock_safe)
		cookie = dma_fence_begin_signalling();
	rknpu_watch_jobs(rdev, now, &next);
	if (rdev->mmu->lock_safe)
		dma_fence_end_signalling(cookie);
	sched_do_forgets(rdev);

	spin_lock_irq(&rdev->lock);
	dead = rdev->dead;
	gone = rdev->gone;
	spin_unlock_irq(&rdev->lock);
	if (dead || gone) {
		sched_fail_all(rdev);
	} else if (rknpu_last_resort(rdev) && now >= rdev->start_after) {
		while (rdev->start_after <= now && (job = sched_pick(rdev, now, &cores))) {
			rknpu_job_get(job);
			sched_start(rdev, job, cores);
			rknpu_job_put(job);
		}
	}
	if (rdev->start_after > now && !gone)
		rknpu_note_next(&next, rdev->start_after);

	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job)
			rknpu_note_next(&next, min(rdev->cores[i].watch_at_ns, rdev->cores[i].job->deadline_ns));
	if (READ_ONCE(rdev->paused))
		wake_up_all(&rdev->settled);
	rknpu_tell_dead(rdev);
	rknpu_note_linger(rdev, now, &next);
	now = ktime_get_ns();
	/* When the hardware is gone all has ended. */
	if (next != U64_MAX && !gone)
		hrtimer_start(&rdev->tick, ns_to_ktime(next > now ? next : now + TICK_MIN_NS), HRTIMER_MODE_ABS);
}

static void sched_work_fn(struct kthread_work *work)
{
	sched_run(container_of(work, struct rknpu_device, work));
}

/* A jiffy may be longer than what a core takes to come to rest. */
static enum hrtimer_restart sched_tick_fn(struct hrtimer *tick)
{
	rknpu_sched_kick(container_of(tick, struct rknpu_device, tick));
	return HRTIMER_NORESTART;
}

void rknpu_sched_kick(struct rknpu_device *rdev)
{
	kthread_queue_work(rdev->worker, &rdev->work);
}

void rknpu_sched_revive(struct rknpu_device *rdev)
{
	spin_lock_irq(&rdev->lock);
	rdev->revive_wanted = true;
	spin_unlock_irq(&rdev->lock);
	rknpu_sched_kick(rdev);
	kthread_flush_work(&rdev->work);
}

bool rknpu_sched_pause(struct rknpu_device *rdev, unsigned int ms)
{
	spin_lock_irq(&rdev->lock);
	rdev->paused++;
	spin_unlock_irq(&rdev->lock);
	rknpu_sched_kick(rdev);
	if (!wait_event_timeout(rdev->settled, !READ_ONCE(rdev->jobs_running), msecs_to_jiffies(ms)))
		return false;
	/* What it was about. */
	kthread_flush_work(&rdev->work);
	return true;
}

void rknpu_sched_end_running(struct rknpu_device *rdev)
{
	spin_lock_irq(&rdev->lock);
	if (rdev->jobs_running)
		rdev->reset_wanted |= rknpu_all_cores(rdev);
	spin_unlock_irq(&rdev->lock);
	rknpu_sched_kick(rdev);
	/* Not for the resets: if the jobs end of their own the thread, paused, makes none. */
	wait_event(rdev->settled, !READ_ONCE(rdev->jobs_running));
	kthread_flush_work(&rdev->work);
}

void rknpu_sched_resume(struct rknpu_device *rdev)
{
	spin_lock_irq(&rdev->lock);
	rdev->paused--;
	spin_unlock_irq(&rdev->lock);
	rknpu_sched_kick(rdev);
}

void rknpu_sched_stop(struct rknpu_device *rdev)
{
	struct rknpu_file *file, *next;

	spin_lock_irq(&rdev->lock);
	rdev->gone = true;
	spin_unlock_irq(&rdev->lock);
	/* Pairs with the one in rknpu_fop_call(). */
	smp_mb();
	rknpu_sched_kick(rdev);
	kthread_flush_work(&rdev->work);

	/* What waits for fences isn't in the queue. */
	for (file = rknpu_file_next(rdev, 0); file; file = next) {
		rknpu_job_cancel_file(file, ~0u, -ENODEV);
		next = rknpu_file_next(rdev, file->id);
		rknpu_file_put(file);
	}
	wait_event(rdev->settled, !atomic_read(&rdev->inside));
}

int rknpu_sched_init(struct rknpu_device *rdev)
{
	struct kthread_worker *worker;

	spin_lock_init(&rdev->lock);
	rknpu_queue_init(&rdev->queue);
	init_waitqueue_head(&rdev->settled);
	kthread_init_work(&rdev->work, sched_work_fn);
	rknpu_hrtimer_setup(&rdev->tick, sched_tick_fn);
	worker = rknpu_run_worker("rknpu");
	if (IS_ERR(worker))
		return PTR_ERR(worker);
	sched_set_fifo_low(worker->task);
	rdev->worker = worker;
	return 0;
}

void rknpu_sched_fini(struct rknpu_device *rdev)
{
	/* A device that never came to a worker goes the same way. */
	if (!rdev->worker)
		return;
	/* From the next work on the timer isn't started any more. */
	spin_lock_irq(&rdev->lock);
	rdev->gone = true;
	spin_unlock_irq(&rdev->lock);
	kthread_flush_worker(rdev->worker);
	hrtimer_cancel(&rdev->tick);
	kthread_destroy_worker(rdev->worker);
}
