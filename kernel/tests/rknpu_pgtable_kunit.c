// SPDX-License-Identifier: GPL-2.0-only
/* The MMU's tables: entries, reservation, mapping across table borders, accounting. */
#include <kunit/test.h>

#include "../rknpu/rknpu_pgtable.c"

static void entries_carry_all_forty_bits(struct kunit *test)
{
	static const u64 addresses[] = { 0, 0x1000, 0xfffff000, 0x1ffffff000, 0xff12345000, 0xf0abcde000, 0x0f00000000 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(addresses); i++) {
		u32 pte = rknpu_pte_encode((dma_addr_t)addresses[i], true);

		KUNIT_EXPECT_EQ(test, pte & 7, 7);
		KUNIT_EXPECT_EQ(test, (u64)rknpu_pte_decode(pte, true), addresses[i]);
	}
	/* mainline: 35:32 at 11:8, 39:36 at 7:4 */
	KUNIT_EXPECT_EQ(test, rknpu_pte_encode((dma_addr_t)0xab12345000ull, true), 0x12345ba7u);
	KUNIT_EXPECT_EQ(test, rknpu_pte_encode((dma_addr_t)0x12345000ull, false), 0x12345007u);
}

static int pgtable_test_init(struct kunit *test)
{
	struct rknpu_pgtable *pgt = kunit_kzalloc(test, sizeof(*pgt), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, pgt);
	KUNIT_ASSERT_EQ(test, rknpu_pgtable_init(pgt, NULL, true), 0);
	test->priv = pgt;
	return 0;
}

static void pgtable_test_exit(struct kunit *test)
{
	struct rknpu_pgtable *pgt = test->priv;

	rknpu_pgtable_fini(pgt);
	KUNIT_EXPECT_EQ(test, pgt->bytes, 0);
}

static void expect_mapped(struct kunit *test, u64 iova, u64 address)
{
	dma_addr_t found = 0;

	KUNIT_EXPECT_TRUE(test, rknpu_pgtable_lookup(test->priv, iova, &found));
	KUNIT_EXPECT_EQ(test, (u64)found, address);
}

static void expect_unmapped(struct kunit *test, u64 iova)
{
	dma_addr_t found;

	KUNIT_EXPECT_FALSE(test, rknpu_pgtable_lookup(test->priv, iova, &found));
}

static void nothing_is_mapped_at_first(struct kunit *test)
{
	expect_unmapped(test, 0);
	expect_unmapped(test, 0x80000000);
	expect_unmapped(test, 0xfffff000);
}

static void a_range_across_tables_maps_page_by_page(struct kunit *test)
{
	struct rknpu_pgtable *pgt = test->priv;
	u32 iova = 3 * RKNPU_PT_SPAN - 2 * RKNPU_PAGE_SIZE;
	u64 bytes = RKNPU_PT_SPAN + 5 * RKNPU_PAGE_SIZE, at;

	KUNIT_ASSERT_EQ(test, rknpu_pgtable_reserve(pgt, iova, bytes), 0);
	KUNIT_EXPECT_EQ(test, pgt->bytes, 4 * RKNPU_PAGE_SIZE);
	rknpu_pgtable_map(pgt, iova, 0x1234567000ull, bytes);
	for (at = 0; at < bytes; at += RKNPU_PAGE_SIZE)
		expect_mapped(test, iova + at + 0x123, 0x1234567000ull + at + 0x123);
	expect_unmapped(test, iova - RKNPU_PAGE_SIZE);
	expect_unmapped(test, iova + bytes);
}

static void unmapping_takes_exactly_the_range(struct kunit *test)
{
	struct rknpu_pgtable *pgt = test->priv;
	u32 iova = RKNPU_PT_SPAN - 4 * RKNPU_PAGE_SIZE, page = RKNPU_PAGE_SIZE;

	KUNIT_ASSERT_EQ(test, rknpu_pgtable_reserve(pgt, iova, 8 * page), 0);
	rknpu_pgtable_map(pgt, iova, 0x40000000, 8 * page);
	rknpu_pgtable_unmap(pgt, iova + 2 * page, 4 * page);
	expect_mapped(test, iova + page, 0x40000000 + page);
	expect_unmapped(test, iova + 2 * page);
	expect_unmapped(test, iova + 5 * page);
	expect_mapped(test, iova + 6 * page, 0x40000000 + 6 * page);
}

static void the_last_page_is_reachable(struct kunit *test)
{
	struct rknpu_pgtable *pgt = test->priv;

	KUNIT_ASSERT_EQ(test, rknpu_pgtable_reserve(pgt, 0xfffff000, RKNPU_PAGE_SIZE), 0);
	rknpu_pgtable_map(pgt, 0xfffff000, 0x7000, RKNPU_PAGE_SIZE);
	expect_mapped(test, 0xffffffff, 0x7fff);
	expect_unmapped(test, 0xffffe000);
}

static void reserving_twice_costs_nothing(struct kunit *test)
{
	struct rknpu_pgtable *pgt = test->priv;
	size_t bytes;

	KUNIT_ASSERT_EQ(test, rknpu_pgtable_reserve(pgt, 0x10000000, RKNPU_PT_SPAN), 0);
	bytes = pgt->bytes;
	KUNIT_ASSERT_EQ(test, rknpu_pgtable_reserve(pgt, 0x10000000, RKNPU_PT_SPAN), 0);
	KUNIT_EXPECT_EQ(test, pgt->bytes, bytes);
}

static struct kunit_case pgtable_cases[] = {
	KUNIT_CASE(entries_carry_all_forty_bits),
	KUNIT_CASE(nothing_is_mapped_at_first),
	KUNIT_CASE(a_range_across_tables_maps_page_by_page),
	KUNIT_CASE(unmapping_takes_exactly_the_range),
	KUNIT_CASE(the_last_page_is_reachable),
	KUNIT_CASE(reserving_twice_costs_nothing),
	{}
};

static struct kunit_suite pgtable_suite = {
	.name = "rknpu_pgtable",
	.init = pgtable_test_init,
	.exit = pgtable_test_exit,
	.test_cases = pgtable_cases,
};

kunit_test_suite(pgtable_suite);

MODULE_DESCRIPTION("KUnit tests of npud_rknpu's page tables");
MODULE_LICENSE("GPL");
