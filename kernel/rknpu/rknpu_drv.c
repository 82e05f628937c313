// SPDX-License-Identifier: GPL-2.0-only
/*
 * Binding: which platform devices make up an NPU, and the DRM device in front of them.
 *
 *  - "rockchip,rk3588-rknpu" and its kin (vendor's binding): one node, all cores;
 *  - "rockchip,rk3588-rknn-core" (mainline's): a node per core; those with one parent are one NPU, which is there when all are;
 *  - "rk3588-rknpu-bank" (no device tree): as the first.
 * Windows named mmu0, mmu1, … (without device tree: those after the cores') are MMU banks, which the driver then runs itself; else the
 * nodes must have an IOMMU.
 */
#include <linux/clk.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/of_device.h>
#include <linux/platform_device.h>
#include <linux/pm_runtime.h>
#include <linux/property.h>
#include <linux/regulator/consumer.h>
#include <linux/reset.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_ioctl.h>

#include "rknpu_action.h"
#include "rknpu_bo.h"
#include "rknpu_compat.h"
#include "rknpu_debugfs.h"
#include "rknpu_device.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_power.h"
#include "rknpu_regs.h"
#include "rknpu_sched.h"
#include "../include/rknpu/rknpu_platform.h"
#include "../include/uapi/drm/rknpu_drm_abi.h"

struct workqueue_struct *rknpu_reaper;

/* --- the DRM device ----------------------------------------------------------------------------------------------------------- */

static const struct drm_ioctl_desc rknpu_ioctls[] = {
	DRM_IOCTL_DEF_DRV(RKNPU_ACTION, rknpu_ioctl_action, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_SUBMIT, rknpu_ioctl_submit, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_MEM_CREATE, rknpu_ioctl_mem_create, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_MEM_MAP, rknpu_ioctl_mem_map, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_MEM_DESTROY, rknpu_ioctl_mem_destroy, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_MEM_SYNC, rknpu_ioctl_mem_sync, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_NPUD_LIMIT, rknpu_ioctl_npud_limit, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_NPUD_REVOKE, rknpu_ioctl_npud_revoke, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_NPUD_QUERY, rknpu_ioctl_npud_query, DRM_RENDER_ALLOW),
};

static struct rknpu_file *file_of(struct file *filp)
{
	struct drm_file *drm_file = filp->private_data;

	return drm_file->driver_priv;
}

/* A revoked file may still give back what it has. */
static bool allowed(struct file *filp, unsigned int cmd)
{
	return !rknpu_file_revoked(file_of(filp)) || cmd == DRM_IOCTL_GEM_CLOSE || cmd == DRM_IOCTL_RKNPU_NPUD_REVOKE;
}

static long rknpu_fop_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	return allowed(filp, cmd) ? drm_ioctl(filp, cmd, arg) : -ENODEV;
}

#ifdef CONFIG_COMPAT
static long rknpu_fop_compat_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	return allowed(filp, cmd) ? drm_compat_ioctl(filp, cmd, arg) : -ENODEV;
}
#endif

static int rknpu_fop_mmap(struct file *filp, struct vm_area_struct *vma)
{
	return rknpu_file_revoked(file_of(filp)) ? -ENODEV : drm_gem_mmap(filp, vma);
}

/* The jobs end before the DRM core takes the handles, and with them the mappings, away. */
static int rknpu_fop_release(struct inode *inode, struct file *filp)
{
	rknpu_file_quiesce(file_of(filp));
	return drm_release(inode, filp);
}

static const struct file_operations rknpu_fops = {
	.owner = THIS_MODULE,
	.open = drm_open,
	.release = rknpu_fop_release,
	.unlocked_ioctl = rknpu_fop_ioctl,
#ifdef CONFIG_COMPAT
	.compat_ioctl = rknpu_fop_compat_ioctl,
#endif
	.poll = drm_poll,
	.read = drm_read,
	.llseek = noop_llseek,
	.mmap = rknpu_fop_mmap,
	.show_fdinfo = rknpu_file_show_fdinfo,
	RKNPU_FOP_FLAGS
};

/* The last file is closed: nothing of the device is in use any more. */
static void rknpu_drm_release(struct drm_device *drm)
{
	rknpu_sched_fini(to_rknpu_device(drm));
}

static const struct drm_driver rknpu_drm_driver = {
	.driver_features = DRIVER_GEM | DRIVER_RENDER,
	.open = rknpu_file_open,
	.postclose = rknpu_file_postclose,
	.release = rknpu_drm_release,
	.gem_create_object = rknpu_gem_create_object,
	.gem_prime_import = rknpu_gem_prime_import,
	.gem_prime_import_sg_table = drm_gem_shmem_prime_import_sg_table,
	.ioctls = rknpu_ioctls,
	.num_ioctls = ARRAY_SIZE(rknpu_ioctls),
	.fops = &rknpu_fops,
	.name = RKNPU_DRM_NAME,
	.desc = "Rockchip NPU",
	.major = RKNPU_DRM_VERSION_MAJOR,
	.minor = RKNPU_DRM_VERSION_MINOR,
	.patchlevel = RKNPU_DRM_VERSION_PATCH,
	RKNPU_DRM_PRIME
	RKNPU_DRM_DATE
};

/* --- nodes that belong together ------------------------------------------------------------------------------------------------ */

/* The platform devices of one NPU. @key is what they have in common: the parent of mainline's nodes, or the one node itself. */
struct rknpu_group {
	struct list_head link;
	const void *key;
	struct list_head nodes;		/* by address, which is the cores' order */
	unsigned int nr_nodes;
	unsigned int expected;
	struct rknpu_device *rdev;
};

static DEFINE_MUTEX(groups_lock);	/* all groups; probe and removal of any node */
static LIST_HEAD(groups);

struct rknpu_match {
	enum rknpu_soc_id soc;
	bool per_core;
};

static const struct rknpu_match match_rk3588 = { .soc = RKNPU_SOC_RK3588 };
static const struct rknpu_match match_rk3588_core = { .soc = RKNPU_SOC_RK3588, .per_core = true };
static const struct rknpu_match match_rk3583 = { .soc = RKNPU_SOC_RK3583 };
static const struct rknpu_match match_rk3576 = { .soc = RKNPU_SOC_RK3576 };
static const struct rknpu_match match_rk3568 = { .soc = RKNPU_SOC_RK3568 };
static const struct rknpu_match match_rk3562 = { .soc = RKNPU_SOC_RK3562 };

static const struct of_device_id rknpu_of_match[] = {
	{ .compatible = "rockchip,rk3588-rknpu", .data = &match_rk3588 },
	{ .compatible = "rockchip,rk3588-rknn-core", .data = &match_rk3588_core },
	{ .compatible = "rockchip,rk3583-rknpu", .data = &match_rk3583 },
	{ .compatible = "rockchip,rk3576-rknpu", .data = &match_rk3576 },
	{ .compatible = "rockchip,rk3568-rknpu", .data = &match_rk3568 },
	{ .compatible = "rockchip,rk3566-rknpu", .data = &match_rk3568 },
	{ .compatible = "rockchip,rk3562-rknpu", .data = &match_rk3562 },
	{}
};
MODULE_DEVICE_TABLE(of, rknpu_of_match);

static const struct platform_device_id rknpu_id_table[] = {
	{ .name = RKNPU_PLATFORM_RK3588_BANK, .driver_data = (kernel_ulong_t)&match_rk3588 },
	{}
};
MODULE_DEVICE_TABLE(platform, rknpu_id_table);

static unsigned int count_siblings(struct device *dev)
{
	struct device_node *child;
	unsigned int n = 0;

	for_each_available_child_of_node(dev->of_node->parent, child)
		if (of_device_is_compatible(child, "rockchip,rk3588-rknn-core"))
			n++;
	return n;
}

static struct rknpu_group *group_get(const void *key, unsigned int expected)
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

static void group_add(struct rknpu_group *group, struct rknpu_node *node)
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

static void group_remove(struct rknpu_node *node)
{
	struct rknpu_group *group = node->group;

	list_del(&node->link);
	if (!--group->nr_nodes) {
		list_del(&group->link);
		kfree(group);
	}
}

/* --- bringing an NPU up --------------------------------------------------------------------------------------------------------- */

static int map_window(struct rknpu_node *node, const char *name, unsigned int index, void __iomem **window)
{
	struct platform_device *pdev = to_platform_device(node->dev);
	struct resource *res = name ? platform_get_resource_byname(pdev, IORESOURCE_MEM, name) : NULL;
	void __iomem *regs;

	if (!res)
		res = platform_get_resource(pdev, IORESOURCE_MEM, index);
	if (!res)
		return -ENODEV;
	/* Not exclusively: in the vendor's map the MMU's banks, which the IOMMU driver has, lie within the cores' windows. */
	regs = devm_ioremap(node->dev, res->start, resource_size(res));
	if (!regs)
		return -ENOMEM;
	*window = regs;
	return 0;
}

static int core_init(struct rknpu_device *rdev, struct rknpu_core *core, struct rknpu_node *node, unsigned int index)
{
	struct platform_device *pdev = to_platform_device(node->dev);
	struct device *dev = node->dev;
	char name[16];
	int ret;

	core->rdev = rdev;
	core->node = node;
	core->node_index = index;
	spin_lock_init(&core->irq_lock);
	node->cores[index] = core;

	if (platform_get_resource_byname(pdev, IORESOURCE_MEM, "pc")) {
		ret = map_window(node, "pc", 0, &core->pc);
		ret = ret ?: map_window(node, "cna", 1, &core->cna);
		ret = ret ?: map_window(node, "core", 2, &core->regs_core);
	} else {
		ret = map_window(node, NULL, index, &core->pc);
		core->cna = core->pc + RKNPU_CNA_OFFSET;
		core->regs_core = core->pc + RKNPU_CORE_OFFSET;
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

/* Banks are counted off: two for core 0 of an RK3588, one for each other core. */
static int units_init(struct rknpu_device *rdev)
{
	unsigned int i, k, bank = 0;
	int ret;

	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];
		struct rknpu_node *node = core->node;
		struct rknpu_mmu_unit *unit = &rdev->units[rdev->nr_units];
		unsigned int banks = 1;

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
			if (i == 0 && rdev->nr_cores > 1)
				banks = 2;
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
					ret = map_window(node, name, node->nr_cores + bank, &unit->banks[k]);
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

static void units_fini(struct rknpu_device *rdev)
{
	while (rdev->nr_units)
		rknpu_mmu_unit_fini(&rdev->units[--rdev->nr_units]);
}

static int cores_init(struct rknpu_device *rdev, struct rknpu_group *group)
{
	struct rknpu_node *node;
	unsigned int i;
	int ret;

	list_for_each_entry(node, &group->nodes, link) {
		rdev->nodes[rdev->nr_nodes++] = node;
		for (i = 0; i < node->nr_cores; i++) {
			struct rknpu_core *core = &rdev->cores[rdev->nr_cores];

			core->index = rdev->nr_cores;
			ret = core_init(rdev, core, node, i);
			if (ret)
				return ret;
			rdev->nr_cores++;
		}
	}
	return units_init(rdev);
}

/* With power, for the first time: reset, to be free of what was before us, and read the version. */
static int cores_start(struct rknpu_device *rdev)
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
 * What a device takes of its nodes goes back when the device does, though the nodes may stay bound: mainline's nodes come and go one by one,
 * the device with the first that goes.
 */
static int nodes_open(struct rknpu_group *group)
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

static void nodes_close(struct rknpu_group *group)
{
	struct rknpu_node *node;

	list_for_each_entry(node, &group->nodes, link)
		devres_close_group(node->dev, node);
}

static void nodes_release(struct rknpu_group *group)
{
	struct rknpu_node *node;

	list_for_each_entry(node, &group->nodes, link) {
		devres_release_group(node->dev, node);
		node->rdev = NULL;
	}
}

static struct platform_device *facade_create(const struct rknpu_soc *soc)
{
	const struct platform_device_info info = {
		.name = "rknpu-facade",
		.id = PLATFORM_DEVID_AUTO,
		.dma_mask = DMA_BIT_MASK(soc->dma_bits),
	};

	return platform_device_register_full(&info);
}

static int npu_create(struct rknpu_group *group)
{
	struct rknpu_node *node = list_first_entry(&group->nodes, struct rknpu_node, link);
	struct platform_device *facade = facade_create(node->soc);
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
	INIT_LIST_HEAD(&rdev->files);
	INIT_LIST_HEAD(&rdev->spaces);
	ret = rknpu_sched_init(rdev);
	if (ret)
		goto err_group;
	ret = nodes_open(group);
	if (ret)
		goto err_group;
	ret = cores_init(rdev, group);
	if (ret)
		goto err_units;
	for (i = 0; i < rdev->nr_nodes; i++)
		rdev->nodes[i]->rdev = rdev;
	rknpu_power_init(rdev);
	ret = cores_start(rdev);
	if (ret)
		goto err_power;
	rknpu_debugfs_init(rdev);
	ret = drm_dev_register(&rdev->drm, 0);
	if (ret)
		goto err_debugfs;
	nodes_close(group);
	group->rdev = rdev;
	dev_info(&facade->dev, "%s NPU%s, version %#x, %u cores, MMU by %s\n", rdev->soc->name,
		 rdev->soc->tested ? "" : " (untested)", rdev->hw_version, rdev->nr_cores, rdev->mmu->name);
	return 0;

err_debugfs:
	rknpu_debugfs_fini(rdev);
err_power:
	rknpu_power_fini(rdev);
err_units:
	units_fini(rdev);
	nodes_release(group);
err_group:
	devres_release_group(&facade->dev, NULL);
err_facade:
	platform_device_unregister(facade);
	return ret;
}

/*
 * The hardware goes, by unbinding or because the module does. Files may stay open: they get -ENODEV, and their spaces come apart without
 * touching anything.
 */
static void npu_destroy(struct rknpu_group *group)
{
	struct rknpu_device *rdev = group->rdev;
	struct platform_device *facade = rdev->facade;
	struct rknpu_file *file;

	group->rdev = NULL;
	drm_dev_unplug(&rdev->drm);
	rknpu_sched_stop(rdev);
	rknpu_debugfs_fini(rdev);
	mutex_lock(&rdev->list_lock);
	list_for_each_entry(file, &rdev->files, link) {
		mutex_lock(&file->lock);
		if (file->powered)
			rknpu_power_put_all(rdev);
		file->powered = false;
		mutex_unlock(&file->lock);
	}
	mutex_unlock(&rdev->list_lock);
	rknpu_power_fini(rdev);
	units_fini(rdev);
	nodes_release(group);
	devres_release_group(&facade->dev, NULL);
	platform_device_unregister(facade);
}

/* --- the platform driver --------------------------------------------------------------------------------------------------------- */

static int node_init(struct rknpu_node *node, const struct rknpu_match *match)
{
	struct platform_device *pdev = to_platform_device(node->dev);
	struct device *dev = node->dev;
	struct resource *res = platform_get_resource(pdev, IORESOURCE_MEM, 0);
	int ret;

	if (!res)
		return dev_err_probe(dev, -ENODEV, "no registers\n");
	node->start = res->start;
	node->soc = rknpu_soc_get(match->soc);
	node->nr_cores = match->per_core ? 1 : node->soc->cores;
	node->pdata = dev_get_platdata(dev);
	node->bank = !dev->of_node || platform_get_resource_byname(pdev, IORESOURCE_MEM, "mmu0");
	if (!node->bank && !device_property_present(dev, "iommus"))
		return dev_err_probe(dev, -ENODEV, "neither MMU banks (reg-names mmu0, ...) nor an IOMMU (iommus): not without\n");

	ret = devm_clk_bulk_get_all(dev, &node->clks);
	if (ret < 0)
		return dev_err_probe(dev, ret, "clocks\n");
	node->nr_clks = ret;
	node->supply = devm_regulator_get_optional(dev, match->per_core ? "npu" : "rknpu");
	if (IS_ERR(node->supply)) {
		if (PTR_ERR(node->supply) == -EPROBE_DEFER)
			return -EPROBE_DEFER;
		node->supply = NULL;
	}
	ret = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(node->soc->dma_bits));
	if (ret)
		return dev_err_probe(dev, ret, "%u bits of DMA address\n", node->soc->dma_bits);
	return 0;
}

static int rknpu_probe(struct platform_device *pdev)
{
	const struct platform_device_id *id = platform_get_device_id(pdev);
	const struct rknpu_match *match = id ? (const void *)id->driver_data : of_device_get_match_data(&pdev->dev);
	struct rknpu_group *group;
	struct rknpu_node *node;
	int ret;

	if (!match)
		return -ENODEV;
	node = devm_kzalloc(&pdev->dev, sizeof(*node), GFP_KERNEL);
	if (!node)
		return -ENOMEM;
	node->dev = &pdev->dev;
	ret = node_init(node, match);
	if (ret)
		return ret;
	platform_set_drvdata(pdev, node);

	mutex_lock(&groups_lock);
	if (match->per_core)
		group = group_get(pdev->dev.of_node->parent, min(count_siblings(&pdev->dev), node->soc->cores));
	else
		group = group_get(pdev, 1);
	if (!group) {
		ret = -ENOMEM;
	} else {
		group_add(group, node);
		if (group->nr_nodes == group->expected)
			ret = npu_create(group);
		if (ret)
			group_remove(node);
	}
	mutex_unlock(&groups_lock);
	return ret;
}

static void rknpu_remove(struct platform_device *pdev)
{
	struct rknpu_node *node = platform_get_drvdata(pdev);

	mutex_lock(&groups_lock);
	if (node->group->rdev)
		npu_destroy(node->group);
	group_remove(node);
	mutex_unlock(&groups_lock);
}

RKNPU_DEFINE_REMOVE(rknpu_remove)

static struct platform_driver rknpu_driver = {
	.probe = rknpu_probe,
	RKNPU_REMOVE(rknpu_remove),
	.id_table = rknpu_id_table,
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
