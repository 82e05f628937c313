// SPDX-License-Identifier: GPL-2.0-only
/*
 * Holds npud_rknpu up in three places, so that a test from user space meets what else needs luck: page_fault_ms before
 * a page fault's core is stopped, forget_ms before somebody who asks that an MMU forget a space is heard, end_running_ms
 * before a shutdown, tired of waiting, ends what runs. The counts say how often each was passed.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/module.h>

struct window {
	struct kprobe probe;
	unsigned int delay_ms;
	atomic_t passed;
};

static int hold(struct kprobe *probe, struct pt_regs *regs)
{
	struct window *window = container_of(probe, struct window, probe);

	atomic_inc(&window->passed);
	mdelay(min(READ_ONCE(window->delay_ms), 2000u));
	return 0;
}

static struct window page_fault = { .probe = { .symbol_name = "rknpu_core_page_fault", .pre_handler = hold } };
static struct window forget = { .probe = { .symbol_name = "rknpu_sched_forget", .pre_handler = hold } };
static struct window end_running = { .probe = { .symbol_name = "rknpu_sched_end_running", .pre_handler = hold } };
static struct kprobe *probes[] = { &page_fault.probe, &forget.probe, &end_running.probe };

module_param_named(page_fault_ms, page_fault.delay_ms, uint, 0644);
module_param_named(forget_ms, forget.delay_ms, uint, 0644);
module_param_named(end_running_ms, end_running.delay_ms, uint, 0644);
module_param_named(page_faults, page_fault.passed.counter, int, 0444);
module_param_named(forgets, forget.passed.counter, int, 0444);
module_param_named(end_runnings, end_running.passed.counter, int, 0444);

static int __init windows_init(void)
{
	return register_kprobes(probes, ARRAY_SIZE(probes));
}

static void __exit windows_exit(void)
{
	unregister_kprobes(probes, ARRAY_SIZE(probes));
}

module_init(windows_init);
module_exit(windows_exit);

MODULE_DESCRIPTION("Widens windows in npud_rknpu for its tests");
MODULE_LICENSE("GPL");
