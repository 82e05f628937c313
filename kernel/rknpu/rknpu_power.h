/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_POWER_H
#define RKNPU_POWER_H

#include <linux/list.h>
#include <linux/pm.h>
#include <linux/types.h>

#include "rknpu_soc.h"

struct clk;
struct clk_bulk_data;
struct device;
struct device_link;
struct regulator;
struct rknpu_core;
struct rknpu_device;
struct rknpu_group;
struct rknpu_platform_data;

/**
 * struct rknpu_node - a platform device that the driver is bound to: the whole NPU (vendor's binding) or one core (mainline's)
 * @first: which core of the SoC its first one is, whatever others are enabled
 * @cores: its cores, once the device is up; their register windows are mapped before
 */
struct rknpu_node {
	struct device *dev;
	struct list_head link;
	struct rknpu_group *group;
	struct rknpu_device *rdev;
	const struct rknpu_soc *soc;
	bool bank;
	unsigned int first;
	unsigned int nr_cores;
	struct rknpu_core *cores[RKNPU_MAX_CORES];
	resource_size_t start;
	struct clk_bulk_data *clks;
	int nr_clks;
	struct regulator *supplies[2];	/* of the cores, of their memories; NULL where the tree has none */
	const char *supply_names[2];
	struct device *domains[RKNPU_MAX_CORES + 1];	/* if there are several */
	struct device_link *domain_links[RKNPU_MAX_CORES + 1];
	unsigned int nr_domains;
	const struct rknpu_platform_data *pdata;
};

/* Of a node whose @dev is set. What it takes goes back when the platform device is unbound. */
int rknpu_node_init(struct rknpu_node *node, enum rknpu_soc_id soc, bool per_core);

extern const struct dev_pm_ops rknpu_pm_ops;

int rknpu_power_init(struct rknpu_device *rdev);
void rknpu_power_fini(struct rknpu_device *rdev);
/* The system goes down or boots another kernel: no core does DMA after this, and none has power. */
void rknpu_power_shutdown(struct rknpu_node *node);
/* A reference each; from commit to completion of a job. Process context. */
int rknpu_power_get(struct rknpu_core *core);
void rknpu_power_put(struct rknpu_core *core);
int rknpu_power_get_all(struct rknpu_device *rdev);
void rknpu_power_put_all(struct rknpu_device *rdev);
void rknpu_power_set_delay(struct rknpu_device *rdev, unsigned int delay_ms);
bool rknpu_power_is_on(struct rknpu_device *rdev);
/* The clock that runs the cores, or NULL. */
struct clk_bulk_data *rknpu_node_clock(struct rknpu_node *node);
/* Hz or microvolts, or -EOPNOTSUPP. */
long rknpu_power_frequency(struct rknpu_device *rdev);
long rknpu_power_voltage(struct rknpu_device *rdev);
/* Reset lines that the board has and no reset controller does. */
int rknpu_node_reset(struct rknpu_node *node, unsigned int index, bool assert);

#endif /* RKNPU_POWER_H */
