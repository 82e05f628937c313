/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The RKNPU interface, version 0.9.8, DRM-GEM mode, as user space knows it (librknnrt, ork-driver, rk3588-npu and others run on it
 * unchanged), and behind it, in a range of its own, what npud adds: lowering the limits of a file, revoking a file, asking about it.
 *
 * Sizes, offsets and numbers are asserted in rknpu_drm_abi.h; they are the same for 32-bit and 64-bit user space.
 *
 * Where this driver answers otherwise than others with the same interface:
 *  - obj_addr is an opaque value of the file that made it, never an address, and useless to any other file.
 *  - iommu_domain_id (0 to 15) names an address space of this file. Domain 3 of one file has nothing to do with domain 3 of another.
 *  - Memory is always zeroed. Unknown flags give -EINVAL; reserved fields are ignored.
 *  - The task array is copied when a job is submitted; int_status is written back when it is done.
 *  - RKNPU_ACT_RESET cancels the caller's own jobs, and nobody else's.
 */
#ifndef _UAPI_RKNPU_DRM_H
#define _UAPI_RKNPU_DRM_H

#include <drm/drm.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define RKNPU_DRM_NAME			"rknpu"
#define RKNPU_DRM_VERSION_MAJOR		0
#define RKNPU_DRM_VERSION_MINOR		9
#define RKNPU_DRM_VERSION_PATCH		8

#define RKNPU_MAX_DOMAINS		16	/* address spaces of a file */
#define RKNPU_MAX_SUBCORE_TASKS		5

/* --- memory ------------------------------------------------------------------------------------------------------------------- */

/* rknpu_mem_create.flags */
enum e_rknpu_mem_type {
	RKNPU_MEM_CONTIGUOUS			= 0,
	RKNPU_MEM_NON_CONTIGUOUS		= 1 << 0,
	RKNPU_MEM_NON_CACHEABLE			= 0,
	RKNPU_MEM_CACHEABLE			= 1 << 1,
	RKNPU_MEM_WRITE_COMBINE			= 1 << 2,
	RKNPU_MEM_KERNEL_MAPPING		= 1 << 3,	/* accepted; mapped when the kernel needs it */
	RKNPU_MEM_IOMMU				= 1 << 4,	/* accepted; all memory is behind the MMU */
	RKNPU_MEM_ZEROING			= 1 << 5,	/* accepted; always done */
	RKNPU_MEM_SECURE			= 1 << 6,	/* -EOPNOTSUPP */
	RKNPU_MEM_DMA32				= 1 << 7,	/* pages below 4 GiB */
	RKNPU_MEM_TRY_ALLOC_SRAM		= 1 << 8,	/* a wish; answered by sram_size = 0 */
	RKNPU_MEM_TRY_ALLOC_NBUF		= 1 << 9,	/* likewise */
	RKNPU_MEM_IOMMU_LIMIT_IOVA_ALIGNMENT	= 1 << 10,	/* accepted; IOVA is aligned to pages and accounted exactly */
	RKNPU_MEM_MASK				= (1 << 11) - 1,
};

/* rknpu_mem_sync.flags */
enum e_rknpu_mem_sync_mode {
	RKNPU_MEM_SYNC_TO_DEVICE	= 1 << 0,
	RKNPU_MEM_SYNC_FROM_DEVICE	= 1 << 1,
	RKNPU_MEM_SYNC_MASK		= 3,
};

/**
 * struct rknpu_mem_create - allocate a buffer, or find the addresses of one that exists
 * @handle: in: 0 to allocate, or a GEM handle of this file (from PRIME import, say); one that names nothing allocates; out: the handle
 * @flags: RKNPU_MEM_*
 * @size: in: bytes, rounded up to pages; out: bytes allocated
 * @obj_addr: out: opaque value for task_obj_addr and rknpu_mem_sync.obj_addr
 * @dma_addr: out: device address in the address space @iommu_domain_id
 * @sram_size: in: bytes of on-chip memory wished for; out: bytes given
 * @iommu_domain_id: address space of this file, 0 to 15
 * @core_mask: cores that will use it; bits beyond the device's cores give -EINVAL
 *
 * A caller with the older 40-byte form ends before @iommu_domain_id, which counts as 0.
 * With a handle, a buffer that has an address in @iommu_domain_id gives that one; one that has none there and was not imported gives
 * the address it has; an imported one is mapped there, at the address it has elsewhere if that is free.
 */
struct rknpu_mem_create {
	__u32 handle;
	__u32 flags;
	__u64 size;
	__u64 obj_addr;
	__u64 dma_addr;
	__u64 sram_size;
	__s32 iommu_domain_id;
	__u32 core_mask;
};

#define RKNPU_MEM_CREATE_SIZE_V1	40	/* without iommu_domain_id and core_mask */

/**
 * struct rknpu_mem_map - get the offset for mmap() on the DRM file
 */
struct rknpu_mem_map {
	__u32 handle;
	__u32 reserved;
	__u64 offset;
};

/**
 * struct rknpu_mem_destroy - close a handle
 * @obj_addr: the value that MEM_CREATE gave, or 0
 */
struct rknpu_mem_destroy {
	__u32 handle;
	__u32 reserved;
	__u64 obj_addr;
};

/**
 * struct rknpu_mem_sync - hand a range of a cacheable buffer over, to the device or from it
 * @flags: RKNPU_MEM_SYNC_*; 0 does nothing
 * @offset: bytes from the start of the buffer
 * @size: bytes; what lies beyond the end of the buffer doesn't count
 *
 * For an import the exporter is asked to do it, which waits for the fences of the buffer.
 */
struct rknpu_mem_sync {
	__u32 flags;
	__u32 reserved;
	__u64 obj_addr;
	__u64 offset;
	__u64 size;
};

/* --- jobs --------------------------------------------------------------------------------------------------------------------- */

/* rknpu_submit.flags */
enum e_rknpu_job_mode {
	RKNPU_JOB_SLAVE		= 0,		/* -EINVAL */
	RKNPU_JOB_PC		= 1 << 0,	/* must be set */
	RKNPU_JOB_BLOCK		= 0,
	RKNPU_JOB_NONBLOCK	= 1 << 1,
	RKNPU_JOB_PINGPONG	= 1 << 2,
	RKNPU_JOB_FENCE_IN	= 1 << 3,
	RKNPU_JOB_FENCE_OUT	= 1 << 4,
	RKNPU_JOB_MASK		= (1 << 5) - 1,
};

/* rknpu_submit.core_mask; anything else (5, 6, a core that the device lacks) gives -EINVAL */
#define RKNPU_CORE_AUTO_MASK		0
#define RKNPU_CORE0_MASK		1
#define RKNPU_CORE1_MASK		2
#define RKNPU_CORE2_MASK		4
#define RKNPU_CORE01_MASK		3
#define RKNPU_CORE012_MASK		7

#define RKNPU_PRIORITY_HIGHEST		(-20)	/* below 0: with CAP_SYS_NICE, else 0 */
#define RKNPU_PRIORITY_LOWEST		19

/**
 * struct rknpu_task - what the program controller runs; an array of these lies in the buffer task_obj_addr
 * @int_mask: interrupt bits that say that the task is done
 * @int_status: out: the interrupt bits that were seen (written into the last task of each core)
 * @regcfg_amount: command words, without the four at the end
 * @regcmd_addr: device address of the command words
 */
struct rknpu_task {
	__u32 flags;
	__u32 op_idx;
	__u32 enable_mask;
	__u32 int_mask;
	__u32 int_clear;
	__u32 int_status;
	__u32 regcfg_amount;
	__u32 regcfg_offset;
	__u64 regcmd_addr;
} __attribute__((packed));

struct rknpu_subcore_task {
	__u32 task_start;
	__u32 task_number;
};

/**
 * struct rknpu_submit - run tasks
 * @flags: RKNPU_JOB_*
 * @timeout: milliseconds, counted from when the job starts to run; 0 means the device's default
 * @task_start: index of the first task, for one core with an empty @subcore_task
 * @task_number: number of tasks of all cores together
 * @task_counter: out: tasks completed
 * @priority: lower runs first, as with nice; a wish, cut to -20 to 19, to 0 without CAP_SYS_NICE, and to the file's limit
 * @task_obj_addr: the task array's buffer, as MEM_CREATE gave it in obj_addr
 * @iommu_domain_id: address space of this file in which all addresses are meant, 0 to 15
 * @reserved: ignored
 * @task_base_addr: device address to which the hardware adds command addresses; 0 for none
 * @hw_elapse_time: out: nanoseconds from start to completion
 * @core_mask: RKNPU_CORE*_MASK
 * @fence_fd: in with FENCE_IN, out with FENCE_OUT
 * @subcore_task: tasks of each core: index = core for one or two cores, core + 2 for three
 *
 * Errors of a blocking job, and of the fence of any: -ETIMEDOUT (ran too long), -EFAULT (page fault in this job), -EIO (the core failed),
 * -ECANCELED (cancelled by its owner), -ENODEV (device or file gone), -EINTR (the caller was killed).
 */
struct rknpu_submit {
	__u32 flags;
	__u32 timeout;
	__u32 task_start;
	__u32 task_number;
	__u32 task_counter;
	__s32 priority;
	__u64 task_obj_addr;
	__u32 iommu_domain_id;
	__u32 reserved;
	__u64 task_base_addr;
	__s64 hw_elapse_time;
	__u32 core_mask;
	__s32 fence_fd;
	struct rknpu_subcore_task subcore_task[RKNPU_MAX_SUBCORE_TASKS];
};

/* --- actions ------------------------------------------------------------------------------------------------------------------ */

/* rknpu_action.flags; "unsupported" means -EOPNOTSUPP */
enum e_rknpu_action {
	RKNPU_GET_HW_VERSION		= 0,
	RKNPU_GET_DRV_VERSION		= 1,	/* 908 */
	RKNPU_GET_FREQ			= 2,	/* Hz; unsupported without a clock */
	RKNPU_SET_FREQ			= 3,	/* a floor while this file is open, 0 takes it back; CAP_SYS_NICE; unsupported where nothing scales */
	RKNPU_GET_VOLT			= 4,	/* microvolts; unsupported without a regulator */
	RKNPU_SET_VOLT			= 5,	/* unsupported */
	RKNPU_ACT_RESET			= 6,	/* cancels this file's jobs; a core that runs one is reset */
	RKNPU_GET_BW_PRIORITY		= 7,	/* unsupported, as all of bandwidth control */
	RKNPU_SET_BW_PRIORITY		= 8,
	RKNPU_GET_BW_EXPECT		= 9,
	RKNPU_SET_BW_EXPECT		= 10,
	RKNPU_GET_BW_TW			= 11,
	RKNPU_SET_BW_TW			= 12,
	RKNPU_ACT_CLR_TOTAL_RW_AMOUNT	= 13,	/* nothing is counted; 0 */
	RKNPU_GET_DT_WR_AMOUNT		= 14,	/* 0 */
	RKNPU_GET_DT_RD_AMOUNT		= 15,	/* 0 */
	RKNPU_GET_WT_RD_AMOUNT		= 16,	/* 0 */
	RKNPU_GET_TOTAL_RW_AMOUNT	= 17,	/* 0 */
	RKNPU_GET_IOMMU_EN		= 18,	/* 1 */
	RKNPU_SET_PROC_NICE		= 19,	/* of the calling thread, where setpriority(2) would allow it; else 0 without effect */
	RKNPU_POWER_ON			= 20,	/* keeps the device powered until POWER_OFF or close */
	RKNPU_POWER_OFF			= 21,
	RKNPU_GET_TOTAL_SRAM_SIZE	= 22,	/* 0 */
	RKNPU_GET_FREE_SRAM_SIZE	= 23,	/* 0 */
	RKNPU_GET_IOMMU_DOMAIN_ID	= 24,	/* this file's current address space */
	RKNPU_SET_IOMMU_DOMAIN_ID	= 25,	/* imports are mapped there; costs nothing, switches nothing */

	/* as in the oRKLLM tree */
	RKNPU_ACT_RESET_CORE		= 0x100,	/* value: core mask; cancels this file's jobs on those cores */
	RKNPU_ACT_REINIT		= 0x101,	/* like ACT_RESET */
	RKNPU_ACT_SET_DOMAIN		= 0x102,	/* like SET_IOMMU_DOMAIN_ID */
};

struct rknpu_action {
	__u32 flags;
	__u32 value;
};

/* --- npud's own --------------------------------------------------------------------------------------------------------------- */

/* rknpu_npud_limit.flags: which fields count */
#define RKNPU_NPUD_LIMIT_CORES		0x1
#define RKNPU_NPUD_LIMIT_BYTES		0x2
#define RKNPU_NPUD_LIMIT_PRIORITY	0x4
#define RKNPU_NPUD_LIMIT_JOBS		0x8
#define RKNPU_NPUD_LIMIT_MASK		0xf

/**
 * struct rknpu_npud_limit - lower this file's limits, for good
 * @flags: RKNPU_NPUD_LIMIT_*
 * @core_mask: cores that jobs may use (intersected with what is allowed now; an empty result gives -EINVAL)
 * @bytes: most bytes of buffers this file may hold; what it holds now stays
 * @priority: most urgent priority (lowest number) that jobs may have
 * @jobs: most jobs queued or running; 0 gives -EINVAL
 * @reserved: must be 0
 *
 * Limits belong to the open file, so they stay with a descriptor that is handed on. A value above the present limit leaves that as it
 * is. On return the fields hold the limits in force. Work beyond a limit gives -EPERM (cores), -EDQUOT (bytes) or -EAGAIN (jobs); a more
 * urgent priority is cut to the limit.
 */
struct rknpu_npud_limit {
	__u32 flags;
	__u32 core_mask;
	__u64 bytes;
	__s32 priority;
	__u32 jobs;
	__u64 reserved;
};

/**
 * struct rknpu_npud_revoke - end this open file: its jobs are cancelled (-ECANCELED); from then on every ioctl and mmap() on any descriptor of
 * it gives -ENODEV, GEM_CLOSE apart. Returns when no core runs a job of it any more. Calling it again is harmless.
 */
struct rknpu_npud_revoke {
	__u32 flags;		/* must be 0 */
	__u32 reserved;		/* must be 0 */
};

/* rknpu_npud_query.what */
#define RKNPU_NPUD_QUERY_FILE		0
#define RKNPU_NPUD_QUERY_SPACE		1	/* @index: iommu_domain_id */
#define RKNPU_NPUD_QUERY_DEVICE		2

#define RKNPU_NPUD_MMU_BANK		0	/* the driver owns the MMU's banks */
#define RKNPU_NPUD_MMU_IOMMU		1	/* the kernel's IOMMU driver does */

#define RKNPU_NPUD_DEVICE_DEAD		0x1	/* recovery failed; every submit gives -ENODEV */

#define RKNPU_NPUD_FAULT_WRITE		0x1	/* else a read */
#define RKNPU_NPUD_FAULT_VALID		0x2	/* there has been a fault */

struct rknpu_npud_file_info {
	__u64 bytes;		/* of buffers with a handle in this file */
	__u64 bytes_limit;
	__u32 objects;		/* handles */
	__u32 spaces;		/* bit n: address space n exists */
	__u32 core_mask;	/* limit */
	__s32 priority;		/* limit */
	__u32 jobs_limit;
	__u32 jobs_active;	/* queued or running */
	__u64 jobs_done;
	__u64 jobs_failed;
	__u64 jobs_cancelled;
	__u64 page_faults;
	__u64 last_fault_iova;
	__u32 last_fault_flags;	/* RKNPU_NPUD_FAULT_* */
	__u32 last_fault_space;
	__u64 busy_ns;		/* core time, all cores together */
	__u64 reserved[3];
};

struct rknpu_npud_space_info {
	__u64 iova_start;
	__u64 iova_bytes;	/* of the window */
	__u64 used_bytes;
	__u64 largest_hole_bytes;
	__u64 mappings;
	__u64 table_bytes;	/* page tables; 0 where the kernel's IOMMU driver has them */
	__u64 reserved[9];
};

struct rknpu_npud_device_info {
	__u32 cores;
	__u32 mmu;		/* RKNPU_NPUD_MMU_* */
	__u32 flags;		/* RKNPU_NPUD_DEVICE_* */
	__u32 files;		/* open */
	__u32 spaces;		/* alive, of all files */
	__u32 jobs_queued;
	__u32 jobs_running;
	__u32 mmu_units;	/* cores behind the same one run one address space at a time */
	__u64 resets;
	__u64 timeouts;
	__u64 page_faults;
	__u64 switches;		/* of address spaces on cores */
	__u64 iova_bytes;	/* mapped now, of all files */
	__u64 reserved[6];
};

/**
 * struct rknpu_npud_query - ask about this file, one of its address spaces, or the device
 * @index: as said at RKNPU_NPUD_QUERY_*; otherwise must be 0. A space that was not made yet gives -ENOENT.
 */
struct rknpu_npud_query {
	__u32 what;
	__u32 index;
	union {
		struct rknpu_npud_file_info file;
		struct rknpu_npud_space_info space;
		struct rknpu_npud_device_info device;
	};
};

/* --- numbers ------------------------------------------------------------------------------------------------------------------ */

#define RKNPU_ACTION			0x00
#define RKNPU_SUBMIT			0x01
#define RKNPU_MEM_CREATE		0x02
#define RKNPU_MEM_MAP			0x03
#define RKNPU_MEM_DESTROY		0x04
#define RKNPU_MEM_SYNC			0x05
#define RKNPU_NPUD_LIMIT		0x20
#define RKNPU_NPUD_REVOKE		0x21
#define RKNPU_NPUD_QUERY		0x22

#define DRM_IOCTL_RKNPU_ACTION		DRM_IOWR(DRM_COMMAND_BASE + RKNPU_ACTION, struct rknpu_action)
#define DRM_IOCTL_RKNPU_SUBMIT		DRM_IOWR(DRM_COMMAND_BASE + RKNPU_SUBMIT, struct rknpu_submit)
#define DRM_IOCTL_RKNPU_MEM_CREATE	DRM_IOWR(DRM_COMMAND_BASE + RKNPU_MEM_CREATE, struct rknpu_mem_create)
#define DRM_IOCTL_RKNPU_MEM_MAP		DRM_IOWR(DRM_COMMAND_BASE + RKNPU_MEM_MAP, struct rknpu_mem_map)
#define DRM_IOCTL_RKNPU_MEM_DESTROY	DRM_IOWR(DRM_COMMAND_BASE + RKNPU_MEM_DESTROY, struct rknpu_mem_destroy)
#define DRM_IOCTL_RKNPU_MEM_SYNC	DRM_IOWR(DRM_COMMAND_BASE + RKNPU_MEM_SYNC, struct rknpu_mem_sync)
#define DRM_IOCTL_RKNPU_NPUD_LIMIT	DRM_IOWR(DRM_COMMAND_BASE + RKNPU_NPUD_LIMIT, struct rknpu_npud_limit)
#define DRM_IOCTL_RKNPU_NPUD_REVOKE	DRM_IOWR(DRM_COMMAND_BASE + RKNPU_NPUD_REVOKE, struct rknpu_npud_revoke)
#define DRM_IOCTL_RKNPU_NPUD_QUERY	DRM_IOWR(DRM_COMMAND_BASE + RKNPU_NPUD_QUERY, struct rknpu_npud_query)

#if defined(__cplusplus)
}
#endif

#endif /* _UAPI_RKNPU_DRM_H */
