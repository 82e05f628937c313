/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_DEVICE_H
#define RKNPU_DEVICE_H

#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <drm/drm_device.h>

#include "rknpu_core.h"
#include "rknpu_mmu.h"
#include "rknpu_queue.h"
#include "rknpu_soc.h"

struct platform_device;
struct rknpu_devfreq;
struct rknpu_node;

/**
 * struct rknpu_device - one NPU: its DRM device, its cores, its run queue
 *
 * The DRM device's parent is a platform device made for it, without IOMMU, so that the addresses that the DMA API gives for it are
 * physical ones whatever IOMMU the cores have; page tables get those.
 *
 * Locks, outermost first (kernel/README.md has the whole order):
 *  file->lock, bo->lock, space->lock, unit->lock, rdev->lock (irq), core->irq_lock (irq)
 */
struct rknpu_device {
	struct drm_device drm;
	struct platform_device *facade;
	const struct rknpu_soc *soc;
	const struct rknpu_mmu_ops *mmu;

	struct rknpu_node *nodes[RKNPU_MAX_CORES];
	unsigned int nr_nodes;
	struct rknpu_core cores[RKNPU_MAX_CORES];
	unsigned int nr_cores;
	struct rknpu_mmu_unit units[RKNPU_MAX_CORES];
	unsigned int nr_units;
	u32 hw_version;

	/*
	 * The state machine of jobs and cores runs on one thread, which alone starts and stops cores.
	 * All others hand it requests under @lock and kick @work.
	 */
	struct kthread_worker *worker;
	struct kthread_work work;
	struct hrtimer tick;

	/*
	 * Worker: cores don't start what they are given.
	 * Nothing starts until all are idle and were reset.
	 */
	enum rknpu_last_resort last_resort;

	spinlock_t lock;		/* @queue, job states and links, requests, @dead, @gone, units' live */
	struct rknpu_queue queue;
	unsigned int jobs_queued;
	unsigned int jobs_running;
	bool dead;			/* no core is left that works */
	bool tell_dead;			/* worker: nobody was told yet */
	bool gone;			/* the hardware is being taken away */
	atomic_t inside;		/* ioctls under way; none begins when @gone */
	unsigned int paused;		/* nothing starts; by each node that sleeps */
	u32 dead_cores;
	u32 reset_wanted;		/* cores that must be stopped and reset */
	bool revive_wanted;
	wait_queue_head_t settled;	/* what was asked of the thread is done */
	u64 next_dump_ns;		/* worker only: no coredump before */
	u64 start_after;		/* ktime ns: after a failed start, nothing starts before */

	struct mutex list_lock;		/* @files, @spaces */
	struct list_head files;
	struct list_head spaces;
	unsigned int nr_files;
	unsigned int nr_spaces;

	atomic64_t job_seq;
	atomic64_t iova_bytes;
	atomic64_t resets;
	atomic64_t resets_together;	/* of all cores, as the last resort */
	atomic64_t scrubs;		/* resets of cores that changed their owner */
	atomic64_t timeouts;
	atomic64_t page_faults;
	atomic64_t switches;
	atomic64_t lost_irqs;
	atomic64_t spurious_irqs;
	atomic64_t leaks;		/* things deliberately kept because hardware would not let go */

	struct mutex devfreq_lock;	/* the next two */
	struct rknpu_devfreq *devfreq;	/* or NULL: the clock stays as it is */
	unsigned int nodes_on;		/* that have power */

	struct dentry *debugfs;
	unsigned int autosuspend_ms;
	struct mutex load_lock;		/* the next three: the load's last sample */
	u64 load_at_ns;
	u64 load_busy_ns[RKNPU_MAX_CORES];
	unsigned int load_percent[RKNPU_MAX_CORES];
};

/* Releases what finished jobs held. Of the module: the last thing it releases may be a device. */
extern struct workqueue_struct *rknpu_reaper;

static inline struct rknpu_device *to_rknpu_device(struct drm_device *drm)
{
	return container_of(drm, struct rknpu_device, drm);
}

/* The device that memory is mapped for. */
static inline struct device *rknpu_dma_dev(struct rknpu_device *rdev)
{
	return rdev->drm.dev;
}

static inline u32 rknpu_all_cores(const struct rknpu_device *rdev)
{
	return (1u << rdev->nr_cores) - 1;
}

#endif /* RKNPU_DEVICE_H */
