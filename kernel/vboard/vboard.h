/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef VBOARD_H
#define VBOARD_H

#include <linux/io.h>
#include <linux/pci.h>

#include "../include/rknpu/rknpu_platform.h"
#include "../include/vboard/vboard_regs.h"

struct dentry;
struct fwnode_handle;
struct irq_domain;
struct platform_device;
struct vboard;
struct vboard_soc;

/* A PCI interrupt and the lines that it speaks for. */
struct vboard_vector {
	struct vboard *board;
	int irq;
	unsigned int first, last;
};

/**
 * struct vboard_irqs - the board's interrupt lines, one a core
 * @fwnode: of the domain where no node of the device tree is its
 * @nr_vectors: PCI interrupts below: one a line, or one for all
 * @lock: of @mask and the register that it is written to
 */
struct vboard_irqs {
	struct irq_domain *domain;
	struct fwnode_handle *fwnode;
	unsigned int nr_vectors;
	struct vboard_vector vectors[VBOARD_MSIX_VECTORS];
	raw_spinlock_t lock;	/* see above */
	u32 mask;
};

/**
 * struct vboard - the virtual board's PCI function, and the NPU that it was brought up as
 * @control: the control BAR
 * @lock: read-modify-write of the control BAR's level registers
 * @npu: the NPU, where it is a platform device
 * @overlay: the NPU, where it is an overlay in the device tree; its id, and 0 if there is none
 * @soc: what the overlay's nodes get clocks, supplies, power domains and reset lines from
 */
struct vboard {
	struct pci_dev *pdev;
	void __iomem *control;
	spinlock_t lock;	/* see above */
	struct dentry *debugfs;
	struct vboard_irqs irqs;

	struct rknpu_platform_data pdata;
	struct platform_device *npu;

	struct device_node *node;
	int overlay;
	struct vboard_soc *soc;
};

static inline u32 vboard_read(struct vboard *board, u32 offset)
{
	return readl(board->control + offset);
}

static inline void vboard_write(struct vboard *board, u32 offset, u32 value)
{
	writel(value, board->control + offset);
}

/* Sets or clears bits of a level register. */
void vboard_change(struct vboard *board, u32 offset, u32 bits, bool set);

void vboard_debugfs_init(struct vboard *board);
void vboard_debugfs_fini(struct vboard *board);

/* The lines come and go with the NPU's devices; @fwnode is the node that stands for their controller, if any. */
int vboard_irq_create(struct vboard *board, struct fwnode_handle *fwnode);
void vboard_irq_destroy(struct vboard *board);
/* The kernel's number of a line, or a negative errno. */
int vboard_irq_get(struct vboard *board, unsigned int line);

/* As a platform device "rk3588-rknpu-bank". */
int vboard_platform_create(struct vboard *board);
void vboard_platform_destroy(struct vboard *board);

/* As nodes of the device tree. */
enum vboard_binding {
	VBOARD_MAINLINE,	/* a node a core, each with its own rockchip-iommu */
	VBOARD_VENDOR,		/* one node, one rockchip-iommu with four banks */
	VBOARD_BANK_NODE,	/* one node with the banks among its registers */
	VBOARD_MAINLINE_BANK,	/* a node a core with its banks among its registers */
};

#ifdef CONFIG_OF_OVERLAY
/* @cores: those whose nodes are enabled, where each has one. */
int vboard_overlay_create(struct vboard *board, enum vboard_binding binding, u32 cores);
void vboard_overlay_destroy(struct vboard *board);
#else
static inline int vboard_overlay_create(struct vboard *board, enum vboard_binding binding, u32 cores)
{
	return -EOPNOTSUPP;
}

static inline void vboard_overlay_destroy(struct vboard *board)
{
}
#endif

#endif /* VBOARD_H */
