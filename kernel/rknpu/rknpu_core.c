// SPDX-License-Identifier: GPL-2.0-only
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/interrupt.h>
#include <linux/iopoll.h>
#include <linux/reset.h>

#include "rknpu_core.h"
#include "rknpu_device.h"
#include "rknpu_job.h"
#include "rknpu_power.h"
#include "rknpu_regs.h"
#include "rknpu_sched.h"
#include "rknpu_trace.h"

/* After so many interrupts that brought no progress the line is masked; the watchdog polls then. */
#define MAX_IDLE_IRQS		64
#define RESET_HOLD_US		10

struct device *rknpu_core_dev(struct rknpu_core *core)
{
	return core->node->dev;
}

static u32 core_tasks(struct rknpu_core *core)
{
	const struct rknpu_soc *soc = core->rdev->soc;

	return readl(core->pc + soc->task_status) & GENMASK(soc->task_bits - 1, 0);
}

/* Executers of the blocks that work or are about to, two bits each. */
static u32 core_running(struct rknpu_core *core)
{
	u32 running = readl(core->cna + RKNPU_S_STATUS) & RKNPU_S_STATUS_BUSY;

	running |= (readl(core->regs_core + RKNPU_S_STATUS) & RKNPU_S_STATUS_BUSY) << 2;
	if (core->dpu)
		running |= (readl(core->dpu + RKNPU_S_STATUS) & RKNPU_S_STATUS_BUSY) << 4;
	return running;
}

static enum rknpu_verdict core_look(struct rknpu_core *core, u32 bits, bool line, bool last)
{
	const struct rknpu_look look = {
		.now_ns = ktime_get_ns(), .bits = bits, .tasks = core_tasks(core), .running = core_running(core),
		.line = line, .last = last,
	};
	enum rknpu_verdict verdict;

	lockdep_assert_held(&core->irq_lock);
	verdict = rknpu_done_look(&core->done, &look);
	rknpu_observe(core, verdict == RKNPU_DONE ? RKNPU_AT_END : RKNPU_AT_LOOK);
	if (verdict == RKNPU_DONE) {
		core->complete = true;
		writel(0, core->pc + RKNPU_PC_INT_MASK);
	}
	return verdict;
}

static irqreturn_t rknpu_core_irq(int irq, void *data)
{
	struct rknpu_core *core = data;
	struct rknpu_fault fault = {};
	enum rknpu_verdict verdict = RKNPU_NOT_YET;
	irqreturn_t ret = IRQ_NONE;
	bool kick = false;
	u32 status;

	spin_lock(&core->irq_lock);
	/* The line may be shared: never touch a core that has no power. */
	if (!core->irq_on)
		goto out;

	status = readl(core->pc + RKNPU_PC_INT_STATUS);
	if (status) {
		ret = IRQ_HANDLED;
		writel(status & RKNPU_INT_ALL, core->pc + RKNPU_PC_INT_CLEAR);
		if (core->armed && !core->complete)
			verdict = core_look(core, status, true, false);
		/* Where the end is in doubt the thread looks again. */
		kick = verdict != RKNPU_NOT_YET;
		if (!core->complete) {
			if (!kick)
				atomic64_inc(&core->rdev->spurious_irqs);
			if (!core->armed || ++core->idle_irqs > MAX_IDLE_IRQS)
				writel(0, core->pc + RKNPU_PC_INT_MASK);
		}
	}
	if (!kick && core->rdev->mmu->irq && core->rdev->mmu->irq(core->unit, &fault)) {
		ret = IRQ_HANDLED;
		if (core->armed && !core->fault.valid && fault.valid)
			core->fault = fault;
		kick = true;
	}
out:
	spin_unlock(&core->irq_lock);
	if (kick)
		rknpu_sched_kick(core->rdev);
	return ret;
}

void rknpu_core_report_fault(struct rknpu_core *core, u64 iova, bool write, bool certain)
{
	unsigned long flags;
	bool kick = false;

	spin_lock_irqsave(&core->irq_lock, flags);
	if (core->armed && !core->complete && !core->fault.valid) {
		core->fault = (struct rknpu_fault) {
			.valid = true, .write = write, .certain = certain, .iova = iova,
		};
		kick = true;
	}
	spin_unlock_irqrestore(&core->irq_lock, flags);
	if (kick)
		rknpu_sched_kick(core->rdev);
}

enum rknpu_verdict rknpu_core_poll(struct rknpu_core *core, bool last, u32 *raw)
{
	enum rknpu_verdict verdict = RKNPU_NOT_YET;

	spin_lock_irq(&core->irq_lock);
	*raw = readl(core->pc + RKNPU_PC_INT_RAW);
	if (core->complete)
		verdict = RKNPU_DONE;
	else if (core->armed)
		verdict = core_look(core, *raw & RKNPU_INT_ALL, false, last);
	spin_unlock_irq(&core->irq_lock);
	return verdict;
}

void rknpu_core_start(struct rknpu_core *core, const struct rknpu_chunk *chunk, bool pingpong, u32 task_base)
{
	const struct rknpu_soc *soc = core->rdev->soc;
	u32 pointer = RKNPU_S_POINTER_PINGPONG | RKNPU_S_POINTER_CORE(rknpu_check_wants(RKNPU_CHECK_NO_CORE) ? 0 : core->number);
	u32 control = RKNPU_PC_TASK_CONTROL_START | (pingpong ? RKNPU_PC_TASK_CONTROL_PINGPONG : 0);
	struct rknpu_look first;

	spin_lock_irq(&core->irq_lock);
	core->armed = true;
	core->complete = false;
	core->idle_irqs = 0;
	core->fault = (struct rknpu_fault) {};

	writel(RKNPU_INT_ALL, core->pc + RKNPU_PC_INT_CLEAR);
	writel(RKNPU_PC_DATA_ADDR_SLAVE, core->pc + RKNPU_PC_DATA_ADDR);
	writel(pointer, core->cna + RKNPU_S_POINTER);
	writel(pointer, core->regs_core + RKNPU_S_POINTER);
	writel(chunk->regcmd, core->pc + RKNPU_PC_DATA_ADDR);
	writel(chunk->amount, core->pc + RKNPU_PC_DATA_AMOUNT);
	writel(chunk->int_mask, core->pc + RKNPU_PC_INT_MASK);
	writel(chunk->int_clear, core->pc + RKNPU_PC_INT_CLEAR);
	writel(control << soc->task_bits | chunk->tasks, core->pc + RKNPU_PC_TASK_CONTROL);
	writel(task_base, core->pc + RKNPU_PC_DMA_BASE);
	writel(1, core->pc + RKNPU_PC_OP_EN);
	writel(0, core->pc + RKNPU_PC_OP_EN);
	first = (struct rknpu_look) { .now_ns = ktime_get_ns(), .tasks = core_tasks(core), .running = core_running(core) };
	rknpu_done_start(&core->done, chunk->int_mask, chunk->tasks, &first);
	rknpu_observe(core, RKNPU_AT_START);
	spin_unlock_irq(&core->irq_lock);
}

static int core_assert(struct rknpu_core *core)
{
	unsigned int i;
	int ret = 0, err;

	rknpu_observe(core, RKNPU_AT_HALT);
	for (i = 0; i < ARRAY_SIZE(core->resets); i++) {
		err = reset_control_assert(core->resets[i]);
		ret = ret ?: err;
	}
	err = rknpu_node_reset(core->node, core->node_index, true);
	return ret ?: err;
}

static int core_deassert(struct rknpu_core *core)
{
	unsigned int i;
	int ret, err;

	ret = rknpu_node_reset(core->node, core->node_index, false);
	for (i = ARRAY_SIZE(core->resets); i--;) {
		err = reset_control_deassert(core->resets[i]);
		ret = ret ?: err;
	}
	if (!ret)
		rknpu_observe(core, RKNPU_AT_RESET);
	return ret;
}

static int core_reset(struct rknpu_core *core)
{
	int ret, err;

	ret = core_assert(core);
	udelay(RESET_HOLD_US);
	err = core_deassert(core);
	return ret ?: err;
}

static void core_disarm(struct rknpu_core *core)
{
	spin_lock_irq(&core->irq_lock);
	core->armed = false;
	core->complete = false;
	core->fault = (struct rknpu_fault) {};
	writel(0, core->pc + RKNPU_PC_INT_MASK);
	writel(0, core->pc + RKNPU_PC_OP_EN);
	spin_unlock_irq(&core->irq_lock);
}

static int core_after_reset(struct rknpu_core *core, int ret)
{
	spin_lock_irq(&core->irq_lock);
	writel(0, core->pc + RKNPU_PC_INT_MASK);
	writel(RKNPU_INT_ALL, core->pc + RKNPU_PC_INT_CLEAR);
	spin_unlock_irq(&core->irq_lock);
	if (ret)
		dev_err(rknpu_core_dev(core), "core %u can't be stopped: %d\n", core->index, ret);
	if (!ret && readl(core->pc + RKNPU_PC_VERSION) == ~0u) {
		dev_err(rknpu_core_dev(core), "core %u doesn't answer after a reset\n", core->index);
		ret = -EIO;
	}
	if (!ret && core->can_reset)
		core->used = false;
	trace_core_reset(core, ret);
	return ret;
}

static int core_halt(struct rknpu_core *core)
{
	int ret;

	core_disarm(core);
	/*
	 * First the core, then its MMU: as long as the core can do DMA the space that it does it in must stay
	 * what it is.
	 * Only when the reset has ended all its transactions is the bank's fault, if any,
	 * acknowledged (before, it would replay the access) and its table changed.
	 *
	 * While the core is in reset nobody may touch it or its banks: no handler on the interrupt line,
	 * ours or the IOMMU driver's, and nobody who zaps, for which the unit's lock is held.
	 */
	if (!core->can_reset)
		return core_after_reset(core, rknpu_mmu_wait_idle(core));
	disable_irq(core->irq);
	mutex_lock(&core->unit->lock);
	ret = core_reset(core);
	mutex_unlock(&core->unit->lock);
	ret = core_after_reset(core, ret);
	enable_irq(core->irq);
	return ret;
}

int rknpu_core_halt(struct rknpu_core *core)
{
	atomic64_inc(&core->rdev->resets);
	return core_halt(core);
}

int rknpu_core_scrub(struct rknpu_core *core)
{
	atomic64_inc(&core->rdev->scrubs);
	return core_halt(core);
}

u32 rknpu_cores_reset_together(struct rknpu_device *rdev)
{
	int ret[RKNPU_MAX_CORES] = {};
	unsigned int i;
	u32 failed = 0;

	for (i = 0; i < rdev->nr_cores; i++) {
		core_disarm(&rdev->cores[i]);
		disable_irq(rdev->cores[i].irq);
	}
	for (i = 0; i < rdev->nr_units; i++)
		mutex_lock_nested(&rdev->units[i].lock, i);
	for (i = 0; i < rdev->nr_cores; i++)
		ret[i] = core_assert(&rdev->cores[i]);
	udelay(RESET_HOLD_US);
	for (i = 0; i < rdev->nr_cores; i++)
		ret[i] = core_deassert(&rdev->cores[i]) ?: ret[i];
	for (i = rdev->nr_units; i--;)
		mutex_unlock(&rdev->units[i].lock);
	for (i = 0; i < rdev->nr_cores; i++) {
		if (core_after_reset(&rdev->cores[i], ret[i]))
			failed |= BIT(i);
		enable_irq(rdev->cores[i].irq);
	}
	return failed;
}

int rknpu_core_stop(struct rknpu_core *core)
{
	int ret = rknpu_core_halt(core);

	return ret ?: rknpu_mmu_after_reset(core->unit);
}

void rknpu_core_irq_enable(struct rknpu_core *core, bool on)
{
	spin_lock_irq(&core->irq_lock);
	if (on || core->irq_on) {
		writel(0, core->pc + RKNPU_PC_INT_MASK);
		writel(RKNPU_INT_ALL, core->pc + RKNPU_PC_INT_CLEAR);
	}
	core->irq_on = on;
	spin_unlock_irq(&core->irq_lock);
}

int rknpu_core_request_irq(struct rknpu_core *core)
{
	return devm_request_irq(rknpu_core_dev(core), core->irq, rknpu_core_irq, IRQF_SHARED, "rknpu", core);
}

void rknpu_cores_busy_ns(struct rknpu_device *rdev, u64 *now_ns, u64 *busy_ns)
{
	unsigned int i;

	spin_lock_irq(&rdev->lock);
	*now_ns = ktime_get_ns();
	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];

		busy_ns[i] = core->busy_ns;
		if (core->job && core->job->started_ns)
			busy_ns[i] += *now_ns - core->job->started_ns;
	}
	spin_unlock_irq(&rdev->lock);
}
