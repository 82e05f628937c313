// SPDX-License-Identifier: Apache-2.0
/*
 * What the guest programs share to speak to an RKNPU driver: finding the node by its DRM name, buffers, GEMM jobs whose results are
 * known, fences, and the driver's private queries. Functions return 0 or a descriptor, and -1 with errno on failure, as system calls do.
 */
#ifndef NPUD_TESTS_KERNEL_NPU_H
#define NPUD_TESTS_KERNEL_NPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include "../../kernel/include/uapi/drm/rknpu_drm_abi.h"
#include "../../kernel/tests/npu_gemm.h"

enum { NPU_CORES = 3, NPU_PAGE = 4096, NPU_TIMEOUT_MS = 20000 };

/* --- nodes --------------------------------------------------------------------------------------------------------------------- */

enum npu_node { NPU_CARD, NPU_RENDER };

/* Opens the first node of the kind whose DRM driver is called "rknpu". Exits with a "Bail out!" line in npu_open_or_die(). */
int npu_open(enum npu_node kind);
int npu_open_or_die(void);
int npu_action(int fd, uint32_t action, uint32_t *value);

/* --- buffers ------------------------------------------------------------------------------------------------------------------- */

struct bo {
  int fd;
  uint32_t handle;
  uint64_t size;   /* bytes */
  uint64_t iova;   /* in the address space it was created in */
  uint64_t cookie; /* obj_addr */
  void *map;       /* NULL until bo_map() */
};

int bo_create(int fd, struct bo *bo, uint64_t size, uint32_t flags, int domain);
int bo_lookup(int fd, struct bo *bo, uint32_t handle, int domain); /* MEM_CREATE with a handle */
int bo_map(struct bo *bo);
int bo_sync(const struct bo *bo, uint32_t flags, uint64_t offset, uint64_t size);
int bo_export(const struct bo *bo);                                /* a dma-buf */
int bo_import(int fd, int dmabuf, uint32_t *handle);
void bo_destroy(struct bo *bo); /* unmaps and closes the handle; harmless on an empty one */

/* --- jobs ---------------------------------------------------------------------------------------------------------------------- */

/* A chain of equal GEMM tasks with everything they need. All tasks read the same operands; each writes its own output. */
struct gemm {
  int fd;
  int domain;
  unsigned tasks;
  struct npu_gemm shape;
  struct bo data;  /* command words, features, weights, outputs */
  struct bo array; /* struct rknpu_task[tasks] */
  uint32_t *expected;
  size_t out_offset;
};

int gemm_create(struct gemm *g, int fd, int domain, const struct npu_gemm *shape, unsigned tasks);
int gemm_small(struct gemm *g, int fd, int domain, bool fp16, uint32_t seed); /* one task of 8 x 64 x 32 */
/* About `macs` multiply-accumulates in one job, by chaining fp16 tasks: something that keeps a core busy. */
int gemm_long(struct gemm *g, int fd, int domain, uint64_t macs, uint32_t seed);
void gemm_clear(struct gemm *g); /* fills the outputs with a pattern that no result has */
/* Number of wrong results in the outputs of tasks first..first + count - 1. */
unsigned gemm_wrong_range(const struct gemm *g, unsigned first, unsigned count);
unsigned gemm_wrong(const struct gemm *g);
bool gemm_untouched(const struct gemm *g); /* still all as gemm_clear() left it */
struct rknpu_task *gemm_task(const struct gemm *g, unsigned task);
void gemm_destroy(struct gemm *g);

/* Fills in a submit for all tasks on the cores of the mask, divided evenly, blocking. */
void gemm_prepare(const struct gemm *g, struct rknpu_submit *submit, uint32_t core_mask);
int npu_submit(int fd, struct rknpu_submit *submit);
/* Clears, runs blocking on the mask, checks: 0 if all results are right, the number of wrong ones, or -1 with errno. */
int gemm_run(struct gemm *g, uint32_t core_mask);
/* Submits without blocking and returns the fence's descriptor, or -1. */
int gemm_start(struct gemm *g, uint32_t core_mask, uint32_t timeout_ms, int priority);

/* --- fences -------------------------------------------------------------------------------------------------------------------- */

/* Waits for the fence: 1 signalled without error, -errno with one, 0 when `timeout_ms` passed first. */
int fence_wait(int fence, int timeout_ms);
/* When it signalled, in nanoseconds of CLOCK_MONOTONIC; 0 if it has not. */
uint64_t fence_time_ns(int fence);

/* --- private queries ------------------------------------------------------------------------------------------------------------ */

int query_file(int fd, struct rknpu_npud_file_info *info);
int query_space(int fd, uint32_t domain, struct rknpu_npud_space_info *info);
int query_device(int fd, struct rknpu_npud_device_info *info);
bool npu_has_private(int fd); /* whether this driver has npud's own ioctls */

/* --- small things ---------------------------------------------------------------------------------------------------------------- */

uint64_t now_ns(void);
void sleep_ms(unsigned ms);
/* A generator for reproducible random tests (xorshift64*). */
struct rng {
  uint64_t state;
};
void rng_seed(struct rng *rng, uint64_t seed);
uint32_t rng_next(struct rng *rng);
uint32_t rng_below(struct rng *rng, uint32_t bound);
/* Reads a small file whole into `text`; returns its length or -1. */
int read_file(const char *path, char *text, size_t size);
int write_file(const char *path, const char *text);
void mount_debugfs(void);
int drop_capabilities(void); /* this process becomes uid 65534 without any */

#endif
