/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a board without device tree brings an NPU up for npud_rknpu: a platform device "rk3588-rknpu-bank" with
 *  - memory resources, in this order: one window a core, then the MMU banks (two for core 0, one for each other core);
 *  - interrupts, one a core (they may all be the same);
 *  - this platform data, for what a device tree would say by reset lines and power domains.
 */
#ifndef RKNPU_PLATFORM_H
#define RKNPU_PLATFORM_H

#include <linux/types.h>

#define RKNPU_PLATFORM_RK3588_BANK	"rk3588-rknpu-bank"

/**
 * struct rknpu_platform_ops - what belongs to the board; called from process context, never twice at once for one core
 * @power: switch a core's power domain and clocks; 0 or a negative errno
 * @reset: assert or deassert a core's reset lines; 0 or a negative errno
 */
struct rknpu_platform_ops {
	int (*power)(void *board, unsigned int core, bool on);
	int (*reset)(void *board, unsigned int core, bool assert);
};

struct rknpu_platform_data {
	const struct rknpu_platform_ops *ops;
	void *board;
};

#endif /* RKNPU_PLATFORM_H */
