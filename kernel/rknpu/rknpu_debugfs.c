// SPDX-License-Identifier: GPL-2.0-only
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "rknpu_debugfs.h"
#include "rknpu_device.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_observe.h"
#include "rknpu_power.h"
#include "rknpu_sched.h"
#include "rknpu_vm.h"

#define LOAD_MIN_NS	(100 * NSEC_PER_MSEC)	/* between two samples of the load */

static int dbg_version_show(struct seq_file *m, void *unused)
{
	seq_printf(m, "RKNPU driver: v%d.%d.%d\n", RKNPU_DRM_VERSION_MAJOR, RKNPU_DRM_VERSION_MINOR, RKNPU_DRM_VERSION_PATCH);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(dbg_version);

/* Of the time since the last reading, a tenth of a second at least. */
static void dbg_sample_load(struct rknpu_device *rdev, unsigned int *percent)
{
	u64 now, busy[RKNPU_MAX_CORES];
	unsigned int i;

	mutex_lock(&rdev->load_lock);
	rknpu_cores_busy_ns(rdev, &now, busy);
	if (now - rdev->load_at_ns >= LOAD_MIN_NS) {
		for (i = 0; i < rdev->nr_cores; i++) {
			u64 ran = busy[i] > rdev->load_busy_ns[i] ? busy[i] - rdev->load_busy_ns[i] : 0;

			rdev->load_percent[i] = min_t(u64, div64_u64(ran * 100, now - rdev->load_at_ns), 100);
			rdev->load_busy_ns[i] = busy[i];
		}
		rdev->load_at_ns = now;
	}
	for (i = 0; i < rdev->nr_cores; i++)
		percent[i] = rdev->load_percent[i];
	mutex_unlock(&rdev->load_lock);
}

static int dbg_load_show(struct seq_file *m, void *unused)
{
	struct rknpu_device *rdev = m->private;
	unsigned int percent[RKNPU_MAX_CORES], i;

	dbg_sample_load(rdev, percent);
	seq_puts(m, "NPU load: ");
	if (rdev->nr_cores == 1)
		seq_printf(m, " %u%%", percent[0]);
	else
		for (i = 0; i < rdev->nr_cores; i++)
			seq_printf(m, " Core%u: %2u%%,", i, percent[i]);
	seq_putc(m, '\n');
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(dbg_load);

static int dbg_power_show(struct seq_file *m, void *unused)
{
	seq_puts(m, rknpu_power_is_on(m->private) ? "on\n" : "off\n");
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(dbg_power);

static int dbg_freq_show(struct seq_file *m, void *unused)
{
	long hz = rknpu_power_frequency(m->private);

	seq_printf(m, "%ld\n", hz > 0 ? hz : 0);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(dbg_freq);

static int dbg_volt_show(struct seq_file *m, void *unused)
{
	long uv = rknpu_power_voltage(m->private);

	seq_printf(m, "%ld\n", uv > 0 ? uv : 0);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(dbg_volt);

static int dbg_delayms_show(struct seq_file *m, void *unused)
{
	struct rknpu_device *rdev = m->private;

	seq_printf(m, "%u\n", rdev->autosuspend_ms);
	return 0;
}

static int dbg_delayms_open(struct inode *inode, struct file *file)
{
	return single_open(file, dbg_delayms_show, inode->i_private);
}

static ssize_t dbg_delayms_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	struct rknpu_device *rdev = ((struct seq_file *)file->private_data)->private;
	unsigned int delay_ms;
	int ret = kstrtouint_from_user(buf, len, 10, &delay_ms);

	if (ret)
		return ret;
	if (delay_ms > INT_MAX)
		return -EINVAL;
	rknpu_power_set_delay(rdev, delay_ms);
	return len;
}

static const struct file_operations dbg_delayms_fops = {
	.owner = THIS_MODULE,
	.open = dbg_delayms_open,
	.read = seq_read,
	.write = dbg_delayms_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static int dbg_reset_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "on\n");
	return 0;
}

static int dbg_reset_open(struct inode *inode, struct file *file)
{
	return single_open(file, dbg_reset_show, inode->i_private);
}

/* "1": reset the cores that run nothing, and give dead ones another chance. */
static ssize_t dbg_reset_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	struct rknpu_device *rdev = ((struct seq_file *)file->private_data)->private;
	bool yes;
	int ret = kstrtobool_from_user(buf, len, &yes);

	if (ret)
		return ret;
	if (yes)
		rknpu_sched_revive(rdev);
	return len;
}

static const struct file_operations dbg_reset_fops = {
	.owner = THIS_MODULE,
	.open = dbg_reset_open,
	.read = seq_read,
	.write = dbg_reset_write,
	.llseek = seq_lseek,
	.release = single_release,
};

/* On-chip memory, of which this driver gives out none. */
static int dbg_mm_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "SRAM bitmap: not used\nSRAM total size: 0, used: 0, free: 0\n");
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(dbg_mm);

/* --- npud/ -------------------------------------------------------------------------------------------------------------------- */

static int dbg_state_show(struct seq_file *m, void *unused)
{
	struct rknpu_device *rdev = m->private;
	unsigned int i;

	mutex_lock(&rdev->list_lock);
	seq_printf(m, "files %u\nspaces %u\n", rdev->nr_files, rdev->nr_spaces);
	mutex_unlock(&rdev->list_lock);
	seq_printf(m, "iova_bytes %lld\n", atomic64_read(&rdev->iova_bytes));
	spin_lock_irq(&rdev->lock);
	seq_printf(m, "jobs_queued %u\njobs_running %u\ndead %d\ndead_cores %#x\n", rdev->jobs_queued, rdev->jobs_running,
		   rdev->dead, rdev->dead_cores);
	spin_unlock_irq(&rdev->lock);
	seq_printf(m, "soc %s%s\nmmu %s\ncores %u\n", rdev->soc->name, rdev->soc->tested ? "" : " (untested)", rdev->mmu->name,
		   rdev->nr_cores);
	seq_printf(m, "resets %lld\nresets_together %lld\ntimeouts %lld\npage_faults %lld\nswitches %lld\nscrubs %lld\nlost_irqs %lld\nspurious_irqs %lld\nleaks %lld\n",
		   atomic64_read(&rdev->resets), atomic64_read(&rdev->resets_together), atomic64_read(&rdev->timeouts),
		   atomic64_read(&rdev->page_faults), atomic64_read(&rdev->switches), atomic64_read(&rdev->scrubs),
		   atomic64_read(&rdev->lost_irqs), atomic64_read(&rdev->spurious_irqs),
		   atomic64_read(&rdev->leaks));
	/* Whether a reset clears it isn't known of silicon. */
	seq_puts(m, "cbuf_isolated unknown\n");
	for (i = 0; i < rdev->nr_units; i++)
		seq_printf(m, "unit%u cores %#x powered %d\n", i, rdev->units[i].cores, READ_ONCE(rdev->units[i].powered));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(dbg_state);

static int dbg_spaces_show(struct seq_file *m, void *unused)
{
	struct rknpu_device *rdev = m->private;
	struct rknpu_space *space;

	seq_puts(m, "# file pid space used_bytes mappings largest_hole_bytes table_bytes\n");
	mutex_lock(&rdev->list_lock);
	list_for_each_entry(space, &rdev->spaces, link) {
		struct rknpu_npud_space_info info = {};

		rknpu_space_info(space, &info);
		seq_printf(m, "%llu %d %u %llu %llu %llu %llu\n", space->file_id, space->pid, space->id, info.used_bytes,
			   info.mappings, info.largest_hole_bytes, info.table_bytes);
	}
	mutex_unlock(&rdev->list_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(dbg_spaces);

static int dbg_jobs_show(struct seq_file *m, void *unused)
{
	struct rknpu_device *rdev = m->private;
	struct rknpu_file *file;
	struct rknpu_job *job;

	seq_puts(m, "# job file pid comm state priority cores space\n");
	mutex_lock(&rdev->list_lock);
	list_for_each_entry(file, &rdev->files, link) {
		spin_lock_irq(&rdev->lock);
		list_for_each_entry(job, &file->jobs, file_link)
			seq_printf(m, "%llu %llu %d %s %s %d %#x %u\n", job->entry.seq, file->id, file->pid, file->comm,
				   rknpu_job_state_name(job->state), job->entry.priority,
				   job->state == RKNPU_JOB_RUNNING ? job->cores : job->entry.cores, job->space->id);
		spin_unlock_irq(&rdev->lock);
	}
	mutex_unlock(&rdev->list_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(dbg_jobs);

static int dbg_faults_show(struct seq_file *m, void *unused)
{
	struct rknpu_device *rdev = m->private;
	struct rknpu_file *file;

	seq_puts(m, "# file pid comm page_faults last_iova last_space last_access\n");
	mutex_lock(&rdev->list_lock);
	list_for_each_entry(file, &rdev->files, link) {
		spin_lock_irq(&rdev->lock);
		if (file->page_faults)
			seq_printf(m, "%llu %d %s %llu %#llx %u %s\n", file->id, file->pid, file->comm, file->page_faults,
				   file->fault_iova, file->fault_space,
				   file->fault_flags & RKNPU_NPUD_FAULT_WRITE ? "write" : "read");
		spin_unlock_irq(&rdev->lock);
	}
	mutex_unlock(&rdev->list_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(dbg_faults);

void rknpu_debugfs_init(struct rknpu_device *rdev)
{
	struct dentry *npud;

	mutex_init(&rdev->load_lock);
	rdev->load_at_ns = ktime_get_ns();
	rdev->debugfs = debugfs_create_dir("rknpu", NULL);
	/* A kernel with the vendor's driver built in has the name taken. */
	if (IS_ERR(rdev->debugfs))
		rdev->debugfs = debugfs_create_dir("npud_rknpu", NULL);
	debugfs_create_file("version", 0444, rdev->debugfs, rdev, &dbg_version_fops);
	debugfs_create_file("load", 0444, rdev->debugfs, rdev, &dbg_load_fops);
	debugfs_create_file("power", 0444, rdev->debugfs, rdev, &dbg_power_fops);
	debugfs_create_file("freq", 0444, rdev->debugfs, rdev, &dbg_freq_fops);
	debugfs_create_file("volt", 0444, rdev->debugfs, rdev, &dbg_volt_fops);
	debugfs_create_file("delayms", 0644, rdev->debugfs, rdev, &dbg_delayms_fops);
	debugfs_create_file("reset", 0644, rdev->debugfs, rdev, &dbg_reset_fops);
	debugfs_create_file("mm", 0444, rdev->debugfs, rdev, &dbg_mm_fops);
	npud = debugfs_create_dir("npud", rdev->debugfs);
	debugfs_create_file("state", 0444, npud, rdev, &dbg_state_fops);
	debugfs_create_file("spaces", 0444, npud, rdev, &dbg_spaces_fops);
	debugfs_create_file("jobs", 0444, npud, rdev, &dbg_jobs_fops);
	debugfs_create_file("faults", 0444, npud, rdev, &dbg_faults_fops);
	rknpu_observe_debugfs(rdev, npud);
}

void rknpu_debugfs_fini(struct rknpu_device *rdev)
{
	debugfs_remove_recursive(rdev->debugfs);
	rdev->debugfs = NULL;
}
