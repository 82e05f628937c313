// SPDX-License-Identifier: GPL-2.0-only
/*
 * When a chunk is over. Nothing here touches a register.
 *
 * The interrupt bits of the last task say so, and it takes nothing else. But they may be spurious, late ones of the job before, or, where
 * somebody looks at the raw status before the interrupt came, from a task in the middle. So two witnesses may object, and neither is taken
 * at its word:
 *
 *  - The task counter. It counts modulo the number of tasks (gregordinary/patches, rocket/BATCHED_SUBMIT_FINDINGS.md: 0 after each job), and
 *    drivers exist that wait for the number itself, so both ends are accepted until a core has shown one of them with a chunk of several
 *    tasks. A value in the middle objects.
 *  - S_STATUS of the blocks (RK3588 TRM part 2, RKNN), which tells of executers that work.
 *
 * A witness that was never seen to change its mind is let down if it alone goes on objecting while nothing moves. One that was, is believed
 * until the chunk's time is over: a core that hangs behind a spurious interrupt must not count as done.
 */
#include <linux/bitops.h>
#include <linux/log2.h>
#include <linux/time64.h>

#include "rknpu_done.h"

#define PATIENCE_NS	(20 * NSEC_PER_MSEC)	/* with a witness that may know nothing, while nothing moves */
#define CONFIRM_NS	(NSEC_PER_MSEC / 2)	/* between two looks that agree, where the interrupt never came */

u32 rknpu_int_widen(u32 status)
{
	u32 pair, wide = 0;

	for (pair = 0x3; pair <= 0xc00; pair <<= 2)
		if (status & pair)
			wide |= pair;
	return wide | (status & ~0xfffu);
}

void rknpu_done_start(struct rknpu_done *done, u32 want_bits, u32 want_tasks, const struct rknpu_look *first)
{
	done->want_bits = rknpu_int_widen(want_bits);
	done->want_tasks = want_tasks;
	done->seen_bits = 0;
	done->seen_tasks = first->tasks;
	done->seen_running = first->running;
	done->moved_ns = first->now_ns;
	done->fell = false;
	done->worked = first->running;
	done->line = false;
	done->progress = false;
	done->doubt = 0;
}

bool rknpu_done_unstarted(const struct rknpu_done *done)
{
	return !done->progress && !done->worked;
}

static void done_note(struct rknpu_done *done, const struct rknpu_look *look)
{
	bool moved = look->tasks != done->seen_tasks || look->running != done->seen_running;

	if (look->tasks != done->seen_tasks) {
		done->progress = true;
		done->fell |= !look->tasks && done->seen_tasks < done->want_tasks;
	}
	if (look->bits & ~done->seen_bits) {
		done->progress = true;
		moved = true;
	}
	if (moved)
		done->moved_ns = look->now_ns;
	done->worked |= look->running;
	done->seen_bits |= look->bits;
	done->seen_tasks = look->tasks;
	done->seen_running = look->running;
	done->line |= look->line;
}

static bool done_objects(const struct rknpu_done *done, enum rknpu_witness_id id)
{
	if (done->witness[id].lies >= RKNPU_WITNESS_LIES)
		return false;
	if (id == RKNPU_WITNESS_STATUS)
		return done->seen_running;
	if (done->seen_tasks == done->want_tasks)
		return false;
	return done->seen_tasks || done->ends_at_count;
}

/* The chunk is over: who spoke the truth about it? */
static void done_prove(struct rknpu_done *done)
{
	struct rknpu_witness *counter = &done->witness[RKNPU_WITNESS_COUNTER];

	if (done->worked && !done->seen_running)
		done->witness[RKNPU_WITNESS_STATUS].proven = true;
	if (done->want_tasks > 1 && done->seen_tasks == done->want_tasks) {
		counter->proven = true;
		counter->lies = 0;
		done->ends_at_count = true;
	} else if (done->fell && !done->seen_tasks) {
		counter->proven = true;
		counter->lies = 0;
	}
}

enum rknpu_verdict rknpu_done_look(struct rknpu_done *done, const struct rknpu_look *look)
{
	struct rknpu_witness *witness;
	enum rknpu_witness_id id;
	unsigned int objecting = 0;
	bool proven = false;

	done_note(done, look);
	if ((rknpu_int_widen(done->seen_bits) & done->want_bits) != done->want_bits)
		return RKNPU_NOT_YET;

	for (id = 0; id < RKNPU_WITNESSES; id++) {
		if (!done_objects(done, id))
			continue;
		objecting |= BIT(id);
		proven |= done->witness[id].proven;
	}
	done->doubt |= objecting;
	if (objecting && look->last) {
		/*
		 * The chunk fails.
		 * If the witness was wrong, that has happened a few times and then never again.
		 */
		for (id = 0; id < RKNPU_WITNESSES; id++) {
			witness = &done->witness[id];
			if (!(objecting & BIT(id)) || (proven && !is_power_of_2(objecting)))
				continue;
			witness->proven = false;
			witness->lies++;
		}
		return RKNPU_LOOK_AGAIN;
	}
	if (objecting) {
		if (proven || !is_power_of_2(objecting) || look->now_ns - done->moved_ns < PATIENCE_NS)
			return RKNPU_LOOK_AGAIN;
		done->witness[__ffs(objecting)].lies = RKNPU_WITNESS_LIES;
	}
	if (!done->line && !look->last && look->now_ns - done->moved_ns < CONFIRM_NS)
		return RKNPU_LOOK_AGAIN;
	done_prove(done);
	return RKNPU_DONE;
}
