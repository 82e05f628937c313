// SPDX-License-Identifier: GPL-2.0-only
/* From a group of platform devices to an NPU that works, and back. */
#include <linux/dma-mapping.h>
#include <linux/platform_device.h>
#include <linux/reset.h>
#include <drm/drm_drv.h>

#include "rknpu_compat.h"
#include "rknpu_debugfs.h"
#include "rknpu_devfreq.h"
#include "rknpu_device.h"
#include "rknpu_drm.h"
#include "rknpu_file.h"
#include "rknpu_npu.h"
#include "rknpu_power.h"
#include "rknpu_regs.h"
#include "rknpu_sched.h"
#include "../include/rknpu/rknpu_platform.h"

static int npu_map_window(struct rknpu_node *node, const char *name, unsigned int index, void __iomem **window)
{
	struct platform_device *pdev = to_platform_device(node->dev);
	struct resource *res = name ? platform_get_resource_byname(pdev, IORESOURCE_MEM, name) : NULL;
	void __iomem *regs;

	if (!res)
		res = platform_get_resource(pdev, IORESOURCE_MEM, index);
	if (!res)
		return -ENODEV;
	/*
	 * Not exclusively: in the vendor's map the MMU's banks,
	 * which the IOMMU driver has, lie within the cores' windows.
	 */
	regs = devm_ioremap(node->dev, res->start, resource_size(res));
	if (!regs)
		return -ENOMEM;
	*window = regs;
	return 0;
}

static int npu_core_init(struct rknpu_device *rdev, struct rknpu_core *core, struct rknpu_node *node, unsigned int index)
{
	struct platform_device *pdev = to_platform_device(node->dev);
	struct device *dev = node->dev;
	char name[16];
	int ret;

	core->rdev = rdev;
	core->node = node;
	core->node_index = index;
	core->number = node->first + index;
	spin_lock_init(&core->irq_lock);
	node->cores[index] = core;

	if (platform_get_resource_byname(pdev, IORESOURCE_MEM, "pc")) {
		ret = npu_map_window(node, "pc", 0, &core->pc);
		ret = ret ?: npu_map_window(node, "cna", 1, &core->cna);
		ret = ret ?: npu_map_window(node, "core", 2, &core->regs_core);
	} else {
		ret = npu_map_window(node, NULL, index, &core->pc);
		core->cna = core->pc + RKNPU_CNA_OFFSET;
		core->regs_core = core->pc + RKNPU_CORE_OFFSET;
		core->dpu = core->pc + RKNPU_DPU_OFFSET;
	}
	if (ret)
		return dev_err_probe(dev, ret, "no register window for core %u\n", core->index);

	snprintf(name, sizeof(name), node->nr_cores > 1 ? "srst_a%u" : "srst_a", index);
	core->resets[0] = devm_reset_control_get_optional_exclusive(dev, name);
	if (IS_ERR(core->resets[0]))
		return dev_err_probe(dev, PTR_ERR(core->resets[0]), "reset line %s\n", name);
	snprintf(name, sizeof(name), node->nr_cores > 1 ? "srst_h%u" : "srst_h", index);
	core->resets[1] = devm_reset_control_get_optional_exclusive(dev, name);
	if (IS_ERR(core->resets[1]))
		return dev_err_probe(dev, PTR_ERR(core->resets[1]), "reset line %s\n", name);
	core->can_reset = core->resets[0] || (node->pdata && node->pdata->ops && node->pdata->ops->reset);
	if (!core->can_reset)
		dev_warn(dev, "core %u has no reset line: if it hangs it is lost\n", core->index);

	core->irq = platform_get_irq(pdev, index);
	return core->irq < 0 ? core->irq : 0;
}

/* The node's banks are counted off, as many for each core as the SoC has. */
static int npu_units_init(struct rknpu_device *rdev)
{
	unsigned int i, k, bank = 0;
	int ret;

	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];
		struct rknpu_node *node = core->node;
		struct rknpu_mmu_unit *unit = &rdev->units[rdev->nr_units];
		unsigned int banks = rdev->soc->banks[core->number];

		if (!node->bank && core->node_index) {
			/* One IOMMU for all cores of the node. */
			core->unit = node->cores[0]->unit;
			core->unit->cores |= BIT(i);
			continue;
		}
		unit->dev = node->dev;
		unit->cores = BIT(i);
		core->unit = unit;
		if (node->bank) {
			if (core->node_index == 0)
				bank = 0;
			for (k = 0; k < banks; k++, bank++) {
				struct platform_device *pdev = to_platform_device(node->dev);
				char name[16];

				snprintf(name, sizeof(name), "mmu%u", bank);
				if (pdev->dev.of_node &&
				    !platform_get_resource_byname(pdev, IORESOURCE_MEM, name))
					ret = -ENODEV;
				else
					ret = npu_map_window(node, name, node->nr_cores + bank, &unit->banks[k]);
				if (ret)
					return dev_err_probe(node->dev, ret, "no window for MMU bank %u\n", bank);
			}
			unit->nr_banks = banks;
		}
		ret = rknpu_mmu_unit_init(rdev, unit, rdev->nr_units);
		if (ret)
			return ret;
		rdev->nr_units++;
	}
	return 0;
}

static void npu_units_fini(struct rknpu_device *rdev)
{
	while (rdev->nr_units)
		rknpu_mmu_unit_fini(&rdev->units[--rdev->nr_units]);
}

static int npu_cores_init(struct rknpu_device *rdev, struct rknpu_group *group)
{
	struct rknpu_node *node;
	unsigned int i;
	int ret;

	list_for_each_entry(node, &group->nodes, link) {
		rdev->nodes[rdev->nr_nodes++] = node;
		for (i = 0; i < node->nr_cores; i++) {
			struct rknpu_core *core = &rdev->cores[rdev->nr_cores];

			core->index = rdev->nr_cores;
			ret = npu_core_init(rdev, core, node, i);
			if (ret)
				return ret;
			rdev->nr_cores++;
		}
	}
	return npu_units_init(rdev);
}

/* With power, for the first time: reset, to be free of what was before us, and read the version. */
static int npu_cores_start(struct rknpu_device *rdev)
{
	unsigned int i;
	int ret;

	for (i = 0; i < rdev->nr_cores; i++) {
		ret = rknpu_core_request_irq(&rdev->cores[i]);
		if (ret)
			return dev_err_probe(rknpu_core_dev(&rdev->cores[i]), ret, "interrupt of core %u\n", i);
	}
	ret = rknpu_power_get_all(rdev);
	if (ret)
		return ret;
	for (i = 0; i < rdev->nr_cores && !ret; i++) {
		struct rknpu_core *core = &rdev->cores[i];

		if (core->can_reset)
			ret = rknpu_core_stop(core);
	}
	atomic64_set(&rdev->resets, 0);
	if (!ret)
		rdev->hw_version = readl(rdev->cores[0].pc + RKNPU_PC_VERSION) +
				   (readl(rdev->cores[0].pc + RKNPU_PC_VERSION_NUM) & 0xffff);
	rknpu_power_put_all(rdev);
	return ret;
}

/*
 * What a device takes of its nodes goes back when the device does, though the nodes may stay bound:
 * mainline's nodes come and go one by one, the device with the first that goes.
 */
static int npu_nodes_open(struct rknpu_group *group)
{
	struct rknpu_node *node;

	list_for_each_entry(node, &group->nodes, link)
		if (!devres_open_group(node->dev, node, GFP_KERNEL)) {
			list_for_each_entry_continue_reverse(node, &group->nodes, link)
				devres_release_group(node->dev, node);
			return -ENOMEM;
		}
	return 0;
}

static void npu_nodes_close(struct rknpu_group *group)
{
	struct rknpu_node *node;

	list_for_each_entry(node, &group->nodes, link)
		devres_close_group(node->dev, node);
}

static void npu_nodes_release(struct rknpu_group *group)
{
	struct rknpu_node *node;

	list_for_each_entry(node, &group->nodes, link) {
		devres_release_group(node->dev, node);
		node->rdev = NULL;
	}
}

static struct platform_device *npu_facade_create(const struct rknpu_soc *soc)
{
	const struct platform_device_info info = {
		.name = "rknpu-facade",
		.id = PLATFORM_DEVID_AUTO,
		.dma_mask = DMA_BIT_MASK(soc->dma_bits),
	};

	return platform_device_register_full(&info);
}

int rknpu_npu_create(struct rknpu_group *group)
{
	struct rknpu_node *node = list_first_entry(&group->nodes, struct rknpu_node, link);
	struct platform_device *facade = npu_facade_create(node->soc);
	struct rknpu_device *rdev;
	unsigned int i;
	int ret;

	if (IS_ERR(facade))
		return PTR_ERR(facade);
	ret = -ENOMEM;
	if (!devres_open_group(&facade->dev, NULL, GFP_KERNEL))
		goto err_facade;
	dma_set_max_seg_size(&facade->dev, UINT_MAX);
	rdev = devm_drm_dev_alloc(&facade->dev, &rknpu_drm_driver, struct rknpu_device, drm);
	if (IS_ERR(rdev)) {
		ret = PTR_ERR(rdev);
		goto err_group;
	}
	rdev->facade = facade;
	rdev->soc = node->soc;
	rdev->mmu = node->bank ? &rknpu_mmu_bank_ops : &rknpu_mmu_iommu_ops;
	mutex_init(&rdev->list_lock);
	mutex_init(&rdev->devfreq_lock);
	INIT_LIST_HEAD(&rdev->files);
	INIT_LIST_HEAD(&rdev->spaces);
	ret = rknpu_sched_init(rdev);
	if (ret)
		goto err_group;
	ret = npu_nodes_open(group);
	if (ret)
		goto err_group;
	ret = npu_cores_init(rdev, group);
	if (ret)
		goto err_units;
	for (i = 0; i < rdev->nr_nodes; i++)
		rdev->nodes[i]->rdev = rdev;
	rknpu_power_init(rdev);
	ret = npu_cores_start(rdev);
	if (ret)
		goto err_power;
	ret = rknpu_devfreq_init(rdev);
	if (ret)
		goto err_power;
	rknpu_debugfs_init(rdev);
	ret = drm_dev_register(&rdev->drm, 0);
	if (ret)
		goto err_debugfs;
	npu_nodes_close(group);
	group->rdev = rdev;
	dev_info(&facade->dev, "%s NPU%s, version %#x, %u cores, MMU by %s\n", rdev->soc->name,
		 rdev->soc->tested ? "" : " (untested)", rdev->hw_version, rdev->nr_cores, rdev->mmu->name);
	return 0;

err_debugfs:
	rknpu_debugfs_fini(rdev);
	rknpu_devfreq_fini(rdev);
err_power:
	rknpu_power_fini(rdev);
err_units:
	npu_units_fini(rdev);
	npu_nodes_release(group);
err_group:
	devres_release_group(&facade->dev, NULL);
err_facade:
	platform_device_unregister(facade);
	return ret;
}

void rknpu_npu_destroy(struct rknpu_group *group)
{
	struct rknpu_device *rdev = group->rdev;
	struct platform_device *facade = rdev->facade;
	struct rknpu_file *file, *next;

	group->rdev = NULL;
	rknpu_sched_stop(rdev);
	drm_dev_unplug(&rdev->drm);
	rknpu_debugfs_fini(rdev);
	for (file = rknpu_file_next(rdev, 0); file; file = next) {
		rknpu_file_let_go(file);
		next = rknpu_file_next(rdev, file->id);
		rknpu_file_put(file);
	}
	rknpu_devfreq_fini(rdev);
	rknpu_power_fini(rdev);
	npu_units_fini(rdev);
	npu_nodes_release(group);
	devres_release_group(&facade->dev, NULL);
	platform_device_unregister(facade);
}
