// SPDX-License-Identifier: GPL-2.0-only
#include <linux/kernel.h>

#include "rknpu_regs.h"
#include "rknpu_soc.h"

/*
 * Numbers as in the configuration tables of the vendor's RKNPU driver 0.9.8 and,
 * for the RK3588, mainline's rocket.
 * The widths of physical addresses that no public source states are taken as 32 bits,
 * which is right for any of them, if narrow.
 */
static const struct rknpu_soc socs[RKNPU_SOC_COUNT] = {
	[RKNPU_SOC_RK3588] = {
		.name = "RK3588", .cores = 3, .banks = { 2, 1, 1 }, .dma_bits = 40, .amount_scale = 2, .task_bits = 12,
		.task_status = RKNPU_PC_TASK_STATUS, .wide_pte = true, .tested = true,
	},
	[RKNPU_SOC_RK3583] = {
		.name = "RK3583", .cores = 2, .banks = { 2, 1 }, .dma_bits = 40, .amount_scale = 2, .task_bits = 12,
		.task_status = RKNPU_PC_TASK_STATUS, .wide_pte = true,
	},
	[RKNPU_SOC_RK3568] = {
		.name = "RK3566/RK3568", .cores = 1, .banks = { 1 }, .dma_bits = 32, .amount_scale = 1, .task_bits = 12,
		.task_status = RKNPU_PC_TASK_STATUS, .wide_pte = true,
	},
};

const struct rknpu_soc *rknpu_soc_get(unsigned int id)
{
	return id < ARRAY_SIZE(socs) ? &socs[id] : NULL;
}
