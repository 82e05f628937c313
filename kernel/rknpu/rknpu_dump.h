/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_DUMP_H
#define RKNPU_DUMP_H

struct rknpu_core;
struct rknpu_fault;

/*
 * A device coredump of the job that @core fails at: registers of its cores as they are now, and command words.
 *
 * Worker, before the cores are reset.
 * Takes down the registers and leaves the rest to the reaper,
 * since the job's fence waits: nothing is allocated here that waits for memory.
 * Without memory, or if there was another a moment ago, there is none.
 * @fault may be NULL.
 */
void rknpu_dump_job(struct rknpu_core *core, const char *why, const struct rknpu_fault *fault);

#endif /* RKNPU_DUMP_H */
