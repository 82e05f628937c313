/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_MMU_H
#define RKNPU_MMU_H

#include <linux/io.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "rknpu_soc.h"

struct iommu_domain;
struct iommu_group;
struct rknpu_core;
struct rknpu_device;
struct rknpu_fault;
struct rknpu_mmu_unit;
struct rknpu_space;
struct sg_table;

/**
 * struct rknpu_mmu_ops - a way to run the MMU
 * @id: RKNPU_NPUD_MMU_*
 * @unit_init, @unit_fini: at probe and removal
 * @space_init, @space_fini: a space's tables
 * @map: enter an sg table at @iova; an error leaves nothing mapped
 * @unmap: take it out; the caller zaps
 * @attach: make @space, or nothing if NULL, what the unit translates by. Under unit->lock. May be called without power only with NULL.
 * @zap: forget cached translations of the live space. Under unit->lock, powered.
 * @mapped: [first, last] became valid in the live space; forget what was prefetched. Under unit->lock, powered.
 * @idle: no transaction under way. NULL if it can't be told.
 * @power_lost: registers are gone. Under unit->lock.
 * @after_reset: the core was reset; bring the unit to where @attach works. Under unit->lock.
 * @force_reset: the unit's own reset, its cores being out of theirs. NULL if each attach does that. Under unit->lock.
 * @probe_begin, @probe_end: around a look at whether a core lives: between them every access behind the unit, to which no space is attached, faults and
 *	is reported. NULL if that is so anyway. Under unit->lock.
 * @irq: in interrupt context: quieten the unit and say what happened; true if it was this unit. NULL if another driver does.
 */
struct rknpu_mmu_ops {
	const char *name;
	u32 id;
	int (*unit_init)(struct rknpu_mmu_unit *unit);
	void (*unit_fini)(struct rknpu_mmu_unit *unit);
	int (*space_init)(struct rknpu_space *space);
	void (*space_fini)(struct rknpu_space *space);
	int (*map)(struct rknpu_space *space, u64 iova, struct sg_table *sgt, u64 bytes);
	void (*unmap)(struct rknpu_space *space, u64 iova, u64 bytes);
	int (*attach)(struct rknpu_mmu_unit *unit, struct rknpu_space *space);
	int (*zap)(struct rknpu_mmu_unit *unit);
	void (*mapped)(struct rknpu_mmu_unit *unit, u64 first, u64 last);
	bool (*idle)(struct rknpu_mmu_unit *unit);
	void (*power_lost)(struct rknpu_mmu_unit *unit);
	int (*after_reset)(struct rknpu_mmu_unit *unit);
	int (*force_reset)(struct rknpu_mmu_unit *unit);
	int (*probe_begin)(struct rknpu_mmu_unit *unit);
	void (*probe_end)(struct rknpu_mmu_unit *unit);
	bool (*irq)(struct rknpu_mmu_unit *unit, struct rknpu_fault *fault);
};

extern const struct rknpu_mmu_ops rknpu_mmu_bank_ops;
extern const struct rknpu_mmu_ops rknpu_mmu_iommu_ops;

/**
 * struct rknpu_mmu_unit - what translates for one core, or for several that must then run in the same space
 * @lock: @live, @powered, and the banks' registers outside of interrupts
 * @live: the space it translates by; none if NULL. No reference: a space evicts itself from all units before it goes.
 * @stale: a switch failed half way; it may translate by any space that it ever did
 * @reattach: a core was reset while others went on; registers of its MMU may be lost, so nothing starts until all is idle
 * @running: jobs' cores that run behind it, and @running_space the space they run in; worker only
 */
struct rknpu_mmu_unit {
	struct rknpu_device *rdev;
	unsigned int index;
	struct mutex lock;		/* @live, @powered, the banks' registers */
	struct rknpu_space *live;
	bool stale;
	bool reattach;
	bool powered;
	u32 cores;
	unsigned int running;
	struct rknpu_space *running_space;

	/* bank */
	void __iomem *banks[RKNPU_MAX_BANKS];
	unsigned int nr_banks;
	void *block_dir;		/* an empty directory: everything faults */
	dma_addr_t block_dma;

	/* iommu */
	struct device *dev;
	struct iommu_group *group;
	struct iommu_domain *probe;	/* without a mapping */
	struct device_node *iommu_node;
};

int rknpu_mmu_unit_init(struct rknpu_device *rdev, struct rknpu_mmu_unit *unit, unsigned int index);
void rknpu_mmu_unit_fini(struct rknpu_mmu_unit *unit);
/* Worker. Makes @space live; the light switch. */
int rknpu_mmu_switch(struct rknpu_mmu_unit *unit, struct rknpu_space *space);
/* Forgets cached translations of @space wherever it is live. Errors: a core must be reset before memory may be reused. */
int rknpu_mmu_zap_space(struct rknpu_space *space, u32 *cores);
void rknpu_mmu_mapped(struct rknpu_space *space, u64 first, u64 last);
/* Takes @space off all units. Errors as with zap. */
int rknpu_mmu_evict_space(struct rknpu_space *space, u32 *cores);
bool rknpu_mmu_idle(struct rknpu_mmu_unit *unit);
int rknpu_mmu_wait_idle(struct rknpu_mmu_unit *unit);
int rknpu_mmu_after_reset(struct rknpu_mmu_unit *unit);
/* Before that, as the last resort. */
void rknpu_mmu_force_reset(struct rknpu_mmu_unit *unit);
void rknpu_mmu_must_reattach(struct rknpu_mmu_unit *unit);
/* Around a look at whether a core lives, its unit idle and after a reset. */
int rknpu_mmu_probe_begin(struct rknpu_mmu_unit *unit);
void rknpu_mmu_probe_end(struct rknpu_mmu_unit *unit);
void rknpu_mmu_set_power(struct rknpu_mmu_unit *unit, bool on);

#endif /* RKNPU_MMU_H */
