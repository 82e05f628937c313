/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_SOC_H
#define RKNPU_SOC_H

#include <linux/types.h>

#define RKNPU_MAX_CORES		3
#define RKNPU_MAX_BANKS		4

/**
 * struct rknpu_soc - what differs between SoCs; nothing else in the driver asks which one it is
 * @cores: most cores
 * @banks: MMU banks of each core, counted off in this order where one IOMMU has them all
 * @dma_bits: width of physical addresses that the NPU can reach
 * @amount_scale: command words fetched by one unit of PC_DATA_AMOUNT, divided by what regcfg_amount counts
 * @task_bits: width of the task number in PC_TASK_CONTROL
 * @task_status: offset of the register with the count of completed tasks
 * @wide_pte: page table entries carry physical address bits 39:32
 * @tested: whether this driver was run on it, on a virtual board at least
 */
struct rknpu_soc {
	const char *name;
	unsigned int cores;
	u8 banks[RKNPU_MAX_CORES];
	unsigned int dma_bits;
	unsigned int amount_scale;
	unsigned int task_bits;
	u32 task_status;
	bool wide_pte;
	bool tested;
};

enum rknpu_soc_id {
	RKNPU_SOC_RK3588,
	RKNPU_SOC_RK3583,
	RKNPU_SOC_RK3568,
	RKNPU_SOC_COUNT,
};

const struct rknpu_soc *rknpu_soc_get(unsigned int id);

#endif /* RKNPU_SOC_H */
