/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * What must never change in rknpu_drm.h, as assertions. Included by the driver and by the tests, in C and C++, 32 and 64 bits.
 */
#ifndef _UAPI_RKNPU_DRM_ABI_H
#define _UAPI_RKNPU_DRM_ABI_H

#include "rknpu_drm.h"

#if defined(__cplusplus)
#define RKNPU_ABI_ASSERT(cond) static_assert(cond, #cond)
#else
#define RKNPU_ABI_ASSERT(cond) _Static_assert(cond, #cond)
#endif
#define RKNPU_ABI_AT(type, field, at) RKNPU_ABI_ASSERT(__builtin_offsetof(struct type, field) == (at))

RKNPU_ABI_ASSERT(sizeof(struct rknpu_action) == 8);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_submit) == 104);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_mem_create) == 48);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_mem_map) == 16);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_mem_destroy) == 16);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_mem_sync) == 32);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_task) == 40);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_npud_limit) == 32);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_npud_revoke) == 8);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_npud_query) == 128);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_npud_file_info) == 120);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_npud_space_info) == 120);
RKNPU_ABI_ASSERT(sizeof(struct rknpu_npud_device_info) == 120);

RKNPU_ABI_AT(rknpu_mem_create, handle, 0);
RKNPU_ABI_AT(rknpu_mem_create, flags, 4);
RKNPU_ABI_AT(rknpu_mem_create, size, 8);
RKNPU_ABI_AT(rknpu_mem_create, obj_addr, 16);
RKNPU_ABI_AT(rknpu_mem_create, dma_addr, 24);
RKNPU_ABI_AT(rknpu_mem_create, sram_size, 32);
RKNPU_ABI_AT(rknpu_mem_create, iommu_domain_id, 40);
RKNPU_ABI_AT(rknpu_mem_create, core_mask, 44);
RKNPU_ABI_AT(rknpu_mem_map, offset, 8);
RKNPU_ABI_AT(rknpu_mem_destroy, obj_addr, 8);
RKNPU_ABI_AT(rknpu_mem_sync, flags, 0);
RKNPU_ABI_AT(rknpu_mem_sync, obj_addr, 8);
RKNPU_ABI_AT(rknpu_mem_sync, offset, 16);
RKNPU_ABI_AT(rknpu_mem_sync, size, 24);
RKNPU_ABI_AT(rknpu_submit, flags, 0);
RKNPU_ABI_AT(rknpu_submit, timeout, 4);
RKNPU_ABI_AT(rknpu_submit, task_start, 8);
RKNPU_ABI_AT(rknpu_submit, task_number, 12);
RKNPU_ABI_AT(rknpu_submit, task_counter, 16);
RKNPU_ABI_AT(rknpu_submit, priority, 20);
RKNPU_ABI_AT(rknpu_submit, task_obj_addr, 24);
RKNPU_ABI_AT(rknpu_submit, iommu_domain_id, 32);
RKNPU_ABI_AT(rknpu_submit, reserved, 36);
RKNPU_ABI_AT(rknpu_submit, task_base_addr, 40);
RKNPU_ABI_AT(rknpu_submit, hw_elapse_time, 48);
RKNPU_ABI_AT(rknpu_submit, core_mask, 56);
RKNPU_ABI_AT(rknpu_submit, fence_fd, 60);
RKNPU_ABI_AT(rknpu_submit, subcore_task, 64);
RKNPU_ABI_AT(rknpu_task, int_mask, 12);
RKNPU_ABI_AT(rknpu_task, int_status, 20);
RKNPU_ABI_AT(rknpu_task, regcfg_amount, 24);
RKNPU_ABI_AT(rknpu_task, regcmd_addr, 32);

RKNPU_ABI_ASSERT(DRM_IOCTL_RKNPU_ACTION == 0xC0086440u);
RKNPU_ABI_ASSERT(DRM_IOCTL_RKNPU_SUBMIT == 0xC0686441u);
RKNPU_ABI_ASSERT(DRM_IOCTL_RKNPU_MEM_CREATE == 0xC0306442u);
RKNPU_ABI_ASSERT(DRM_IOCTL_RKNPU_MEM_MAP == 0xC0106443u);
RKNPU_ABI_ASSERT(DRM_IOCTL_RKNPU_MEM_DESTROY == 0xC0106444u);
RKNPU_ABI_ASSERT(DRM_IOCTL_RKNPU_MEM_SYNC == 0xC0206445u);
RKNPU_ABI_ASSERT(DRM_IOCTL_RKNPU_NPUD_LIMIT == 0xC0206460u);
RKNPU_ABI_ASSERT(DRM_IOCTL_RKNPU_NPUD_REVOKE == 0xC0086461u);
RKNPU_ABI_ASSERT(DRM_IOCTL_RKNPU_NPUD_QUERY == 0xC0806462u);

#endif /* _UAPI_RKNPU_DRM_ABI_H */
