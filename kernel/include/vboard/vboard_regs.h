/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The virtual RK3588 NPU board as a PCI function: what both sides agree on, the board program (tests/board) and the kernel module
 * that binds it (kernel/vboard). All registers are 32 bits, little endian, naturally aligned.
 *
 * BAR 0 mirrors the SoC's register map from 0xfdab0000 on, so that offsets are the real ones (RK3588 TRM, address map; vendor device
 * tree): core n at n * 0x10000, MMU banks at 0x9000 and 0xa000 (core 0), 0x1a000 (core 1), 0x2a000 (core 2).
 * BAR 2 is the control BAR: what on the SoC belongs to others (CRU, PMU) and what only a virtual board has (faults, counters).
 * BAR 4 holds the MSI-X table and PBA. INTx A is the OR of all lines; MSI-X vector n (0..2) is line n: core n OR its MMU banks.
 */
#ifndef NPUD_VBOARD_REGS_H
#define NPUD_VBOARD_REGS_H

#define VBOARD_PCI_VENDOR		0x1d87	/* Rockchip, as in the PCI ID database */
#define VBOARD_PCI_DEVICE		0x3588
#define VBOARD_PCI_CLASS		0x120000	/* processing accelerator */

#define VBOARD_BAR_REGS			0
#define VBOARD_BAR_CONTROL		2
#define VBOARD_BAR_MSIX			4
#define VBOARD_BAR_REGS_SIZE		0x40000
#define VBOARD_BAR_CONTROL_SIZE		0x2000
#define VBOARD_BAR_MSIX_SIZE		0x1000

#define VBOARD_CORES			3
#define VBOARD_BANKS			4
#define VBOARD_CORE_STRIDE		0x10000
#define VBOARD_CORE_SIZE		0x10000
#define VBOARD_BANK_SIZE		0x100
#define VBOARD_BANK0			0x09000	/* core 0 */
#define VBOARD_BANK1			0x0a000	/* core 0 */
#define VBOARD_BANK2			0x1a000	/* core 1 */
#define VBOARD_BANK3			0x2a000	/* core 2 */
#define VBOARD_MSIX_VECTORS		3

/* --- control BAR: identity ------------------------------------------------------------------------------------------------- */
#define VBOARD_MAGIC			0x000	/* reads VBOARD_MAGIC_VALUE */
#define VBOARD_MAGIC_VALUE		0x4256504e	/* "NPVB" in memory order */
#define VBOARD_VERSION			0x004	/* of this layout */
#define VBOARD_VERSION_VALUE		2
#define VBOARD_SOC			0x008	/* 0x3588 */
#define VBOARD_NR_CORES			0x00c
#define VBOARD_NR_BANKS			0x010

/* --- control BAR: reset, power, clocks. Level registers, one bit a core. ------------------------------------------------------- */
#define VBOARD_RESET			0x020	/* bit n: core n's srst_a asserted; bit 8 + n: srst_h (registers too) */
#define VBOARD_RESET_A(n)		(1u << (n))
#define VBOARD_RESET_H(n)		(1u << (8 + (n)))
#define VBOARD_POWER			0x024	/* bit n: core n's power domain on. Starts as 7 unless the board's option says otherwise */
#define VBOARD_CLOCK			0x028	/* bit n: core n's bus clocks (aclk, hclk) run; enough for its MMU banks */
#define VBOARD_CLOCK_KHZ		0x02c	/* rate of the NPU clock, for the board's own cycle count */
#define VBOARD_DRIVER_FAULTS		0x030	/* count of what no driver may do (touched a core without power, …); write 0 clears */
#define VBOARD_DRIVER_FAULT_LAST	0x034	/* offset in BAR 0 of the last one */
#define VBOARD_OPTION			0x038	/* write "key=value" four bytes at a time, a zero byte ends it: sets an option, also beyond a reset; a job keeps those it began with; reads 1 if it was refused */
#define VBOARD_CLOCK_COMMON		0x03c	/* bit 0: the clocks of all cores (npu, pclk) run. Starts as 1 */

/* --- control BAR: interrupt lines, one a core with its MMU banks. They are levels; MSI-X turns them into messages. -------------- */
#define VBOARD_IRQ_STATUS		0x040	/* who asserts now: bit n core n, bit 8 + b bank b; read only */
#define VBOARD_IRQ_MASK			0x044	/* bit n: line n is kept low, whatever asserts. 0 after reset */
#define VBOARD_IRQ_EOI			0x048	/* write bit n: line n is looked at anew; if it is high, MSI-X sends another message */
#define VBOARD_IRQ_SOURCES(n)		((unsigned int)(0x080404020301ull >> 16 * (n) & 0xffff))	/* of line n, in VBOARD_IRQ_STATUS */

/* --- control BAR: faults on demand. Write KIND, CORE, ARG, COUNT, then 1 to ARM. ------------------------------------------------ */
#define VBOARD_FAULT_KIND		0x100
#define VBOARD_FAULT_CORE		0x104	/* core 0..2, or VBOARD_FAULT_ANY_CORE; for MMU kinds a bank 0..3 */
#define VBOARD_FAULT_ANY_CORE		0xff
#define VBOARD_FAULT_ARG		0x108	/* meaning by kind, below */
#define VBOARD_IRQ_EARLY_QUIET		0x80000000u	/* irq-early: and until that write-back the core's MMU banks are idle */
#define VBOARD_FAULT_COUNT		0x10c	/* how many times it strikes; 0 = until cleared */
#define VBOARD_FAULT_ARM		0x110	/* write 1: arm; read: how many faults are armed */
#define VBOARD_FAULT_CLEAR		0x114	/* write 1: disarm all; dead cores stay dead until reset (or for good) */
#define VBOARD_FAULT_FIRED		0x118	/* how many strikes there have been */

enum vboard_fault {
	VBOARD_FAULT_NONE = 0,
	VBOARD_FAULT_DISPATCH_DROP = 1,		/* OPERATION_ENABLE is written and nothing happens */
	VBOARD_FAULT_STALL = 2,			/* stalls after task ARG of a job */
	VBOARD_FAULT_IRQ_LATE = 3,		/* the interrupt comes ARG microseconds after completion */
	VBOARD_FAULT_IRQ_LOST = 4,		/* INT_RAW is set, the line never rises */
	VBOARD_FAULT_IRQ_SPURIOUS = 5,		/* the line rises with status bits ARG, without completion */
	VBOARD_FAULT_IRQ_EARLY = 6,		/* the interrupt comes ARG microseconds before the last write-back */
	VBOARD_FAULT_MMU_NO_READBACK = 7,	/* DTE_ADDR reads 0 during a force reset */
	VBOARD_FAULT_DEAD_UNTIL_RESET = 8,	/* the core takes no work until its reset line is asserted */
	VBOARD_FAULT_DEAD = 9,			/* … for good; CLEAR with ARG = core does not revive it, a device reset does */
	VBOARD_FAULT_UNMAPPED_HANGS = 10,	/* an unmapped access hangs the core instead of faulting */
	VBOARD_FAULT_WRONG_BIT = 11,		/* one bit of the result of task ARG is inverted */
	VBOARD_FAULT_STALL_REFUSED = 12,	/* an MMU bank doesn't stall: ARG 0 while its core is busy, 1 also while idle */
	VBOARD_FAULT_STALE_OPERANDS = 13,	/* the next job takes the CBUF as it is, though its reuse bits are clear */
	VBOARD_FAULT_NEVER_STARTS = 14,		/* a job is taken and nothing happens, until all cores were reset while none ran */
	VBOARD_FAULT_RATE_UNPOWERED = 15,	/* the next change of the rate without power kills the NPU until a device reset */
	VBOARD_FAULT_STATUS_LAGS = 16,		/* TASK_STATUS shows the last task ARG microseconds after the interrupt */
};

/* --- control BAR: counters, 64 bits each (low word first), since device reset; core n's block at + n * VBOARD_COUNTER_STRIDE ----- */
#define VBOARD_COUNTERS			0x200
#define VBOARD_COUNTER_STRIDE		0x100
#define VBOARD_COUNTER(core, i)		(VBOARD_COUNTERS + (core) * VBOARD_COUNTER_STRIDE + 8 * (i))
enum vboard_counter {
	VBOARD_COUNT_JOBS = 0,			/* OPERATION_ENABLE taken */
	VBOARD_COUNT_TASKS = 1,
	VBOARD_COUNT_WORDS = 2,			/* command words fetched */
	VBOARD_COUNT_MACS = 3,
	VBOARD_COUNT_READ_BYTES = 4,
	VBOARD_COUNT_WRITTEN_BYTES = 5,
	VBOARD_COUNT_WALKS = 6,			/* page table walks */
	VBOARD_COUNT_TLB_HITS = 7,
	VBOARD_COUNT_PAGE_FAULTS = 8,
	VBOARD_COUNT_BAD_COMMANDS = 9,		/* unknown or unsupported registers and values: the job fails */
	VBOARD_COUNT_CYCLES = 10,		/* the board's own clock: modelled cycles, not host time */
	VBOARD_COUNT_REG_READS = 11,		/* of the core's window, its MMU banks included */
	VBOARD_COUNT_REG_WRITES = 12,
	VBOARD_COUNT_IRQS = 13,
};

#endif
