// SPDX-License-Identifier: GPL-2.0-only
#include <linux/clk.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/string.h>

#include "rknpu_clock.h"

/*
 * "npu" in mainline's binding, "clk_npu" in the vendor's rk3588s.dtsi.
 * The vendor's rk3568.dtsi has "scmi_clk", the firmware's clock that its driver sets,
 * and "clk", the CRU's, for firmware that has none.
 */
static const char * const clock_names[] = { "npu", "clk_npu", "scmi_clk", "clk" };

int rknpu_clock_find(const struct clk_bulk_data *clks, int count)
{
	unsigned int name;
	int i;

	for (name = 0; name < ARRAY_SIZE(clock_names); name++)
		for (i = 0; i < count; i++)
			if (clks[i].id && !strcmp(clks[i].id, clock_names[name]))
				return i;
	return -ENOENT;
}
