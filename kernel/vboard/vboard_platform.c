// SPDX-License-Identifier: GPL-2.0-only
/* The NPU as a platform device: resources for cores and banks, an interrupt a core, power and reset by the control BAR. */
#include <linux/dma-mapping.h>
#include <linux/platform_device.h>

#include "vboard.h"

/* A core's window ends where its first MMU bank begins, since windows of one BAR that overlap make x86 complain. */
#define CORE_WINDOW	VBOARD_BANK0

static int board_power(void *context, unsigned int core, bool on)
{
	struct vboard *board = context;

	if (on) {
		vboard_change(board, VBOARD_POWER, BIT(core), true);
		vboard_change(board, VBOARD_CLOCK, BIT(core), true);
	} else {
		vboard_change(board, VBOARD_CLOCK, BIT(core), false);
		vboard_change(board, VBOARD_POWER, BIT(core), false);
	}
	return 0;
}

static int board_reset(void *context, unsigned int core, bool assert)
{
	vboard_change(context, VBOARD_RESET, VBOARD_RESET_A(core) | VBOARD_RESET_H(core), assert);
	return 0;
}

static const struct rknpu_platform_ops board_ops = {
	.power = board_power,
	.reset = board_reset,
};

static struct resource memory(resource_size_t start, resource_size_t size)
{
	return (struct resource) { .start = start, .end = start + size - 1, .flags = IORESOURCE_MEM };
}

int vboard_platform_create(struct vboard *board)
{
	static const u32 banks[VBOARD_BANKS] = { VBOARD_BANK0, VBOARD_BANK1, VBOARD_BANK2, VBOARD_BANK3 };
	struct pci_dev *pdev = board->pdev;
	resource_size_t base = pci_resource_start(pdev, VBOARD_BAR_REGS);
	struct resource res[2 * VBOARD_CORES + VBOARD_BANKS] = {};
	struct platform_device_info info = {
		.parent = &pdev->dev,
		.name = RKNPU_PLATFORM_RK3588_BANK,
		.id = PLATFORM_DEVID_NONE,
		.res = res,
		.num_res = ARRAY_SIZE(res),
		.data = &board->pdata,
		.size_data = sizeof(board->pdata),
		.dma_mask = DMA_BIT_MASK(40),
	};
	unsigned int i, n = 0;
	int ret;

	ret = vboard_irq_create(board, NULL);
	if (ret)
		return ret;

	for (i = 0; i < VBOARD_CORES; i++)
		res[n++] = memory(base + i * VBOARD_CORE_STRIDE, CORE_WINDOW);
	for (i = 0; i < VBOARD_BANKS; i++)
		res[n++] = memory(base + banks[i], VBOARD_BANK_SIZE);
	for (i = 0; i < VBOARD_CORES; i++) {
		ret = vboard_irq_get(board, i);
		if (ret < 0) {
			vboard_irq_destroy(board);
			return ret;
		}
		res[n++] = (struct resource) { .start = ret, .end = ret, .flags = IORESOURCE_IRQ | IORESOURCE_IRQ_HIGHLEVEL };
	}
	board->pdata = (struct rknpu_platform_data) { .ops = &board_ops, .board = board };
	board->npu = platform_device_register_full(&info);
	if (IS_ERR(board->npu)) {
		ret = PTR_ERR(board->npu);
		board->npu = NULL;
		vboard_irq_destroy(board);
		return ret;
	}
	return 0;
}

void vboard_platform_destroy(struct vboard *board)
{
	if (!board->npu)
		return;
	platform_device_unregister(board->npu);
	board->npu = NULL;
	vboard_irq_destroy(board);
}
