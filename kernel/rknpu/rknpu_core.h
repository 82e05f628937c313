/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_CORE_H
#define RKNPU_CORE_H

#include <linux/io.h>
#include <linux/ktime.h>
#include <linux/spinlock.h>

#include "rknpu_done.h"
#include "rknpu_observe.h"

struct reset_control;
struct rknpu_chunk;
struct rknpu_device;
struct rknpu_job;
struct rknpu_mmu_unit;
struct rknpu_node;
struct rknpu_part;

/* For cores that never start what they are given (rknpu_recover.c). */
enum rknpu_last_resort {
	RKNPU_RESORT_NONE,
	RKNPU_RESORT_CORES,	/* all cores are reset together */
	RKNPU_RESORT_MMUS,	/* and their MMUs */
};

/* What the interrupt handlers saw of a page fault. */
struct rknpu_fault {
	bool valid;
	bool write;
	bool bus_error;
	bool certain;	/* of this core; false where several cores are behind one MMU and it can't be told */
	u64 iova;
};

/**
 * struct rknpu_core - one core
 * @number: which core of the SoC it is; another than @index where one before it isn't enabled
 * @node: the platform device that it belongs to, through which it is powered
 * @pc, @cna, @regs_core, @dpu: register windows; mainline's binding doesn't have the last, which is NULL then
 */
struct rknpu_core {
	struct rknpu_device *rdev;
	unsigned int index;
	unsigned int number;
	struct rknpu_node *node;
	unsigned int node_index;	/* of this core among the node's */
	struct rknpu_mmu_unit *unit;
	void __iomem *pc;
	void __iomem *cna;
	void __iomem *regs_core;
	void __iomem *dpu;
	int irq;
	struct reset_control *resets[2];
	bool can_reset;

	spinlock_t irq_lock;		/* all down to @fault; registers that interrupt handlers touch */
	bool irq_on;			/* powered: handlers may touch registers */
	bool armed;			/* a chunk runs */
	bool complete;			/* … and was seen to be done */
	struct rknpu_done done;		/* … or not, and why */
	unsigned int idle_irqs;		/* interrupts that ended nothing, in a row */
	struct rknpu_fault fault;

	/* Worker only, except that @job changes under rdev->lock, too. */
	struct rknpu_job *job;
	struct rknpu_part *part;
	bool finished;			/* this core's part of the job is done */
	bool fault_held;		/* an uncertain fault gets time to be someone else's */
	u64 fault_at_ns;
	u64 watch_at_ns;		/* the next look, in case an interrupt got lost */
	unsigned int watch_ms;		/* until then: more and more while an end is in doubt, else 0 */
	unsigned int strikes;		/* failures in a row without a single completed task */
	unsigned int unstarted;		/* … without a sign that it began */
	u64 started_ns;
	bool used;			/* has run something since its last reset */

	u64 busy_ns;			/* under rdev->lock */
	struct rknpu_observation observed[RKNPU_MOMENTS];	/* with parameter board_check; written by whoever runs the core */
};

struct device *rknpu_core_dev(struct rknpu_core *core);

/* Process context, core powered. Starts a chunk; the MMU must hold the job's space. */
void rknpu_core_start(struct rknpu_core *core, const struct rknpu_chunk *chunk, bool pingpong, u32 task_base);
/*
 * Looks at the hardware as the interrupt handler does.
 * @last: the chunk's time is over.
 * *raw is INT_RAW.
 */
enum rknpu_verdict rknpu_core_poll(struct rknpu_core *core, bool last, u32 *raw);
/*
 * Stops the core, whatever it does.
 * After 0 no DMA of it is under way or will be.
 * Errors mean that this isn't certain: the caller must treat the core as dead and keep what it could reach.
 * The reset may have taken the registers of its MMU along:
 * before the next job, rknpu_mmu_after_reset() or rknpu_mmu_must_reattach().
 */
int rknpu_core_halt(struct rknpu_core *core);
/* The same, of a core that runs nothing, so that nothing of its last owner is left in it. */
int rknpu_core_scrub(struct rknpu_core *core);
/* As rknpu_core_halt(), and the MMU, too, for a core behind whose unit nothing else runs. */
int rknpu_core_stop(struct rknpu_core *core);
/*
 * All at once, which none of them runs behind.
 * Those that didn't come out of it.
 * Their MMUs as after rknpu_core_halt().
 */
u32 rknpu_cores_reset_together(struct rknpu_device *rdev);
int rknpu_core_request_irq(struct rknpu_core *core);
/* Takes the handler's right to touch registers away, or gives it. */
void rknpu_core_irq_enable(struct rknpu_core *core, bool on);
/* From the iommu back end's fault handler, in interrupt context. */
void rknpu_core_report_fault(struct rknpu_core *core, u64 iova, bool write, bool certain);

/*
 * How long each core has worked until *now_ns, a job that runs included.
 * Any context but the interrupt handlers'.
 */
void rknpu_cores_busy_ns(struct rknpu_device *rdev, u64 *now_ns, u64 *busy_ns);

#endif /* RKNPU_CORE_H */
