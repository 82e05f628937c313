/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_QUEUE_H
#define RKNPU_QUEUE_H

#include <linux/list.h>
#include <linux/types.h>

#include "rknpu_soc.h"

/**
 * struct rknpu_queue - jobs that wait for cores, most urgent first: by priority, then by age
 *
 * Pure order, without locks or hardware; the caller holds rdev->lock.
 */
struct rknpu_queue {
	struct list_head entries;
};

/**
 * struct rknpu_queue_entry - what the queue knows of a job
 * @seq: grows with age; a job that is put back keeps it, and so its place
 * @cores: the cores it needs, or may have if @any
 * @any: needs one core of @cores; else all of them at once
 * @space: the address space it runs in
 */
struct rknpu_queue_entry {
	struct list_head link;
	s32 priority;
	u64 seq;
	u32 cores;
	bool any;
	const void *space;
};

/**
 * struct rknpu_queue_core - what the queue must know of a core
 * @dead: takes no jobs
 * @suspect: failed lately; taken last
 * @unit: cores with the same unit can't run in different spaces at once
 * @live: the space that its unit translates by
 * @slice: the unit's time slice isn't over: jobs of @live go before older ones as urgent as they
 * @linger: the unit waits for the next job of @live, which was as urgent as @priority; only more urgent ones don't wait
 * @running_space: the space in which jobs run behind its unit now, or NULL
 */
struct rknpu_queue_core {
	bool dead;
	bool busy;
	unsigned int suspect;
	unsigned int unit;
	const void *live;
	bool slice;
	bool linger;
	s32 priority;
	const void *running_space;
	u64 busy_ns;
};

void rknpu_queue_init(struct rknpu_queue *queue);
void rknpu_queue_add(struct rknpu_queue *queue, struct rknpu_queue_entry *entry);
/*
 * The entry that starts next, and on which cores; NULL if none can.
 * It stays in the queue.
 * An entry that waits for busy cores keeps them from those behind it, so that a gang gets its turn.
 * Those behind it that go before it all the same are of a space whose time slice isn't over.
 * *cores = 0 with an entry: it can never run, its cores are dead.
 */
struct rknpu_queue_entry *rknpu_queue_pick(const struct rknpu_queue *queue, const struct rknpu_queue_core *core,
					   unsigned int nr_cores, u32 *cores);

#endif /* RKNPU_QUEUE_H */
