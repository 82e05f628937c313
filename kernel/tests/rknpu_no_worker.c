// SPDX-License-Identifier: GPL-2.0-only
/* Has npud_rknpu's next attempt to make its thread fail, by the process that wrote `arm`; `refused` counts. */
#include <linux/err.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>

static struct task_struct *no_worker_for;
static struct kthread_worker *no_worker_kept;
static int no_worker_refused;

static int no_worker_leave(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct kthread_worker *worker = (struct kthread_worker *)regs_return_value(regs);

	if (READ_ONCE(no_worker_for) != current || IS_ERR(worker))
		return 0;
	WRITE_ONCE(no_worker_for, NULL);
	no_worker_kept = worker;
	no_worker_refused++;
	regs_set_return_value(regs, (unsigned long)ERR_PTR(-ENOMEM));
	return 0;
}

static struct kretprobe no_worker = {
	.kp.symbol_name = "kthread_create_worker_on_node",
	.handler = no_worker_leave,
};

static void no_worker_forget(void)
{
	WRITE_ONCE(no_worker_for, NULL);
	if (no_worker_kept)
		kthread_destroy_worker(no_worker_kept);
	no_worker_kept = NULL;
}

static int no_worker_arm(const char *text, const struct kernel_param *param)
{
	no_worker_forget();
	WRITE_ONCE(no_worker_for, current);
	return 0;
}

static const struct kernel_param_ops no_worker_arm_ops = { .set = no_worker_arm };

module_param_cb(arm, &no_worker_arm_ops, NULL, 0200);
module_param_named(refused, no_worker_refused, int, 0444);

static int __init no_worker_init(void)
{
	return register_kretprobe(&no_worker);
}

static void __exit no_worker_exit(void)
{
	unregister_kretprobe(&no_worker);
	no_worker_forget();
}

module_init(no_worker_init);
module_exit(no_worker_exit);

MODULE_DESCRIPTION("Refuses npud_rknpu its thread, for a test");
MODULE_LICENSE("GPL");
