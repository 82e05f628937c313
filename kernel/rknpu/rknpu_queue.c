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

/*
 * Cores that entries further up wait for.
 * @hard: nobody behind them gets one.
 * @soft: only who goes on in the space that the core's unit has,
 * and is as urgent as the first who waits so, @priority.
 */
struct queue_kept {
	u32 hard;
	u32 soft;
	s32 priority;
};

/* The unit is another space's for now, though nothing may run behind it. */
static bool queue_unit_held(const struct rknpu_queue_core *core, const struct rknpu_queue_entry *entry, bool slices)
{
	if (!core->live || core->live == entry->space)
		return false;
	return (slices && core->slice) || (core->linger && entry->priority >= core->priority);
}

/* Cores on which the entry could start this instant, if all goes well. */
static u32 queue_open(const struct rknpu_queue_entry *entry, const struct rknpu_queue_core *core, unsigned int nr_cores,
		      const struct queue_kept *kept, bool slices)
{
	unsigned int i;
	u32 open = 0;

	for (i = 0; i < nr_cores; i++) {
		if (core[i].busy || (kept->hard & BIT(i)) || !queue_unit_fits(&core[i], entry->space) ||
		    queue_unit_held(&core[i], entry, slices))
			continue;
		if ((kept->soft & BIT(i)) && (core[i].live != entry->space || entry->priority != kept->priority))
			continue;
		open |= BIT(i);
	}
	return open;
}

/*
 * The entry waits.
 * A gang, or a job for one core of its own, keeps what it needs from those behind it.
 * Where another space is in the way all cores behind that MMU are kept,
 * for they would go on in that space; which they may until its time slice is over.
 */
static void queue_keep(const struct rknpu_queue_entry *entry, const struct rknpu_queue_core *core, unsigned int nr_cores, u32 usable,
		       struct queue_kept *kept, bool slices)
{
	unsigned int i, k;

	for (i = 0; i < nr_cores; i++) {
		bool conflict = !queue_unit_fits(&core[i], entry->space), held = queue_unit_held(&core[i], entry, slices);
		bool soft = held && (!conflict || core[i].running_space == core[i].live);
		u32 cores = 0;

		if (!(usable & BIT(i)))
			continue;
		for (k = 0; k < nr_cores; k++)
			if (core[k].unit == core[i].unit)
				cores |= BIT(k);
		if (soft) {
			if (!kept->soft)
				kept->priority = entry->priority;
			kept->soft |= cores;
		} else if (conflict) {
			kept->hard |= cores;
		} else if (!entry->any) {
			kept->hard |= BIT(i);
		}
	}
}

static struct rknpu_queue_entry *queue_scan(const struct rknpu_queue *queue, const struct rknpu_queue_core *core,
					    unsigned int nr_cores, bool slices, u32 *cores)
{
	u32 all = GENMASK(nr_cores - 1, 0), dead = 0;
	struct rknpu_queue_entry *entry;
	struct queue_kept kept = {};
	unsigned int i;

	for (i = 0; i < nr_cores; i++)
		dead |= core[i].dead ? BIT(i) : 0;

	list_for_each_entry(entry, &queue->entries, link) {
		u32 usable = entry->cores & all & ~dead, open;
		int best = -1;

		*cores = 0;
		if (!usable || (!entry->any && usable != entry->cores))
			return entry;
		open = usable & queue_open(entry, core, nr_cores, &kept, slices);
		if (!entry->any) {
			if (open == usable) {
				*cores = usable;
				return entry;
			}
		} else {
			for (i = 0; i < nr_cores; i++)
				if ((open & BIT(i)) && (best < 0 || queue_better(&core[i], &core[best], entry->space)))
					best = i;
			if (best >= 0) {
				*cores = BIT(best);
				return entry;
			}
		}
		queue_keep(entry, core, nr_cores, usable, &kept, slices);
	}
	*cores = 0;
	return NULL;
}

/*
 * First as if time slices were to be kept, then,
 * where nobody goes on in the space that has one, as if there were none: no core idles for that.
 */
struct rknpu_queue_entry *rknpu_queue_pick(const struct rknpu_queue *queue, const struct rknpu_queue_core *core,
					   unsigned int nr_cores, u32 *cores)
{
	struct rknpu_queue_entry *entry = queue_scan(queue, core, nr_cores, true, cores);

	return entry ?: queue_scan(queue, core, nr_cores, false, cores);
}
