// SPDX-License-Identifier: GPL-2.0-only
/*
 * The MMU's banks in our own hands.
 * A switch of spaces is the light one: stall, directory address, zap, unstall;
 * a forced reset is the last resort for cores that never start.
 * A unit without a space translates by an empty directory,
 * so that a core that does what it should not reaches nothing.
 */
#include <linux/dma-mapping.h>
#include <linux/iopoll.h>

#include "rknpu_core.h"
#include "rknpu_device.h"
#include "rknpu_mmu.h"
#include "rknpu_regs.h"
#include "rknpu_vm.h"
#include "../include/uapi/drm/rknpu_drm.h"

#define BANK_WAIT_US	2000

static u32 bank_read(void __iomem *bank, u32 reg)
{
	return readl(bank + reg);
}

static void bank_write(void __iomem *bank, u32 reg, u32 value)
{
	writel(value, bank + reg);
}

static void bank_command(void __iomem *bank, u32 command)
{
	bank_write(bank, RKNPU_MMU_COMMAND, command);
}

static int bank_wait(void __iomem *bank, u32 mask, u32 value)
{
	u32 status;

	return readl_poll_timeout(bank + RKNPU_MMU_STATUS, status, (status & mask) == value, 10, BANK_WAIT_US);
}

static int bank_unit_init(struct rknpu_mmu_unit *unit)
{
	struct device *dev = rknpu_dma_dev(unit->rdev);
	unsigned long page = __get_free_page(GFP_KERNEL | GFP_DMA32 | __GFP_ZERO);

	if (!page)
		return -ENOMEM;
	unit->block_dma = dma_map_single(dev, (void *)page, RKNPU_PAGE_SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, unit->block_dma) || upper_32_bits(unit->block_dma)) {
		free_page(page);
		return -ENOMEM;
	}
	unit->block_dir = (void *)page;
	return 0;
}

static void bank_unit_fini(struct rknpu_mmu_unit *unit)
{
	dma_unmap_single(rknpu_dma_dev(unit->rdev), unit->block_dma, RKNPU_PAGE_SIZE, DMA_TO_DEVICE);
	free_page((unsigned long)unit->block_dir);
	unit->block_dir = NULL;
}

static int bank_space_init(struct rknpu_space *space)
{
	return rknpu_pgtable_init(&space->pgt, rknpu_dma_dev(space->rdev), space->rdev->soc->wide_pte);
}

static void bank_space_fini(struct rknpu_space *space)
{
	rknpu_pgtable_fini(&space->pgt);
}

static int bank_map(struct rknpu_space *space, u64 iova, struct sg_table *sgt, u64 bytes)
{
	struct scatterlist *sg;
	unsigned int i;
	int ret;

	/*
	 * The MMU's pages are 4 KiB; a piece that isn't made of whole ones can't be mapped without showing its
	 * neighbours.
	 */
	for_each_sgtable_dma_sg(sgt, sg, i)
		if (!IS_ALIGNED(sg_dma_address(sg) | sg_dma_len(sg), RKNPU_PAGE_SIZE) ||
		    (sg_dma_address(sg) + sg_dma_len(sg) - 1) >> space->rdev->soc->dma_bits)
			return -EINVAL;
	ret = rknpu_pgtable_reserve(&space->pgt, iova, bytes);
	if (ret)
		return ret;
	for_each_sgtable_dma_sg(sgt, sg, i) {
		u64 len = min_t(u64, sg_dma_len(sg), bytes);

		rknpu_pgtable_map(&space->pgt, iova, sg_dma_address(sg), len);
		iova += len;
		bytes -= len;
	}
	return 0;
}

static void bank_unmap(struct rknpu_space *space, u64 iova, u64 bytes)
{
	rknpu_pgtable_unmap(&space->pgt, iova, bytes);
}

/*
 * Six accesses for a bank that is on, ten for one that was without power.
 * Paging is checked here and nowhere else:
 * a core must never run with it off, when its addresses would be physical ones.
 */
static int bank_set_dir(void __iomem *bank, u32 dir)
{
	u32 status = bank_read(bank, RKNPU_MMU_STATUS);
	int ret;

	if (status & RKNPU_MMU_STATUS_FAULT)
		return -EBUSY;
	if (!(status & RKNPU_MMU_STATUS_PAGING)) {
		bank_write(bank, RKNPU_MMU_DTE_ADDR, dir);
		bank_command(bank, RKNPU_MMU_CMD_ZAP);
		bank_write(bank, RKNPU_MMU_INT_CLEAR, RKNPU_MMU_INT_BOTH);
		bank_write(bank, RKNPU_MMU_INT_MASK, RKNPU_MMU_INT_BOTH);
		/*
		 * Else a walk that waits for memory may block the bank (mainline's rockchip-iommu.c sets it
		 * since 7.2).
		 */
		bank_write(bank, RKNPU_MMU_AUTO_GATING, bank_read(bank, RKNPU_MMU_AUTO_GATING) | RKNPU_MMU_NO_DTE_TIME_LIMIT);
		bank_command(bank, RKNPU_MMU_CMD_PAGING_ON);
		ret = bank_wait(bank, RKNPU_MMU_STATUS_PAGING, RKNPU_MMU_STATUS_PAGING);
		if (!ret && bank_read(bank, RKNPU_MMU_DTE_ADDR) != dir)
			ret = -EIO;
		return ret;
	}
	if (!(status & RKNPU_MMU_STATUS_STALL)) {
		bank_command(bank, RKNPU_MMU_CMD_STALL_ON);
		ret = bank_wait(bank, RKNPU_MMU_STATUS_STALL, RKNPU_MMU_STATUS_STALL);
		if (ret) {
			bank_command(bank, RKNPU_MMU_CMD_STALL_OFF);
			return ret;
		}
	}
	bank_write(bank, RKNPU_MMU_DTE_ADDR, dir);
	bank_command(bank, RKNPU_MMU_CMD_ZAP);
	bank_command(bank, RKNPU_MMU_CMD_STALL_OFF);
	return bank_wait(bank, RKNPU_MMU_STATUS_STALL | RKNPU_MMU_STATUS_PAGING, RKNPU_MMU_STATUS_PAGING);
}

static int bank_attach(struct rknpu_mmu_unit *unit, struct rknpu_space *space)
{
	u32 dir = space ? space->pgt.dir.dma : unit->block_dma;
	unsigned int i;
	int ret;

	/* Without power there is nothing to forget, and paging is off until power comes. */
	if (!unit->powered)
		return space ? -ENODEV : 0;
	for (i = 0; i < unit->nr_banks; i++) {
		ret = bank_set_dir(unit->banks[i], dir);
		if (ret)
			return ret;
	}
	return 0;
}

/*
 * Stalled while it forgets, so that no translation that began before is used after:
 * the pages are given away when this returns.
 * A bank that stands in a page fault, or won't stall, belongs to a core that is about to be reset.
 */
static int bank_zap(struct rknpu_mmu_unit *unit)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < unit->nr_banks; i++) {
		void __iomem *bank = unit->banks[i];
		u32 status = bank_read(bank, RKNPU_MMU_STATUS);
		int err;

		if (!(status & RKNPU_MMU_STATUS_PAGING))
			continue;
		if (status & RKNPU_MMU_STATUS_FAULT) {
			ret = -EBUSY;
			continue;
		}
		bank_command(bank, RKNPU_MMU_CMD_STALL_ON);
		err = bank_wait(bank, RKNPU_MMU_STATUS_STALL, RKNPU_MMU_STATUS_STALL);
		bank_command(bank, RKNPU_MMU_CMD_ZAP);
		bank_command(bank, RKNPU_MMU_CMD_STALL_OFF);
		err = err ?: bank_wait(bank, RKNPU_MMU_STATUS_STALL, 0);
		ret = err ?: ret;
	}
	return ret;
}

/* Entries are fetched by the cache line, so an invalid one beside a valid one may be cached. */
static void bank_mapped(struct rknpu_mmu_unit *unit, u64 first, u64 last)
{
	unsigned int i;

	for (i = 0; i < unit->nr_banks; i++)
		bank_command(unit->banks[i], RKNPU_MMU_CMD_ZAP);
}

static bool bank_idle(struct rknpu_mmu_unit *unit, u32 banks)
{
	unsigned int i;

	for (i = 0; i < unit->nr_banks; i++)
		if ((banks & BIT(i)) && !(bank_read(unit->banks[i], RKNPU_MMU_STATUS) & RKNPU_MMU_STATUS_IDLE))
			return false;
	return true;
}

static int bank_after_reset(struct rknpu_mmu_unit *unit)
{
	unsigned int i;
	int ret = 0, err;

	for (i = 0; i < unit->nr_banks; i++) {
		void __iomem *bank = unit->banks[i];
		u32 status = bank_read(bank, RKNPU_MMU_STATUS);

		if (status & RKNPU_MMU_STATUS_FAULT) {
			/* The core that made the access is gone; nothing is replayed. */
			bank_command(bank, RKNPU_MMU_CMD_ZAP);
			bank_command(bank, RKNPU_MMU_CMD_FAULT_DONE);
		}
		bank_write(bank, RKNPU_MMU_INT_CLEAR, RKNPU_MMU_INT_BOTH);
		err = bank_wait(bank, RKNPU_MMU_STATUS_FAULT, 0);
		if (!err)
			err = bank_set_dir(bank, unit->block_dma);
		bank_write(bank, RKNPU_MMU_INT_MASK, RKNPU_MMU_INT_BOTH);
		ret = ret ?: err;
	}
	return ret;
}

/*
 * It ends when the directory's address, which was there before,
 * reads 0 (mainline's rockchip-iommu.c waits for the same).
 */
static int bank_force_reset(struct rknpu_mmu_unit *unit)
{
	unsigned int i;
	int ret = 0, err;
	u32 dir;

	for (i = 0; i < unit->nr_banks; i++) {
		void __iomem *bank = unit->banks[i];

		bank_write(bank, RKNPU_MMU_DTE_ADDR, unit->block_dma);
		bank_command(bank, RKNPU_MMU_CMD_FORCE_RESET);
		err = readl_poll_timeout(bank + RKNPU_MMU_DTE_ADDR, dir, !dir, 10, BANK_WAIT_US);
		ret = ret ?: err;
	}
	return ret;
}

static bool bank_irq(struct rknpu_mmu_unit *unit, struct rknpu_fault *fault)
{
	bool mine = false;
	unsigned int i;

	for (i = 0; i < unit->nr_banks; i++) {
		void __iomem *bank = unit->banks[i];
		u32 status = bank_read(bank, RKNPU_MMU_INT_STATUS);

		if (!status)
			continue;
		mine = true;
		/*
		 * Masked until the core was reset.
		 * The fault itself stays, and with it the access that made it.
		 */
		bank_write(bank, RKNPU_MMU_INT_MASK, 0);
		bank_write(bank, RKNPU_MMU_INT_CLEAR, status);
		if (fault->valid)
			continue;
		fault->valid = true;
		fault->certain = true;
		fault->iova = bank_read(bank, RKNPU_MMU_FAULT_ADDR);
		fault->write = bank_read(bank, RKNPU_MMU_STATUS) & RKNPU_MMU_STATUS_FAULT_WRITE;
		fault->bus_error = status & RKNPU_MMU_INT_BUS_ERROR;
	}
	return mine;
}

const struct rknpu_mmu_ops rknpu_mmu_bank_ops = {
	.name = "bank",
	.id = RKNPU_NPUD_MMU_BANK,
	.unit_init = bank_unit_init,
	.unit_fini = bank_unit_fini,
	.space_init = bank_space_init,
	.space_fini = bank_space_fini,
	.map = bank_map,
	.unmap = bank_unmap,
	.attach = bank_attach,
	.zap = bank_zap,
	.mapped = bank_mapped,
	.idle = bank_idle,
	.lock_safe = true,
	.forgets_off = true,
	.after_reset = bank_after_reset,
	.force_reset = bank_force_reset,
	.irq = bank_irq,
};
