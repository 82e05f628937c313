/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One core of the virtual board, driven by hand: registers, a buffer that the device reaches, and GEMM jobs in it. Shared by the test
 * modules; no NPU driver may be bound to the same device.
 *
 * Register names after mainline's drivers/accel/rocket/rocket_registers.h and drivers/iommu/rockchip-iommu.c.
 */
#ifndef VBOARD_CORE_H
#define VBOARD_CORE_H

#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/pci.h>

#include "../include/vboard/vboard_regs.h"
#include "npu_gemm.h"

#define PC_OP_EN		0x08
#define PC_DATA_ADDR		0x10
#define PC_DATA_AMOUNT		0x14
#define PC_INT_MASK		0x20
#define PC_INT_CLEAR		0x24
#define PC_INT_STATUS		0x28
#define PC_INT_RAW		0x2c
#define PC_TASK_CONTROL		0x30
#define PC_DMA_BASE		0x34
#define PC_TASK_STATUS		0x3c
#define CNA_S_POINTER		0x1004
#define CORE_S_POINTER		0x3004
#define INT_ALL			0x1ffffu

#define MMU_DTE_ADDR		0x00
#define MMU_STATUS		0x04
#define MMU_COMMAND		0x08
#define MMU_FAULT_ADDR		0x0c
#define MMU_INT_RAWSTAT		0x14
#define MMU_INT_CLEAR		0x18
#define MMU_INT_MASK		0x1c
#define MMU_INT_STATUS		0x20

/* What a job needs, in one buffer: command words, features, weights, results. */
#define JOB_FEATURES		0x1000
#define JOB_WEIGHTS		0x3000
#define JOB_OUT			0x6000
#define JOB_BYTES		0x8000

struct vboard_core {
	unsigned int index;
	void __iomem *regs;	/* PC at 0, CNA at 0x1000, CORE at 0x3000 */
};

/* --- the board's control BAR, found by its PCI function ------------------------------------------------------------------------- */

static inline void __iomem *vboard_control_map(struct pci_dev **function)
{
	struct pci_dev *pdev = pci_get_device(VBOARD_PCI_VENDOR, VBOARD_PCI_DEVICE, NULL);
	void __iomem *control;

	if (!pdev)
		return NULL;
	control = ioremap(pci_resource_start(pdev, VBOARD_BAR_CONTROL), VBOARD_BAR_CONTROL_SIZE);
	if (control && readl(control + VBOARD_MAGIC) != VBOARD_MAGIC_VALUE) {
		iounmap(control);
		control = NULL;
	}
	if (control)
		*function = pdev;
	else
		pci_dev_put(pdev);
	return control;
}

static inline void vboard_arm(void __iomem *control, u32 kind, u32 core, u32 arg)
{
	writel(kind, control + VBOARD_FAULT_KIND);
	writel(core, control + VBOARD_FAULT_CORE);
	writel(arg, control + VBOARD_FAULT_ARG);
	writel(1, control + VBOARD_FAULT_COUNT);
	writel(1, control + VBOARD_FAULT_ARM);
}

/* Both reset lines of a core, there and back: everything of its jobs is over. */
static inline void vboard_reset_core(void __iomem *control, unsigned int core)
{
	writel(VBOARD_RESET_A(core) | VBOARD_RESET_H(core), control + VBOARD_RESET);
	writel(0, control + VBOARD_RESET);
}

/* --- jobs ---------------------------------------------------------------------------------------------------------------------------- */

/* Fills `memory` (JOB_BYTES) with a GEMM whose device addresses begin at `address`. Results start as a pattern that none has. */
static inline void vboard_job_fill(void *memory, u32 address, bool fp16, u32 seed, struct npu_gemm *gemm)
{
	*gemm = (struct npu_gemm){
		.m = 16, .k = 64, .n = 32, .fp16 = fp16, .seed = seed,
		.features = address + JOB_FEATURES, .weights = address + JOB_WEIGHTS, .out = address + JOB_OUT,
	};
	memset(memory, 0, JOB_OUT);
	memset(memory + JOB_OUT, 0xa5, JOB_BYTES - JOB_OUT);
	npu_gemm_emit(memory, gemm, 0);
	npu_gemm_fill(gemm, memory + JOB_FEATURES, memory + JOB_WEIGHTS);
}

/* Starts the one task whose words lie at `address`. */
static inline void vboard_job_start(const struct vboard_core *core, u32 address)
{
	void __iomem *regs = core->regs;

	wmb(); /* the buffer before the registers */
	writel(1, regs + PC_DATA_ADDR);
	writel(0xe + 0x10000000 * core->index, regs + CNA_S_POINTER);
	writel(0xe + 0x10000000 * core->index, regs + CORE_S_POINTER);
	writel(address, regs + PC_DATA_ADDR);
	writel(npu_gemm_amount(NPU_GEMM_BODY_WORDS), regs + PC_DATA_AMOUNT);
	writel(INT_ALL, regs + PC_INT_CLEAR);
	writel(NPU_GEMM_INT_MASK, regs + PC_INT_MASK);
	writel(((6 | 1) << 12) | 1, regs + PC_TASK_CONTROL);
	writel(0, regs + PC_DMA_BASE);
	writel(1, regs + PC_OP_EN);
	writel(0, regs + PC_OP_EN);
}

/* Waits up to `ms` for any of the bits in INT_RAW; returns what was there last. */
static inline u32 vboard_job_wait(const struct vboard_core *core, u32 bits, unsigned int ms)
{
	u32 raw = 0;
	unsigned int i;

	for (i = 0; i < ms && !(raw & bits); i++) {
		raw = readl(core->regs + PC_INT_RAW);
		if (!(raw & bits))
			usleep_range(1000, 1500);
	}
	rmb(); /* the registers before the buffer */
	return raw;
}

/* Quits what is pending, mask first, so that the line falls. */
static inline void vboard_job_quit(const struct vboard_core *core)
{
	writel(0, core->regs + PC_INT_MASK);
	writel(INT_ALL, core->regs + PC_INT_CLEAR);
}

#endif
