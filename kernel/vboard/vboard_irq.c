// SPDX-License-Identifier: GPL-2.0-only
/*
 * The board's interrupt lines, one a core with its MMU banks, as an interrupt controller: whoever asks for a core's line is called for that core
 * only, as behind a SoC's GIC. Below are the function's MSI-X vectors, one a line, or INTx for all.
 */
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/version.h>

#include "vboard.h"

/* 6.8 gave the old interrupts their right name. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
#define VBOARD_PCI_INTX		PCI_IRQ_INTX
#else
#define VBOARD_PCI_INTX		PCI_IRQ_LEGACY
#endif

/* Our lines' locks are taken before those of the vectors below. */
static struct lock_class_key vboard_irq_lock_class, vboard_irq_request_class;

static struct vboard *vboard_irq_board(struct irq_data *data)
{
	return irq_data_get_irq_chip_data(data);
}

static void vboard_irq_set_mask(struct irq_data *data, bool masked)
{
	struct vboard *board = vboard_irq_board(data);
	struct vboard_irqs *irqs = &board->irqs;
	unsigned long flags;
	u32 mask;

	raw_spin_lock_irqsave(&irqs->lock, flags);
	mask = masked ? irqs->mask | BIT(irqd_to_hwirq(data)) : irqs->mask & ~BIT(irqd_to_hwirq(data));
	WRITE_ONCE(irqs->mask, mask);
	vboard_write(board, VBOARD_IRQ_MASK, mask);
	raw_spin_unlock_irqrestore(&irqs->lock, flags);
}

static void vboard_irq_mask(struct irq_data *data)
{
	vboard_irq_set_mask(data, true);
}

static void vboard_irq_unmask(struct irq_data *data)
{
	vboard_irq_set_mask(data, false);
}

/* A line that is still high is a message again; INTx simply stays high. */
static void vboard_irq_eoi(struct irq_data *data)
{
	struct vboard *board = vboard_irq_board(data);

	if (board->irqs.nr_vectors > 1)
		vboard_write(board, VBOARD_IRQ_EOI, BIT(irqd_to_hwirq(data)));
}

static int vboard_irq_set_type(struct irq_data *data, unsigned int type)
{
	return type == IRQ_TYPE_LEVEL_HIGH ? 0 : -EINVAL;
}

static struct irq_chip vboard_irq_chip = {
	.name = "npud-vboard",
	.irq_mask = vboard_irq_mask,
	.irq_unmask = vboard_irq_unmask,
	.irq_eoi = vboard_irq_eoi,
	.irq_set_type = vboard_irq_set_type,
	.flags = IRQCHIP_SKIP_SET_WAKE,
};

static int vboard_irq_map(struct irq_domain *domain, unsigned int irq, irq_hw_number_t line)
{
	irq_set_lockdep_class(irq, &vboard_irq_lock_class, &vboard_irq_request_class);
	irq_set_chip_data(irq, domain->host_data);
	irq_set_chip_and_handler(irq, &vboard_irq_chip, handle_fasteoi_irq);
	irq_set_status_flags(irq, IRQ_LEVEL);
	return 0;
}

static const struct irq_domain_ops vboard_irq_ops = {
	.map = vboard_irq_map,
	.xlate = irq_domain_xlate_twocell,
};

static irqreturn_t vboard_irq_handle(int irq, void *data)
{
	struct vboard_vector *vector = data;
	struct vboard_irqs *irqs = &vector->board->irqs;
	u32 status = vboard_read(vector->board, VBOARD_IRQ_STATUS);
	irqreturn_t ret = IRQ_NONE;
	unsigned int line;

	for (line = vector->first; line <= vector->last; line++) {
		if (!(status & VBOARD_IRQ_SOURCES(line)) || READ_ONCE(irqs->mask) & BIT(line))
			continue;
		generic_handle_domain_irq(irqs->domain, line);
		ret = IRQ_HANDLED;
	}
	/* What a message was sent for may have gone by now. */
	return irqs->nr_vectors > 1 ? IRQ_HANDLED : ret;
}

int vboard_irq_get(struct vboard *board, unsigned int line)
{
	unsigned int irq = irq_create_mapping(board->irqs.domain, line);

	return irq ? irq : -ENXIO;
}

static void vboard_irq_free_vectors(struct vboard *board, unsigned int count)
{
	while (count--)
		free_irq(board->irqs.vectors[count].irq, &board->irqs.vectors[count]);
	pci_free_irq_vectors(board->pdev);
}

static int vboard_irq_request_vectors(struct vboard *board)
{
	struct vboard_irqs *irqs = &board->irqs;
	unsigned int i;
	int ret;

	ret = pci_alloc_irq_vectors(board->pdev, VBOARD_MSIX_VECTORS, VBOARD_MSIX_VECTORS, PCI_IRQ_MSIX);
	if (ret < 0)
		ret = pci_alloc_irq_vectors(board->pdev, 1, 1, VBOARD_PCI_INTX);
	if (ret < 0)
		return ret;
	irqs->nr_vectors = ret;
	for (i = 0; i < irqs->nr_vectors; i++) {
		irqs->vectors[i] = (struct vboard_vector) {
			.board = board, .irq = pci_irq_vector(board->pdev, i), .first = i, .last = irqs->nr_vectors > 1 ? i : VBOARD_CORES - 1,
		};
		/* The lines' handlers are called from this one, with interrupts off. */
		ret = request_irq(irqs->vectors[i].irq, vboard_irq_handle,
				  IRQF_NO_THREAD | (irqs->nr_vectors > 1 ? 0 : IRQF_SHARED), "npud_vboard", &irqs->vectors[i]);
		if (ret) {
			vboard_irq_free_vectors(board, i);
			return ret;
		}
	}
	return 0;
}

int vboard_irq_create(struct vboard *board, struct fwnode_handle *fwnode)
{
	struct vboard_irqs *irqs = &board->irqs;
	int ret;

	raw_spin_lock_init(&irqs->lock);
	irqs->mask = GENMASK(VBOARD_CORES - 1, 0);
	vboard_write(board, VBOARD_IRQ_MASK, irqs->mask);
	if (!fwnode) {
		irqs->fwnode = irq_domain_alloc_named_fwnode("npud-vboard");
		if (!irqs->fwnode)
			return -ENOMEM;
		fwnode = irqs->fwnode;
	}
	irqs->domain = irq_domain_create_linear(fwnode, VBOARD_CORES, &vboard_irq_ops, board);
	ret = irqs->domain ? vboard_irq_request_vectors(board) : -ENOMEM;
	if (ret)
		irqs->nr_vectors = 0;
	if (ret)
		vboard_irq_destroy(board);
	return ret;
}

void vboard_irq_destroy(struct vboard *board)
{
	struct vboard_irqs *irqs = &board->irqs;
	unsigned int line;

	if (irqs->nr_vectors)
		vboard_irq_free_vectors(board, irqs->nr_vectors);
	irqs->nr_vectors = 0;
	if (irqs->domain) {
		for (line = 0; line < VBOARD_CORES; line++)
			irq_dispose_mapping(irq_find_mapping(irqs->domain, line));
		irq_domain_remove(irqs->domain);
		irqs->domain = NULL;
	}
	if (irqs->fwnode)
		irq_domain_free_fwnode(irqs->fwnode);
	irqs->fwnode = NULL;
	/* As it was found. */
	vboard_write(board, VBOARD_IRQ_MASK, 0);
}
