// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's own rockchip-iommu on the virtual RK3588: attach, map, a GEMM through the tables that it wrote, a page fault that
 * reaches its handler, a forced reset that fails, detach. Binds the nodes of a device tree that npud_vboard applied with
 * binding=mainline or binding=vendor; npud_rknpu must not be loaded.
 */
#define pr_fmt(fmt) fmt

#include <linux/clk.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/platform_device.h>
#include <linux/pm_runtime.h>
#include <linux/regulator/consumer.h>

#include "../rknpu/rknpu_compat.h"
#include "vboard_core.h"
#include "vboard_ktap.h"

#define WAIT_MS			10000
#define IOVA			0x56780000u
#define FAULT_IOVA		0x66660000u

struct iommu_test {
	struct device *dev;
	void __iomem *control;
	struct pci_dev *function;
	struct vboard_core core;
	struct iommu_group *group;
	struct iommu_domain *domain;
	struct clk_bulk_data *clocks;
	int nr_clocks;
	struct page *pages;
	atomic_t faults;
	unsigned long fault_iova;
	int fault_flags;
};

static int iommu_test_fault(struct iommu_domain *domain, struct device *dev, unsigned long iova, int flags, void *token)
{
	struct iommu_test *t = token;

	t->fault_iova = iova;
	t->fault_flags = flags;
	atomic_inc(&t->faults);
	return 0;
}

static int attaches_and_maps(void *context)
{
	struct iommu_test *t = context;
	int ret;

	t->domain = rknpu_iommu_domain_alloc(t->dev);
	if (IS_ERR(t->domain)) {
		ret = PTR_ERR(t->domain);
		t->domain = NULL;
		return ret;
	}
	iommu_set_fault_handler(t->domain, iommu_test_fault, t);
	ret = rknpu_iommu_map(t->domain, IOVA, page_to_phys(t->pages), JOB_BYTES, IOMMU_READ | IOMMU_WRITE);
	if (ret)
		return ret;
	VBOARD_EXPECT(iommu_iova_to_phys(t->domain, IOVA + 4096) == page_to_phys(t->pages) + 4096);
	return iommu_attach_group(t->domain, t->group);
}

static int gemm_through_its_tables(void *context)
{
	struct iommu_test *t = context;
	struct npu_gemm gemm;
	unsigned int i;

	for (i = 0; i < 4; i++) {
		vboard_job_fill(page_address(t->pages), IOVA, i & 1, 60 + i, &gemm);
		vboard_job_start(&t->core, IOVA);
		VBOARD_EXPECT(vboard_job_wait(&t->core, NPU_GEMM_INT_MASK, WAIT_MS) & NPU_GEMM_INT_MASK);
		vboard_job_quit(&t->core);
		VBOARD_EXPECT(npu_gemm_wrong(&gemm, page_address(t->pages) + JOB_OUT) == 0);
	}
	return 0;
}

static int page_fault_reaches_its_handler(void *context)
{
	struct iommu_test *t = context;
	unsigned int i;

	atomic_set(&t->faults, 0);
	vboard_job_start(&t->core, FAULT_IOVA);
	for (i = 0; i < 1000 && !atomic_read(&t->faults); i++)
		msleep(1);
	/* The board tries the access again whenever the handler says that it is done: stop the core, then look. */
	vboard_reset_core(t->control, t->core.index);
	VBOARD_EXPECT(atomic_read(&t->faults) >= 1);
	VBOARD_EXPECT((t->fault_iova & ~0xffful) == FAULT_IOVA);
	VBOARD_EXPECT(t->fault_flags == IOMMU_FAULT_READ);
	return 0;
}

static int unmaps_and_detaches(void *context)
{
	struct iommu_test *t = context;

	iommu_detach_group(t->domain, t->group);
	VBOARD_EXPECT(iommu_unmap(t->domain, IOVA, JOB_BYTES) == JOB_BYTES);
	VBOARD_EXPECT(iommu_iova_to_phys(t->domain, IOVA) == 0);
	return rknpu_iommu_map(t->domain, IOVA, page_to_phys(t->pages), JOB_BYTES, IOMMU_READ | IOMMU_WRITE);
}

/* "Error during raw reset. MMU_DTE_ADDR is not functioning": attaching fails as its source says, and works again afterwards. */
static int survives_a_failing_force_reset(void *context)
{
	struct iommu_test *t = context;
	unsigned int bank;
	u32 fired = readl(t->control + VBOARD_FAULT_FIRED);
	int ret;

	for (bank = 0; bank < VBOARD_BANKS; bank++)
		vboard_arm(t->control, VBOARD_FAULT_MMU_NO_READBACK, bank, 0);
	ret = iommu_attach_group(t->domain, t->group);
	writel(1, t->control + VBOARD_FAULT_CLEAR);
	VBOARD_EXPECT(readl(t->control + VBOARD_FAULT_FIRED) > fired);
	VBOARD_EXPECT(ret < 0);
	ret = iommu_attach_group(t->domain, t->group);
	if (ret)
		return ret;
	return gemm_through_its_tables(t);
}

static const struct vboard_test tests[] = {
	{ "vboard-iommu-attaches-and-maps", attaches_and_maps },
	{ "vboard-iommu-gemm-through-its-tables", gemm_through_its_tables },
	{ "vboard-iommu-page-fault-reaches-its-handler", page_fault_reaches_its_handler },
	{ "vboard-iommu-unmaps-and-detaches", unmaps_and_detaches },
	{ "vboard-iommu-survives-a-failing-force-reset", survives_a_failing_force_reset },
};

static bool tested;

/* Supplies, memories' first, then what the domains are, then clocks: as a driver of the NPU does it. Names are those of both bindings. */
static int iommu_test_power_on(struct iommu_test *t)
{
	static const char * const supplies[] = { "sram", "mem", "npu", "rknpu" };
	unsigned int i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(supplies); i++) {
		ret = devm_regulator_get_enable_optional(t->dev, supplies[i]);
		if (ret && ret != -ENODEV)
			return ret;
	}
	t->nr_clocks = devm_clk_bulk_get_all(t->dev, &t->clocks);
	if (t->nr_clocks < 0)
		return t->nr_clocks;
	pm_runtime_enable(t->dev); /* the IOMMU follows its consumer */
	ret = pm_runtime_resume_and_get(t->dev);
	if (ret)
		goto err_disable;
	/* The vendor's node has several domains, which nobody attached for us. */
	writel(7, t->control + VBOARD_POWER);
	writel(0, t->control + VBOARD_RESET);
	ret = clk_bulk_prepare_enable(t->nr_clocks, t->clocks);
	if (!ret)
		return 0;
	pm_runtime_put_sync(t->dev);
err_disable:
	pm_runtime_disable(t->dev);
	return ret;
}

static void iommu_test_power_off(struct iommu_test *t)
{
	clk_bulk_disable_unprepare(t->nr_clocks, t->clocks);
	pm_runtime_put_sync(t->dev);
	pm_runtime_disable(t->dev);
}

static int iommu_test_probe(struct platform_device *pdev)
{
	struct device *dev = &pdev->dev;
	struct iommu_test *t;
	struct resource *res;
	phys_addr_t base;
	int ret = -ENODEV;

	if (tested)
		return -ENODEV; /* one device is enough */
	t = devm_kzalloc(dev, sizeof(*t), GFP_KERNEL);
	if (!t)
		return -ENOMEM;
	t->dev = dev;
	res = platform_get_resource(pdev, IORESOURCE_MEM, 0);
	t->control = vboard_control_map(&t->function);
	if (!res || !t->control)
		return dev_err_probe(dev, -ENODEV, "no virtual board\n");
	base = pci_resource_start(t->function, VBOARD_BAR_REGS);
	/* A mainline node names three windows of its core, a vendor node the whole of three: the first address tells the core. */
	t->core.index = (res->start - base) / VBOARD_CORE_STRIDE;
	t->core.regs = devm_ioremap(dev, base + t->core.index * VBOARD_CORE_STRIDE, 0x9000);
	t->pages = alloc_pages(GFP_KERNEL | __GFP_ZERO | GFP_DMA32, get_order(JOB_BYTES));
	t->group = iommu_group_get(dev);
	if (!t->core.regs || !t->pages || !t->group) {
		pr_info("# no registers, no memory or no IOMMU group: is the node's iommus property there?\n");
		goto out;
	}
	ret = iommu_test_power_on(t);
	if (!ret) {
		tested = true;
		ret = vboard_ktap_run(tests, ARRAY_SIZE(tests), t) ? -EINVAL : 0;
		if (t->domain) {
			iommu_detach_group(t->domain, t->group);
			iommu_domain_free(t->domain);
		}
		iommu_test_power_off(t);
	}
out:
	if (t->group)
		iommu_group_put(t->group);
	if (t->pages)
		__free_pages(t->pages, get_order(JOB_BYTES));
	iounmap(t->control);
	pci_dev_put(t->function);
	return ret;
}

static const struct of_device_id iommu_test_of_match[] = {
	{ .compatible = "rockchip,rk3588-rknn-core" },
	{ .compatible = "rockchip,rk3588-rknpu" },
	{}
};

static struct platform_driver iommu_test_driver = {
	.probe = iommu_test_probe,
	.driver = { .name = "vboard_iommu_test", .of_match_table = iommu_test_of_match },
};

static int __init iommu_test_init(void)
{
	int ret = platform_driver_probe(&iommu_test_driver, iommu_test_probe);

	if (!tested && !ret)
		ret = -ENODEV;
	return ret;
}
module_init(iommu_test_init);

static void __exit iommu_test_exit(void)
{
	platform_driver_unregister(&iommu_test_driver);
}
module_exit(iommu_test_exit);

MODULE_DESCRIPTION("Tests of the kernel's rockchip-iommu on the virtual RK3588");
MODULE_LICENSE("GPL");
