// SPDX-License-Identifier: GPL-2.0-only
#include <linux/resource.h>
#include <linux/sched/signal.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_print.h>

#include "rknpu_action.h"
#include "rknpu_devfreq.h"
#include "rknpu_device.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_power.h"

#define DRIVER_VERSION	(RKNPU_DRM_VERSION_MAJOR * 10000 + RKNPU_DRM_VERSION_MINOR * 100 + RKNPU_DRM_VERSION_PATCH)

/*
 * By the rules of setpriority(2) for one's own thread: down is free, up needs the limit or the capability.
 * Without them it succeeds without effect, as what is out of range does: every runtime calls this at start
 * (librknnrt and ork-driver with -19), the vendor's driver never fails it, and a client that gives up over its
 * niceness serves nobody.
 */
static int action_set_nice(struct drm_device *drm, s32 nice)
{
	if (nice < MIN_NICE || nice > MAX_NICE ||
	    (nice < task_nice(current) && nice_to_rlimit(nice) > rlimit(RLIMIT_NICE) && !capable(CAP_SYS_NICE)))
		drm_dbg(drm, "SET_PROC_NICE %d: out of range or not permitted, ignored\n", nice);
	else
		set_user_nice(current, nice);
	return 0;
}

static int action_set_power(struct rknpu_device *rdev, struct rknpu_file *file, bool on)
{
	int ret = 0;

	mutex_lock(&file->lock);
	if (on && !file->powered) {
		ret = rknpu_power_get_all(rdev);
		file->powered = !ret;
	} else if (!on && file->powered) {
		rknpu_power_put_all(rdev);
		file->powered = false;
	}
	mutex_unlock(&file->lock);
	return ret;
}

static int action_set_domain(struct rknpu_file *file, u32 domain)
{
	if (domain >= RKNPU_MAX_DOMAINS)
		return -EINVAL;
	WRITE_ONCE(file->domain, domain);
	return 0;
}

static int action_report(long value, u32 *out)
{
	if (value < 0)
		return value;
	*out = value;
	return 0;
}

static int action_set_frequency(struct rknpu_file *file, u32 hz)
{
	int ret;

	mutex_lock(&file->lock);
	ret = rknpu_devfreq_set_floor(file, hz);
	mutex_unlock(&file->lock);
	return ret;
}

static int action_run(struct rknpu_device *rdev, struct rknpu_file *file, struct rknpu_action *args)
{
	switch (args->flags) {
	case RKNPU_GET_HW_VERSION:
		return action_report(rdev->hw_version, &args->value);
	case RKNPU_GET_DRV_VERSION:
		return action_report(DRIVER_VERSION, &args->value);
	case RKNPU_GET_FREQ:
		return action_report(rknpu_power_frequency(rdev), &args->value);
	case RKNPU_GET_VOLT:
		return action_report(rknpu_power_voltage(rdev), &args->value);
	case RKNPU_ACT_RESET:
	case RKNPU_ACT_REINIT:
		rknpu_job_cancel_file(file, ~0u, -ECANCELED);
		return 0;
	case RKNPU_ACT_RESET_CORE:
		if (!args->value || (args->value & ~rknpu_all_cores(rdev)))
			return -EINVAL;
		rknpu_job_cancel_file(file, args->value, -ECANCELED);
		return 0;
	case RKNPU_ACT_CLR_TOTAL_RW_AMOUNT:
		return 0;
	case RKNPU_GET_DT_WR_AMOUNT:
	case RKNPU_GET_DT_RD_AMOUNT:
	case RKNPU_GET_WT_RD_AMOUNT:
	case RKNPU_GET_TOTAL_RW_AMOUNT:
	case RKNPU_GET_TOTAL_SRAM_SIZE:
	case RKNPU_GET_FREE_SRAM_SIZE:
		return action_report(0, &args->value);
	case RKNPU_GET_IOMMU_EN:
		return action_report(1, &args->value);
	case RKNPU_SET_PROC_NICE:
		return action_set_nice(&rdev->drm, (s32)args->value);
	case RKNPU_POWER_ON:
		return action_set_power(rdev, file, true);
	case RKNPU_POWER_OFF:
		return action_set_power(rdev, file, false);
	case RKNPU_GET_IOMMU_DOMAIN_ID:
		return action_report(READ_ONCE(file->domain), &args->value);
	case RKNPU_SET_IOMMU_DOMAIN_ID:
	case RKNPU_ACT_SET_DOMAIN:
		return action_set_domain(file, args->value);
	case RKNPU_SET_FREQ:
		return action_set_frequency(file, args->value);
	case RKNPU_SET_VOLT:
	case RKNPU_GET_BW_PRIORITY:
	case RKNPU_SET_BW_PRIORITY:
	case RKNPU_GET_BW_EXPECT:
	case RKNPU_SET_BW_EXPECT:
	case RKNPU_GET_BW_TW:
	case RKNPU_SET_BW_TW:
		return -EOPNOTSUPP;
	default:
		return -EINVAL;
	}
}

int rknpu_ioctl_action(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct rknpu_action *args = data;
	int ret, idx;

	if (!drm_dev_enter(drm, &idx))
		return -ENODEV;
	ret = action_run(to_rknpu_device(drm), drm_file->driver_priv, args);
	drm_dev_exit(idx);
	if (ret)
		drm_dbg(drm, "ACTION %u, value %#x: %d\n", args->flags, args->value, ret);
	return ret;
}
