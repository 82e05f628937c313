// SPDX-License-Identifier: GPL-2.0-only
/* How a core gets off a job that failed, what is made of that core afterwards, and when it counts as dead. */
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/kobject.h>
#include <linux/log2.h>
#include <linux/module.h>

#include "rknpu_core.h"
#include "rknpu_device.h"
#include "rknpu_dump.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_mmu.h"
#include "rknpu_power.h"
#include "rknpu_recover.h"
#include "rknpu_unit.h"
#include "rknpu_vm.h"

#define PROBE_ATTEMPTS		3
#define PROBE_ADDRESS		0x1000	/* below every window, so that no space maps it */
#define PROBE_MS		50

static uint core_strikes = 4;
module_param(core_strikes, uint, 0644);
MODULE_PARM_DESC(core_strikes, "Failures in a row, without a single task completed, after which a core is asked whether it lives (0: never)");

void rknpu_tell_dead(struct rknpu_device *rdev)
{
	char *env[2] = { "RKNPU=DEAD", NULL };

	if (!rdev->tell_dead)
		return;
	rdev->tell_dead = false;
	dev_err(rknpu_dma_dev(rdev), "no core works any more: the device is dead until it is reset (debugfs) or bound again\n");
	kobject_uevent_env(&rknpu_dma_dev(rdev)->kobj, KOBJ_CHANGE, env);
}

void rknpu_core_set_dead(struct rknpu_core *core)
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
	/* The event takes memory, which the jobs that end for this must not wait for. */
	if (last)
		rdev->tell_dead = true;
}

/* The core is off the job: stopped, or done and drained. */
static void recover_core_release(struct rknpu_core *core, struct rknpu_job *job)
{
	struct rknpu_device *rdev = core->rdev;
	u64 ran = ktime_get_ns() - core->started_ns;

	spin_lock_irq(&rdev->lock);
	core->busy_ns += ran;
	job->file->busy_ns[core->index] += ran;
	core->job = NULL;
	spin_unlock_irq(&rdev->lock);
	core->part = NULL;
	rknpu_unit_leave(core->unit);
	rknpu_power_put(core);
}

void rknpu_job_release_cores(struct rknpu_job *job)
{
	struct rknpu_device *rdev = job->rdev;
	unsigned int i;

	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job == job)
			recover_core_release(&rdev->cores[i], job);
}

/*
 * Stops cores, all of them before any MMU is touched: those of a gang may share one.
 * Where another job goes on behind a core's MMU that stays as it is,
 * and nothing new starts behind it until that job is over.
 */
void rknpu_stop_cores(struct rknpu_device *rdev, u32 cores)
{
	unsigned int i, k;

	for (i = 0; i < rdev->nr_cores; i++)
		if ((cores & BIT(i)) && rknpu_core_halt(&rdev->cores[i]))
			rknpu_core_set_dead(&rdev->cores[i]);
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
					rknpu_core_set_dead(&rdev->cores[k]);
		}
	}
}

/* Stops all cores of the job, the guilty one and those that worked with it, then says why. */
void rknpu_job_fail(struct rknpu_job *job, enum rknpu_job_state to, int result)
{
	struct rknpu_device *rdev = job->rdev;
	unsigned int i;
	u32 cores = 0;

	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job == job && !rdev->cores[i].finished)
			cores |= BIT(i);
	rknpu_stop_cores(rdev, cores);
	rknpu_job_release_cores(job);
	rknpu_job_end(job, to, result);
}

/*
 * Does the core do anything at all? It is pointed at an address that is mapped nowhere,
 * behind an MMU without a space: a core that works faults there.
 * What a client's commands do to a core says nothing about that.
 * Nothing may run behind its MMU.
 */
static bool recover_core_answers(struct rknpu_core *core)
{
	static const struct rknpu_chunk nowhere = {
		.regcmd = PROBE_ADDRESS, .amount = 1, .int_mask = 0x300, .int_clear = 0x300, .tasks = 1,
	};
	unsigned int attempt, waited;
	bool alive = false;

	if (rknpu_power_get(core))
		return true;
	for (attempt = 0; attempt < PROBE_ATTEMPTS && !alive; attempt++) {
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
 * After a failure, its job's cores stopped.
 * One without any progress counts, but proves nothing, for a client can make any number of them:
 * at the limit the core itself is asked; if others run behind its MMU, after its next failure.
 */
static void recover_core_strike(struct rknpu_core *core, bool progress)
{
	core->strikes = progress ? 0 : core->strikes + 1;
	if (!core_strikes || core->strikes < core_strikes || core->unit->running)
		return;
	if (recover_core_answers(core))
		core->strikes = 1;
	else
		rknpu_core_set_dead(core);
}

/*
 * Some jobs never start although every register is as with good ones, and this core's reset doesn't help; that
 * of all cores while none works, which the vendor's driver does, was seen to (ork-driver,
 * DOORBELL_STALL_WIP.md).
 * So the second failure in a row of that kind asks for that,
 * which costs the others a pause, and the third for the MMUs' own resets, too.
 * As a client may have brought it about, it becomes rare after that.
 */
static void recover_core_unstarted(struct rknpu_core *core)
{
	unsigned int n = ++core->unstarted;

	if (n == 2)
		core->rdev->last_resort = max(core->rdev->last_resort, RKNPU_RESORT_CORES);
	else if (n == 3 || (n > 3 && is_power_of_2(n)))
		core->rdev->last_resort = RKNPU_RESORT_MMUS;
}

bool rknpu_last_resort(struct rknpu_device *rdev)
{
	enum rknpu_last_resort resort = rdev->last_resort;
	unsigned int i, k;
	u32 failed;

	if (!resort)
		return true;
	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job)
			return false;
	rdev->last_resort = RKNPU_RESORT_NONE;
	if (rknpu_power_get_all(rdev))
		return true;
	dev_warn(rknpu_dma_dev(rdev), "jobs don't start: all cores are reset together%s\n",
		 resort == RKNPU_RESORT_MMUS ? ", and their MMUs" : "");
	atomic64_inc(&rdev->resets_together);
	failed = rknpu_cores_reset_together(rdev);
	for (i = 0; i < rdev->nr_units; i++) {
		if (resort == RKNPU_RESORT_MMUS)
			rknpu_mmu_force_reset(&rdev->units[i]);
		if (rknpu_mmu_after_reset(&rdev->units[i]))
			failed |= rdev->units[i].cores;
	}
	for (k = 0; k < rdev->nr_cores; k++)
		if (failed & BIT(k))
			rknpu_core_set_dead(&rdev->cores[k]);
	rknpu_power_put_all(rdev);
	return true;
}

void rknpu_core_timed_out(struct rknpu_core *core, const char *why, u32 raw, int result)
{
	struct rknpu_job *job = core->job;
	bool progress, unstarted;

	atomic64_inc(&core->rdev->timeouts);
	dev_warn_ratelimited(rknpu_core_dev(core),
			     "core %u, job %llu of pid %d (%s): %s after %llu ms, %u of %u tasks done, status %#x\n",
			     core->index, job->entry.seq, job->file->pid, job->file->comm, why,
			     (ktime_get_ns() - job->started_ns) / NSEC_PER_MSEC, core->done.seen_tasks, core->done.want_tasks, raw);
	rknpu_dump_job(core, why, NULL);
	progress = core->part->tasks_done || core->done.progress;
	unstarted = !progress && rknpu_done_unstarted(&core->done);
	rknpu_job_fail(job, RKNPU_JOB_FAILED, result);
	if (unstarted)
		recover_core_unstarted(core);
	else
		core->unstarted = 0;
	recover_core_strike(core, progress);
}

void rknpu_core_page_fault(struct rknpu_core *core, const struct rknpu_fault *fault)
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
	rknpu_dump_job(core, "page fault", fault);
	rknpu_job_fail(job, RKNPU_JOB_FAILED, -EFAULT);
}
