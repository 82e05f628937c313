// SPDX-License-Identifier: GPL-2.0-only
/* Bounds of what user space may ask for, and which tasks go to which core. */
#include <kunit/test.h>
#include <linux/module.h>

#include "../rknpu/rknpu_check.c"
#include "../rknpu/rknpu_soc.c"

static const struct rknpu_soc *rk3588(void)
{
	return rknpu_soc_get(RKNPU_SOC_RK3588);
}

static const char *why;	/* of what was refused last */

static void sizes_are_rounded_and_bounded(struct kunit *test)
{
	u64 size = 0;

	KUNIT_EXPECT_EQ(test, rknpu_check_mem_size(0, &size), -EINVAL);
	KUNIT_EXPECT_EQ(test, rknpu_check_mem_size(1, &size), 0);
	KUNIT_EXPECT_EQ(test, size, (u64)PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, rknpu_check_mem_size((1ull << 32) + 1, &size), -ENOSPC);
	KUNIT_EXPECT_EQ(test, rknpu_check_mem_size(U64_MAX, &size), -ENOSPC);
}

static void ranges_are_cut_and_cannot_wrap(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rknpu_clamp_range(0, 4096, 4096), 4096);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_range(4096, 0, 4096), 0);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_range(1, 4096, 4096), 4095);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_range(4097, 1, 4096), 0);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_range(U64_MAX, 2, 4096), 0);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_range(8, U64_MAX - 4, 4096), 4088);
}

static void task_windows_stay_in_the_buffer(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rknpu_check_tasks(0, 102, 4096), 0);
	KUNIT_EXPECT_EQ(test, rknpu_check_tasks(0, 103, 4096), -EINVAL);
	KUNIT_EXPECT_EQ(test, rknpu_check_tasks(101, 1, 4096), 0);
	KUNIT_EXPECT_EQ(test, rknpu_check_tasks(102, 1, 4096), -EINVAL);
	KUNIT_EXPECT_EQ(test, rknpu_check_tasks(0, 0, 4096), -EINVAL);
	KUNIT_EXPECT_EQ(test, rknpu_check_tasks(U32_MAX, 2, 4096), -EINVAL);
	KUNIT_EXPECT_EQ(test, rknpu_check_tasks(2, U32_MAX, 4096), -EINVAL);
}

static void tasks_must_be_able_to_end(struct kunit *test)
{
	struct rknpu_task good = { .int_mask = 0x300, .regcfg_amount = 100, .regcmd_addr = 0x1000 }, task = good;

	KUNIT_EXPECT_EQ(test, rknpu_check_task(rk3588(), &task, &why), 0);
	task.int_mask = 0;
	KUNIT_EXPECT_EQ(test, rknpu_check_task(rk3588(), &task, &why), -EINVAL);
	task.int_mask = 0x20000;
	KUNIT_EXPECT_EQ(test, rknpu_check_task(rk3588(), &task, &why), -EINVAL);
	task = good;
	task.regcfg_amount = 0;
	KUNIT_EXPECT_EQ(test, rknpu_check_task(rk3588(), &task, &why), -EINVAL);
	task.regcfg_amount = U32_MAX;
	KUNIT_EXPECT_EQ(test, rknpu_check_task(rk3588(), &task, &why), -EINVAL);
	task = good;
	task.regcmd_addr = 0x1001;
	KUNIT_EXPECT_EQ(test, rknpu_check_task(rk3588(), &task, &why), -EINVAL);
	task.regcmd_addr = 1ull << 32;
	KUNIT_EXPECT_EQ(test, rknpu_check_task(rk3588(), &task, &why), -EINVAL);
}

static void amounts_follow_the_scale(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rknpu_pc_amount(rk3588(), 108), 55u);
	KUNIT_EXPECT_EQ(test, rknpu_pc_amount(rk3588(), 107), 55u);
	KUNIT_EXPECT_EQ(test, rknpu_pc_amount(rknpu_soc_get(RKNPU_SOC_RK3568), 108), 111u);
}

static void submits_are_checked(struct kunit *test)
{
	static const u32 good_masks[] = { 0, 1, 2, 4, 3, 7 }, bad_masks[] = { 5, 6, 8, ~0u };
	struct rknpu_submit good = { .flags = RKNPU_JOB_PC, .task_number = 1 }, args;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(good_masks); i++) {
		good.core_mask = good_masks[i];
		KUNIT_EXPECT_EQ(test, rknpu_check_submit(&good, 7, &why), 0);
	}
	for (i = 0; i < ARRAY_SIZE(bad_masks); i++) {
		args = good;
		args.core_mask = bad_masks[i];
		KUNIT_EXPECT_EQ(test, rknpu_check_submit(&args, 7, &why), -EINVAL);
	}
	KUNIT_EXPECT_EQ(test, rknpu_check_submit(&good, 3, &why), -EINVAL);	/* mask 7 on two cores */
	good.core_mask = 1;
	args = good;
	args.flags = 0;
	KUNIT_EXPECT_EQ(test, rknpu_check_submit(&args, 7, &why), -EINVAL);
	args.flags = RKNPU_JOB_PC | 0x20;
	KUNIT_EXPECT_EQ(test, rknpu_check_submit(&args, 7, &why), -EINVAL);
	args = good;
	args.task_number = 0;
	KUNIT_EXPECT_EQ(test, rknpu_check_submit(&args, 7, &why), -EINVAL);
	args = good;
	args.reserved = 1;
	KUNIT_EXPECT_EQ(test, rknpu_check_submit(&args, 7, &why), 0);
	args = good;
	args.iommu_domain_id = 16;
	KUNIT_EXPECT_EQ(test, rknpu_check_submit(&args, 7, &why), -EINVAL);
	args = good;
	args.task_base_addr = 1ull << 32;
	KUNIT_EXPECT_EQ(test, rknpu_check_submit(&args, 7, &why), -EINVAL);
	KUNIT_EXPECT_STREQ(test, why, "task_base_addr is above 4 GiB");
	args = good;
	args.priority = -21;
	KUNIT_EXPECT_EQ(test, rknpu_check_submit(&args, 7, &why), 0);
}

static void priorities_are_wishes(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rknpu_clamp_priority(0, -20, false), 0);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_priority(7, -20, false), 7);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_priority(-5, -20, false), 0);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_priority(-5, -20, true), -5);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_priority(S32_MIN, -20, true), -20);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_priority(S32_MAX, -20, true), 19);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_priority(-5, 3, true), 3);
	KUNIT_EXPECT_EQ(test, rknpu_clamp_priority(4, 3, false), 4);
}

static void one_core_takes_its_entry_or_the_first(struct kunit *test)
{
	struct rknpu_submit args = { .core_mask = 2, .task_start = 3, .task_number = 4 };
	struct rknpu_split split;

	KUNIT_ASSERT_EQ(test, rknpu_split_job(&args, 7, &split), 0);
	KUNIT_EXPECT_EQ(test, split.start[0], 3);
	KUNIT_EXPECT_EQ(test, split.number[0], 4);
	args.subcore_task[0] = (struct rknpu_subcore_task) { 10, 1 };
	KUNIT_ASSERT_EQ(test, rknpu_split_job(&args, 7, &split), 0);
	KUNIT_EXPECT_EQ(test, split.start[0], 10);
	args.subcore_task[1] = (struct rknpu_subcore_task) { 20, 2 };
	KUNIT_ASSERT_EQ(test, rknpu_split_job(&args, 7, &split), 0);
	KUNIT_EXPECT_EQ(test, split.start[0], 20);
	KUNIT_EXPECT_EQ(test, split.number[0], 2);
	KUNIT_EXPECT_EQ(test, split.cores, 2);
	KUNIT_EXPECT_FALSE(test, split.any);
	args = (struct rknpu_submit) { .core_mask = 1 };
	KUNIT_EXPECT_EQ(test, rknpu_split_job(&args, 7, &split), -EINVAL);
}

static void auto_may_have_any_core(struct kunit *test)
{
	struct rknpu_submit args = { .task_number = 1 };
	struct rknpu_split split;

	KUNIT_ASSERT_EQ(test, rknpu_split_job(&args, 3, &split), 0);
	KUNIT_EXPECT_TRUE(test, split.any);
	KUNIT_EXPECT_EQ(test, split.cores, 3);
	KUNIT_EXPECT_EQ(test, split.parts, 1);
}

static void gangs_index_their_entries(struct kunit *test)
{
	struct rknpu_submit args = {
		.core_mask = 7,
		.subcore_task = { { 90, 9 }, { 91, 9 }, { 0, 2 }, { 2, 3 }, { 5, 4 } },
	};
	struct rknpu_split split;

	KUNIT_ASSERT_EQ(test, rknpu_split_job(&args, 7, &split), 0);
	KUNIT_EXPECT_EQ(test, split.cores, 7);
	KUNIT_EXPECT_EQ(test, split.parts, 3);
	KUNIT_EXPECT_EQ(test, split.start[0], 0);
	KUNIT_EXPECT_EQ(test, split.start[1], 2);
	KUNIT_EXPECT_EQ(test, split.number[2], 4);
	args.core_mask = 3;
	KUNIT_ASSERT_EQ(test, rknpu_split_job(&args, 7, &split), 0);
	KUNIT_EXPECT_EQ(test, split.start[0], 90);
	KUNIT_EXPECT_EQ(test, split.start[1], 91);
	args.subcore_task[0].task_number = 0;
	KUNIT_ASSERT_EQ(test, rknpu_split_job(&args, 7, &split), 0);
	KUNIT_EXPECT_EQ(test, split.cores, 2);
	KUNIT_EXPECT_EQ(test, split.parts, 1);
	KUNIT_EXPECT_EQ(test, split.start[0], 91);
	args.subcore_task[1].task_number = 0;
	KUNIT_EXPECT_EQ(test, rknpu_split_job(&args, 7, &split), -EINVAL);
}

static struct kunit_case check_cases[] = {
	KUNIT_CASE(sizes_are_rounded_and_bounded),
	KUNIT_CASE(ranges_are_cut_and_cannot_wrap),
	KUNIT_CASE(task_windows_stay_in_the_buffer),
	KUNIT_CASE(tasks_must_be_able_to_end),
	KUNIT_CASE(amounts_follow_the_scale),
	KUNIT_CASE(submits_are_checked),
	KUNIT_CASE(priorities_are_wishes),
	KUNIT_CASE(one_core_takes_its_entry_or_the_first),
	KUNIT_CASE(auto_may_have_any_core),
	KUNIT_CASE(gangs_index_their_entries),
	{}
};

static struct kunit_suite check_suite = {
	.name = "rknpu_check",
	.test_cases = check_cases,
};

kunit_test_suite(check_suite);

MODULE_DESCRIPTION("KUnit tests of npud_rknpu's bounds checks");
MODULE_LICENSE("GPL");
