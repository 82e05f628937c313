/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_PGTABLE_H
#define RKNPU_PGTABLE_H

#include <linux/types.h>

struct device;

#define RKNPU_PAGE_SIZE		4096u
#define RKNPU_PT_ENTRIES	1024u
#define RKNPU_PT_SPAN		(RKNPU_PT_ENTRIES * RKNPU_PAGE_SIZE)	/* bytes that one table maps: 4 MiB */

struct rknpu_pt {
	u32 *entries;
	dma_addr_t dma;
};

/**
 * struct rknpu_pgtable - the two-level page table that Rockchip's MMU walks
 * @dev: for which tables are mapped and flushed; NULL keeps them coherent by assumption (tests)
 * @wide: entries carry address bits 39:32
 * @dir: the directory, 1024 entries
 * @tables: the second level, an array of 1024, empty where nothing was mapped yet
 * @bytes: of all tables
 *
 * All tables lie below 4 GiB, because the directory's register has 32 bits, and second-level tables there too suit every version
 * of the MMU. Tables stay until fini, so that the MMU never holds the address of a freed one.
 * The caller serialises all calls on one table.
 */
struct rknpu_pgtable {
	struct device *dev;
	bool wide;
	struct rknpu_pt dir;
	struct rknpu_pt *tables;
	size_t bytes;
};

int rknpu_pgtable_init(struct rknpu_pgtable *pgt, struct device *dev, bool wide);
void rknpu_pgtable_fini(struct rknpu_pgtable *pgt);

/*
 * Makes the tables for [iova, iova + bytes), so that mapping there can't fail.
 * -ENOMEM leaves what was there.
 */
int rknpu_pgtable_reserve(struct rknpu_pgtable *pgt, u32 iova, u64 bytes);
/* All in whole pages; the range must be reserved. */
void rknpu_pgtable_map(struct rknpu_pgtable *pgt, u32 iova, dma_addr_t addr, u64 bytes);
void rknpu_pgtable_unmap(struct rknpu_pgtable *pgt, u32 iova, u64 bytes);
/* Walks as the MMU does. False where nothing is mapped. */
bool rknpu_pgtable_lookup(const struct rknpu_pgtable *pgt, u32 iova, dma_addr_t *addr);

u32 rknpu_pte_encode(dma_addr_t addr, bool wide);
dma_addr_t rknpu_pte_decode(u32 pte, bool wide);

#endif /* RKNPU_PGTABLE_H */
