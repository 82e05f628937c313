/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_NPU_H
#define RKNPU_NPU_H

#include <linux/list.h>

struct rknpu_device;

/*
 * The platform devices of one NPU. @key is what they have in common:
 * the parent of mainline's nodes, or the one node itself.
 * Probe and removal of nodes, which alone use it, hold groups_lock.
 */
struct rknpu_group {
	struct list_head link;
	const void *key;
	struct list_head nodes;		/* by address, which is the cores' order */
	unsigned int nr_nodes;
	unsigned int expected;
	struct rknpu_device *rdev;
};

/* All nodes of the group are there: the device appears. Nothing is left behind on failure. */
int rknpu_npu_create(struct rknpu_group *group);
/*
 * The hardware goes, by unbinding or because the module does.
 * Files may stay open: they get -ENODEV, and their spaces come apart without touching anything.
 */
void rknpu_npu_destroy(struct rknpu_group *group);

#endif /* RKNPU_NPU_H */
