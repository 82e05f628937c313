/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_DEVFREQ_H
#define RKNPU_DEVFREQ_H

#include <linux/errno.h>
#include <linux/kconfig.h>
#include <linux/types.h>

struct rknpu_device;
struct rknpu_file;

#if IS_ENABLED(CONFIG_PM_DEVFREQ)

/*
 * Where the first node has operating-points-v2 and a clock for the cores, that clock follows the load.
 * Without a table nothing happens; where a table can't be used the clock stays as it is, and the log says why.
 * Only what may come right later (-EPROBE_DEFER) is an error.
 */
int rknpu_devfreq_init(struct rknpu_device *rdev);
void rknpu_devfreq_fini(struct rknpu_device *rdev);
/* A node got its power, or is about to lose it. From runtime PM callbacks. */
void rknpu_devfreq_resume(struct rknpu_device *rdev);
void rknpu_devfreq_suspend(struct rknpu_device *rdev);
/*
 * The file wants no less than @hz, 0 for no wish, until it closes.
 * -EOPNOTSUPP where nothing scales, -EINVAL beyond the highest frequency,
 * -EACCES without CAP_SYS_NICE. Under file->lock, as the next.
 */
int rknpu_devfreq_set_floor(struct rknpu_file *file, u32 hz);
void rknpu_devfreq_drop_floor(struct rknpu_file *file);

#else

static inline int rknpu_devfreq_init(struct rknpu_device *rdev)
{
	return 0;
}

static inline void rknpu_devfreq_fini(struct rknpu_device *rdev)
{
}

static inline void rknpu_devfreq_resume(struct rknpu_device *rdev)
{
}

static inline void rknpu_devfreq_suspend(struct rknpu_device *rdev)
{
}

static inline int rknpu_devfreq_set_floor(struct rknpu_file *file, u32 hz)
{
	return -EOPNOTSUPP;
}

static inline void rknpu_devfreq_drop_floor(struct rknpu_file *file)
{
}

#endif

#endif /* RKNPU_DEVFREQ_H */
