// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is written where, and in which order: the start and the reset of cores, and the banks of their MMUs, against registers that are made
 * up. Accesses to what is in reset fail the test, and so does paging that goes on without a directory.
 */
#include <kunit/test.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/module.h>

#define CORES		3
#define CORE_BYTES	0x10000
#define MAX_EVENTS		256
#define BLOCK_DIR	0x4000	/* the empty directory */

enum event_kind { WROTE, ASSERTED, DEASSERTED, IRQ_OFF, IRQ_ON };

struct event {
	enum event_kind kind;
	u32 at;		/* offset from the first core's window, or a core */
	u32 value;
};

struct bank {
	u32 dir;
	u32 int_mask;
	u32 gating;
	bool paging;
	bool stalled;
	bool fault;
	bool refuses_stall;
	bool keeps_dir;		/* in its own reset */
};

static u8 window[CORES * CORE_BYTES];
static const u32 bank_at[] = { 0x9000, 0xa000, 0x1a000, 0x2a000 };

static struct {
	struct kunit *test;
	struct event events[MAX_EVENTS];
	unsigned int count;
	u32 in_reset;
	struct bank banks[ARRAY_SIZE(bank_at)];
	u32 int_status;		/* of core 0 */
	u32 running;
	unsigned int kicks;
} hw;

static void note(enum event_kind kind, u32 at, u32 value)
{
	KUNIT_ASSERT_LT(hw.test, hw.count, MAX_EVENTS);
	hw.events[hw.count++] = (struct event) { .kind = kind, .at = at, .value = value };
}

static u32 offset_of(const void __iomem *address)
{
	u32 at = (const u8 __force *)address - window;

	KUNIT_ASSERT_LT(hw.test, at, CORES * CORE_BYTES);
	KUNIT_EXPECT_FALSE_MSG(hw.test, hw.in_reset & BIT(at / CORE_BYTES), "register %#x is touched in reset", at);
	return at;
}

static struct bank *bank_of(u32 at)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bank_at); i++)
		if (at - bank_at[i] < 0x100)
			return &hw.banks[i];
	return NULL;
}

static u32 mock_read(const void __iomem *address);
static void mock_write(u32 value, void __iomem *address);
static void mock_irq(unsigned int irq, bool on);

#undef readl
#undef writel
#define readl(address)		mock_read(address)
#define writel(value, address)	mock_write(value, address)
#define disable_irq(irq)	mock_irq(irq, false)
#define enable_irq(irq)		mock_irq(irq, true)

/* Trace events need the module that has them. */
#define RKNPU_TRACE_H
struct rknpu_core;

static void trace_core_reset(const struct rknpu_core *core, int result)
{
}

#include "../rknpu/rknpu_done.c"
#include "../rknpu/rknpu_pgtable.c"
#include "../rknpu/rknpu_mmu_bank.c"
#include "../rknpu/rknpu_core.c"
#include "../rknpu/rknpu_observe.h"

static u32 mock_read(const void __iomem *address)
{
	u32 at = offset_of(address);
	const struct bank *bank = bank_of(at);

	if (!bank) {
		if (at == RKNPU_PC_INT_STATUS || at == RKNPU_PC_INT_RAW)
			return hw.int_status;
		return at % CORE_BYTES == RKNPU_CNA_OFFSET + RKNPU_S_STATUS ? hw.running : 0;
	}
	switch (at & 0xff) {
	case RKNPU_MMU_DTE_ADDR:
		return bank->dir;
	case RKNPU_MMU_STATUS:
		return (bank->paging ? RKNPU_MMU_STATUS_PAGING : 0) | (bank->stalled ? RKNPU_MMU_STATUS_STALL : 0) |
		       (bank->fault ? RKNPU_MMU_STATUS_FAULT : 0);
	case RKNPU_MMU_AUTO_GATING:
		return bank->gating;
	}
	return 0;
}

static void mock_command(struct bank *bank, u32 command)
{
	switch (command) {
	case RKNPU_MMU_CMD_PAGING_ON:
		KUNIT_EXPECT_NE_MSG(hw.test, bank->dir, 0, "paging without a directory");
		bank->paging = true;
		break;
	case RKNPU_MMU_CMD_STALL_ON:
		bank->stalled = bank->paging && !bank->fault && !bank->refuses_stall;
		break;
	case RKNPU_MMU_CMD_STALL_OFF:
		bank->stalled = false;
		break;
	case RKNPU_MMU_CMD_FAULT_DONE:
		bank->fault = false;
		break;
	case RKNPU_MMU_CMD_FORCE_RESET:
		if (!bank->keeps_dir)
			*bank = (struct bank) {};
		break;
	}
}

static void mock_write(u32 value, void __iomem *address)
{
	u32 at = offset_of(address);
	struct bank *bank = bank_of(at);

	note(WROTE, at, value);
	if (!bank)
		return;
	switch (at & 0xff) {
	case RKNPU_MMU_DTE_ADDR:
		KUNIT_EXPECT_TRUE_MSG(hw.test, !bank->paging || bank->stalled || value == BLOCK_DIR, "a space goes under a bank that isn't stalled");
		bank->dir = value;
		break;
	case RKNPU_MMU_COMMAND:
		mock_command(bank, value);
		break;
	case RKNPU_MMU_INT_MASK:
		bank->int_mask = value;
		break;
	case RKNPU_MMU_AUTO_GATING:
		bank->gating = value;
		break;
	}
}

static void mock_irq(unsigned int irq, bool on)
{
	note(on ? IRQ_ON : IRQ_OFF, irq, 0);
}

/* What core.c calls beyond itself. */
int rknpu_node_reset(struct rknpu_node *node, unsigned int index, bool assert)
{
	u32 wiped = BIT(index);
	unsigned int i;

	note(assert ? ASSERTED : DEASSERTED, index, 0);
	hw.in_reset = assert ? hw.in_reset | wiped : hw.in_reset & ~wiped;
	/* A core's reset wipes its banks. */
	for (i = 0; i < ARRAY_SIZE(bank_at); i++)
		if (bank_at[i] / CORE_BYTES == index)
			hw.banks[i] = (struct bank) { .refuses_stall = hw.banks[i].refuses_stall };
	return 0;
}

bool rknpu_check_wants(unsigned int what)
{
	return false;
}

void rknpu_observe(struct rknpu_core *core, enum rknpu_moment moment)
{
}

void rknpu_sched_kick(struct rknpu_device *rdev)
{
	hw.kicks++;
}

int rknpu_mmu_wait_idle(struct rknpu_core *core)
{
	return 0;
}

int rknpu_mmu_after_reset(struct rknpu_mmu_unit *unit)
{
	return bank_after_reset(unit);
}

/* --- the fixture ---------------------------------------------------------------------------------------------------------------- */

static const struct rknpu_soc test_soc = { .name = "mock", .cores = CORES, .task_bits = 12, .task_status = RKNPU_PC_TASK_STATUS };

static int regs_test_init(struct kunit *test)
{
	struct rknpu_device *rdev = kunit_kzalloc(test, sizeof(*rdev), GFP_KERNEL);
	struct rknpu_node *node = kunit_kzalloc(test, sizeof(*node), GFP_KERNEL);
	unsigned int i, k, bank = 0;

	KUNIT_ASSERT_NOT_NULL(test, rdev);
	KUNIT_ASSERT_NOT_NULL(test, node);
	memset(&hw, 0, sizeof(hw));
	hw.test = test;
	rdev->soc = &test_soc;
	rdev->mmu = &rknpu_mmu_bank_ops;
	spin_lock_init(&rdev->lock);
	rdev->nr_cores = CORES;
	rdev->nr_units = CORES;
	for (i = 0; i < CORES; i++) {
		struct rknpu_core *core = &rdev->cores[i];
		struct rknpu_mmu_unit *unit = &rdev->units[i];

		core->rdev = rdev;
		core->index = i;
		core->number = i;
		core->node = node;
		core->node_index = i;
		core->pc = (void __iomem __force *)window + i * CORE_BYTES;
		core->cna = core->pc + RKNPU_CNA_OFFSET;
		core->regs_core = core->pc + RKNPU_CORE_OFFSET;
		core->dpu = core->pc + RKNPU_DPU_OFFSET;
		core->irq = i;
		core->can_reset = true;
		core->irq_on = true;
		core->unit = unit;
		spin_lock_init(&core->irq_lock);
		unit->rdev = rdev;
		unit->index = i;
		unit->cores = BIT(i);
		unit->powered = true;
		unit->block_dma = BLOCK_DIR;
		unit->nr_banks = i ? 1 : 2;
		for (k = 0; k < unit->nr_banks; k++)
			unit->banks[k] = (void __iomem __force *)window + bank_at[bank++];
		mutex_init(&unit->lock);
	}
	test->priv = rdev;
	return 0;
}

/* Where the event is, or MAX_EVENTS. */
static unsigned int find(enum event_kind kind, u32 at, u32 value, unsigned int from)
{
	unsigned int i;

	for (i = from; i < hw.count; i++)
		if (hw.events[i].kind == kind && hw.events[i].at == at && hw.events[i].value == value)
			return i;
	return MAX_EVENTS;
}

/* --- cores ---------------------------------------------------------------------------------------------------------------------- */

static const struct rknpu_chunk chunk = { .regcmd = 0x12340, .amount = 52, .int_mask = 0x300, .int_clear = 0x1ffff, .tasks = 5 };

static void a_start_ends_with_the_enable(struct kunit *test)
{
	struct rknpu_device *rdev = test->priv;
	unsigned int last;

	rknpu_core_start(&rdev->cores[1], &chunk, true, 0);
	last = hw.count - 1;
	KUNIT_EXPECT_EQ(test, hw.events[last].at, CORE_BYTES + RKNPU_PC_OP_EN);
	KUNIT_EXPECT_EQ(test, hw.events[last].value, 0);
	KUNIT_EXPECT_EQ(test, find(WROTE, CORE_BYTES + RKNPU_PC_OP_EN, 1, 0), last - 1);
	KUNIT_EXPECT_EQ(test, find(WROTE, CORE_BYTES + RKNPU_PC_TASK_CONTROL, 0x7005, 0), last - 3);
	/* By the core's own number, without which cores 1 and 2 don't start. */
	KUNIT_EXPECT_LT(test, find(WROTE, CORE_BYTES + RKNPU_CNA_OFFSET + RKNPU_S_POINTER, 0x1000000e, 0), last);
	KUNIT_EXPECT_LT(test, find(WROTE, CORE_BYTES + RKNPU_CORE_OFFSET + RKNPU_S_POINTER, 0x1000000e, 0), last);
	/* What was there before is forgotten before it can be taken for this one's. */
	KUNIT_EXPECT_EQ(test, find(WROTE, CORE_BYTES + RKNPU_PC_INT_CLEAR, RKNPU_INT_ALL, 0), 0);
	KUNIT_EXPECT_LT(test, find(WROTE, CORE_BYTES + RKNPU_PC_DATA_ADDR, chunk.regcmd, 0),
			find(WROTE, CORE_BYTES + RKNPU_PC_INT_MASK, chunk.int_mask, 0));
}

static void an_end_masks_and_kicks_once(struct kunit *test)
{
	struct rknpu_device *rdev = test->priv;
	struct rknpu_core *core = &rdev->cores[0];

	hw.running = 1;
	rknpu_core_start(core, &chunk, true, 0);
	/* Nothing, then something that isn't the end, then the end. */
	KUNIT_EXPECT_EQ(test, rknpu_core_irq(0, core), IRQ_NONE);
	hw.int_status = 0x200;
	KUNIT_EXPECT_EQ(test, rknpu_core_irq(0, core), IRQ_HANDLED);
	KUNIT_EXPECT_FALSE(test, core->complete);
	hw.running = 0;
	KUNIT_EXPECT_EQ(test, rknpu_core_irq(0, core), IRQ_HANDLED);
	KUNIT_EXPECT_TRUE(test, core->complete);
	KUNIT_EXPECT_EQ(test, hw.events[hw.count - 1].at, RKNPU_PC_INT_MASK);
	KUNIT_EXPECT_EQ(test, hw.events[hw.count - 1].value, 0);
	KUNIT_EXPECT_EQ(test, hw.kicks, 2);
	/* Without power the line may still speak, for a neighbour. */
	core->irq_on = false;
	hw.in_reset = BIT(0);
	KUNIT_EXPECT_EQ(test, rknpu_core_irq(0, core), IRQ_NONE);
	hw.in_reset = 0;
}

static void a_reset_is_masked_and_touched_by_nobody(struct kunit *test)
{
	struct rknpu_device *rdev = test->priv;
	unsigned int masked, off, assert, deassert, on;

	KUNIT_ASSERT_EQ(test, rknpu_core_halt(&rdev->cores[2]), 0);
	masked = find(WROTE, 2 * CORE_BYTES + RKNPU_PC_INT_MASK, 0, 0);
	off = find(IRQ_OFF, 2, 0, 0);
	assert = find(ASSERTED, 2, 0, 0);
	deassert = find(DEASSERTED, 2, 0, 0);
	on = find(IRQ_ON, 2, 0, 0);
	KUNIT_EXPECT_LT(test, masked, off);
	KUNIT_EXPECT_LT(test, off, assert);
	KUNIT_EXPECT_EQ(test, assert + 1, deassert);
	KUNIT_EXPECT_LT(test, deassert, find(WROTE, 2 * CORE_BYTES + RKNPU_PC_INT_MASK, 0, deassert));
	KUNIT_EXPECT_LT(test, find(WROTE, 2 * CORE_BYTES + RKNPU_PC_INT_CLEAR, RKNPU_INT_ALL, deassert), on);
	KUNIT_EXPECT_EQ(test, on, hw.count - 1);
	/* Nobody else's. */
	KUNIT_EXPECT_EQ(test, find(ASSERTED, 0, 0, 0), MAX_EVENTS);
	KUNIT_EXPECT_EQ(test, find(ASSERTED, 1, 0, 0), MAX_EVENTS);
}

static void the_last_resort_has_all_in_reset_at_once(struct kunit *test)
{
	struct rknpu_device *rdev = test->priv;
	unsigned int i, first_out = MAX_EVENTS;

	KUNIT_ASSERT_EQ(test, rknpu_cores_reset_together(rdev), 0);
	for (i = 0; i < CORES; i++)
		first_out = min(first_out, find(DEASSERTED, i, 0, 0));
	for (i = 0; i < CORES; i++) {
		KUNIT_EXPECT_LT(test, find(IRQ_OFF, i, 0, 0), find(ASSERTED, 0, 0, 0));
		KUNIT_EXPECT_LT(test, find(ASSERTED, i, 0, 0), first_out);
		KUNIT_EXPECT_LT(test, find(DEASSERTED, i, 0, 0), find(IRQ_ON, 0, 0, 0));
	}
}

/* --- banks ---------------------------------------------------------------------------------------------------------------------- */

static void all_banks_page_before_a_core_may_run(struct kunit *test)
{
	struct rknpu_device *rdev = test->priv;
	struct rknpu_space *space = kunit_kzalloc(test, sizeof(*space), GFP_KERNEL);
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, space);
	space->pgt.dir.dma = 0x5000;
	for (i = 0; i < CORES; i++)
		KUNIT_ASSERT_EQ(test, bank_attach(&rdev->units[i], space), 0);
	for (i = 0; i < ARRAY_SIZE(bank_at); i++) {
		KUNIT_EXPECT_TRUE(test, hw.banks[i].paging);
		KUNIT_EXPECT_EQ(test, hw.banks[i].dir, 0x5000);
		KUNIT_EXPECT_EQ(test, hw.banks[i].int_mask, RKNPU_MMU_INT_BOTH);
		KUNIT_EXPECT_TRUE(test, hw.banks[i].gating & RKNPU_MMU_NO_DTE_TIME_LIMIT);
		KUNIT_EXPECT_LT(test, find(WROTE, bank_at[i] + RKNPU_MMU_AUTO_GATING, RKNPU_MMU_NO_DTE_TIME_LIMIT, 0),
				find(WROTE, bank_at[i] + RKNPU_MMU_COMMAND, RKNPU_MMU_CMD_PAGING_ON, 0));
	}
}

static void a_switch_is_stall_directory_zap_unstall(struct kunit *test)
{
	static const struct {
		u32 reg, value;
	} steps[] = {
		{ RKNPU_MMU_COMMAND, RKNPU_MMU_CMD_STALL_ON }, { RKNPU_MMU_DTE_ADDR, 0x6000 },
		{ RKNPU_MMU_COMMAND, RKNPU_MMU_CMD_ZAP }, { RKNPU_MMU_COMMAND, RKNPU_MMU_CMD_STALL_OFF },
	};
	struct rknpu_device *rdev = test->priv;
	struct rknpu_space *space = kunit_kzalloc(test, sizeof(*space), GFP_KERNEL);
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, space);
	KUNIT_ASSERT_EQ(test, bank_attach(&rdev->units[1], NULL), 0);
	KUNIT_EXPECT_EQ(test, hw.banks[2].dir, BLOCK_DIR);
	hw.count = 0;
	space->pgt.dir.dma = 0x6000;
	KUNIT_ASSERT_EQ(test, bank_attach(&rdev->units[1], space), 0);
	KUNIT_ASSERT_EQ(test, hw.count, ARRAY_SIZE(steps));
	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		KUNIT_EXPECT_EQ(test, hw.events[i].at, bank_at[2] + steps[i].reg);
		KUNIT_EXPECT_EQ(test, hw.events[i].value, steps[i].value);
	}
	/* One that won't stall keeps what it has, and goes on. */
	hw.banks[2].refuses_stall = true;
	space->pgt.dir.dma = 0x7000;
	KUNIT_EXPECT_NE(test, bank_attach(&rdev->units[1], space), 0);
	KUNIT_EXPECT_EQ(test, hw.banks[2].dir, 0x6000);
	KUNIT_EXPECT_FALSE(test, hw.banks[2].stalled);
}

static void after_a_reset_nothing_is_reached(struct kunit *test)
{
	struct rknpu_device *rdev = test->priv;
	unsigned int i;

	for (i = 0; i < 2; i++)
		hw.banks[i] = (struct bank) { .dir = 0x5000, .paging = true, .fault = true };
	KUNIT_ASSERT_EQ(test, rknpu_core_stop(&rdev->cores[0]), 0);
	/* Where the reset keeps the banks, too. */
	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_EQ(test, hw.banks[i].dir, BLOCK_DIR);
		hw.banks[i] = (struct bank) { .dir = 0x5000, .paging = true, .fault = true };
	}
	KUNIT_ASSERT_EQ(test, bank_after_reset(&rdev->units[0]), 0);
	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_EQ(test, hw.banks[i].dir, BLOCK_DIR);
		KUNIT_EXPECT_TRUE(test, hw.banks[i].paging && !hw.banks[i].fault && !hw.banks[i].stalled);
		KUNIT_EXPECT_EQ(test, hw.banks[i].int_mask, RKNPU_MMU_INT_BOTH);
	}
}

static void a_forced_reset_is_waited_for(struct kunit *test)
{
	struct rknpu_device *rdev = test->priv;

	hw.banks[0] = (struct bank) { .dir = 0x5000, .paging = true };
	hw.banks[1] = hw.banks[0];
	KUNIT_EXPECT_EQ(test, bank_force_reset(&rdev->units[0]), 0);
	KUNIT_EXPECT_EQ(test, bank_after_reset(&rdev->units[0]), 0);
	KUNIT_EXPECT_EQ(test, hw.banks[1].dir, BLOCK_DIR);
	KUNIT_EXPECT_TRUE(test, hw.banks[1].paging);
	hw.banks[1].keeps_dir = true;
	KUNIT_EXPECT_EQ(test, bank_force_reset(&rdev->units[0]), -ETIMEDOUT);
}

static struct kunit_case regs_cases[] = {
	KUNIT_CASE(a_start_ends_with_the_enable),
	KUNIT_CASE(an_end_masks_and_kicks_once),
	KUNIT_CASE(a_reset_is_masked_and_touched_by_nobody),
	KUNIT_CASE(the_last_resort_has_all_in_reset_at_once),
	KUNIT_CASE(all_banks_page_before_a_core_may_run),
	KUNIT_CASE(a_switch_is_stall_directory_zap_unstall),
	KUNIT_CASE(after_a_reset_nothing_is_reached),
	KUNIT_CASE(a_forced_reset_is_waited_for),
	{}
};

static struct kunit_suite regs_suite = {
	.name = "rknpu_regs",
	.init = regs_test_init,
	.test_cases = regs_cases,
};

kunit_test_suite(regs_suite);

MODULE_DESCRIPTION("KUnit tests of what npud_rknpu writes to cores and MMU banks");
MODULE_LICENSE("GPL");
