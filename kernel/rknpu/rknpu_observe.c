// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a board's registers show, for npud-board-check(8).
 * Off unless parameter board_check says so; root alone can set it and read debugfs npud/observed.
 */
#include <linux/debugfs.h>
#include <linux/iopoll.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#include "rknpu_core.h"
#include "rknpu_device.h"
#include "rknpu_mmu.h"
#include "rknpu_observe.h"
#include "rknpu_power.h"
#include "rknpu_regs.h"

#define OBSERVE_STALL_US	2000

static unsigned int board_check;
module_param(board_check, uint, 0600);
MODULE_PARM_DESC(board_check, "for npud-board-check: 1 keep what registers show, 2 try stalls in faults, 4 leave the core out of S_POINTER (default 0)");

static const char * const observe_names[RKNPU_MOMENTS] = {
	[RKNPU_AT_START] = "start", [RKNPU_AT_LOOK] = "look", [RKNPU_AT_END] = "end", [RKNPU_AT_HALT] = "halt",
	[RKNPU_AT_RESET] = "reset",
};

bool rknpu_check_wants(unsigned int what)
{
	return READ_ONCE(board_check) & what;
}

static u32 observe_running(struct rknpu_core *core)
{
	u32 running = readl(core->cna + RKNPU_S_STATUS) | readl(core->regs_core + RKNPU_S_STATUS);

	return running | (core->dpu ? readl(core->dpu + RKNPU_S_STATUS) : 0);
}

static void observe_read(struct rknpu_core *core, struct rknpu_observation *seen)
{
	struct rknpu_mmu_unit *unit = core->unit;
	unsigned int i;

	seen->count++;
	seen->running |= observe_running(core);
	seen->data_addr = readl(core->pc + RKNPU_PC_DATA_ADDR);
	seen->int_mask = readl(core->pc + RKNPU_PC_INT_MASK);
	seen->int_raw = readl(core->pc + RKNPU_PC_INT_RAW);
	seen->task_control = readl(core->pc + RKNPU_PC_TASK_CONTROL);
	seen->task_status = readl(core->pc + RKNPU_PC_TASK_STATUS);
	/* Only the bank back end has the MMU's registers. */
	seen->banks = min_t(unsigned int, unit->nr_banks, RKNPU_OBSERVE_BANKS);
	for (i = 0; i < seen->banks; i++) {
		seen->mmu_status[i] = readl(unit->banks[i] + RKNPU_MMU_STATUS);
		seen->mmu_dir[i] = readl(unit->banks[i] + RKNPU_MMU_DTE_ADDR);
	}
}

static void observe_stall(struct rknpu_core *core, struct rknpu_observation *seen)
{
	unsigned int i;

	for (i = 0; i < seen->banks; i++) {
		void __iomem *bank = core->unit->banks[i];
		u64 from = ktime_get_ns();
		u32 status;

		if (!(seen->mmu_status[i] & RKNPU_MMU_STATUS_FAULT))
			continue;
		writel(RKNPU_MMU_CMD_STALL_ON, bank + RKNPU_MMU_COMMAND);
		seen->stall = readl_poll_timeout_atomic(bank + RKNPU_MMU_STATUS, status, status & RKNPU_MMU_STATUS_STALL, 10,
							OBSERVE_STALL_US);
		if (!seen->stall)
			seen->stall = max_t(u64, div_u64(ktime_get_ns() - from, NSEC_PER_USEC), 1);
		writel(RKNPU_MMU_CMD_STALL_OFF, bank + RKNPU_MMU_COMMAND);
	}
}

void rknpu_observe(struct rknpu_core *core, enum rknpu_moment moment)
{
	struct rknpu_observation *seen = &core->observed[moment];

	if (!rknpu_check_wants(RKNPU_CHECK_OBSERVE))
		return;
	observe_read(core, seen);
	if (moment == RKNPU_AT_HALT && rknpu_check_wants(RKNPU_CHECK_STALL))
		observe_stall(core, seen);
}

static void observe_print(struct seq_file *m, unsigned int core, const char *moment, const struct rknpu_observation *seen)
{
	unsigned int i;

	seq_printf(m, "%u %s count=%u running=%#x data_addr=%#x int_mask=%#x int_raw=%#x task_control=%#x task_status=%#x stall=%d",
		   core, moment, seen->count, seen->running, seen->data_addr, seen->int_mask, seen->int_raw, seen->task_control,
		   seen->task_status, seen->stall);
	for (i = 0; i < seen->banks; i++)
		seq_printf(m, " mmu%u_status=%#x mmu%u_dir=%#x", i, seen->mmu_status[i], i, seen->mmu_dir[i]);
	seq_putc(m, '\n');
}

/* A line a core and moment, and "now" what its registers show. A read of this brings power. */
static int observed_show(struct seq_file *m, void *unused)
{
	struct rknpu_device *rdev = m->private;
	unsigned int i, moment;
	int ret;

	if (!rknpu_check_wants(RKNPU_CHECK_OBSERVE))
		return -EPERM;
	ret = rknpu_power_get_all(rdev);
	if (ret)
		return ret;
	for (i = 0; i < rdev->nr_cores; i++) {
		struct rknpu_core *core = &rdev->cores[i];
		struct rknpu_observation now = {};

		/* Nobody resets the core meanwhile. */
		mutex_lock(&core->unit->lock);
		spin_lock_irq(&core->irq_lock);
		observe_read(core, &now);
		spin_unlock_irq(&core->irq_lock);
		mutex_unlock(&core->unit->lock);
		seq_printf(m, "%u version %#x %#x\n", core->number, readl(core->pc + RKNPU_PC_VERSION),
			   readl(core->pc + RKNPU_PC_VERSION_NUM));
		observe_print(m, core->number, "now", &now);
		for (moment = 0; moment < RKNPU_MOMENTS; moment++)
			observe_print(m, core->number, observe_names[moment], &core->observed[moment]);
	}
	rknpu_power_put_all(rdev);
	return 0;
}

static int observed_open(struct inode *inode, struct file *file)
{
	return single_open(file, observed_show, inode->i_private);
}

/* "0": forget. */
static ssize_t observed_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	struct rknpu_device *rdev = ((struct seq_file *)file->private_data)->private;
	unsigned int i;

	for (i = 0; i < rdev->nr_cores; i++) {
		spin_lock_irq(&rdev->cores[i].irq_lock);
		memset(rdev->cores[i].observed, 0, sizeof(rdev->cores[i].observed));
		spin_unlock_irq(&rdev->cores[i].irq_lock);
	}
	return len;
}

static const struct file_operations observed_fops = {
	.owner = THIS_MODULE,
	.open = observed_open,
	.read = seq_read,
	.write = observed_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void rknpu_observe_debugfs(struct rknpu_device *rdev, struct dentry *dir)
{
	debugfs_create_file("observed", 0600, dir, rdev, &observed_fops);
}
