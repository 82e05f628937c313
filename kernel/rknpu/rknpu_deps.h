/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_DEPS_H
#define RKNPU_DEPS_H

struct dma_resv;
struct rknpu_job;

/* Before the job is armed: the fence of a sync_file, whose error becomes the job's. */
int rknpu_deps_add_fd(struct rknpu_job *job, int fd);
/* What others do with a shared buffer, whose lock is held. */
int rknpu_deps_add_resv(struct rknpu_job *job, struct dma_resv *resv);
/* Of a published job: it is queued when the last fence has signalled, at once if there is none. */
void rknpu_deps_arm(struct rknpu_job *job);
/* The job ended meanwhile: it waits no longer. */
void rknpu_deps_disarm(struct rknpu_job *job);
/* Nothing is armed. */
void rknpu_deps_fini(struct rknpu_job *job);

#endif /* RKNPU_DEPS_H */
