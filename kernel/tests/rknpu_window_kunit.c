// SPDX-License-Identifier: GPL-2.0-only
/* Device addresses: guards, exact accounting, holes, and that nothing is lost over many rounds. */
#include <kunit/test.h>
#include <linux/module.h>

#include "../rknpu/rknpu_window.c"

#define START	0x100000ull
#define BYTES	(16ull << 20)

static int window_test_init(struct kunit *test)
{
	struct rknpu_window *win = kunit_kzalloc(test, sizeof(*win), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, win);
	rknpu_window_init(win, START, BYTES);
	test->priv = win;
	return 0;
}

static void window_test_exit(struct kunit *test)
{
	struct rknpu_window *win = test->priv;

	KUNIT_EXPECT_EQ(test, win->used, 0);
	KUNIT_EXPECT_EQ(test, win->ranges, 0);
	rknpu_window_fini(win);
}

static void ranges_are_apart_by_a_guard(struct kunit *test)
{
	struct rknpu_window *win = test->priv;
	struct rknpu_range a, b;

	KUNIT_ASSERT_EQ(test, rknpu_window_insert(win, &a, 8192, false), 0);
	KUNIT_ASSERT_EQ(test, rknpu_window_insert(win, &b, 4096, false), 0);
	KUNIT_EXPECT_EQ(test, a.node.start, START);
	KUNIT_EXPECT_GE(test, b.node.start, a.node.start + 8192 + 4096);
	KUNIT_EXPECT_EQ(test, win->used, 12288);
	rknpu_window_remove(win, &a);
	rknpu_window_remove(win, &b);
}

static void the_largest_hole_is_what_fits(struct kunit *test)
{
	struct rknpu_window *win = test->priv;
	u64 hole = rknpu_window_largest_hole(win);
	struct rknpu_range a, b;

	KUNIT_EXPECT_EQ(test, hole, BYTES - RKNPU_WINDOW_GUARD);
	KUNIT_EXPECT_EQ(test, rknpu_window_insert(win, &a, hole + 4096, false), -ENOSPC);
	KUNIT_ASSERT_EQ(test, rknpu_window_insert(win, &a, hole, false), 0);
	KUNIT_EXPECT_EQ(test, rknpu_window_largest_hole(win), 0);
	KUNIT_EXPECT_EQ(test, rknpu_window_insert(win, &b, 4096, false), -ENOSPC);
	rknpu_window_remove(win, &a);
	KUNIT_EXPECT_EQ(test, rknpu_window_largest_hole(win), hole);
}

static void a_place_can_be_asked_for(struct kunit *test)
{
	struct rknpu_window *win = test->priv;
	struct rknpu_range a, b;

	KUNIT_EXPECT_EQ(test, rknpu_window_insert_at(win, &a, START - 4096, 4096), -ENOSPC);
	KUNIT_EXPECT_EQ(test, rknpu_window_insert_at(win, &a, START + BYTES, 4096), -ENOSPC);
	KUNIT_ASSERT_EQ(test, rknpu_window_insert_at(win, &a, START + 0x10000, 4096), 0);
	KUNIT_EXPECT_EQ(test, rknpu_window_insert_at(win, &b, START + 0x10000, 4096), -ENOSPC);
	rknpu_window_remove(win, &a);
}

static void imports_come_from_the_top(struct kunit *test)
{
	struct rknpu_window *win = test->priv;
	struct rknpu_range a;

	KUNIT_ASSERT_EQ(test, rknpu_window_insert(win, &a, 4096, true), 0);
	KUNIT_EXPECT_EQ(test, a.node.start, START + BYTES - 4096 - RKNPU_WINDOW_GUARD);
	rknpu_window_remove(win, &a);
}

static void ten_thousand_rounds_lose_nothing(struct kunit *test)
{
	struct rknpu_window *win = test->priv;
	struct rknpu_range *ranges = kunit_kcalloc(test, 16, sizeof(*ranges), GFP_KERNEL);
	u64 hole = rknpu_window_largest_hole(win);
	unsigned int i, seed = 1;
	u32 in = 0;

	KUNIT_ASSERT_NOT_NULL(test, ranges);
	for (i = 0; i < 10000; i++) {
		unsigned int slot;

		seed = seed * 1103515245 + 12345;
		slot = (seed >> 16) % 16;
		if (in & BIT(slot)) {
			rknpu_window_remove(win, &ranges[slot]);
			in &= ~BIT(slot);
		} else if (!rknpu_window_insert(win, &ranges[slot], ((seed >> 20) % 64 + 1) * 4096, seed & 0x8000)) {
			in |= BIT(slot);
		}
	}
	for (i = 0; i < 16; i++)
		if (in & BIT(i))
			rknpu_window_remove(win, &ranges[i]);
	KUNIT_EXPECT_EQ(test, rknpu_window_largest_hole(win), hole);
}

static struct kunit_case window_cases[] = {
	KUNIT_CASE(ranges_are_apart_by_a_guard),
	KUNIT_CASE(the_largest_hole_is_what_fits),
	KUNIT_CASE(a_place_can_be_asked_for),
	KUNIT_CASE(imports_come_from_the_top),
	KUNIT_CASE(ten_thousand_rounds_lose_nothing),
	{}
};

static struct kunit_suite window_suite = {
	.name = "rknpu_window",
	.init = window_test_init,
	.exit = window_test_exit,
	.test_cases = window_cases,
};

kunit_test_suite(window_suite);

MODULE_DESCRIPTION("KUnit tests of npud_rknpu's device addresses");
MODULE_LICENSE("GPL");
