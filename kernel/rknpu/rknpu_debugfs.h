/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_DEBUGFS_H
#define RKNPU_DEBUGFS_H

struct rknpu_device;

/* /sys/kernel/debug/rknpu: version, load, power, freq, volt, delayms, reset, mm as monitors know them, and npud/ */
void rknpu_debugfs_init(struct rknpu_device *rdev);
void rknpu_debugfs_fini(struct rknpu_device *rdev);

#endif /* RKNPU_DEBUGFS_H */
