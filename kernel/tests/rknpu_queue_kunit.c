// SPDX-License-Identifier: GPL-2.0-only
/* The run queue: who starts next, and where. */
#include <kunit/test.h>
#include <linux/module.h>

#include "../rknpu/rknpu_queue.c"

#define CORES 3

struct fixture {
	struct rknpu_queue queue;
	struct rknpu_queue_core core[CORES];
	struct rknpu_queue_entry entry[8];
	unsigned int used;
};

static const char space_a, space_b;

static int queue_test_init(struct kunit *test)
{
	struct fixture *f = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, f);
	rknpu_queue_init(&f->queue);
	for (i = 0; i < CORES; i++)
		f->core[i].unit = i;
	test->priv = f;
	return 0;
}

static struct rknpu_queue_entry *add(struct kunit *test, s32 priority, u64 seq, u32 cores, bool any, const void *space)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *entry = &f->entry[f->used++];

	*entry = (struct rknpu_queue_entry) {
		.priority = priority, .seq = seq, .cores = cores, .any = any, .space = space,
	};
	rknpu_queue_add(&f->queue, entry);
	return entry;
}

static struct rknpu_queue_entry *pick(struct kunit *test, u32 *cores)
{
	struct fixture *f = test->priv;

	return rknpu_queue_pick(&f->queue, f->core, CORES, cores);
}

static void an_empty_queue_gives_nothing(struct kunit *test)
{
	u32 cores;

	KUNIT_EXPECT_NULL(test, pick(test, &cores));
}

static void order_is_priority_then_age(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *late = add(test, 0, 4, 1, false, &space_a);
	struct rknpu_queue_entry *old = add(test, 0, 2, 1, false, &space_a);
	struct rknpu_queue_entry *urgent = add(test, -1, 9, 1, false, &space_a);
	struct rknpu_queue_entry *idle = add(test, 5, 1, 1, false, &space_a);
	const struct rknpu_queue_entry *expected[] = { urgent, old, late, idle };
	struct rknpu_queue_entry *pos;
	unsigned int i = 0;

	list_for_each_entry(pos, &f->queue.entries, link)
		KUNIT_EXPECT_PTR_EQ(test, (const struct rknpu_queue_entry *)pos, expected[i++]);
	KUNIT_EXPECT_EQ(test, i, 4);
}

static void any_core_prefers_the_warm_one(struct kunit *test)
{
	struct fixture *f = test->priv;
	u32 cores;

	add(test, 0, 1, 7, true, &space_a);
	f->core[2].live = &space_a;
	f->core[2].busy_ns = 1000;
	KUNIT_EXPECT_NOT_NULL(test, pick(test, &cores));
	KUNIT_EXPECT_EQ(test, cores, 4);
	f->core[2].suspect = 1;
	KUNIT_EXPECT_NOT_NULL(test, pick(test, &cores));
	KUNIT_EXPECT_EQ(test, cores, 1);
	f->core[0].busy_ns = 5;
	KUNIT_EXPECT_NOT_NULL(test, pick(test, &cores));
	KUNIT_EXPECT_EQ(test, cores, 2);
}

static void a_job_behind_may_use_what_the_first_cannot(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *second;
	u32 cores;

	add(test, 0, 1, 1, false, &space_a);
	second = add(test, 0, 2, 2, false, &space_b);
	f->core[0].busy = true;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), second);
	KUNIT_EXPECT_EQ(test, cores, 2);
}

static void a_waiting_gang_keeps_its_cores(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *gang = add(test, 0, 1, 3, false, &space_a);
	struct rknpu_queue_entry *third;
	u32 cores;

	add(test, 0, 2, 2, false, &space_b);
	f->core[0].busy = true;
	/* core 1 is idle, but the gang will need it */
	KUNIT_EXPECT_NULL(test, pick(test, &cores));
	third = add(test, 0, 3, 7, true, &space_b);
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), third);
	KUNIT_EXPECT_EQ(test, cores, 4);
	f->core[0].busy = false;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), gang);
	KUNIT_EXPECT_EQ(test, cores, 3);
}

static void one_mmu_runs_one_space_at_a_time(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *other = add(test, 0, 1, 7, true, &space_b);
	unsigned int i;
	u32 cores;

	for (i = 0; i < CORES; i++) {
		f->core[i].unit = 0;
		f->core[i].running_space = &space_a;
	}
	f->core[0].busy = true;
	KUNIT_EXPECT_NULL(test, pick(test, &cores));
	/* … and one that would go on in the present space has to wait behind it, or the other would never run */
	add(test, 0, 2, 7, true, &space_a);
	KUNIT_EXPECT_NULL(test, pick(test, &cores));
	f->core[0].busy = false;
	for (i = 0; i < CORES; i++)
		f->core[i].running_space = NULL;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), other);
}

static void cores_with_one_space_share_one_mmu(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *entry = add(test, 0, 1, 2, false, &space_a);
	unsigned int i;
	u32 cores;

	for (i = 0; i < CORES; i++) {
		f->core[i].unit = 0;
		f->core[i].running_space = &space_a;
	}
	f->core[0].busy = true;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), entry);
	KUNIT_EXPECT_EQ(test, cores, 2);
}

static void dead_cores_are_named_not_waited_for(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *entry = add(test, 0, 1, 3, false, &space_a);
	u32 cores = 9;

	f->core[1].dead = true;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), entry);
	KUNIT_EXPECT_EQ(test, cores, 0);
	list_del(&entry->link);
	entry = add(test, 0, 2, 7, true, &space_a);
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), entry);
	KUNIT_EXPECT_NE(test, cores, 0);
	KUNIT_EXPECT_NE(test, cores, 2);
}

static struct kunit_case queue_cases[] = {
	KUNIT_CASE(an_empty_queue_gives_nothing),
	KUNIT_CASE(order_is_priority_then_age),
	KUNIT_CASE(any_core_prefers_the_warm_one),
	KUNIT_CASE(a_job_behind_may_use_what_the_first_cannot),
	KUNIT_CASE(a_waiting_gang_keeps_its_cores),
	KUNIT_CASE(one_mmu_runs_one_space_at_a_time),
	KUNIT_CASE(cores_with_one_space_share_one_mmu),
	KUNIT_CASE(dead_cores_are_named_not_waited_for),
	{}
};

static struct kunit_suite queue_suite = {
	.name = "rknpu_queue",
	.init = queue_test_init,
	.test_cases = queue_cases,
};

kunit_test_suite(queue_suite);

MODULE_DESCRIPTION("KUnit tests of npud_rknpu's run queue");
MODULE_LICENSE("GPL");
