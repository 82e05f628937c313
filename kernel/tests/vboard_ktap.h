/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * KTAP for the modules that test the virtual board: a test is a function of a context that returns 0 or a negative errno, and says by
 * pr_info() what it found.
 */
#ifndef VBOARD_KTAP_H
#define VBOARD_KTAP_H

#include <linux/printk.h>

struct vboard_test {
	const char *name;
	int (*run)(void *context);
};

/* Runs them all and prints KTAP; returns how many failed. */
static inline unsigned int vboard_ktap_run(const struct vboard_test *tests, unsigned int count, void *context)
{
	unsigned int i, failed = 0;

	pr_info("KTAP version 1\n");
	pr_info("1..%u\n", count);
	for (i = 0; i < count; i++) {
		const int ret = tests[i].run(context);

		failed += ret != 0;
		pr_info("%s %u - %s\n", ret ? "not ok" : "ok", i + 1, tests[i].name);
		if (ret)
			pr_info("# failed with %d\n", ret);
	}
	pr_info("# %u passed, %u failed\n", count - failed, failed);
	return failed;
}

/* Notes a failed expectation and makes the test return. */
#define VBOARD_EXPECT(condition)							\
	do {										\
		if (!(condition)) {							\
			pr_info("# line %d: not true: %s\n", __LINE__, #condition);	\
			return -EINVAL;							\
		}									\
	} while (0)

#endif
