// SPDX-License-Identifier: GPL-2.0-only
/*
 * The NPU as nodes of the device tree, written when the function is probed: its BAR's address is not known before. The bus node's children are
 *   control      what on the SoC is GIC, CRU, PMU and PMIC (npud,vboard-control)
 *   opp-table    rates of the NPU's clock and their voltages
 *   iommu@…      rockchip-iommu: one a core, or one for all
 *   npu@…        rockchip,rk3588-rknn-core, one a core; or rockchip,rk3588-rknpu
 */
#include <linux/irq.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/of_platform.h>

#include "vboard.h"
#include "vboard_fdt.h"
#include "vboard_soc.h"

#define BUS_NAME	"npud-vboard"
#define IOMMU_COMPATIBLE "rockchip,rk3588-iommu"
#define BLOB_BYTES	16384

/* Handles within the overlay; the kernel moves them out of the way of the tree's own, with what __local_fixups__ names. */
#define PHANDLE_CONTROL	1
#define PHANDLE_IOMMU(n) (2 + (n))
#define PHANDLE_OPPS	5
#define PHANDLE_NPU	6
#define PHANDLE_MEM	7

#define MAINLINE_CLOCKS	4	/* of a core's node */
#define VENDOR_CLOCKS	8

static const u32 bank_offset[VBOARD_BANKS] = { VBOARD_BANK0, VBOARD_BANK1, VBOARD_BANK2, VBOARD_BANK3 };
static const unsigned int core_bank[VBOARD_CORES] = { 0, 2, 3 };	/* the first of each core */
static const unsigned int core_banks[VBOARD_CORES] = { 2, 1, 1 };

/* aclk and hclk of each core */
static const u32 all_bus_clocks[] = {
	VBOARD_CLK_ACLK(0), VBOARD_CLK_ACLK(1), VBOARD_CLK_ACLK(2), VBOARD_CLK_HCLK(0), VBOARD_CLK_HCLK(1), VBOARD_CLK_HCLK(2),
};

struct writer {
	struct vboard_fdt fdt;
	u64 base;
	u32 cores;		/* whose nodes are enabled */
};

static bool is_mainline(enum vboard_binding binding)
{
	return binding == VBOARD_MAINLINE || binding == VBOARD_MAINLINE_BANK;
}

static bool has_iommu(enum vboard_binding binding)
{
	return binding == VBOARD_MAINLINE || binding == VBOARD_VENDOR;
}

static void put_reg(struct writer *w, const u32 *offsets, const u32 *sizes, unsigned int count)
{
	u32 cells[4 * (VBOARD_CORES + VBOARD_BANKS)];
	unsigned int i;

	for (i = 0; i < count; i++) {
		u64 at = w->base + offsets[i];

		cells[4 * i] = upper_32_bits(at);
		cells[4 * i + 1] = lower_32_bits(at);
		cells[4 * i + 2] = 0;
		cells[4 * i + 3] = sizes[i];
	}
	vboard_fdt_cells(&w->fdt, "reg", cells, 4 * count);
}

/* A core's line is its MMU's, too. */
static void put_interrupts(struct writer *w, unsigned int first, unsigned int count)
{
	u32 cells[2 * VBOARD_CORES];
	unsigned int i;

	for (i = 0; i < count; i++) {
		cells[2 * i] = first + i;
		cells[2 * i + 1] = IRQ_TYPE_LEVEL_HIGH;
	}
	vboard_fdt_cells(&w->fdt, "interrupts", cells, 2 * count);
}

/* @ids: of the control node's clocks */
static void put_clocks(struct writer *w, const u32 *ids, unsigned int count)
{
	u32 cells[2 * VBOARD_CLK_COUNT];
	unsigned int i;

	for (i = 0; i < count; i++) {
		cells[2 * i] = PHANDLE_CONTROL;
		cells[2 * i + 1] = ids[i];
	}
	vboard_fdt_cells(&w->fdt, "clocks", cells, 2 * count);
}

/* The rate that the tree wants: the one that firmware left, for any other can't be set before there is power. */
static void put_assigned_rate(struct writer *w)
{
	const u32 clock[] = { PHANDLE_CONTROL, VBOARD_CLK_NPU };

	vboard_fdt_cells(&w->fdt, "assigned-clocks", clock, ARRAY_SIZE(clock));
	vboard_fdt_cell(&w->fdt, "assigned-clock-rates", VBOARD_BOOT_HZ);
}

static void put_node(struct writer *w, const char *name, u32 offset)
{
	char full[32];

	snprintf(full, sizeof(full), "%s@%llx", name, w->base + offset);
	vboard_fdt_begin(&w->fdt, full);
}

static void put_iommu(struct writer *w, unsigned int handle, unsigned int first, unsigned int count)
{
	static const char compatible[] = IOMMU_COMPATIBLE "\0rockchip,rk3568-iommu";
	static const char names[] = "aclk\0iface";
	static const char all_names[] = "aclk0\0aclk1\0aclk2\0iface0\0iface1\0iface2";
	static const u32 sizes[VBOARD_BANKS] = {
		VBOARD_BANK_SIZE, VBOARD_BANK_SIZE, VBOARD_BANK_SIZE, VBOARD_BANK_SIZE,
	};
	const bool all = count == VBOARD_BANKS;
	const u32 domain[] = { PHANDLE_CONTROL, all ? VBOARD_PD_ALL : handle };

	put_node(w, "iommu", bank_offset[first]);
	vboard_fdt_prop(&w->fdt, "compatible", compatible, sizeof(compatible));
	put_reg(w, &bank_offset[first], sizes, count);
	put_interrupts(w, all ? 0 : handle, all ? VBOARD_CORES : 1);
	if (all) {
		put_clocks(w, all_bus_clocks, ARRAY_SIZE(all_bus_clocks));
		vboard_fdt_prop(&w->fdt, "clock-names", all_names, sizeof(all_names));
	} else {
		put_clocks(w, (const u32[]) { VBOARD_CLK_ACLK(handle), VBOARD_CLK_HCLK(handle) }, 2);
		vboard_fdt_prop(&w->fdt, "clock-names", names, sizeof(names));
	}
	/* Its core's, or what keeps all cores on. */
	vboard_fdt_cells(&w->fdt, "power-domains", domain, ARRAY_SIZE(domain));
	vboard_fdt_cell(&w->fdt, "#iommu-cells", 0);
	vboard_fdt_cell(&w->fdt, "phandle", PHANDLE_IOMMU(handle));
	vboard_fdt_end(&w->fdt);
}

static void put_mainline_core(struct writer *w, unsigned int core, bool banks)
{
	static const char names[] = "pc\0cna\0core";
	static const char bank_names[][24] = { "pc\0cna\0core\0mmu0", "pc\0cna\0core\0mmu0\0mmu1" };
	static const char reset_names[] = "srst_a\0srst_h";
	u32 base = core * VBOARD_CORE_STRIDE;
	unsigned int first = core_bank[core], last = first + core_banks[core] - 1;
	const u32 offsets[] = { base, base + 0x1000, base + 0x3000, bank_offset[first], bank_offset[last] };
	static const u32 sizes[] = { 0x1000, 0x1000, 0x1000, VBOARD_BANK_SIZE, VBOARD_BANK_SIZE };
	unsigned int nr_banks = banks ? core_banks[core] : 0;
	const u32 resets[] = { PHANDLE_CONTROL, core, PHANDLE_CONTROL, 8 + core };
	const u32 domain[] = { PHANDLE_CONTROL, core };
	const u32 clocks[MAINLINE_CLOCKS] = { VBOARD_CLK_ACLK(core), VBOARD_CLK_HCLK(core), VBOARD_CLK_NPU, VBOARD_CLK_PCLK };
	static const char clock_names[] = "aclk\0hclk\0npu\0pclk";

	put_node(w, "npu", base);
	vboard_fdt_string(&w->fdt, "compatible", "rockchip,rk3588-rknn-core");
	if (!(w->cores & BIT(core)))
		vboard_fdt_string(&w->fdt, "status", "disabled");
	put_reg(w, offsets, sizes, 3 + nr_banks);
	if (banks)
		vboard_fdt_prop(&w->fdt, "reg-names", bank_names[nr_banks - 1], sizeof(names) + nr_banks * sizeof("mmu0"));
	else
		vboard_fdt_prop(&w->fdt, "reg-names", names, sizeof(names));
	put_interrupts(w, core, 1);
	if (!banks)
		vboard_fdt_cell(&w->fdt, "iommus", PHANDLE_IOMMU(core));
	vboard_fdt_cells(&w->fdt, "resets", resets, ARRAY_SIZE(resets));
	vboard_fdt_prop(&w->fdt, "reset-names", reset_names, sizeof(reset_names));
	put_clocks(w, clocks, ARRAY_SIZE(clocks));
	vboard_fdt_prop(&w->fdt, "clock-names", clock_names, sizeof(clock_names));
	put_assigned_rate(w);
	vboard_fdt_cells(&w->fdt, "power-domains", domain, ARRAY_SIZE(domain));
	/* One rail for both, as on a ROCK 5B. */
	vboard_fdt_cell(&w->fdt, "npu-supply", PHANDLE_NPU);
	vboard_fdt_cell(&w->fdt, "sram-supply", PHANDLE_NPU);
	vboard_fdt_cell(&w->fdt, "operating-points-v2", PHANDLE_OPPS);
	vboard_fdt_end(&w->fdt);
}

static void put_vendor_npu(struct writer *w, bool banks)
{
	static const char names[] = "core0\0core1\0core2\0mmu0\0mmu1\0mmu2\0mmu3";
	static const char core_names[] = "core0\0core1\0core2";
	static const char reset_names[] = "srst_a0\0srst_a1\0srst_a2\0srst_h0\0srst_h1\0srst_h2";
	static const u32 offsets[] = {
		0, VBOARD_CORE_STRIDE, 2 * VBOARD_CORE_STRIDE, VBOARD_BANK0, VBOARD_BANK1, VBOARD_BANK2, VBOARD_BANK3,
	};
	static const u32 sizes[] = {
		VBOARD_CORE_SIZE, VBOARD_CORE_SIZE, VBOARD_CORE_SIZE, VBOARD_BANK_SIZE, VBOARD_BANK_SIZE, VBOARD_BANK_SIZE,
		VBOARD_BANK_SIZE,
	};
	static const u32 resets[] = {
		PHANDLE_CONTROL, 0, PHANDLE_CONTROL, 1, PHANDLE_CONTROL, 2, PHANDLE_CONTROL, 8, PHANDLE_CONTROL, 9,
		PHANDLE_CONTROL, 10,
	};
	static const u32 domains[] = { PHANDLE_CONTROL, 0, PHANDLE_CONTROL, 1, PHANDLE_CONTROL, 2 };
	static const char domain_names[] = "npu0\0npu1\0npu2";
	static const u32 clocks[VENDOR_CLOCKS] = {
		VBOARD_CLK_NPU, VBOARD_CLK_ACLK(0), VBOARD_CLK_ACLK(1), VBOARD_CLK_ACLK(2),
		VBOARD_CLK_HCLK(0), VBOARD_CLK_HCLK(1), VBOARD_CLK_HCLK(2), VBOARD_CLK_PCLK,
	};
	static const char clock_names[] = "clk_npu\0aclk0\0aclk1\0aclk2\0hclk0\0hclk1\0hclk2\0pclk";

	put_node(w, "npu", 0);
	vboard_fdt_string(&w->fdt, "compatible", "rockchip,rk3588-rknpu");
	put_reg(w, offsets, sizes, banks ? VBOARD_CORES + VBOARD_BANKS : VBOARD_CORES);
	vboard_fdt_prop(&w->fdt, "reg-names", banks ? names : core_names, banks ? sizeof(names) : sizeof(core_names));
	put_interrupts(w, 0, VBOARD_CORES);
	if (!banks)
		vboard_fdt_cell(&w->fdt, "iommus", PHANDLE_IOMMU(0));
	vboard_fdt_cells(&w->fdt, "resets", resets, ARRAY_SIZE(resets));
	vboard_fdt_prop(&w->fdt, "reset-names", reset_names, sizeof(reset_names));
	put_clocks(w, clocks, ARRAY_SIZE(clocks));
	vboard_fdt_prop(&w->fdt, "clock-names", clock_names, sizeof(clock_names));
	put_assigned_rate(w);
	vboard_fdt_cells(&w->fdt, "power-domains", domains, ARRAY_SIZE(domains));
	vboard_fdt_prop(&w->fdt, "power-domain-names", domain_names, sizeof(domain_names));
	vboard_fdt_cell(&w->fdt, "rknpu-supply", PHANDLE_NPU);
	vboard_fdt_cell(&w->fdt, "mem-supply", PHANDLE_MEM);
	vboard_fdt_cell(&w->fdt, "operating-points-v2", PHANDLE_OPPS);
	vboard_fdt_end(&w->fdt);
}

static void put_supply(struct writer *w, const char *name, u32 handle)
{
	vboard_fdt_begin(&w->fdt, name);
	vboard_fdt_cell(&w->fdt, "phandle", handle);
	vboard_fdt_end(&w->fdt);
}

static void put_opp(struct writer *w, unsigned long rate, u32 uv, unsigned int supplies, u32 bins)
{
	const u32 hz[] = { upper_32_bits((u64)rate), lower_32_bits(rate) }, uvs[] = { uv, uv }, hw[] = { bins, 0xffff };
	char name[32];

	snprintf(name, sizeof(name), "opp-%lu", rate);
	vboard_fdt_begin(&w->fdt, name);
	vboard_fdt_cells(&w->fdt, "opp-hz", hz, ARRAY_SIZE(hz));
	vboard_fdt_cells(&w->fdt, "opp-microvolt", uvs, supplies);
	vboard_fdt_cells(&w->fdt, "opp-supported-hw", hw, ARRAY_SIZE(hw));
	vboard_fdt_end(&w->fdt);
}

/*
 * @supplies: how many voltages each has. The memories need as much as the cores. Masks of bins and grades as in the vendor's tables; the last is
 * for other parts.
 */
static void put_opps(struct writer *w, unsigned int supplies)
{
	static const struct vboard_opp opps[] = VBOARD_OPPS;
	unsigned int i;

	vboard_fdt_begin(&w->fdt, "opp-table");
	vboard_fdt_string(&w->fdt, "compatible", "operating-points-v2");
	vboard_fdt_cell(&w->fdt, "phandle", PHANDLE_OPPS);
	for (i = 0; i < ARRAY_SIZE(opps); i++)
		put_opp(w, opps[i].hz, opps[i].uv, supplies, 0xf9);
	put_opp(w, VBOARD_OPP_OF_OTHERS, opps[i - 1].uv, supplies, 0x06);
	vboard_fdt_end(&w->fdt);
}

static void put_control(struct writer *w)
{
	vboard_fdt_begin(&w->fdt, "control");
	vboard_fdt_string(&w->fdt, "compatible", "npud,vboard-control");
	vboard_fdt_prop(&w->fdt, "interrupt-controller", "", 0);
	vboard_fdt_cell(&w->fdt, "#interrupt-cells", 2);
	vboard_fdt_cell(&w->fdt, "#reset-cells", 1);
	vboard_fdt_cell(&w->fdt, "#clock-cells", 1);
	vboard_fdt_cell(&w->fdt, "#power-domain-cells", 1);
	vboard_fdt_cell(&w->fdt, "phandle", PHANDLE_CONTROL);
	put_supply(w, VBOARD_SUPPLY_NPU, PHANDLE_NPU);
	put_supply(w, VBOARD_SUPPLY_MEM, PHANDLE_MEM);
	vboard_fdt_end(&w->fdt);
}

static void put_bus(struct writer *w, enum vboard_binding binding)
{
	unsigned int i;

	vboard_fdt_begin(&w->fdt, BUS_NAME);
	vboard_fdt_string(&w->fdt, "compatible", "simple-bus");
	vboard_fdt_cell(&w->fdt, "#address-cells", 2);
	vboard_fdt_cell(&w->fdt, "#size-cells", 2);
	vboard_fdt_prop(&w->fdt, "ranges", "", 0);
	vboard_fdt_cell(&w->fdt, "interrupt-parent", PHANDLE_CONTROL);
	put_control(w);
	put_opps(w, is_mainline(binding) ? 1 : 2);
	switch (binding) {
	case VBOARD_MAINLINE:
		for (i = 0; i < VBOARD_CORES; i++)
			put_iommu(w, i, core_bank[i], core_banks[i]);
		for (i = 0; i < VBOARD_CORES; i++)
			put_mainline_core(w, i, false);
		break;
	case VBOARD_MAINLINE_BANK:
		for (i = 0; i < VBOARD_CORES; i++)
			put_mainline_core(w, i, true);
		break;
	case VBOARD_VENDOR:
		put_iommu(w, 0, 0, VBOARD_BANKS);
		put_vendor_npu(w, false);
		break;
	case VBOARD_BANK_NODE:
		put_vendor_npu(w, true);
		break;
	}
	vboard_fdt_end(&w->fdt);
}

/* Offsets, in bytes, of the handles in a property of pairs of a handle and a cell. */
static void put_pairs(struct writer *w, const char *name, unsigned int count)
{
	u32 cells[VBOARD_CLK_COUNT];
	unsigned int i;

	for (i = 0; i < count; i++)
		cells[i] = 8 * i;
	vboard_fdt_cells(&w->fdt, name, cells, count);
}

static void put_npu_fixups(struct writer *w, u32 offset, enum vboard_binding binding)
{
	bool mainline = is_mainline(binding);
	unsigned int cores = mainline ? 1 : VBOARD_CORES;

	put_node(w, "npu", offset);
	if (has_iommu(binding))
		vboard_fdt_cell(&w->fdt, "iommus", 0);
	put_pairs(w, "resets", 2 * cores);
	put_pairs(w, "power-domains", cores);
	put_pairs(w, "clocks", mainline ? MAINLINE_CLOCKS : VENDOR_CLOCKS);
	put_pairs(w, "assigned-clocks", 1);
	vboard_fdt_cell(&w->fdt, mainline ? "npu-supply" : "rknpu-supply", 0);
	vboard_fdt_cell(&w->fdt, mainline ? "sram-supply" : "mem-supply", 0);
	vboard_fdt_cell(&w->fdt, "operating-points-v2", 0);
	vboard_fdt_end(&w->fdt);
}

static void put_iommu_fixups(struct writer *w, u32 offset, unsigned int clocks)
{
	put_node(w, "iommu", offset);
	put_pairs(w, "clocks", clocks);
	put_pairs(w, "power-domains", 1);
	vboard_fdt_end(&w->fdt);
}

static const void *write_overlay(struct writer *w, enum vboard_binding binding, u32 *size)
{
	unsigned int i;

	vboard_fdt_begin(&w->fdt, "");
	vboard_fdt_begin(&w->fdt, "fragment@0");
	vboard_fdt_string(&w->fdt, "target-path", "/");
	vboard_fdt_begin(&w->fdt, "__overlay__");
	put_bus(w, binding);
	vboard_fdt_end(&w->fdt);
	vboard_fdt_end(&w->fdt);

	vboard_fdt_begin(&w->fdt, "__local_fixups__");
	vboard_fdt_begin(&w->fdt, "fragment@0");
	vboard_fdt_begin(&w->fdt, "__overlay__");
	vboard_fdt_begin(&w->fdt, BUS_NAME);
	vboard_fdt_cell(&w->fdt, "interrupt-parent", 0);
	for (i = 0; i < (is_mainline(binding) ? VBOARD_CORES : 1); i++) {
		put_npu_fixups(w, i * VBOARD_CORE_STRIDE, binding);
		if (has_iommu(binding))
			put_iommu_fixups(w, bank_offset[core_bank[i]], is_mainline(binding) ? 2 : ARRAY_SIZE(all_bus_clocks));
	}
	vboard_fdt_end(&w->fdt);
	vboard_fdt_end(&w->fdt);
	vboard_fdt_end(&w->fdt);
	vboard_fdt_end(&w->fdt);
	vboard_fdt_end(&w->fdt);
	return vboard_fdt_finish(&w->fdt, size);
}

/* ------------------------------------------------------------------------------------------------------------------------------ */

int vboard_overlay_create(struct vboard *board, enum vboard_binding binding, u32 cores)
{
	struct device *dev = &board->pdev->dev;
	struct device_node *control;
	struct vboard_soc *soc;
	const void *blob;
	struct writer *w;
	u32 size;
	int ret;

	if (!of_have_populated_dt()) {
		dev_err(dev, "this machine has no device tree: use binding=bank\n");
		return -ENODEV;
	}
	w = kzalloc(sizeof(*w), GFP_KERNEL);
	if (!w)
		return -ENOMEM;
	w->cores = cores;
	w->base = pci_resource_start(board->pdev, VBOARD_BAR_REGS);
	ret = vboard_fdt_init(&w->fdt, BLOB_BYTES);
	if (ret)
		goto out_free;
	blob = write_overlay(w, binding, &size);
	ret = blob ? of_overlay_fdt_apply(blob, size, &board->overlay, NULL) : -ENOSPC;
	if (ret) {
		dev_err(dev, "the overlay can't be applied: %d\n", ret);
		goto out_overlay;
	}
	board->node = of_find_node_by_path("/" BUS_NAME);
	control = of_get_child_by_name(board->node, "control");
	if (!control) {
		ret = -ENODEV;
		goto out_overlay;
	}
	/* First what the NPU's probe asks for. */
	ret = vboard_irq_create(board, of_fwnode_handle(control));
	soc = ret ? ERR_PTR(ret) : vboard_soc_create(board, control, is_mainline(binding));
	of_node_put(control);
	ret = PTR_ERR_OR_ZERO(soc);
	if (ret) {
		dev_err(dev, "no interrupts, clocks, supplies and power domains for the NPU: %d\n", ret);
		goto out_overlay;
	}
	board->soc = soc;
	ret = of_platform_default_populate(board->node, NULL, dev);
out_overlay:
	if (ret)
		vboard_overlay_destroy(board);
	vboard_fdt_fini(&w->fdt);
out_free:
	kfree(w);
	return ret;
}

/* The NPUs before the IOMMUs that they are linked to. */
static int destroy_user(struct device *dev, void *unused)
{
	return of_device_is_compatible(dev->of_node, IOMMU_COMPATIBLE) ? 0 : of_platform_device_destroy(dev, NULL);
}

void vboard_overlay_destroy(struct vboard *board)
{
	if (board->node) {
		device_for_each_child(&board->pdev->dev, NULL, destroy_user);
		device_for_each_child(&board->pdev->dev, NULL, of_platform_device_destroy);
		of_node_clear_flag(board->node, OF_POPULATED_BUS);
		if (board->soc)
			vboard_soc_destroy(board->soc);
		board->soc = NULL;
		vboard_irq_destroy(board);
		of_node_put(board->node);
		board->node = NULL;
	}
	if (board->overlay)
		of_overlay_remove(&board->overlay);
	board->overlay = 0;
}
