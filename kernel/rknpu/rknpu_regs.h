/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The registers that the driver itself touches.
 * Names and fields after the RK3588 TRM (part 2, RKNN), mainline's drivers/accel/rocket/rocket_registers.h and
 * Mesa's src/gallium/drivers/rocket/registers.xml; the MMU's after mainline's drivers/iommu/rockchip-iommu.c.
 */
#ifndef RKNPU_REGS_H
#define RKNPU_REGS_H

#include <linux/bits.h>

/* PC, the program controller: offsets in its window */
#define RKNPU_PC_VERSION		0x00
#define RKNPU_PC_VERSION_NUM		0x04
#define RKNPU_PC_OP_EN			0x08
#define RKNPU_PC_DATA_ADDR		0x10	/* [31:4] address of the command words, [0] slave mode */
#define RKNPU_PC_DATA_ADDR_SLAVE	BIT(0)
#define RKNPU_PC_DATA_ADDR_ALIGN	16
#define RKNPU_PC_DATA_AMOUNT		0x14	/* [15:0] */
#define RKNPU_PC_DATA_AMOUNT_MAX	0xffff
#define RKNPU_PC_INT_MASK		0x20
#define RKNPU_PC_INT_CLEAR		0x24
#define RKNPU_PC_INT_STATUS		0x28
#define RKNPU_PC_INT_RAW		0x2c
#define RKNPU_PC_TASK_CONTROL		0x30
#define RKNPU_PC_TASK_CONTROL_START	6u	/* above the task number: clear the count, go */
#define RKNPU_PC_TASK_CONTROL_PINGPONG	1u
#define RKNPU_PC_DMA_BASE		0x34
#define RKNPU_PC_TASK_STATUS		0x3c	/* per SoC, see rknpu_soc.c */

#define RKNPU_INT_ALL			0x1ffff

/* words behind the ones that regcfg_amount counts: next address, next amount, barrier, enable */
#define RKNPU_PC_TRAILER_WORDS		4

/* CNA, CORE and DPU windows */
#define RKNPU_S_STATUS			0x00
#define RKNPU_S_STATUS_BUSY		0x30003		/* of either group: its executer works, or is about to */
#define RKNPU_S_POINTER			0x04
#define RKNPU_S_POINTER_PINGPONG	0xe		/* pointer and executer ping-pong, by executer */
#define RKNPU_S_POINTER_CORE(n)		(0x10000000u * (n))
#define RKNPU_CNA_OFFSET		0x1000		/* from the PC window */
#define RKNPU_CORE_OFFSET		0x3000
#define RKNPU_DPU_OFFSET		0x4000

/* one MMU bank */
#define RKNPU_MMU_DTE_ADDR		0x00
#define RKNPU_MMU_STATUS		0x04
#define RKNPU_MMU_STATUS_PAGING		BIT(0)
#define RKNPU_MMU_STATUS_FAULT		BIT(1)
#define RKNPU_MMU_STATUS_STALL		BIT(2)
#define RKNPU_MMU_STATUS_IDLE		BIT(3)
#define RKNPU_MMU_STATUS_FAULT_WRITE	BIT(5)
#define RKNPU_MMU_COMMAND		0x08
#define RKNPU_MMU_CMD_PAGING_ON		0
#define RKNPU_MMU_CMD_PAGING_OFF	1
#define RKNPU_MMU_CMD_STALL_ON		2
#define RKNPU_MMU_CMD_STALL_OFF		3
#define RKNPU_MMU_CMD_ZAP		4
#define RKNPU_MMU_CMD_FAULT_DONE	5
#define RKNPU_MMU_CMD_FORCE_RESET	6
#define RKNPU_MMU_FAULT_ADDR		0x0c
#define RKNPU_MMU_INT_CLEAR		0x18
#define RKNPU_MMU_INT_MASK		0x1c
#define RKNPU_MMU_INT_STATUS		0x20
#define RKNPU_MMU_AUTO_GATING		0x24
#define RKNPU_MMU_NO_DTE_TIME_LIMIT	BIT(31)
#define RKNPU_MMU_INT_FAULT		BIT(0)
#define RKNPU_MMU_INT_BUS_ERROR		BIT(1)
#define RKNPU_MMU_INT_BOTH		(RKNPU_MMU_INT_FAULT | RKNPU_MMU_INT_BUS_ERROR)

#endif /* RKNPU_REGS_H */
