/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between the kernels that this driver builds for (6.1 and later),
 * each with the version that made it.
 * Nothing else in the driver asks for a version.
 */
#ifndef RKNPU_COMPAT_H
#define RKNPU_COMPAT_H

#include <linux/version.h>
#include <linux/hrtimer.h>
#include <linux/iommu.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <drm/drm_gem.h>
#include <drm/drm_gem_shmem_helper.h>

/* 6.3 added remove_new, which returns nothing; 6.11 made remove itself so. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define RKNPU_DEFINE_REMOVE(fn)
#define RKNPU_REMOVE(fn)	.remove = fn
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
#define RKNPU_DEFINE_REMOVE(fn)
#define RKNPU_REMOVE(fn)	.remove_new = fn
#else
#define RKNPU_DEFINE_REMOVE(fn)					\
	static int fn##_int(struct platform_device *pdev)	\
	{							\
		fn(pdev);					\
		return 0;					\
	}
#define RKNPU_REMOVE(fn)	.remove = fn##_int
#endif

/* 6.13 wants the name space as a string. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define RKNPU_IMPORT_DMA_BUF	MODULE_IMPORT_NS("DMA_BUF")
#else
#define RKNPU_IMPORT_DMA_BUF	MODULE_IMPORT_NS(DMA_BUF)
#endif

/* 6.12 made unsigned file offsets a flag of the file operations. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#define RKNPU_FOP_FLAGS		.fop_flags = FOP_UNSIGNED_OFFSET,
#else
#define RKNPU_FOP_FLAGS
#endif

/* 6.14 took the date out of struct drm_driver. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
#define RKNPU_DRM_DATE
#else
#define RKNPU_DRM_DATE		.date = "20240828",
#endif

/*
 * 6.6 made these the default and later kernels keep the functions for few users.
 * Before, a dma-buf could only be mapped if its driver named the helper.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
#define RKNPU_DRM_PRIME
#else
#define RKNPU_DRM_PRIME						\
	.prime_handle_to_fd = drm_gem_prime_handle_to_fd,	\
	.prime_fd_to_handle = drm_gem_prime_fd_to_handle,	\
	.gem_prime_mmap = drm_gem_prime_mmap,
#endif

/* 6.14 split making a worker from starting it. */
static inline struct kthread_worker *rknpu_run_worker(const char *name)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
	return kthread_run_worker(0, "%s", name);
#else
	return kthread_create_worker(0, "%s", name);
#endif
}

/* 6.13 sets a timer and its function up in one. */
static inline void rknpu_hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*fn)(struct hrtimer *timer))
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, fn, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	timer->function = fn;
#endif
}

/* 6.11 allocates paging domains for a device, not for a bus. */
static inline struct iommu_domain *rknpu_iommu_domain_alloc(struct device *dev)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
	return iommu_paging_domain_alloc(dev);
#else
	struct iommu_domain *domain = iommu_domain_alloc(dev->bus);

	return domain ? domain : ERR_PTR(-ENOMEM);
#endif
}

/* 6.3 added the allocation flags. */
static inline int rknpu_iommu_map(struct iommu_domain *domain, unsigned long iova, phys_addr_t paddr, size_t bytes,
				  int prot)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	return iommu_map(domain, iova, paddr, bytes, prot, GFP_KERNEL);
#else
	return iommu_map(domain, iova, paddr, bytes, prot);
#endif
}

/* Before 6.2 the helper took its own lock; 6.2 brought a function that takes the reservation lock; 6.16 renamed it. */
static inline int rknpu_gem_vmap(struct drm_gem_object *obj, struct iosys_map *map)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
	return drm_gem_vmap(obj, map);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	return drm_gem_vmap_unlocked(obj, map);
#else
	return drm_gem_shmem_vmap(to_drm_gem_shmem_obj(obj), map);
#endif
}

static inline void rknpu_gem_vunmap(struct drm_gem_object *obj, struct iosys_map *map)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
	drm_gem_vunmap(obj, map);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	drm_gem_vunmap_unlocked(obj, map);
#else
	drm_gem_shmem_vunmap(to_drm_gem_shmem_obj(obj), map);
#endif
}

#endif /* RKNPU_COMPAT_H */
