/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_CLOCK_H
#define RKNPU_CLOCK_H

struct clk_bulk_data;

/* Which of a node's clocks runs the cores: its index, or -ENOENT. */
int rknpu_clock_find(const struct clk_bulk_data *clks, int count);

#endif /* RKNPU_CLOCK_H */
