// SPDX-License-Identifier: GPL-2.0-only
#include <linux/delay.h>
#include <linux/device.h>

#include "rknpu_device.h"
#include "rknpu_mmu.h"
#include "rknpu_trace.h"
#include "rknpu_vm.h"

#define IDLE_WAIT_US	100000

int rknpu_mmu_unit_init(struct rknpu_device *rdev, struct rknpu_mmu_unit *unit, unsigned int index)
{
	unit->rdev = rdev;
	unit->index = index;
	mutex_init(&unit->lock);
	return rdev->mmu->unit_init ? rdev->mmu->unit_init(unit) : 0;
}

void rknpu_mmu_unit_fini(struct rknpu_mmu_unit *unit)
{
	if (unit->rdev->mmu->unit_fini)
		unit->rdev->mmu->unit_fini(unit);
	mutex_destroy(&unit->lock);
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
		unit->live = ret ? NULL : space;
		unit->stale = ret;
		atomic64_inc(&unit->rdev->switches);
		trace_space_switched(unit, space, ret);
	}
	mutex_unlock(&unit->lock);
	return ret;
}

int rknpu_mmu_zap_space(struct rknpu_space *space, u32 *cores)
{
	struct rknpu_device *rdev = space->rdev;
	unsigned int i;
	int ret = 0;

	*cores = 0;
	for (i = 0; i < rdev->nr_units; i++) {
		struct rknpu_mmu_unit *unit = &rdev->units[i];

		mutex_lock(&unit->lock);
		if (unit->powered && rdev->mmu->zap && (unit->live == space || unit->stale)) {
			int err = unit->stale ? rdev->mmu->attach(unit, NULL) : rdev->mmu->zap(unit);

			if (err) {
				*cores |= unit->cores;
				ret = err;
			} else {
				unit->stale = false;
			}
		}
		mutex_unlock(&unit->lock);
	}
	return ret;
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

int rknpu_mmu_evict_space(struct rknpu_space *space, u32 *cores)
{
	struct rknpu_device *rdev = space->rdev;
	unsigned int i;
	int ret = 0;

	*cores = 0;
	for (i = 0; i < rdev->nr_units; i++) {
		struct rknpu_mmu_unit *unit = &rdev->units[i];

		mutex_lock(&unit->lock);
		if (unit->live == space || unit->stale) {
			int err = rdev->mmu->attach(unit, NULL);

			if (err) {
				*cores |= unit->cores;
				ret = err;
			} else {
				unit->live = NULL;
				unit->stale = false;
			}
		}
		mutex_unlock(&unit->lock);
	}
	return ret;
}

bool rknpu_mmu_idle(struct rknpu_mmu_unit *unit)
{
	bool idle = true;

	mutex_lock(&unit->lock);
	if (unit->powered && unit->rdev->mmu->idle)
		idle = unit->rdev->mmu->idle(unit);
	mutex_unlock(&unit->lock);
	return idle;
}

int rknpu_mmu_wait_idle(struct rknpu_mmu_unit *unit)
{
	unsigned int us;

	if (!unit->rdev->mmu->idle)
		return -EOPNOTSUPP;
	for (us = 0; us < IDLE_WAIT_US; us += 100) {
		if (rknpu_mmu_idle(unit))
			return 0;
		usleep_range(100, 200);
	}
	return -ETIMEDOUT;
}

int rknpu_mmu_after_reset(struct rknpu_mmu_unit *unit)
{
	int ret = 0;

	mutex_lock(&unit->lock);
	if (!unit->powered)
		ret = -ENODEV;
	else if (unit->rdev->mmu->after_reset)
		ret = unit->rdev->mmu->after_reset(unit);
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
	if (unit->rdev->mmu->power_lost) {
		unit->rdev->mmu->power_lost(unit);
		unit->stale = false;
	}
	mutex_unlock(&unit->lock);
}
