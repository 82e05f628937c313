/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_DONE_H
#define RKNPU_DONE_H

#include <linux/types.h>

/* Which of a core's witnesses may object to "the chunk is over". */
enum rknpu_witness_id {
	RKNPU_WITNESS_STATUS,	/* S_STATUS of the blocks: an executer works */
	RKNPU_WITNESS_COUNTER,	/* TASK_STATUS stands at another task than the last */
	RKNPU_WITNESSES,
};

enum rknpu_verdict {
	RKNPU_NOT_YET,
	RKNPU_LOOK_AGAIN,	/* interrupt bits say that it is over, something objects */
	RKNPU_DONE,
};

/* What one look at the registers shows. */
struct rknpu_look {
	u64 now_ns;
	u32 bits;	/* of interrupts: STATUS in the handler, RAW where somebody looks */
	u32 tasks;
	u32 running;	/* S_STATUS of the blocks, 0 if none works */
	bool line;	/* the interrupt came */
	bool last;	/* the chunk's time is over */
};

/**
 * struct rknpu_witness - how far to believe what a core's registers say against an end; learned, and kept over chunks
 * @proven: it was seen to object while the chunk ran, and to be content when it was over
 * @lies: how often it held up a chunk that was over as far as can be told; at RKNPU_WITNESS_LIES it isn't asked any more
 */
struct rknpu_witness {
	bool proven;
	u8 lies;
};

#define RKNPU_WITNESS_LIES	3

/**
 * struct rknpu_done - whether a core's chunk is over
 * @want_bits, @want_tasks: of the chunk; the bits widened
 * @seen_bits, @seen_tasks, @seen_running: by all looks, by the last one, by the last one
 * @ends_at_count: the counter is known to end at the number of tasks, not at 0
 * @fell: the counter left 0, and came back
 * @worked: S_STATUS told of work in this chunk
 * @line: an interrupt brought bits
 * @progress: something moved since the start
 * @doubt: who objected to an end, a bit each
 */
struct rknpu_done {
	u32 want_bits;
	u32 want_tasks;
	u32 seen_bits;
	u32 seen_tasks;
	u32 seen_running;
	u64 moved_ns;
	bool fell;
	bool worked;
	bool line;
	bool progress;
	unsigned int doubt;

	struct rknpu_witness witness[RKNPU_WITNESSES];
	bool ends_at_count;
};

/* A chunk starts. @first is what the registers show right after. */
void rknpu_done_start(struct rknpu_done *done, u32 want_bits, u32 want_tasks, const struct rknpu_look *first);
/* Nothing showed that it ever began. */
bool rknpu_done_unstarted(const struct rknpu_done *done);
enum rknpu_verdict rknpu_done_look(struct rknpu_done *done, const struct rknpu_look *look);
/* Interrupt bits come in ping-pong pairs, of which either one may be set. */
u32 rknpu_int_widen(u32 status);

#endif /* RKNPU_DONE_H */
