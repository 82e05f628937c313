// SPDX-License-Identifier: GPL-2.0-only
/*
 * Binding: which platform devices make up an NPU.
 *
 * - "rockchip,rk3588-rknpu" and its kin (vendor's binding): one node, all cores; - "rockchip,rk3588-rknn-core"
 * (mainline's): a node per core; those with one parent are one NPU, which is there when all are; -
 * "rk3588-rknpu-bank" (no device tree): as the first.
 * Windows named mmu0, mmu1, … (without device tree:
 * those after the cores') are MMU banks, which the driver then runs itself; else the nodes must have an IOMMU.
 */
#include <linux/module.h>
#include <linux/of.h>
#include <linux/platform_device.h>
#include <linux/property.h>

#include "rknpu_compat.h"
#include "rknpu_device.h"
#include "rknpu_npu.h"
#include "rknpu_power.h"
#include "../include/rknpu/rknpu_platform.h"

struct workqueue_struct *rknpu_reaper;

/* --- nodes that belong together ------------------------------------------------------------------------------------------------ */

static DEFINE_MUTEX(groups_lock);	/* all groups; probe and removal of any node */
static LIST_HEAD(groups);

struct rknpu_match {
	enum rknpu_soc_id soc;
	bool per_core;
};

static const struct rknpu_match match_rk3588 = { .soc = RKNPU_SOC_RK3588 };
static const struct rknpu_match match_rk3588_core = { .soc = RKNPU_SOC_RK3588, .per_core = true };
static const struct rknpu_match match_rk3583 = { .soc = RKNPU_SOC_RK3583 };
static const struct rknpu_match match_rk3568 = { .soc = RKNPU_SOC_RK3568 };

static const struct of_device_id rknpu_of_match[] = {
	{ .compatible = "rockchip,rk3588-rknpu", .data = &match_rk3588 },
	{ .compatible = "rockchip,rk3588-rknn-core", .data = &match_rk3588_core },
	{ .compatible = "rockchip,rk3583-rknpu", .data = &match_rk3583 },
	{ .compatible = "rockchip,rk3568-rknpu", .data = &match_rk3568 },
	{ .compatible = "rockchip,rk3566-rknpu", .data = &match_rk3568 },
	{}
};
MODULE_DEVICE_TABLE(of, rknpu_of_match);

static const struct platform_device_id rknpu_id_table[] = {
	{ .name = RKNPU_PLATFORM_RK3588_BANK, .driver_data = (kernel_ulong_t)&match_rk3588 },
	{}
};
MODULE_DEVICE_TABLE(platform, rknpu_id_table);

static unsigned int drv_count_siblings(struct device *dev)
{
	struct device_node *child;
	unsigned int n = 0;

	for_each_available_child_of_node(dev->of_node->parent, child)
		if (of_device_is_compatible(child, "rockchip,rk3588-rknn-core"))
			n++;
	return n;
}

static struct rknpu_group *drv_group_get(const void *key, unsigned int expected)
{
	struct rknpu_group *group;

	list_for_each_entry(group, &groups, link)
		if (group->key == key)
			return group;
	group = kzalloc(sizeof(*group), GFP_KERNEL);
	if (!group)
		return NULL;
	group->key = key;
	group->expected = expected;
	INIT_LIST_HEAD(&group->nodes);
	list_add(&group->link, &groups);
	return group;
}

static void drv_group_add(struct rknpu_group *group, struct rknpu_node *node)
{
	struct rknpu_node *pos;

	node->group = group;
	group->nr_nodes++;
	list_for_each_entry(pos, &group->nodes, link)
		if (pos->start > node->start) {
			list_add_tail(&node->link, &pos->link);
			return;
		}
	list_add_tail(&node->link, &group->nodes);
}

static void drv_group_remove(struct rknpu_node *node)
{
	struct rknpu_group *group = node->group;

	list_del(&node->link);
	if (!--group->nr_nodes) {
		list_del(&group->link);
		kfree(group);
	}
}

/* --- the platform driver --------------------------------------------------------------------------------------------------------- */

static int rknpu_probe(struct platform_device *pdev)
{
	const struct platform_device_id *id = platform_get_device_id(pdev);
	const struct rknpu_match *match = id ? (const void *)id->driver_data : device_get_match_data(&pdev->dev);
	struct rknpu_group *group;
	struct rknpu_node *node;
	int ret;

	if (!match)
		return -ENODEV;
	node = devm_kzalloc(&pdev->dev, sizeof(*node), GFP_KERNEL);
	if (!node)
		return -ENOMEM;
	node->dev = &pdev->dev;
	ret = rknpu_node_init(node, match->soc, match->per_core);
	if (ret)
		return ret;
	platform_set_drvdata(pdev, node);

	mutex_lock(&groups_lock);
	if (match->per_core)
		group = drv_group_get(pdev->dev.of_node->parent, min(drv_count_siblings(&pdev->dev), node->soc->cores));
	else
		group = drv_group_get(pdev, 1);
	if (!group) {
		ret = -ENOMEM;
	} else {
		drv_group_add(group, node);
		if (group->nr_nodes == group->expected)
			ret = rknpu_npu_create(group);
		if (ret)
			drv_group_remove(node);
	}
	mutex_unlock(&groups_lock);
	return ret;
}

static void rknpu_remove(struct platform_device *pdev)
{
	struct rknpu_node *node = platform_get_drvdata(pdev);

	mutex_lock(&groups_lock);
	if (node->group->rdev)
		rknpu_npu_destroy(node->group);
	drv_group_remove(node);
	mutex_unlock(&groups_lock);
}

RKNPU_DEFINE_REMOVE(rknpu_remove)

static void rknpu_shutdown(struct platform_device *pdev)
{
	rknpu_power_shutdown(platform_get_drvdata(pdev));
}

static struct platform_driver rknpu_driver = {
	.probe = rknpu_probe,
	RKNPU_REMOVE(rknpu_remove),
	.shutdown = rknpu_shutdown,
	.id_table = rknpu_id_table,
	/* No DMA API for the nodes: rknpu_mmu_iommu.c owns their IOMMU groups. */
	.driver_managed_dma = true,
	.driver = {
		.name = "npud-rknpu",
		.pm = pm_ptr(&rknpu_pm_ops),
		.of_match_table = rknpu_of_match,
	},
};

static int __init rknpu_init(void)
{
	int ret;

	rknpu_reaper = alloc_workqueue("rknpu-reaper", WQ_UNBOUND, 0);
	if (!rknpu_reaper)
		return -ENOMEM;
	ret = platform_driver_register(&rknpu_driver);
	if (ret)
		destroy_workqueue(rknpu_reaper);
	return ret;
}

static void __exit rknpu_exit(void)
{
	platform_driver_unregister(&rknpu_driver);
	destroy_workqueue(rknpu_reaper);
}

module_init(rknpu_init);
module_exit(rknpu_exit);

MODULE_DESCRIPTION("Rockchip NPU, with an address space for every process");
MODULE_LICENSE("GPL");
