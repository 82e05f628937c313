// SPDX-License-Identifier: GPL-2.0-only
/* Who has an MMU unit and the cores behind it, for how long, and what is wiped when they change hands. */
#include <linux/module.h>

#include "rknpu_core.h"
#include "rknpu_device.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_recover.h"
#include "rknpu_unit.h"
#include "rknpu_vm.h"
#include "rknpu_watch.h"

/* A slice is so many switches long that switching takes a twentieth of the time, whatever a switch costs. */
#define SLICE_SWITCHES		20
#define SLICE_MAX_MS		100

static bool scrub = true;
module_param(scrub, bool, 0644);
MODULE_PARM_DESC(scrub, "Reset a core before it runs a job of another file than its last one, so that nothing of that is left (default: yes)");

/*
 * Before the next space is attached: a core whose stream still runs, because its commands raised the last
 * task's interrupt early, must not run on in somebody else's memory, and what its registers hold is nobody
 * else's business.
 * Nothing of the new owner runs behind the unit yet.
 */
static int unit_scrub(struct rknpu_mmu_unit *unit)
{
	struct rknpu_device *rdev = unit->rdev;
	bool any = false;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];

		if (!(unit->cores & BIT(i)) || !core->used || !core->can_reset)
			continue;
		if (rknpu_core_scrub(core)) {
			rknpu_core_set_dead(core);
			ret = -EIO;
		}
		any = true;
	}
	/* The resets may have taken the MMU's registers along. */
	if (any)
		rknpu_mmu_must_reattach(unit);
	return ret;
}

static void unit_start_slice(struct rknpu_mmu_unit *unit, const struct rknpu_space *space, u64 began_ns)
{
	u64 now = ktime_get_ns(), cost = now - began_ns;

	unit->switch_ns = unit->switch_ns ? (3 * unit->switch_ns + cost) / 4 : cost;
	unit->slice_space = space;
	unit->slice_end_ns = now + min_t(u64, SLICE_SWITCHES * unit->switch_ns, rknpu_ms_to_ns(SLICE_MAX_MS));
}

int rknpu_unit_take(struct rknpu_mmu_unit *unit, struct rknpu_job *job)
{
	u64 began_ns = ktime_get_ns();
	int ret;

	if (unit->owner != job->file->id) {
		ret = scrub ? unit_scrub(unit) : 0;
		if (ret)
			return ret;
		unit->owner = job->file->id;
	}
	ret = rknpu_mmu_switch(unit, job->space);
	if (ret)
		return ret;
	if (unit->slice_space != job->space)
		unit_start_slice(unit, job->space, began_ns);
	unit->priority = job->entry.priority;
	unit->running_space = job->space;
	unit->running++;
	return 0;
}

void rknpu_unit_leave(struct rknpu_mmu_unit *unit)
{
	if (--unit->running)
		return;
	unit->idle_ns = ktime_get_ns();
	spin_lock_irq(&unit->rdev->lock);
	unit->running_space->ended_ns = unit->idle_ns;
	spin_unlock_irq(&unit->rdev->lock);
	unit->running_space = NULL;
}

/*
 * A client that waits for each job before it submits the next one has none queued when a job ends.
 * If it has shown to be about as quick as a switch, a switch away from it is put off for as long as one takes,
 * which can't cost more than twice what the best choice would have.
 * Twice that long counts as quick, for where the switch came at once it may have held the client up.
 */
u64 rknpu_unit_linger_end(const struct rknpu_mmu_unit *unit)
{
	lockdep_assert_held(&unit->rdev->lock);
	if (unit->running || !unit->live || unit->live != unit->slice_space || unit->live->gap_ns > 2 * unit->switch_ns)
		return 0;
	return min(unit->idle_ns + unit->switch_ns, unit->slice_end_ns);
}

void rknpu_note_linger(struct rknpu_device *rdev, u64 now, u64 *next)
{
	unsigned int i;

	spin_lock_irq(&rdev->lock);
	for (i = 0; i < rdev->nr_units && !list_empty(&rdev->queue.entries); i++) {
		u64 end = rknpu_unit_linger_end(&rdev->units[i]);

		if (end > now)
			rknpu_note_next(next, end);
	}
	spin_unlock_irq(&rdev->lock);
}
