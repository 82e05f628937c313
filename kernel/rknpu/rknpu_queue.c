// SPDX-License-Identifier: GPL-2.0-only
#include <linux/bits.h>

#include "rknpu_queue.h"

void rknpu_queue_init(struct rknpu_queue *queue)
{
	INIT_LIST_HEAD(&queue->entries);
}

static bool queue_before(const struct rknpu_queue_entry *a, const struct rknpu_queue_entry *b)
{
	return a->priority != b->priority ? a->priority < b->priority : a->seq < b->seq;
}

void rknpu_queue_add(struct rknpu_queue *queue, struct rknpu_queue_entry *entry)
{
	struct rknpu_queue_entry *pos;

	/* From the end, where most belong. */
	list_for_each_entry_reverse(pos, &queue->entries, link)
		if (queue_before(pos, entry)) {
			list_add(&entry->link, &pos->link);
			return;
		}
	list_add(&entry->link, &queue->entries);
}

static bool queue_unit_fits(const struct rknpu_queue_core *core, const void *space)
{
	return !core->running_space || core->running_space == space;
}

/* Warm ones first (no switch), then those that didn't fail lately, then the least used. */
static bool queue_better(const struct rknpu_queue_core *a, const struct rknpu_queue_core *b, const void *space)
{
	bool a_warm = a->live == space, b_warm = b->live == space;

	if (a->suspect != b->suspect)
		return a->suspect < b->suspect;
	if (a_warm != b_warm)
		return a_warm;
	return a->busy_ns < b->busy_ns;
}

struct rknpu_queue_entry *rknpu_queue_pick(const struct rknpu_queue *queue, const struct rknpu_queue_core *core,
					   unsigned int nr_cores, u32 *cores)
{
	u32 all = GENMASK(nr_cores - 1, 0), dead = 0, busy = 0, kept = 0, blocked;
	struct rknpu_queue_entry *entry;
	unsigned int i, k;

	for (i = 0; i < nr_cores; i++) {
		dead |= core[i].dead ? BIT(i) : 0;
		busy |= core[i].busy ? BIT(i) : 0;
	}

	list_for_each_entry(entry, &queue->entries, link) {
		u32 usable = entry->cores & all & ~dead;
		int best = -1;

		*cores = 0;
		if (!usable || (!entry->any && usable != entry->cores))
			return entry;
		/* Cores on which the entry could start this instant. */
		blocked = busy | kept;
		for (i = 0; i < nr_cores; i++)
			if (!queue_unit_fits(&core[i], entry->space))
				blocked |= BIT(i);
		if (!entry->any) {
			if (!(usable & blocked)) {
				*cores = usable;
				return entry;
			}
		} else {
			for (i = 0; i < nr_cores; i++)
				if ((usable & ~blocked & BIT(i)) &&
				    (best < 0 || queue_better(&core[i], &core[best], entry->space)))
					best = i;
			if (best >= 0) {
				*cores = BIT(best);
				return entry;
			}
		}
		/*
		 * It waits.
		 * A gang, or a job for one core of its own, keeps what it needs from those behind it.
		 * Where another space is in the way all cores behind that MMU are kept,
		 * for they would go on in that space.
		 */
		for (i = 0; i < nr_cores; i++) {
			bool conflict = !queue_unit_fits(&core[i], entry->space);

			if (!(usable & BIT(i)))
				continue;
			if (!entry->any || conflict)
				kept |= BIT(i);
			for (k = 0; conflict && k < nr_cores; k++)
				if (core[k].unit == core[i].unit)
					kept |= BIT(k);
		}
	}
	*cores = 0;
	return NULL;
}
