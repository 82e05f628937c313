// SPDX-License-Identifier: GPL-2.0-only
#include <linux/align.h>
#include <linux/bitops.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "rknpu_check.h"
#include "rknpu_regs.h"

static int check_refuse(const char **why, const char *because)
{
	*why = because;
	return -EINVAL;
}

int rknpu_check_mem_size(u64 size, u64 *rounded)
{
	if (!size)
		return -EINVAL;
	if (size > 1ull << 32)
		return -ENOSPC;
	*rounded = PAGE_ALIGN(size);
	return 0;
}

u64 rknpu_clamp_range(u64 offset, u64 bytes, u64 buffer_bytes)
{
	return offset < buffer_bytes ? min(bytes, buffer_bytes - offset) : 0;
}

int rknpu_check_tasks(u32 start, u32 number, u64 buffer_bytes)
{
	u64 tasks = buffer_bytes / sizeof(struct rknpu_task);

	return !number || start > tasks || number > tasks - start ? -EINVAL : 0;
}

u32 rknpu_pc_amount(const struct rknpu_soc *soc, u32 regcfg_amount)
{
	u64 words = (u64)regcfg_amount + RKNPU_PC_TRAILER_WORDS;
	u64 units = (words + soc->amount_scale - 1) / soc->amount_scale;

	return units - 1 > U32_MAX ? U32_MAX : units - 1;
}

int rknpu_check_task(const struct rknpu_soc *soc, const struct rknpu_task *task, const char **why)
{
	if (!task->regcfg_amount || rknpu_pc_amount(soc, task->regcfg_amount) > RKNPU_PC_DATA_AMOUNT_MAX)
		return check_refuse(why, "regcfg_amount of a task is 0 or more than the program controller counts");
	/* Bit 0 of the register would be slave mode; bits 3:1 aren't there. */
	if (task->regcmd_addr >> 32 || task->regcmd_addr % RKNPU_PC_DATA_ADDR_ALIGN)
		return check_refuse(why, "regcmd_addr of a task is above 4 GiB or not aligned to 16 bytes");
	/* Without a bit the job could never be seen to end. */
	if (!task->int_mask || (task->int_mask & ~RKNPU_INT_ALL))
		return check_refuse(why, "int_mask of a task is 0 or has unknown bits");
	return 0;
}

int rknpu_check_submit(const struct rknpu_submit *args, u32 all_cores, const char **why)
{
	if (args->flags & ~RKNPU_JOB_MASK)
		return check_refuse(why, "unknown flags");
	if (!(args->flags & RKNPU_JOB_PC))
		return check_refuse(why, "slave mode");
	if (!args->task_number)
		return check_refuse(why, "no tasks");
	if (args->task_base_addr >> 32)
		return check_refuse(why, "task_base_addr is above 4 GiB");
	if (args->iommu_domain_id >= RKNPU_MAX_DOMAINS)
		return check_refuse(why, "no such iommu_domain_id");
	switch (args->core_mask) {
	case RKNPU_CORE_AUTO_MASK:
	case RKNPU_CORE0_MASK:
	case RKNPU_CORE1_MASK:
	case RKNPU_CORE2_MASK:
	case RKNPU_CORE01_MASK:
	case RKNPU_CORE012_MASK:
		break;
	default:
		return check_refuse(why, "no such core_mask");
	}
	return args->core_mask & ~all_cores ? check_refuse(why, "core_mask has cores that aren't there") : 0;
}

s32 rknpu_clamp_priority(s32 priority, s32 most_urgent, bool privileged)
{
	priority = clamp(priority, RKNPU_PRIORITY_HIGHEST, RKNPU_PRIORITY_LOWEST);
	if (!privileged)
		priority = max(priority, 0);
	return max(priority, most_urgent);
}

int rknpu_split_job(const struct rknpu_submit *args, u32 all_cores, struct rknpu_split *split)
{
	const struct rknpu_subcore_task *sub = args->subcore_task;
	unsigned int gang = hweight32(args->core_mask), core, i;

	memset(split, 0, sizeof(*split));
	if (gang <= 1) {
		split->any = !args->core_mask;
		split->cores = args->core_mask ?: all_cores;
		split->parts = 1;
		split->start[0] = args->task_start;
		split->number[0] = args->task_number;
		for (i = RKNPU_MAX_CORES; i--;)
			if (sub[i].task_number) {
				split->start[0] = sub[i].task_start;
				split->number[0] = sub[i].task_number;
			}
		core = args->core_mask ? __ffs(args->core_mask) : 0;
		if (sub[core].task_number) {
			split->start[0] = sub[core].task_start;
			split->number[0] = sub[core].task_number;
		}
		return split->number[0] ? 0 : -EINVAL;
	}
	if (gang == 3)
		sub += 2;
	for (core = 0; core < gang; core++) {
		if (!sub[core].task_number)
			continue;
		split->cores |= 1u << core;
		split->start[split->parts] = sub[core].task_start;
		split->number[split->parts] = sub[core].task_number;
		split->parts++;
	}
	return split->parts ? 0 : -EINVAL;
}
