// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/class/devcoredump/devcd*: text, which only root can read.
 * There is one at a time for a device; the first stays until it was written to or for five minutes,
 * and those that come meanwhile are dropped.
 *
 * Read are the registers that the driver uses anyway, since others may not be there or be harmful to touch.
 * What a task would have programmed is in its command words.
 */
#include <linux/devcoredump.h>
#include <linux/device.h>
#include <linux/io.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/seq_buf.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "rknpu_bo.h"
#include "rknpu_core.h"
#include "rknpu_device.h"
#include "rknpu_dump.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_mmu.h"
#include "rknpu_prime.h"
#include "rknpu_regs.h"
#include "rknpu_vm.h"

#define DUMP_BYTES	(96 * 1024)
#define DUMP_MIN_MS	1000		/* between two dumps */
#define DUMP_WORDS	512u		/* of a task */
#define DUMP_CHAIN	4096u		/* tasks that a chain is followed for */
#define DUMP_IMPORT_MAX	(16u << 20)	/* bytes of an import, which is mapped whole */

#define WORD_OP_PC	0x0101u
#define WORD_OP(w)	((u32)((w) >> 48))
#define WORD_VALUE(w)	((u32)((w) >> 16))
#define WORD_REG(w)	((u32)(w) & 0xffff)

static bool coredump = true;
module_param(coredump, bool, 0644);
MODULE_PARM_DESC(coredump, "Whether a job that times out or faults leaves a device coredump");

static const u32 dump_pc_regs[] = {
	RKNPU_PC_VERSION, RKNPU_PC_VERSION_NUM, RKNPU_PC_OP_EN, RKNPU_PC_DATA_ADDR, RKNPU_PC_DATA_AMOUNT, RKNPU_PC_INT_MASK,
	RKNPU_PC_INT_STATUS, RKNPU_PC_INT_RAW, RKNPU_PC_TASK_CONTROL, RKNPU_PC_DMA_BASE, RKNPU_PC_TASK_STATUS,
};

/* The part of the job that one core had. */
struct dump_core {
	bool mine;
	u32 pc[ARRAY_SIZE(dump_pc_regs)];
	u32 status[3];		/* CNA, CORE, DPU */
	u32 pointer[3];
	bool has[3];
	u32 regcmd;		/* of the chunk */
	u32 amount;
	u32 tasks;
	u32 seen_tasks;
	u32 tasks_done;		/* of chunks before */
};

/*
 * What is taken down while the cores still are as they failed.
 * @job, @dev: references; the core's node goes with an unbind, which doesn't wait for this.
 */
struct rknpu_dump {
	struct work_struct work;
	struct rknpu_job *job;
	struct device *dev;
	const char *why;
	unsigned int core;
	u64 ran_ns;
	bool faulted;
	u64 fault_iova;
	bool fault_write;
	bool fault_bus_error;
	struct dump_core cores[RKNPU_MAX_CORES];
};

/* --- on the worker ------------------------------------------------------------------------------------------------------------ */

static void dump_take_core(struct dump_core *to, struct rknpu_core *core)
{
	void __iomem *blocks[] = { core->cna, core->regs_core, core->dpu };
	const struct rknpu_chunk *chunk;
	unsigned int i;

	to->mine = true;
	for (i = 0; i < ARRAY_SIZE(dump_pc_regs); i++)
		to->pc[i] = readl(core->pc + dump_pc_regs[i]);
	for (i = 0; i < ARRAY_SIZE(blocks); i++) {
		to->has[i] = blocks[i];
		if (!blocks[i])
			continue;
		to->status[i] = readl(blocks[i] + RKNPU_S_STATUS);
		to->pointer[i] = readl(blocks[i] + RKNPU_S_POINTER);
	}
	to->tasks_done = core->part->tasks_done;
	if (core->part->next < core->part->nr_chunks) {
		chunk = &core->part->chunks[core->part->next];
		to->regcmd = chunk->regcmd;
		to->amount = chunk->amount;
		to->tasks = chunk->tasks;
		to->seen_tasks = core->done.seen_tasks;
	}
}

static void dump_work(struct work_struct *work);

void rknpu_dump_job(struct rknpu_core *core, const char *why, const struct rknpu_fault *fault)
{
	struct rknpu_device *rdev = core->rdev;
	struct rknpu_job *job = core->job;
	u64 now = ktime_get_ns();
	struct rknpu_dump *dump;
	unsigned int i;

	if (!IS_ENABLED(CONFIG_DEV_COREDUMP) || !READ_ONCE(coredump) || now < rdev->next_dump_ns)
		return;
	dump = kzalloc(sizeof(*dump), GFP_NOWAIT | __GFP_NOWARN);
	if (!dump)
		return;
	rdev->next_dump_ns = now + DUMP_MIN_MS * NSEC_PER_MSEC;
	dump->job = rknpu_job_get(job);
	dump->dev = get_device(rknpu_core_dev(core));
	dump->why = why;
	dump->core = core->index;
	dump->ran_ns = now - job->started_ns;
	if (fault) {
		dump->faulted = true;
		dump->fault_iova = fault->iova;
		dump->fault_write = fault->write;
		dump->fault_bus_error = fault->bus_error;
	}
	for (i = 0; i < rdev->nr_cores; i++)
		if (rdev->cores[i].job == job && !rdev->cores[i].finished)
			dump_take_core(&dump->cores[i], &rdev->cores[i]);
	INIT_WORK(&dump->work, dump_work);
	queue_work(rknpu_reaper, &dump->work);
}

/* --- on the reaper ------------------------------------------------------------------------------------------------------------ */

/* A buffer's bytes, mapped for as long as they are looked at: of ours only the pages that are wanted. */
static void *dump_map(struct rknpu_bo *bo, u64 offset, size_t bytes, void **base)
{
	unsigned long first = offset >> PAGE_SHIFT, last = (offset + bytes - 1) >> PAGE_SHIFT;
	struct iosys_map map;

	*base = NULL;
	if (rknpu_bo_imported(bo)) {
		if (bo->base.base.size > DUMP_IMPORT_MAX || rknpu_bo_vmap(bo, &map) || map.is_iomem)
			return NULL;
		return map.vaddr + offset;
	}
	if (!bo->base.sgt || !bo->base.pages)
		return NULL;
	*base = vmap(&bo->base.pages[first], last - first + 1, VM_MAP,
		     bo->base.map_wc ? pgprot_writecombine(PAGE_KERNEL) : PAGE_KERNEL);
	return *base ? *base + offset_in_page(offset) : NULL;
}

/* Copies up to @count words at @iova. How many there were, up to the end of the buffer. */
static unsigned int dump_read_words(struct rknpu_space *space, u64 iova, u64 *words, unsigned int count)
{
	struct rknpu_bo *bo;
	void *at, *base;
	u64 offset;

	bo = rknpu_space_find(space, iova, &offset);
	if (!bo)
		return 0;
	count = min_t(u64, count, (bo->base.base.size - offset) / sizeof(*words));
	at = count ? dump_map(bo, offset, count * sizeof(*words), &base) : NULL;
	if (at) {
		memcpy(words, at, count * sizeof(*words));
		if (base)
			vunmap(base);
	}
	drm_gem_object_put(&bo->base.base);
	return at ? count : 0;
}

static unsigned int dump_task_words(const struct rknpu_job *job, u32 amount)
{
	return min((amount + 1) * job->rdev->soc->amount_scale, DUMP_WORDS);
}

/* A task's last four words have the address and the amount of the next. False if there is none. */
static bool dump_next_task(const u64 *words, unsigned int count, u32 *regcmd, u32 *amount)
{
	bool address = false;
	unsigned int i;

	*amount = 0;
	for (i = count > 8 ? count - 8 : 0; i < count; i++) {
		if (WORD_OP(words[i]) != WORD_OP_PC)
			continue;
		if (WORD_REG(words[i]) == RKNPU_PC_DATA_ADDR && WORD_VALUE(words[i])) {
			*regcmd = WORD_VALUE(words[i]);
			address = true;
		} else if (WORD_REG(words[i]) == RKNPU_PC_DATA_AMOUNT) {
			*amount = WORD_VALUE(words[i]);
		}
	}
	return address && *amount;
}

static void dump_print_task(struct seq_buf *s, struct rknpu_dump *dump, u32 index, u32 regcmd, const u64 *words,
			    unsigned int count)
{
	unsigned int i;

	seq_buf_printf(s, "task %u at %#x, %u words\n", index, regcmd, count);
	for (i = 0; i < count; i++) {
		bool near = dump->faulted && WORD_VALUE(words[i]) >> 12 == dump->fault_iova >> 12;

		seq_buf_printf(s, "  %08x %04x %04x %08x%s\n", regcmd + i * 8, WORD_OP(words[i]), WORD_REG(words[i]),
			       WORD_VALUE(words[i]), near ? " <- the page of the fault" : "");
	}
}

/* The first task of the chunk, and the one that the counter stood at. */
static void dump_print_commands(struct seq_buf *s, struct rknpu_dump *dump, const struct dump_core *core, u64 *words)
{
	u32 regcmd = core->regcmd, amount = core->amount, at = min(core->seen_tasks, DUMP_CHAIN), i;
	unsigned int count;

	for (i = 0; i <= at; i++) {
		count = dump_read_words(dump->job->space, regcmd, words, dump_task_words(dump->job, amount));
		if (!count) {
			seq_buf_printf(s, "task %u at %#x: nothing there to read\n", core->tasks_done + i, regcmd);
			return;
		}
		if (!i || i == at)
			dump_print_task(s, dump, core->tasks_done + i, regcmd, words, count);
		if (i < at && !dump_next_task(words, count, &regcmd, &amount)) {
			seq_buf_printf(s, "task %u names no next one\n", core->tasks_done + i);
			return;
		}
	}
}

static void dump_print_core(struct seq_buf *s, struct rknpu_dump *dump, unsigned int index, u64 *words)
{
	static const char * const blocks[] = { "CNA", "CORE", "DPU" };
	const struct dump_core *core = &dump->cores[index];
	unsigned int i;

	seq_buf_printf(s, "\ncore %u: %u tasks done before, chunk of %u, counter at %u\n", index, core->tasks_done, core->tasks,
		       core->seen_tasks);
	for (i = 0; i < ARRAY_SIZE(dump_pc_regs); i++)
		seq_buf_printf(s, "PC %#04x %#010x\n", dump_pc_regs[i], core->pc[i]);
	for (i = 0; i < ARRAY_SIZE(blocks); i++)
		if (core->has[i])
			seq_buf_printf(s, "%s S_STATUS %#010x S_POINTER %#010x\n", blocks[i], core->status[i], core->pointer[i]);
	dump_print_commands(s, dump, core, words);
}

static void dump_print(struct seq_buf *s, struct rknpu_dump *dump, u64 *words)
{
	struct rknpu_job *job = dump->job;
	struct rknpu_device *rdev = job->rdev;
	unsigned int i;

	seq_buf_printf(s, "rknpu device coredump 1\nsoc %s, version %#x, mmu %s\n", rdev->soc->name, rdev->hw_version, rdev->mmu->name);
	seq_buf_printf(s, "job %llu of pid %d (%s), space %u: %s on core %u after %llu us\n", job->entry.seq, job->file->pid, job->file->comm,
		       job->space->id, dump->why, dump->core, div_u64(dump->ran_ns, NSEC_PER_USEC));
	if (dump->faulted)
		seq_buf_printf(s, "%s at %#llx, %s\n", dump->fault_bus_error ? "bus error" : "page fault", dump->fault_iova,
			       dump->fault_write ? "write" : "read");
	/* The guilty core first, since there is only so much room. */
	dump_print_core(s, dump, dump->core, words);
	for (i = 0; i < rdev->nr_cores; i++)
		if (dump->cores[i].mine && i != dump->core)
			dump_print_core(s, dump, i, words);
}

static void dump_work(struct work_struct *work)
{
	struct rknpu_dump *dump = container_of(work, struct rknpu_dump, work);
	u64 *words = kmalloc_array(DUMP_WORDS, sizeof(*words), GFP_KERNEL);
	char *text = vzalloc(DUMP_BYTES);
	struct seq_buf s;

	if (text && words) {
		seq_buf_init(&s, text, DUMP_BYTES);
		dump_print(&s, dump, words);
		/* Takes the text over. */
		dev_coredumpv(dump->dev, text, min_t(size_t, s.len, DUMP_BYTES), GFP_KERNEL);
		text = NULL;
	}
	vfree(text);
	kfree(words);
	put_device(dump->dev);
	rknpu_job_put(dump->job);
	kfree(dump);
}
