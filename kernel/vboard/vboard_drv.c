// SPDX-License-Identifier: GPL-2.0-only
/*
 * Binds the PCI function that the virtual RK3588 board is and brings its NPU up as the platform devices that a real board has, so that drivers for
 * those meet it: through an overlay in the device tree where the kernel can apply one, else as a platform device with resources.
 */
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/string.h>

#include "vboard.h"

static char *binding = "";
module_param(binding, charp, 0444);
MODULE_PARM_DESC(binding,
		 "mainline, mainline-bank, vendor or bank-node (nodes of the device tree), or bank (a platform device); default: mainline where possible, else bank");

static uint cores = GENMASK(VBOARD_CORES - 1, 0);
module_param(cores, uint, 0444);
MODULE_PARM_DESC(cores, "With mainline or mainline-bank: mask of the cores whose nodes are enabled");

void vboard_change(struct vboard *board, u32 offset, u32 bits, bool set)
{
	unsigned long flags;
	u32 value;

	spin_lock_irqsave(&board->lock, flags);
	value = vboard_read(board, offset);
	vboard_write(board, offset, set ? value | bits : value & ~bits);
	spin_unlock_irqrestore(&board->lock, flags);
}

/* The NPU's DMA addresses are the function's; they are physical ones only if no IOMMU is in between. */
static bool translated(struct pci_dev *pdev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&pdev->dev);

	return domain && domain->type != IOMMU_DOMAIN_IDENTITY;
}

static int bring_up(struct vboard *board)
{
	bool overlays = IS_ENABLED(CONFIG_OF_OVERLAY) && of_have_populated_dt();

	if (!strcmp(binding, "bank"))
		return vboard_platform_create(board);
	if (!strcmp(binding, "mainline"))
		return vboard_overlay_create(board, VBOARD_MAINLINE, cores);
	if (!strcmp(binding, "mainline-bank"))
		return vboard_overlay_create(board, VBOARD_MAINLINE_BANK, cores);
	if (!strcmp(binding, "vendor"))
		return vboard_overlay_create(board, VBOARD_VENDOR, cores);
	if (!strcmp(binding, "bank-node"))
		return vboard_overlay_create(board, VBOARD_BANK_NODE, cores);
	if (*binding) {
		dev_err(&board->pdev->dev, "binding=%s: use mainline, mainline-bank, vendor, bank-node or bank\n", binding);
		return -EINVAL;
	}
	return overlays ? vboard_overlay_create(board, VBOARD_MAINLINE, cores) : vboard_platform_create(board);
}

static int vboard_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct vboard *board;
	int ret;

	board = devm_kzalloc(&pdev->dev, sizeof(*board), GFP_KERNEL);
	if (!board)
		return -ENOMEM;
	board->pdev = pdev;
	spin_lock_init(&board->lock);
	pci_set_drvdata(pdev, board);

	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	if (translated(pdev)) {
		dev_err(&pdev->dev, "behind an IOMMU that translates, a board of platform devices can't be: boot with iommu=pt\n");
		return -ENODEV;
	}
	board->control = pcim_iomap(pdev, VBOARD_BAR_CONTROL, 0);
	if (!board->control)
		return -ENOMEM;
	if (vboard_read(board, VBOARD_MAGIC) != VBOARD_MAGIC_VALUE ||
	    vboard_read(board, VBOARD_VERSION) != VBOARD_VERSION_VALUE) {
		dev_err(&pdev->dev, "no virtual board of version %u\n", VBOARD_VERSION_VALUE);
		return -ENODEV;
	}
	pci_set_master(pdev);
	vboard_write(board, VBOARD_RESET, 0);
	vboard_write(board, VBOARD_POWER, GENMASK(VBOARD_CORES - 1, 0));
	vboard_write(board, VBOARD_CLOCK, GENMASK(VBOARD_CORES - 1, 0));
	vboard_debugfs_init(board);
	ret = bring_up(board);
	if (ret)
		vboard_debugfs_fini(board);
	return ret;
}

static void vboard_remove(struct pci_dev *pdev)
{
	struct vboard *board = pci_get_drvdata(pdev);

	vboard_platform_destroy(board);
	vboard_overlay_destroy(board);
	vboard_debugfs_fini(board);
	pci_clear_master(pdev);
}

static const struct pci_device_id vboard_ids[] = {
	{ PCI_DEVICE(VBOARD_PCI_VENDOR, VBOARD_PCI_DEVICE) },
	{}
};
MODULE_DEVICE_TABLE(pci, vboard_ids);

static struct pci_driver vboard_driver = {
	.name = "npud_vboard",
	.id_table = vboard_ids,
	.probe = vboard_probe,
	.remove = vboard_remove,
};
module_pci_driver(vboard_driver);

MODULE_DESCRIPTION("The virtual RK3588 board");
MODULE_LICENSE("GPL");
