// SPDX-License-Identifier: GPL-2.0-only
/*
 * The virtual RK3588 without any NPU driver: GEMMs from hand-made command words on each core, the MMU banks' tables and TLBs, and
 * faults as they show at the registers. Binds the platform device that npud_vboard makes where it brings the board up without a device
 * tree (or with binding=bank); npud_rknpu must not be loaded.
 */
#define pr_fmt(fmt) fmt

#include <linux/completion.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>

#include "../include/rknpu/rknpu_platform.h"
#include "vboard_core.h"
#include "vboard_ktap.h"

#define WAIT_MS			10000
#define IOVA			0x12340000u	/* where the tests map their job: neither zero nor physical */
#define PTE_RW			7u		/* valid, readable, writable */

struct gemm_test {
	struct device *dev;
	void __iomem *control;
	struct pci_dev *function;
	struct vboard_core cores[VBOARD_CORES];
	void __iomem *banks[VBOARD_BANKS];
	int irqs[VBOARD_CORES];
	atomic_t interrupts[VBOARD_CORES];
	void *job, *other;		/* JOB_BYTES each */
	dma_addr_t job_dma, other_dma;
	u32 *directory, *table;		/* a page each */
	dma_addr_t directory_dma, table_dma;
};

struct irq_cookie {
	struct gemm_test *test;
	unsigned int core;
};

static struct irq_cookie cookies[VBOARD_CORES];

static irqreturn_t gemm_test_irq(int irq, void *data)
{
	const struct irq_cookie *cookie = data;
	struct gemm_test *t = cookie->test;
	irqreturn_t ret = IRQ_NONE;
	unsigned int bank;

	if (readl(t->cores[cookie->core].regs + PC_INT_STATUS)) {
		vboard_job_quit(&t->cores[cookie->core]);
		atomic_inc(&t->interrupts[cookie->core]);
		ret = IRQ_HANDLED;
	}
	for (bank = 0; bank < VBOARD_BANKS; bank++) {
		/* Who asserts is masked, and left for the test to look at. */
		if (readl(t->banks[bank] + MMU_INT_STATUS)) {
			writel(0, t->banks[bank] + MMU_INT_MASK);
			ret = IRQ_HANDLED;
		}
	}
	return ret;
}

static bool serves(unsigned int bank, unsigned int core)
{
	return bank < 2 ? core == 0 : core == bank - 1;
}

static void command(struct gemm_test *t, unsigned int core, u32 cmd)
{
	unsigned int bank;

	for (bank = 0; bank < VBOARD_BANKS; bank++)
		if (serves(bank, core))
			writel(cmd, t->banks[bank] + MMU_COMMAND);
}

/* Everything of a core back to how it began: reset, paging off. */
static void fresh(struct gemm_test *t, unsigned int core)
{
	unsigned int i;

	writel(1, t->control + VBOARD_FAULT_CLEAR);
	/* The handler reads the registers of every core, which nobody may while one is in reset. */
	for (i = 0; i < VBOARD_CORES; i++)
		disable_irq(t->irqs[i]);
	vboard_reset_core(t->control, core);
	for (i = 0; i < VBOARD_CORES; i++)
		enable_irq(t->irqs[i]);
	command(t, core, 1);
	vboard_job_quit(&t->cores[core]);
}

static void paging_on(struct gemm_test *t, unsigned int core)
{
	unsigned int bank;

	for (bank = 0; bank < VBOARD_BANKS; bank++) {
		if (!serves(bank, core))
			continue;
		writel(lower_32_bits(t->directory_dma), t->banks[bank] + MMU_DTE_ADDR);
		writel(4, t->banks[bank] + MMU_COMMAND);
		writel(3, t->banks[bank] + MMU_INT_MASK);
		writel(0, t->banks[bank] + MMU_COMMAND);
	}
}

/* Version 2 entry: bits [39:32] of the address folded into [11:4]. */
static u32 entry(dma_addr_t address, u32 flags)
{
	const u32 high = upper_32_bits(address);

	return lower_32_bits(address) | (high & 0xf) << 8 | (high & 0xf0) | flags;
}

static void map_job(struct gemm_test *t, dma_addr_t to)
{
	unsigned int page;

	memset(t->directory, 0, PAGE_SIZE);
	memset(t->table, 0, PAGE_SIZE);
	t->directory[IOVA >> 22] = entry(t->table_dma, 1);
	for (page = 0; page < JOB_BYTES / 4096; page++)
		t->table[(IOVA >> 12 & 0x3ff) + page] = entry(to + page * 4096, PTE_RW);
	wmb(); /* tables before the banks look */
}

/* Waits until the job's bits show or the handler has had them; returns them, or what INT_RAW shows instead. */
static u32 wait_done(struct gemm_test *t, unsigned int core, unsigned int ms)
{
	u32 raw = 0;
	unsigned int i;

	for (i = 0; i < ms; i++) {
		if (atomic_read(&t->interrupts[core]))
			return NPU_GEMM_INT_MASK;
		raw = vboard_job_wait(&t->cores[core], NPU_GEMM_INT_MASK, 1);
		if (raw & NPU_GEMM_INT_MASK)
			break;
	}
	return raw;
}

static int run_and_check(struct gemm_test *t, unsigned int core, u32 address, const void *job, const struct npu_gemm *gemm)
{
	unsigned int i;
	u32 raw;

	vboard_job_start(&t->cores[core], address);
	raw = wait_done(t, core, WAIT_MS);
	/* The register may show the end before the handler ran, which must not count for the job after this one. */
	for (i = 0; i < WAIT_MS && (raw & NPU_GEMM_INT_MASK) && !atomic_read(&t->interrupts[core]); i++)
		usleep_range(1000, 1500);
	if (!(raw & NPU_GEMM_INT_MASK)) {
		pr_info("# core %u: INT_RAW 0x%x after %u ms\n", core, raw, WAIT_MS);
		return -ETIMEDOUT;
	}
	if (npu_gemm_wrong(gemm, job + JOB_OUT)) {
		pr_info("# core %u: %u of %u results are wrong\n", core, npu_gemm_wrong(gemm, job + JOB_OUT), gemm->m * gemm->n);
		return -EBADMSG;
	}
	return 0;
}

/* --- tests --------------------------------------------------------------------------------------------------------------------------- */

static int physical_addresses(struct gemm_test *t, bool fp16)
{
	struct npu_gemm gemm;
	unsigned int core;
	int ret;

	for (core = 0; core < VBOARD_CORES; core++) {
		fresh(t, core);
		atomic_set(&t->interrupts[core], 0);
		vboard_job_fill(t->job, lower_32_bits(t->job_dma), fp16, 10 + core, &gemm);
		ret = run_and_check(t, core, lower_32_bits(t->job_dma), t->job, &gemm);
		if (ret)
			return ret;
		msleep(20);
		VBOARD_EXPECT(atomic_read(&t->interrupts[core]) == 1);
	}
	return 0;
}

static int int8_on_each_core(void *context)
{
	return physical_addresses(context, false);
}

static int fp16_on_each_core(void *context)
{
	return physical_addresses(context, true);
}

static int through_page_tables(void *context)
{
	struct gemm_test *t = context;
	struct npu_gemm gemm;
	unsigned int core;
	int ret;

	map_job(t, t->job_dma);
	for (core = 0; core < VBOARD_CORES; core++) {
		fresh(t, core);
		paging_on(t, core);
		atomic_set(&t->interrupts[core], 0);
		vboard_job_fill(t->job, IOVA, core & 1, 20 + core, &gemm);
		ret = run_and_check(t, core, IOVA, t->job, &gemm);
		fresh(t, core);
		if (ret)
			return ret;
	}
	return 0;
}

/* The tables move from one job's memory to another's: without a zap the first is computed again, with it the second. */
static int missing_zap_gives_stale_data(void *context)
{
	struct gemm_test *t = context;
	struct npu_gemm first, second;
	unsigned int core;
	int ret;

	for (core = 0; core < VBOARD_CORES; core++) {
		fresh(t, core);
		map_job(t, t->job_dma);
		paging_on(t, core);
		atomic_set(&t->interrupts[core], 0);
		vboard_job_fill(t->job, IOVA, true, 30, &first);
		vboard_job_fill(t->other, IOVA, true, 31, &second);
		ret = run_and_check(t, core, IOVA, t->job, &first);
		if (ret)
			return ret;
		map_job(t, t->other_dma);
		memset(t->job + JOB_OUT, 0xa5, JOB_BYTES - JOB_OUT);
		atomic_set(&t->interrupts[core], 0);
		ret = run_and_check(t, core, IOVA, t->job, &first);
		if (ret)
			return ret;
		VBOARD_EXPECT(npu_gemm_wrong(&second, t->other + JOB_OUT) == second.m * second.n);
		command(t, core, 2);
		command(t, core, 4);
		command(t, core, 3);
		atomic_set(&t->interrupts[core], 0);
		ret = run_and_check(t, core, IOVA, t->other, &second);
		fresh(t, core);
		if (ret)
			return ret;
	}
	return 0;
}

static int page_faults_show_address_and_direction(void *context)
{
	struct gemm_test *t = context;
	struct npu_gemm gemm;
	unsigned int core, bank;
	u32 status;

	for (core = 0; core < VBOARD_CORES; core++) {
		const unsigned int reader = core ? core + 1 : 0, writer = core + 1;

		/* Command words at an address that is not mapped. */
		fresh(t, core);
		map_job(t, t->job_dma);
		paging_on(t, core);
		vboard_job_start(&t->cores[core], IOVA + JOB_BYTES);
		msleep(50);
		status = readl(t->banks[reader] + MMU_STATUS);
		VBOARD_EXPECT(status & BIT(1));
		VBOARD_EXPECT(!(status & BIT(5)));
		VBOARD_EXPECT((readl(t->banks[reader] + MMU_FAULT_ADDR) & ~0xfffu) == IOVA + JOB_BYTES);
		VBOARD_EXPECT(readl(t->banks[reader] + MMU_INT_RAWSTAT) & BIT(0));

		/* Results at a page that may only be read. */
		fresh(t, core);
		map_job(t, t->job_dma);
		t->table[(IOVA + JOB_OUT) >> 12 & 0x3ff] &= ~4u;
		paging_on(t, core);
		vboard_job_fill(t->job, IOVA, true, 40, &gemm);
		vboard_job_start(&t->cores[core], IOVA);
		msleep(50);
		status = readl(t->banks[writer] + MMU_STATUS);
		VBOARD_EXPECT(status & BIT(1));
		VBOARD_EXPECT(status & BIT(5));
		VBOARD_EXPECT((readl(t->banks[writer] + MMU_FAULT_ADDR) & ~0xfffu) == IOVA + JOB_OUT);
		VBOARD_EXPECT(npu_gemm_wrong(&gemm, t->job + JOB_OUT) == gemm.m * gemm.n);
		for (bank = 0; bank < VBOARD_BANKS; bank++)
			writel(3, t->banks[bank] + MMU_INT_CLEAR);
		fresh(t, core);
	}
	return 0;
}

/* Arms one fault, starts a job by physical addresses and waits a while; returns INT_RAW. */
static u32 strike(struct gemm_test *t, u32 kind, unsigned int core, u32 arg, struct npu_gemm *gemm)
{
	fresh(t, core);
	atomic_set(&t->interrupts[core], 0);
	vboard_job_fill(t->job, lower_32_bits(t->job_dma), true, 50 + kind, gemm);
	vboard_arm(t->control, kind, core, arg);
	vboard_job_start(&t->cores[core], lower_32_bits(t->job_dma));
	return wait_done(t, core, 200);
}

static int works_after_reset(struct gemm_test *t, unsigned int core)
{
	struct npu_gemm gemm;

	fresh(t, core);
	atomic_set(&t->interrupts[core], 0);
	vboard_job_fill(t->job, lower_32_bits(t->job_dma), true, 49, &gemm);
	return run_and_check(t, core, lower_32_bits(t->job_dma), t->job, &gemm);
}

static int faults_show_at_the_registers(void *context)
{
	struct gemm_test *t = context;
	struct npu_gemm gemm;
	unsigned int core, i, differing = 0;
	u32 raw, fired;

	for (core = 0; core < VBOARD_CORES; core++) {
		fired = readl(t->control + VBOARD_FAULT_FIRED);

		raw = strike(t, VBOARD_FAULT_DISPATCH_DROP, core, 0, &gemm);
		VBOARD_EXPECT(!(raw & INT_ALL) && !atomic_read(&t->interrupts[core]));
		VBOARD_EXPECT(!works_after_reset(t, core));

		raw = strike(t, VBOARD_FAULT_STALL, core, 0, &gemm);
		VBOARD_EXPECT(!(raw & INT_ALL) && !atomic_read(&t->interrupts[core]));
		VBOARD_EXPECT(!works_after_reset(t, core));

		raw = strike(t, VBOARD_FAULT_IRQ_LOST, core, 0, &gemm);
		VBOARD_EXPECT(raw & NPU_GEMM_INT_MASK);
		VBOARD_EXPECT(!atomic_read(&t->interrupts[core]));
		VBOARD_EXPECT(npu_gemm_wrong(&gemm, t->job + JOB_OUT) == 0);

		strike(t, VBOARD_FAULT_IRQ_LATE, core, 2000000, &gemm);
		VBOARD_EXPECT(!atomic_read(&t->interrupts[core]));
		for (i = 0; i < 1000 && !atomic_read(&t->interrupts[core]); i++)
			msleep(10);
		VBOARD_EXPECT(atomic_read(&t->interrupts[core]) == 1);

		strike(t, VBOARD_FAULT_WRONG_BIT, core, 0, &gemm);
		differing = 0;
		for (i = 0; i < gemm.m * gemm.n; i++) {
			const u32 row = i / gemm.n, column = i % gemm.n;

			differing += hweight32(((u32 *)(t->job + JOB_OUT))[npu_gemm_out_index(&gemm, row, column)] ^
					       npu_gemm_expected(&gemm, row, column));
		}
		VBOARD_EXPECT(differing == 1);

		strike(t, VBOARD_FAULT_DEAD_UNTIL_RESET, core, 0, &gemm);
		VBOARD_EXPECT(!atomic_read(&t->interrupts[core]));
		VBOARD_EXPECT(npu_gemm_wrong(&gemm, t->job + JOB_OUT) == gemm.m * gemm.n);
		VBOARD_EXPECT(!works_after_reset(t, core));

		VBOARD_EXPECT(readl(t->control + VBOARD_FAULT_FIRED) == fired + 6);
	}
	return 0;
}

static int nothing_was_a_driver_fault(void *context)
{
	struct gemm_test *t = context;

	VBOARD_EXPECT(readl(t->control + VBOARD_DRIVER_FAULTS) == 0);
	return 0;
}

static const struct vboard_test tests[] = {
	{ "vboard-gemm-int8-on-each-core", int8_on_each_core },
	{ "vboard-gemm-fp16-on-each-core", fp16_on_each_core },
	{ "vboard-gemm-through-page-tables", through_page_tables },
	{ "vboard-gemm-missing-zap-gives-stale-data", missing_zap_gives_stale_data },
	{ "vboard-gemm-page-faults-show-address-and-direction", page_faults_show_address_and_direction },
	{ "vboard-gemm-faults-show-at-the-registers", faults_show_at_the_registers },
	{ "vboard-gemm-nothing-was-a-driver-fault", nothing_was_a_driver_fault },
};

/* --- binding ------------------------------------------------------------------------------------------------------------------------- */

static int gemm_test_probe(struct platform_device *pdev)
{
	struct device *dev = &pdev->dev;
	struct gemm_test *t;
	struct resource *res;
	unsigned int i;
	int ret;

	t = devm_kzalloc(dev, sizeof(*t), GFP_KERNEL);
	if (!t)
		return -ENOMEM;
	t->dev = dev;
	/* Physical addresses go into 32-bit registers here. */
	ret = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(32));
	if (ret)
		return ret;
	for (i = 0; i < VBOARD_CORES + VBOARD_BANKS; i++) {
		void __iomem *at;

		res = platform_get_resource(pdev, IORESOURCE_MEM, i);
		if (!res)
			return dev_err_probe(dev, -ENODEV, "no memory resource %u\n", i);
		at = devm_ioremap(dev, res->start, resource_size(res));
		if (!at)
			return -ENOMEM;
		if (i < VBOARD_CORES)
			t->cores[i] = (struct vboard_core){ .index = i, .regs = at };
		else
			t->banks[i - VBOARD_CORES] = at;
	}
	t->job = dmam_alloc_coherent(dev, JOB_BYTES, &t->job_dma, GFP_KERNEL);
	t->other = dmam_alloc_coherent(dev, JOB_BYTES, &t->other_dma, GFP_KERNEL);
	t->directory = dmam_alloc_coherent(dev, PAGE_SIZE, &t->directory_dma, GFP_KERNEL);
	t->table = dmam_alloc_coherent(dev, PAGE_SIZE, &t->table_dma, GFP_KERNEL);
	if (!t->job || !t->other || !t->directory || !t->table)
		return -ENOMEM;
	t->control = vboard_control_map(&t->function);
	if (!t->control)
		return dev_err_probe(dev, -ENODEV, "no virtual board\n");
	writel(7, t->control + VBOARD_POWER);
	writel(7, t->control + VBOARD_CLOCK);
	writel(0, t->control + VBOARD_RESET);
	for (i = 0; i < VBOARD_CORES; i++)
		fresh(t, i);
	for (i = 0; i < VBOARD_CORES; i++) {
		cookies[i] = (struct irq_cookie){ .test = t, .core = i };
		t->irqs[i] = platform_get_irq(pdev, i);
		ret = t->irqs[i] < 0 ? t->irqs[i] :
		      request_irq(t->irqs[i], gemm_test_irq, IRQF_SHARED, "vboard_gemm_test", &cookies[i]);
		if (ret)
			goto out;
	}
	ret = vboard_ktap_run(tests, ARRAY_SIZE(tests), t) ? -EINVAL : 0;
out:
	while (i--)
		free_irq(t->irqs[i], &cookies[i]);
	iounmap(t->control);
	pci_dev_put(t->function);
	return ret;
}

static const struct platform_device_id gemm_test_ids[] = {
	{ RKNPU_PLATFORM_RK3588_BANK, 0 },
	{}
};

static struct platform_driver gemm_test_driver = {
	.probe = gemm_test_probe,
	.driver = { .name = "vboard_gemm_test" },
	.id_table = gemm_test_ids,
};

static int __init gemm_test_init(void)
{
	/* A module that finds no board, or whose tests fail, does not stay loaded. */
	return platform_driver_probe(&gemm_test_driver, gemm_test_probe);
}
module_init(gemm_test_init);

static void __exit gemm_test_exit(void)
{
	platform_driver_unregister(&gemm_test_driver);
}
module_exit(gemm_test_exit);

MODULE_DESCRIPTION("Tests of the virtual RK3588 without an NPU driver");
MODULE_LICENSE("GPL");
