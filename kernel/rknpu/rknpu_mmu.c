// SPDX-License-Identifier: GPL-2.0-only
#include <linux/delay.h>
#include <linux/device.h>

#include "rknpu_device.h"
#include "rknpu_mmu.h"
#include "rknpu_trace.h"
#include "rknpu_vm.h"

#define IDLE_WAIT_US	100000

static void mmu_set_live(struct rknpu_mmu_unit *unit, struct rknpu_space *space)
{
	lockdep_assert_held(&unit->lock);
	spin_lock_irq(&unit->rdev->lock);
	unit->live = space;
	spin_unlock_irq(&unit->rdev->lock);
}

int rknpu_mmu_unit_init(struct rknpu_device *rdev, struct rknpu_mmu_unit *unit, unsigned int index)
{
	unit->rdev = rdev;
	unit->index = index;
	mutex_init(&unit->lock);
	return rdev->mmu->unit_init ? rdev->mmu->unit_init(unit) : 0;
}

/* Files may be open still: who comes later finds a unit without power and without a space. */
void rknpu_mmu_unit_fini(struct rknpu_mmu_unit *unit)
{
	mutex_lock(&unit->lock);
	if (unit->rdev->mmu->unit_fini)
		unit->rdev->mmu->unit_fini(unit);
	unit->powered = false;
	unit->stale = false;
	mmu_set_live(unit, NULL);
	mutex_unlock(&unit->lock);
}

int rknpu_mmu_switch(struct rknpu_mmu_unit *unit, struct rknpu_space *space)
{
	int ret = 0;

	mutex_lock(&unit->lock);
	if (!unit->powered) {
		ret = -ENODEV;
	} else if (unit->live != space || unit->reattach) {
		ret = unit->rdev->mmu->attach(unit, space);
		unit->reattach = false;
		unit->stale = ret;
		mmu_set_live(unit, ret ? NULL : space);
		atomic64_inc(&unit->rdev->switches);
		trace_space_switched(unit, space, ret);
	}
	mutex_unlock(&unit->lock);
	return ret;
}

static int mmu_detach(struct rknpu_mmu_unit *unit)
{
	int ret = unit->rdev->mmu->attach(unit, NULL);

	lockdep_assert_held(&unit->lock);
	if (!ret) {
		unit->stale = false;
		mmu_set_live(unit, NULL);
	}
	return ret;
}

u32 rknpu_mmu_zap_space(struct rknpu_space *space)
{
	struct rknpu_device *rdev = space->rdev;
	u32 refused = 0;
	unsigned int i;

	for (i = 0; i < rdev->nr_units; i++) {
		struct rknpu_mmu_unit *unit = &rdev->units[i];

		mutex_lock(&unit->lock);
		if (unit->powered && rdev->mmu->zap && (unit->live == space || unit->stale))
			if (unit->stale ? mmu_detach(unit) : rdev->mmu->zap(unit))
				refused |= BIT(i);
		mutex_unlock(&unit->lock);
	}
	return refused;
}

void rknpu_mmu_mapped(struct rknpu_space *space, u64 first, u64 last)
{
	struct rknpu_device *rdev = space->rdev;
	unsigned int i;

	if (!rdev->mmu->mapped)
		return;
	for (i = 0; i < rdev->nr_units; i++) {
		struct rknpu_mmu_unit *unit = &rdev->units[i];

		mutex_lock(&unit->lock);
		if (unit->powered && unit->live == space)
			rdev->mmu->mapped(unit, first, last);
		mutex_unlock(&unit->lock);
	}
}

u32 rknpu_mmu_evict_space(struct rknpu_space *space)
{
	struct rknpu_device *rdev = space->rdev;
	u32 refused = 0;
	unsigned int i;

	for (i = 0; i < rdev->nr_units; i++) {
		struct rknpu_mmu_unit *unit = &rdev->units[i];

		mutex_lock(&unit->lock);
		if ((unit->live == space || unit->stale) && mmu_detach(unit))
			refused |= BIT(i);
		mutex_unlock(&unit->lock);
	}
	return refused;
}

int rknpu_mmu_forget(struct rknpu_mmu_unit *unit)
{
	int ret = 0;

	mutex_lock(&unit->lock);
	if (unit->live || unit->stale)
		ret = mmu_detach(unit);
	mutex_unlock(&unit->lock);
	return ret;
}

/*
 * Behind an IOMMU of several cores their banks are in order;
 * where the tree doesn't name them all nobody knows whose they are.
 */
static u32 mmu_banks_of(const struct rknpu_mmu_unit *unit, const struct rknpu_core *core)
{
	const struct rknpu_device *rdev = unit->rdev;
	unsigned int i, first = 0, end = 0, total = 0;

	for (i = 0; i < rdev->nr_cores; i++) {
		unsigned int banks = rdev->soc->banks[rdev->cores[i].number];

		if (!(unit->cores & BIT(i)))
			continue;
		if (i == core->index) {
			first = total;
			end = total + banks;
		}
		total += banks;
	}
	return total == unit->nr_banks ? GENMASK(end - 1, first) : ~0u;
}

bool rknpu_mmu_idle(struct rknpu_core *core)
{
	struct rknpu_mmu_unit *unit = core->unit;
	bool idle = true;

	mutex_lock(&unit->lock);
	if (unit->powered && unit->rdev->mmu->idle)
		idle = unit->rdev->mmu->idle(unit, mmu_banks_of(unit, core));
	mutex_unlock(&unit->lock);
	return idle;
}

int rknpu_mmu_wait_idle(struct rknpu_core *core)
{
	unsigned int us;

	if (!core->rdev->mmu->idle)
		return -EOPNOTSUPP;
	for (us = 0; us < IDLE_WAIT_US; us += 100) {
		if (rknpu_mmu_idle(core))
			return 0;
		usleep_range(100, 200);
	}
	return -ETIMEDOUT;
}

int rknpu_mmu_after_reset(struct rknpu_mmu_unit *unit)
{
	int ret = 0;

	mutex_lock(&unit->lock);
	if (!unit->powered) {
		ret = -ENODEV;
	} else {
		ret = unit->rdev->mmu->after_reset(unit);
		mmu_set_live(unit, NULL);
	}
	unit->stale = ret;
	unit->reattach = false;
	mutex_unlock(&unit->lock);
	if (ret)
		dev_err(unit->dev, "MMU unit %u doesn't come back after a reset: %d\n", unit->index, ret);
	return ret;
}

void rknpu_mmu_force_reset(struct rknpu_mmu_unit *unit)
{
	int ret = 0;

	mutex_lock(&unit->lock);
	if (unit->powered && unit->rdev->mmu->force_reset)
		ret = unit->rdev->mmu->force_reset(unit);
	mutex_unlock(&unit->lock);
	if (ret)
		dev_err(unit->dev, "MMU unit %u doesn't take its own reset: %d\n", unit->index, ret);
}

int rknpu_mmu_probe_begin(struct rknpu_mmu_unit *unit)
{
	int ret = 0;

	mutex_lock(&unit->lock);
	if (!unit->powered || unit->live)
		ret = -ENODEV;
	else if (unit->rdev->mmu->probe_begin)
		ret = unit->rdev->mmu->probe_begin(unit);
	mutex_unlock(&unit->lock);
	return ret;
}

void rknpu_mmu_probe_end(struct rknpu_mmu_unit *unit)
{
	mutex_lock(&unit->lock);
	if (unit->rdev->mmu->probe_end)
		unit->rdev->mmu->probe_end(unit);
	mutex_unlock(&unit->lock);
}

void rknpu_mmu_must_reattach(struct rknpu_mmu_unit *unit)
{
	mutex_lock(&unit->lock);
	unit->reattach = true;
	mutex_unlock(&unit->lock);
}

void rknpu_mmu_set_power(struct rknpu_mmu_unit *unit, bool on)
{
	mutex_lock(&unit->lock);
	unit->powered = on;
	if (unit->rdev->mmu->forgets_off) {
		mmu_set_live(unit, NULL);
		/* Until a space comes it translates by nothing, instead of passing addresses through. */
		unit->stale = on && unit->rdev->mmu->attach(unit, NULL);
	}
	mutex_unlock(&unit->lock);
}
