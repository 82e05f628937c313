// SPDX-License-Identifier: GPL-2.0-only
/* Which clock runs the cores, by the names that device trees give. */
#include <kunit/test.h>

#include "../rknpu/rknpu_clock.c"

static int find(const char *a, const char *b, const char *c, const char *d)
{
	const struct clk_bulk_data clks[] = { { .id = a }, { .id = b }, { .id = c }, { .id = d } };

	return rknpu_clock_find(clks, ARRAY_SIZE(clks));
}

static void rk3588_mainline(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, find("aclk", "hclk", "npu", "pclk"), 2);
}

static void rk3588_vendor(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, find("clk_npu", "aclk0", "hclk0", "pclk"), 0);
}

static void rk3568_vendor(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, find("scmi_clk", "clk", "aclk", "hclk"), 0);
	KUNIT_EXPECT_EQ(test, find("clk", "scmi_clk", "aclk", "hclk"), 1);
}

static void rk3568_without_firmware(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, find("aclk", "clk", "hclk", NULL), 1);
}

static void none(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, find("aclk", "hclk", NULL, "npu_pclk"), -ENOENT);
	KUNIT_EXPECT_EQ(test, rknpu_clock_find(NULL, 0), -ENOENT);
}

static struct kunit_case clock_cases[] = {
	KUNIT_CASE(rk3588_mainline),
	KUNIT_CASE(rk3588_vendor),
	KUNIT_CASE(rk3568_vendor),
	KUNIT_CASE(rk3568_without_firmware),
	KUNIT_CASE(none),
	{}
};

static struct kunit_suite clock_suite = { .name = "rknpu_clock", .test_cases = clock_cases };
kunit_test_suite(clock_suite);

MODULE_DESCRIPTION("Test of which clock runs the cores of a Rockchip NPU");
MODULE_LICENSE("GPL");
