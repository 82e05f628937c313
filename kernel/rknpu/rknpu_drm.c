// SPDX-License-Identifier: GPL-2.0-only
/* The DRM device: the table of ioctls, and what a file that was revoked may still do. */
#include <linux/module.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_ioctl.h>

#include "rknpu_action.h"
#include "rknpu_bo.h"
#include "rknpu_compat.h"
#include "rknpu_device.h"
#include "rknpu_drm.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_prime.h"
#include "rknpu_sched.h"
#include "../include/uapi/drm/rknpu_drm_abi.h"

static const struct drm_ioctl_desc rknpu_ioctls[] = {
	DRM_IOCTL_DEF_DRV(RKNPU_ACTION, rknpu_ioctl_action, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_SUBMIT, rknpu_ioctl_submit, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_MEM_CREATE, rknpu_ioctl_mem_create, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_MEM_MAP, rknpu_ioctl_mem_map, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_MEM_DESTROY, rknpu_ioctl_mem_destroy, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_MEM_SYNC, rknpu_ioctl_mem_sync, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_NPUD_LIMIT, rknpu_ioctl_npud_limit, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_NPUD_REVOKE, rknpu_ioctl_npud_revoke, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(RKNPU_NPUD_QUERY, rknpu_ioctl_npud_query, DRM_RENDER_ALLOW),
};

static struct rknpu_file *rknpu_fop_file(struct file *filp)
{
	struct drm_file *drm_file = filp->private_data;

	return drm_file->driver_priv;
}

/* A revoked file may still give back what it has. */
static bool rknpu_fop_allowed(struct file *filp, unsigned int cmd)
{
	return !rknpu_file_revoked(rknpu_fop_file(filp)) || cmd == DRM_IOCTL_GEM_CLOSE || cmd == DRM_IOCTL_RKNPU_NPUD_REVOKE;
}

/*
 * An unbind waits for ioctls under way; a submit among them ends when its job does. drm_dev_enter() would do,
 * but what it takes is common to all DRM devices, whose unplugging would then wait for our jobs.
 */
static long rknpu_fop_call(struct file *filp, unsigned int cmd, unsigned long arg,
			   long (*call)(struct file *filp, unsigned int cmd, unsigned long arg))
{
	struct rknpu_device *rdev = rknpu_fop_file(filp)->rdev;
	long ret = -ENODEV;

	atomic_inc(&rdev->inside);
	/* Either the unbind sees this one, or this one sees the unbind. */
	smp_mb__after_atomic();
	if (!READ_ONCE(rdev->gone) && rknpu_fop_allowed(filp, cmd))
		ret = call(filp, cmd, arg);
	if (atomic_dec_and_test(&rdev->inside) && READ_ONCE(rdev->gone))
		wake_up_all(&rdev->settled);
	return ret;
}

static long rknpu_fop_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	return rknpu_fop_call(filp, cmd, arg, drm_ioctl);
}

#ifdef CONFIG_COMPAT
static long rknpu_fop_compat_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	return rknpu_fop_call(filp, cmd, arg, drm_compat_ioctl);
}
#endif

static int rknpu_fop_mmap(struct file *filp, struct vm_area_struct *vma)
{
	return rknpu_file_revoked(rknpu_fop_file(filp)) ? -ENODEV : drm_gem_mmap(filp, vma);
}

/* The jobs end before the DRM core takes the handles, and with them the mappings, away. */
static int rknpu_fop_release(struct inode *inode, struct file *filp)
{
	rknpu_file_quiesce(rknpu_fop_file(filp));
	return drm_release(inode, filp);
}

static const struct file_operations rknpu_fops = {
	.owner = THIS_MODULE,
	.open = drm_open,
	.release = rknpu_fop_release,
	.unlocked_ioctl = rknpu_fop_ioctl,
#ifdef CONFIG_COMPAT
	.compat_ioctl = rknpu_fop_compat_ioctl,
#endif
	.poll = drm_poll,
	.read = drm_read,
	.llseek = noop_llseek,
	.mmap = rknpu_fop_mmap,
	.show_fdinfo = rknpu_file_show_fdinfo,
	RKNPU_FOP_FLAGS
};

/* The last file is closed: nothing of the device is in use any more. */
static void rknpu_drm_release(struct drm_device *drm)
{
	rknpu_sched_fini(to_rknpu_device(drm));
}

const struct drm_driver rknpu_drm_driver = {
	.driver_features = DRIVER_GEM | DRIVER_RENDER,
	.open = rknpu_file_open,
	.postclose = rknpu_file_postclose,
	.release = rknpu_drm_release,
	.gem_create_object = rknpu_gem_create_object,
	.gem_prime_import = rknpu_prime_import,
	.gem_prime_import_sg_table = drm_gem_shmem_prime_import_sg_table,
	.ioctls = rknpu_ioctls,
	.num_ioctls = ARRAY_SIZE(rknpu_ioctls),
	.fops = &rknpu_fops,
	.name = RKNPU_DRM_NAME,
	.desc = "Rockchip NPU",
	.major = RKNPU_DRM_VERSION_MAJOR,
	.minor = RKNPU_DRM_VERSION_MINOR,
	.patchlevel = RKNPU_DRM_VERSION_PATCH,
	RKNPU_DRM_PRIME
	RKNPU_DRM_DATE
};
