// SPDX-License-Identifier: GPL-2.0-only
/*
 * Platform devices that npud_rknpu can't be bound to, each for a reason that it finds later than the one before. Their registers are a part
 * of the virtual board's window where nothing is.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/platform_device.h>

#include "../include/rknpu/rknpu_platform.h"
#include "../include/vboard/vboard_regs.h"

#define BAD_NOTHING	0x30000
#define BAD_WINDOW	0x100

struct bad_node {
	unsigned int windows;	/* three for the cores, then four for the banks */
	unsigned int irqs;
};

static const struct bad_node bad_nodes[] = {
	{ .windows = 0, .irqs = 0 },
	{ .windows = 2, .irqs = 3 },
	{ .windows = 7, .irqs = 2 },
	{ .windows = 6, .irqs = 3 },
};

static struct platform_device *bad_devices[ARRAY_SIZE(bad_nodes)];

static struct platform_device *bad_create(struct pci_dev *board, unsigned int index)
{
	const struct bad_node *bad = &bad_nodes[index];
	struct resource res[VBOARD_CORES + VBOARD_BANKS + VBOARD_CORES] = {};
	const struct platform_device_info info = {
		.name = RKNPU_PLATFORM_RK3588_BANK,
		.id = index,
		.res = res,
		.num_res = bad->windows + bad->irqs,
		.dma_mask = DMA_BIT_MASK(40),
	};
	unsigned int i, n = 0;

	for (i = 0; i < bad->windows; i++, n++) {
		res[n].flags = IORESOURCE_MEM;
		res[n].start = pci_resource_start(board, VBOARD_BAR_REGS) + BAD_NOTHING + (index * VBOARD_CORES * 4 + i) * BAD_WINDOW;
		res[n].end = res[n].start + BAD_WINDOW - 1;
	}
	for (i = 0; i < bad->irqs; i++, n++) {
		res[n].flags = IORESOURCE_IRQ;
		res[n].start = board->irq;
		res[n].end = board->irq;
	}
	return platform_device_register_full(&info);
}

static void bad_destroy(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad_devices); i++)
		platform_device_unregister(bad_devices[i]);
}

static int __init bad_init(void)
{
	struct pci_dev *board = pci_get_device(VBOARD_PCI_VENDOR, VBOARD_PCI_DEVICE, NULL);
	unsigned int i;
	int ret = 0;

	if (!board)
		return -ENODEV;
	for (i = 0; i < ARRAY_SIZE(bad_nodes) && !ret; i++) {
		bad_devices[i] = bad_create(board, i);
		ret = PTR_ERR_OR_ZERO(bad_devices[i]);
		if (ret)
			bad_devices[i] = NULL;
	}
	pci_dev_put(board);
	if (ret)
		bad_destroy();
	return ret;
}

static void __exit bad_exit(void)
{
	bad_destroy();
}

module_init(bad_init);
module_exit(bad_exit);

MODULE_DESCRIPTION("Devices that npud_rknpu can't be bound to, for its tests");
MODULE_LICENSE("GPL");
