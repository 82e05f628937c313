// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/debug/npud_vboard: regs, the control BAR, read and written four bytes at a time at its offsets; fault, to arm one by
 * "kind core arg count"; counters, for people.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "vboard.h"

static bool valid(size_t len, loff_t pos)
{
	return len == sizeof(u32) && pos >= 0 && pos <= VBOARD_BAR_CONTROL_SIZE - (loff_t)sizeof(u32) && !(pos & 3);
}

static ssize_t regs_read(struct file *file, char __user *buf, size_t len, loff_t *pos)
{
	struct vboard *board = file->private_data;
	u32 value;

	if (!valid(len, *pos))
		return -EINVAL;
	value = vboard_read(board, *pos);
	if (copy_to_user(buf, &value, sizeof(value)))
		return -EFAULT;
	*pos += sizeof(value);
	return sizeof(value);
}

static ssize_t regs_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	struct vboard *board = file->private_data;
	u32 value;

	if (!valid(len, *pos))
		return -EINVAL;
	if (copy_from_user(&value, buf, sizeof(value)))
		return -EFAULT;
	vboard_write(board, *pos, value);
	*pos += sizeof(value);
	return sizeof(value);
}

static const struct file_operations regs_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = regs_read,
	.write = regs_write,
	.llseek = default_llseek,
};

static int fault_show(struct seq_file *m, void *unused)
{
	struct vboard *board = m->private;

	seq_printf(m, "armed %u\nfired %u\n", vboard_read(board, VBOARD_FAULT_ARM), vboard_read(board, VBOARD_FAULT_FIRED));
	return 0;
}

static int fault_open(struct inode *inode, struct file *file)
{
	return single_open(file, fault_show, inode->i_private);
}

static ssize_t fault_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	struct vboard *board = ((struct seq_file *)file->private_data)->private;
	u32 kind, core, arg, count;
	char text[64] = {};

	if (!len || len >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, buf, len))
		return -EFAULT;
	if (!strncmp(text, "clear", 5)) {
		vboard_write(board, VBOARD_FAULT_CLEAR, 1);
		return len;
	}
	if (sscanf(text, "%i %i %i %i", &kind, &core, &arg, &count) != 4)
		return -EINVAL;
	vboard_write(board, VBOARD_FAULT_KIND, kind);
	vboard_write(board, VBOARD_FAULT_CORE, core);
	vboard_write(board, VBOARD_FAULT_ARG, arg);
	vboard_write(board, VBOARD_FAULT_COUNT, count);
	vboard_write(board, VBOARD_FAULT_ARM, 1);
	return len;
}

static const struct file_operations fault_fops = {
	.owner = THIS_MODULE,
	.open = fault_open,
	.read = seq_read,
	.write = fault_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static int counters_show(struct seq_file *m, void *unused)
{
	static const char * const names[] = {
		"jobs", "tasks", "words", "macs", "read_bytes", "written_bytes", "walks", "tlb_hits", "page_faults",
		"bad_commands", "cycles", "reg_reads", "reg_writes", "irqs",
	};
	struct vboard *board = m->private;
	unsigned int core, i;

	for (core = 0; core < VBOARD_CORES; core++)
		for (i = 0; i < ARRAY_SIZE(names); i++) {
			u32 at = VBOARD_COUNTER(core, i);

			seq_printf(m, "core%u %s %llu\n", core, names[i],
				   vboard_read(board, at) | (u64)vboard_read(board, at + 4) << 32);
		}
	seq_printf(m, "driver_faults %u\ndriver_fault_last %#x\nirq_status %#x\n", vboard_read(board, VBOARD_DRIVER_FAULTS),
		   vboard_read(board, VBOARD_DRIVER_FAULT_LAST), vboard_read(board, VBOARD_IRQ_STATUS));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

void vboard_debugfs_init(struct vboard *board)
{
	board->debugfs = debugfs_create_dir("npud_vboard", NULL);
	debugfs_create_file_size("regs", 0600, board->debugfs, board, &regs_fops, VBOARD_BAR_CONTROL_SIZE);
	debugfs_create_file("fault", 0600, board->debugfs, board, &fault_fops);
	debugfs_create_file("counters", 0400, board->debugfs, board, &counters_fops);
}

void vboard_debugfs_fini(struct vboard *board)
{
	debugfs_remove_recursive(board->debugfs);
	board->debugfs = NULL;
}
