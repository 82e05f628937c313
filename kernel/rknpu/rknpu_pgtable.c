// SPDX-License-Identifier: GPL-2.0-only
#include <linux/dma-mapping.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "rknpu_pgtable.h"

/*
 * An entry (mainline rockchip-iommu, version 2): address bits 31:12 in place,
 * 35:32 at 11:8, 39:36 at 7:4; valid bit 0, readable bit 1, writable bit 2.
 * Version 1 has zeros in 11:4.
 * A directory entry has the same address and the valid bit only.
 */
#define ENTRY_VALID	BIT(0)
#define ENTRY_READ	BIT(1)
#define ENTRY_WRITE	BIT(2)
#define ENTRY_ADDR	GENMASK(31, 12)

static u32 pt_encode_address(dma_addr_t addr, bool wide)
{
	u64 a = addr;
	u32 entry = lower_32_bits(a) & ENTRY_ADDR;

	if (wide)
		entry |= ((a >> 32) & 0xf) << 8 | ((a >> 36) & 0xf) << 4;
	return entry;
}

u32 rknpu_pte_encode(dma_addr_t addr, bool wide)
{
	return pt_encode_address(addr, wide) | ENTRY_VALID | ENTRY_READ | ENTRY_WRITE;
}

dma_addr_t rknpu_pte_decode(u32 pte, bool wide)
{
	u64 addr = pte & ENTRY_ADDR;

	if (wide)
		addr |= (u64)((pte >> 8) & 0xf) << 32 | (u64)((pte >> 4) & 0xf) << 36;
	return (dma_addr_t)addr;
}

static int pt_alloc(struct rknpu_pgtable *pgt, struct rknpu_pt *pt)
{
	u32 *entries = (u32 *)__get_free_page(GFP_KERNEL_ACCOUNT | GFP_DMA32 | __GFP_ZERO);
	dma_addr_t dma;

	if (!entries)
		return -ENOMEM;
	if (pgt->dev) {
		dma = dma_map_single(pgt->dev, entries, RKNPU_PAGE_SIZE, DMA_TO_DEVICE);
		if (dma_mapping_error(pgt->dev, dma)) {
			free_page((unsigned long)entries);
			return -ENOMEM;
		}
	} else {
		dma = virt_to_phys(entries);
	}
	if (upper_32_bits(dma)) {
		if (pgt->dev)
			dma_unmap_single(pgt->dev, dma, RKNPU_PAGE_SIZE, DMA_TO_DEVICE);
		free_page((unsigned long)entries);
		return -ENOMEM;
	}
	pt->entries = entries;
	pt->dma = dma;
	pgt->bytes += RKNPU_PAGE_SIZE;
	return 0;
}

static void pt_free(struct rknpu_pgtable *pgt, struct rknpu_pt *pt)
{
	if (!pt->entries)
		return;
	if (pgt->dev)
		dma_unmap_single(pgt->dev, pt->dma, RKNPU_PAGE_SIZE, DMA_TO_DEVICE);
	free_page((unsigned long)pt->entries);
	pt->entries = NULL;
	pgt->bytes -= RKNPU_PAGE_SIZE;
}

static void pt_flush(struct rknpu_pgtable *pgt, const struct rknpu_pt *pt, unsigned int first, unsigned int count)
{
	if (pgt->dev)
		dma_sync_single_range_for_device(pgt->dev, pt->dma, first * sizeof(u32), count * sizeof(u32),
						 DMA_TO_DEVICE);
}

static unsigned int pt_dir_index(u64 iova)
{
	return iova / RKNPU_PT_SPAN;
}

static unsigned int pt_index(u64 iova)
{
	return (iova / RKNPU_PAGE_SIZE) % RKNPU_PT_ENTRIES;
}

int rknpu_pgtable_init(struct rknpu_pgtable *pgt, struct device *dev, bool wide)
{
	int ret;

	*pgt = (struct rknpu_pgtable) { .dev = dev, .wide = wide };
	pgt->tables = kvcalloc(RKNPU_PT_ENTRIES, sizeof(*pgt->tables), GFP_KERNEL);
	if (!pgt->tables)
		return -ENOMEM;
	ret = pt_alloc(pgt, &pgt->dir);
	if (ret)
		kvfree(pgt->tables);
	return ret;
}

void rknpu_pgtable_fini(struct rknpu_pgtable *pgt)
{
	unsigned int i;

	for (i = 0; i < RKNPU_PT_ENTRIES; i++)
		pt_free(pgt, &pgt->tables[i]);
	pt_free(pgt, &pgt->dir);
	kvfree(pgt->tables);
	pgt->tables = NULL;
}

int rknpu_pgtable_reserve(struct rknpu_pgtable *pgt, u32 iova, u64 bytes)
{
	unsigned int i, last = pt_dir_index(iova + bytes - 1);
	int ret;

	for (i = pt_dir_index(iova); i <= last; i++) {
		if (pgt->tables[i].entries)
			continue;
		ret = pt_alloc(pgt, &pgt->tables[i]);
		if (ret)
			return ret;
		/* The table is zero in memory (mapping it flushed it) before the directory names it. */
		WRITE_ONCE(pgt->dir.entries[i], pt_encode_address(pgt->tables[i].dma, pgt->wide) | ENTRY_VALID);
		pt_flush(pgt, &pgt->dir, i, 1);
	}
	return 0;
}

static void pt_fill(struct rknpu_pgtable *pgt, u64 iova, dma_addr_t addr, u64 bytes, bool valid)
{
	while (bytes) {
		const struct rknpu_pt *pt = &pgt->tables[pt_dir_index(iova)];
		unsigned int first = pt_index(iova), i;
		unsigned int count = min_t(u64, bytes / RKNPU_PAGE_SIZE, RKNPU_PT_ENTRIES - first);

		for (i = first; i < first + count; i++, addr += RKNPU_PAGE_SIZE)
			WRITE_ONCE(pt->entries[i], valid ? rknpu_pte_encode(addr, pgt->wide) : 0);
		pt_flush(pgt, pt, first, count);
		iova += (u64)count * RKNPU_PAGE_SIZE;
		bytes -= (u64)count * RKNPU_PAGE_SIZE;
	}
}

void rknpu_pgtable_map(struct rknpu_pgtable *pgt, u32 iova, dma_addr_t addr, u64 bytes)
{
	pt_fill(pgt, iova, addr, bytes, true);
}

void rknpu_pgtable_unmap(struct rknpu_pgtable *pgt, u32 iova, u64 bytes)
{
	pt_fill(pgt, iova, 0, bytes, false);
}

bool rknpu_pgtable_lookup(const struct rknpu_pgtable *pgt, u32 iova, dma_addr_t *addr)
{
	const struct rknpu_pt *pt = &pgt->tables[pt_dir_index(iova)];
	u32 dte = pgt->dir.entries[pt_dir_index(iova)], pte;

	if (!(dte & ENTRY_VALID) || rknpu_pte_decode(dte, pgt->wide) != pt->dma)
		return false;
	pte = pt->entries[pt_index(iova)];
	if (!(pte & ENTRY_VALID))
		return false;
	*addr = rknpu_pte_decode(pte, pgt->wide) + iova % RKNPU_PAGE_SIZE;
	return true;
}
