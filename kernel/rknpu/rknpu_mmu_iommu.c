// SPDX-License-Identifier: GPL-2.0-only
/*
 * The MMU through the kernel's IOMMU API:
 * a paging domain per space, attached to a core's group when no job runs behind it.
 * The driver owns the groups, as VFIO does: what is detached falls back to the IOMMU core's blocking domain,
 * which maps nothing, never to the default one, which may be a pass-through.
 * That is also where a group is between two spaces,
 * since the API that modules have can't replace one domain by another.
 * After a reset of its core a group is detached, whatever the reset did to the IOMMU's registers:
 * the next job's attach programs them anew.
 */
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/of.h>
#include <linux/of_address.h>

#include "rknpu_compat.h"
#include "rknpu_core.h"
#include "rknpu_device.h"
#include "rknpu_mmu.h"
#include "rknpu_regs.h"
#include "rknpu_vm.h"
#include "../include/uapi/drm/rknpu_drm.h"

static int iommu_fault(struct iommu_domain *domain, struct device *dev, unsigned long iova, int flags, void *token)
{
	struct rknpu_space *space = token;
	struct rknpu_device *rdev = space->rdev;
	unsigned int i;

	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];
		struct rknpu_mmu_unit *unit = core->unit;
		unsigned long flags;
		bool live;

		/* A space that isn't live here has no fault here; one that is can't change while a job runs. */
		spin_lock_irqsave(&rdev->lock, flags);
		live = unit->live == space;
		spin_unlock_irqrestore(&rdev->lock, flags);
		if (!live || (dev && dev->of_node && dev->of_node != unit->iommu_node))
			continue;
		rknpu_core_report_fault(core, iova, flags & IOMMU_FAULT_WRITE, is_power_of_2(unit->cores));
	}
	return 0;
}

/* Of the domain without a mapping: which of the unit's cores was pointed there, the one that probes knows. */
static int iommu_probe_fault(struct iommu_domain *domain, struct device *dev, unsigned long iova, int flags, void *token)
{
	struct rknpu_mmu_unit *unit = token;
	unsigned int i;

	for (i = 0; i < unit->rdev->nr_cores; i++)
		if (unit->cores & BIT(i))
			rknpu_core_report_fault(&unit->rdev->cores[i], iova, flags & IOMMU_FAULT_WRITE, true);
	return 0;
}

static int iommu_unit_init(struct rknpu_mmu_unit *unit)
{
	int ret;

	unit->group = iommu_group_get(unit->dev);
	if (!unit->group)
		return dev_err_probe(unit->dev, -EPROBE_DEFER, "its IOMMU isn't there\n");
	ret = iommu_group_claim_dma_owner(unit->group, unit);
	if (ret) {
		dev_err_probe(unit->dev, ret, "another driver has its IOMMU\n");
		goto err_group;
	}
	unit->probe = rknpu_iommu_domain_alloc(unit->dev);
	if (IS_ERR(unit->probe)) {
		ret = PTR_ERR(unit->probe);
		unit->probe = NULL;
		goto err_owner;
	}
	iommu_set_fault_handler(unit->probe, iommu_probe_fault, unit);
	unit->iommu_node = of_parse_phandle(unit->dev->of_node, "iommus", 0);
	/*
	 * The banks' status is read, and nothing else of them,
	 * since the API has no way to ask whether a device's writes are over.
	 * They have power when the cores have it.
	 */
	while (unit->nr_banks < RKNPU_MAX_BANKS) {
		void __iomem *bank = of_iomap(unit->iommu_node, unit->nr_banks);

		if (!bank)
			break;
		unit->banks[unit->nr_banks++] = bank;
	}
	return 0;

err_owner:
	iommu_group_release_dma_owner(unit->group);
err_group:
	iommu_group_put(unit->group);
	return ret;
}

static bool iommu_idle(struct rknpu_mmu_unit *unit, u32 banks)
{
	unsigned int i;

	for (i = 0; i < unit->nr_banks; i++)
		if ((banks & BIT(i)) && !(readl(unit->banks[i] + RKNPU_MMU_STATUS) & RKNPU_MMU_STATUS_IDLE))
			return false;
	return true;
}

static void iommu_unit_fini(struct rknpu_mmu_unit *unit)
{
	if (unit->live)
		iommu_detach_group(unit->live->domain, unit->group);
	while (unit->nr_banks)
		iounmap(unit->banks[--unit->nr_banks]);
	of_node_put(unit->iommu_node);
	iommu_domain_free(unit->probe);
	iommu_group_release_dma_owner(unit->group);
	iommu_group_put(unit->group);
}

static int iommu_space_init(struct rknpu_space *space)
{
	struct iommu_domain *domain = rknpu_iommu_domain_alloc(space->rdev->units[0].dev);

	if (IS_ERR(domain))
		return PTR_ERR(domain);
	iommu_set_fault_handler(domain, iommu_fault, space);
	space->domain = domain;
	return 0;
}

static void iommu_space_fini(struct rknpu_space *space)
{
	iommu_domain_free(space->domain);
	space->domain = NULL;
}

static int iommu_space_map(struct rknpu_space *space, u64 iova, struct sg_table *sgt, u64 bytes)
{
	u64 at = iova;
	struct scatterlist *sg;
	unsigned int i;
	int ret;

	for_each_sgtable_dma_sg(sgt, sg, i) {
		u64 len = min_t(u64, sg_dma_len(sg), bytes - (at - iova));

		if (!len)
			break;
		/* The DMA address is the physical one: the facade has no IOMMU. */
		ret = rknpu_iommu_map(space->domain, at, sg_dma_address(sg), len, IOMMU_READ | IOMMU_WRITE);
		if (ret) {
			if (at > iova)
				iommu_unmap(space->domain, iova, at - iova);
			return ret;
		}
		at += len;
	}
	return 0;
}

static void iommu_space_unmap(struct rknpu_space *space, u64 iova, u64 bytes)
{
	/* This flushes the IOTLB, too. */
	if (iommu_unmap(space->domain, iova, bytes) != bytes)
		dev_warn(rknpu_dma_dev(space->rdev), "unmapping %llu bytes at %#llx fell short\n", bytes, iova);
}

static int iommu_attach(struct rknpu_mmu_unit *unit, struct rknpu_space *space)
{
	if (unit->live)
		iommu_detach_group(unit->live->domain, unit->group);
	return space ? iommu_attach_group(space->domain, unit->group) : 0;
}

static int iommu_after_reset(struct rknpu_mmu_unit *unit)
{
	return iommu_attach(unit, NULL);
}

static int iommu_probe_begin(struct rknpu_mmu_unit *unit)
{
	return iommu_attach_group(unit->probe, unit->group);
}

static void iommu_probe_end(struct rknpu_mmu_unit *unit)
{
	iommu_detach_group(unit->probe, unit->group);
}

const struct rknpu_mmu_ops rknpu_mmu_iommu_ops = {
	.name = "iommu",
	.id = RKNPU_NPUD_MMU_IOMMU,
	.unit_init = iommu_unit_init,
	.unit_fini = iommu_unit_fini,
	.space_init = iommu_space_init,
	.space_fini = iommu_space_fini,
	.map = iommu_space_map,
	.unmap = iommu_space_unmap,
	.attach = iommu_attach,
	.idle = iommu_idle,
	.after_reset = iommu_after_reset,
	.probe_begin = iommu_probe_begin,
	.probe_end = iommu_probe_end,
};
