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
 * @idle: no transaction under way in @banks, a bit each. NULL if it can't be told.
 * @lock_safe: nobody waits for memory beneath a lock that its calls take
 * @forgets_off: without power it forgets everything; else what is attached stays so
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
	bool (*idle)(struct rknpu_mmu_unit *unit, u32 banks);
	bool lock_safe;
	bool forgets_off;
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
 * @lock: @stale, @powered, and the banks' registers outside of interrupts
 * @live: the space it translates by; none if NULL. Changes under @lock and rdev->lock, either of which is enough to read it. No reference: a space
 *	evicts itself from all units before it goes.
 * @stale: a switch failed half way; it may translate by any space that it ever did
 * @reattach: a core was reset while others went on; registers of its MMU may be lost, so nothing starts until all is idle
 * @forgets_asked, @forgets_done: how often somebody asked that it forget all spaces, and how many of these are served; under rdev->lock
 * @stuck: it didn't, whatever was done; under rdev->lock
 * @running: jobs' cores that run behind it, and @running_space the space they run in; worker only, as all down to @priority
 * @owner: number of the file whose jobs its cores know of, until they are wiped
 * @slice_space: which space its present time slice is of, compared only
 * @switch_ns: what a switch to another space takes, with all that belongs to it
 * @idle_ns: when its last job ended
 * @priority: of the job that started last
 */
struct rknpu_mmu_unit {
	struct rknpu_device *rdev;
	unsigned int index;
	struct mutex lock;		/* @stale, @powered, the banks' registers */
	struct rknpu_space *live;
	bool stale;
	bool reattach;
	bool powered;
	u32 cores;
	unsigned long forgets_asked;
	unsigned long forgets_done;
	bool stuck;
	unsigned int running;
	struct rknpu_space *running_space;
	u64 owner;
	const struct rknpu_space *slice_space;
	u64 slice_end_ns;
	u64 switch_ns;
	u64 idle_ns;
	s32 priority;

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
/*
 * Forgets cached translations of @space wherever it is live.
 * Returns the units that refuse, a bit each: they must be made to, by the worker.
 */
u32 rknpu_mmu_zap_space(struct rknpu_space *space);
void rknpu_mmu_mapped(struct rknpu_space *space, u64 first, u64 last);
/* Takes @space off all units. Returns those that refuse. */
u32 rknpu_mmu_evict_space(struct rknpu_space *space);
/* Takes whatever there is off the unit. Nothing may run behind it. */
int rknpu_mmu_forget(struct rknpu_mmu_unit *unit);
/* Whether the core's own banks have no transaction under way, whatever its neighbours do. */
bool rknpu_mmu_idle(struct rknpu_core *core);
int rknpu_mmu_wait_idle(struct rknpu_core *core);
int rknpu_mmu_after_reset(struct rknpu_mmu_unit *unit);
/* Before that, as the last resort. */
void rknpu_mmu_force_reset(struct rknpu_mmu_unit *unit);
void rknpu_mmu_must_reattach(struct rknpu_mmu_unit *unit);
/* Around a look at whether a core lives, its unit idle and after a reset. */
int rknpu_mmu_probe_begin(struct rknpu_mmu_unit *unit);
void rknpu_mmu_probe_end(struct rknpu_mmu_unit *unit);
void rknpu_mmu_set_power(struct rknpu_mmu_unit *unit, bool on);

#endif /* RKNPU_MMU_H */
