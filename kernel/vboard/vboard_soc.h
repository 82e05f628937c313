/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef VBOARD_SOC_H
#define VBOARD_SOC_H

struct device_node;
struct vboard;
struct vboard_soc;

/* Cells of the control node's providers. */
#define VBOARD_PD_ALL		3	/* 0 to 2: the cores */
#define VBOARD_PD_COUNT		4
#define VBOARD_CLK_ACLK(core)	(core)
#define VBOARD_CLK_HCLK(core)	(3 + (core))
#define VBOARD_CLK_NPU		6	/* the one that has a rate */
#define VBOARD_CLK_PCLK		7
#define VBOARD_CLK_COUNT	8
#define VBOARD_SUPPLY_NPU	"npu-supply"	/* child nodes, each a regulator */
#define VBOARD_SUPPLY_MEM	"mem-supply"

/* The NPU's clock runs at these rates, each with the least voltage that it needs. */
#define VBOARD_BOOT_HZ		200000000
#define VBOARD_OPPS		{ { VBOARD_BOOT_HZ, 700000 }, { 300000000, 700000 }, { 600000000, 750000 }, { 1000000000, 850000 } }
#define VBOARD_OPP_OF_OTHERS	1200000000ul	/* in the table for other bins: never to be set */

struct vboard_opp {
	unsigned long hz;
	int uv;
};

/*
 * What on the SoC is CRU, PMU and PMIC: reset lines, the NPU's clocks, power domains and supplies, as @control and its children name them. All
 * act on the board's control BAR or, where it has nothing of the kind, check what no driver may do: a clock too fast for the voltage, or without
 * supply; the memories' supply below the cores', or on for a shorter time; a rate that is set while nothing has power; a power domain that goes
 * off under running clocks. Each such mistake is a WARNING in the kernel's log.
 * @domain_supply: the power domains bring the cores' supply along, as mainline's rockchip,rk3588-power-controller does (domain-supply)
 */
struct vboard_soc *vboard_soc_create(struct vboard *board, struct device_node *control, bool domain_supply);
void vboard_soc_destroy(struct vboard_soc *soc);

#endif /* VBOARD_SOC_H */
