// SPDX-License-Identifier: GPL-2.0-only
#include <linux/clk.h>
#include <linux/pm_runtime.h>
#include <linux/regulator/consumer.h>

#include "rknpu_clock.h"
#include "rknpu_core.h"
#include "rknpu_devfreq.h"
#include "rknpu_device.h"
#include "rknpu_mmu.h"
#include "rknpu_power.h"
#include "rknpu_sched.h"
#include "../include/rknpu/rknpu_platform.h"

#define DEFAULT_AUTOSUSPEND_MS	3000
#define SLEEP_WAIT_MS		10000	/* for jobs to end */
#define SHUTDOWN_WAIT_MS	500	/* … before they are made to */

static int board_power(struct rknpu_node *node, bool on)
{
	const struct rknpu_platform_data *pdata = node->pdata;
	unsigned int i;
	int ret;

	if (!pdata || !pdata->ops || !pdata->ops->power)
		return 0;
	for (i = 0; i < node->nr_cores; i++) {
		ret = pdata->ops->power(pdata->board, i, on);
		if (ret && on) {
			while (i--)
				pdata->ops->power(pdata->board, i, false);
			return ret;
		}
	}
	return 0;
}

int rknpu_node_reset(struct rknpu_node *node, unsigned int index, bool assert)
{
	const struct rknpu_platform_data *pdata = node->pdata;

	if (!pdata || !pdata->ops || !pdata->ops->reset)
		return 0;
	return pdata->ops->reset(pdata->board, index, assert);
}

/* Power comes: handlers may touch the cores from the end of this on. */
static int rknpu_runtime_resume(struct device *dev)
{
	struct rknpu_node *node = dev_get_drvdata(dev);
	unsigned int i;
	int ret;

	if (!node->rdev)
		return 0;
	ret = clk_bulk_prepare_enable(node->nr_clks, node->clks);
	if (ret)
		return ret;
	ret = board_power(node, true);
	if (ret) {
		clk_bulk_disable_unprepare(node->nr_clks, node->clks);
		return ret;
	}
	for (i = 0; i < node->nr_cores; i++) {
		rknpu_mmu_set_power(node->cores[i]->unit, true);
		rknpu_core_irq_enable(node->cores[i], true);
	}
	rknpu_devfreq_resume(node->rdev);
	return 0;
}

/* Power goes: first nobody may touch the cores any more. No job runs, for each has a reference. */
static int rknpu_runtime_suspend(struct device *dev)
{
	struct rknpu_node *node = dev_get_drvdata(dev);
	unsigned int i;

	if (!node->rdev)
		return 0;
	/* None of them, or all. */
	for (i = 0; i < node->nr_cores; i++)
		if (READ_ONCE(node->cores[i]->job))
			return -EBUSY;
	for (i = 0; i < node->nr_cores; i++) {
		rknpu_core_irq_enable(node->cores[i], false);
		rknpu_mmu_set_power(node->cores[i]->unit, false);
	}
	rknpu_devfreq_suspend(node->rdev);
	board_power(node, false);
	clk_bulk_disable_unprepare(node->nr_clks, node->clks);
	return 0;
}

/* The first of the nodes waits for what runs; jobs that are queued wait until the last one is back. */
static int rknpu_suspend(struct device *dev)
{
	struct rknpu_node *node = dev_get_drvdata(dev);
	struct rknpu_device *rdev = node->rdev;
	int ret = 0;

	if (rdev && !rknpu_sched_pause(rdev, SLEEP_WAIT_MS)) {
		dev_warn(dev, "jobs don't end: no suspend\n");
		ret = -EBUSY;
	}
	ret = ret ?: pm_runtime_force_suspend(dev);
	if (ret && rdev)
		rknpu_sched_resume(rdev);
	return ret;
}

static int rknpu_resume(struct device *dev)
{
	struct rknpu_node *node = dev_get_drvdata(dev);
	int ret = pm_runtime_force_resume(dev);

	if (node->rdev)
		rknpu_sched_resume(node->rdev);
	return ret;
}

void rknpu_power_shutdown(struct rknpu_node *node)
{
	struct rknpu_device *rdev = node->rdev;

	if (rdev && !rknpu_sched_pause(rdev, SHUTDOWN_WAIT_MS))
		rknpu_sched_end_running(rdev);
	pm_runtime_force_suspend(node->dev);
}

const struct dev_pm_ops rknpu_pm_ops = {
	RUNTIME_PM_OPS(rknpu_runtime_suspend, rknpu_runtime_resume, NULL)
	SYSTEM_SLEEP_PM_OPS(rknpu_suspend, rknpu_resume)
};

int rknpu_power_init(struct rknpu_device *rdev)
{
	unsigned int i;

	rdev->autosuspend_ms = DEFAULT_AUTOSUSPEND_MS;
	for (i = 0; i < rdev->nr_nodes; i++) {
		struct device *dev = rdev->nodes[i]->dev;

		pm_runtime_set_autosuspend_delay(dev, rdev->autosuspend_ms);
		pm_runtime_use_autosuspend(dev);
		pm_runtime_enable(dev);
	}
	return 0;
}

void rknpu_power_fini(struct rknpu_device *rdev)
{
	unsigned int i;

	for (i = 0; i < rdev->nr_nodes; i++) {
		struct device *dev = rdev->nodes[i]->dev;

		pm_runtime_dont_use_autosuspend(dev);
		/*
		 * Whoever still holds a reference: the power domain must be off before the supplies,
		 * which devres takes.
		 */
		pm_runtime_force_suspend(dev);
	}
}

int rknpu_power_get(struct rknpu_core *core)
{
	return pm_runtime_resume_and_get(rknpu_core_dev(core));
}

void rknpu_power_put(struct rknpu_core *core)
{
	pm_runtime_mark_last_busy(rknpu_core_dev(core));
	pm_runtime_put_autosuspend(rknpu_core_dev(core));
}

int rknpu_power_get_all(struct rknpu_device *rdev)
{
	unsigned int i;
	int ret;

	for (i = 0; i < rdev->nr_cores; i++) {
		ret = rknpu_power_get(&rdev->cores[i]);
		if (ret) {
			while (i--)
				rknpu_power_put(&rdev->cores[i]);
			return ret;
		}
	}
	return 0;
}

void rknpu_power_put_all(struct rknpu_device *rdev)
{
	unsigned int i;

	for (i = 0; i < rdev->nr_cores; i++)
		rknpu_power_put(&rdev->cores[i]);
}

void rknpu_power_set_delay(struct rknpu_device *rdev, unsigned int delay_ms)
{
	unsigned int i;

	rdev->autosuspend_ms = delay_ms;
	for (i = 0; i < rdev->nr_nodes; i++)
		pm_runtime_set_autosuspend_delay(rdev->nodes[i]->dev, delay_ms);
}

bool rknpu_power_is_on(struct rknpu_device *rdev)
{
	unsigned int i;

	for (i = 0; i < rdev->nr_units; i++)
		if (READ_ONCE(rdev->units[i].powered))
			return true;
	return false;
}

struct clk_bulk_data *rknpu_node_clock(struct rknpu_node *node)
{
	int index = rknpu_clock_find(node->clks, node->nr_clks);

	return index < 0 ? NULL : &node->clks[index];
}

long rknpu_power_frequency(struct rknpu_device *rdev)
{
	struct clk_bulk_data *clock = rknpu_node_clock(rdev->nodes[0]);

	return clock ? (long)clk_get_rate(clock->clk) : -EOPNOTSUPP;
}

long rknpu_power_voltage(struct rknpu_device *rdev)
{
	struct regulator *supply = rdev->nodes[0]->supplies[0];

	return supply ? regulator_get_voltage(supply) : -EOPNOTSUPP;
}
