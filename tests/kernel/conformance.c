// SPDX-License-Identifier: Apache-2.0
/*
 * rknpu-conformance: the RKNPU interface from end to end, against any driver that offers it.
 *
 *   rknpu-conformance [--driver npud|vendor] [PATTERN]
 *
 * `npud` (default) expects what kernel/include/uapi/drm/rknpu_drm.h promises. `vendor` expects the vendor's 0.9.8 where that differs,
 * and leaves out what that driver has no defence against: this program is no attack on it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/udmabuf.h>

#include "npu.h"
#include "tap.h"

static bool vendor;

#define NPUD_ONLY()                                          \
  do {                                                       \
    if (vendor) SKIP("the vendor driver has no such thing"); \
  } while (0)

static uint32_t get_u32(const unsigned char *at) {
  uint32_t value;

  memcpy(&value, at, sizeof(value));
  return value;
}

static uint64_t get_u64(const unsigned char *at) {
  uint64_t value;

  memcpy(&value, at, sizeof(value));
  return value;
}

static void put_u32(unsigned char *at, uint32_t value) { memcpy(at, &value, sizeof(value)); }
static void put_u64(unsigned char *at, uint64_t value) { memcpy(at, &value, sizeof(value)); }

/* --- nodes and numbers ------------------------------------------------------------------------------------------------------------ */

static void test_version(void) {
  char name[32] = "", description[128] = "";
  struct drm_version version = {.name = name, .name_len = 31, .desc = description, .desc_len = 127};
  const int fd = npu_open_or_die();

  REQUIRE(ioctl(fd, DRM_IOCTL_VERSION, &version) == 0);
  CHECK(strcmp(name, "rknpu") == 0, "(name '%s')", name);
  CHECK_EQ(version.version_major, 0);
  CHECK_EQ(version.version_minor, 9);
  CHECK_EQ(version.version_patchlevel, 8);
}

static void test_both_nodes(void) {
  for (int kind = NPU_CARD; kind <= NPU_RENDER; kind++) {
    const int fd = npu_open((enum npu_node)kind);
    struct gemm g;
    uint32_t value = 0;

    REQUIRE(fd >= 0, "(%s node)", kind == NPU_CARD ? "card" : "render");
    CHECK(npu_action(fd, RKNPU_GET_DRV_VERSION, &value) == 0);
    CHECK_EQ(value, 908);
    REQUIRE(gemm_small(&g, fd, 0, false, 3) == 0, "(%s)", strerror(errno));
    CHECK_EQ(gemm_run(&g, 1), 0);
    gemm_destroy(&g);
    close(fd);
  }
}

/* The interface byte by byte, with numbers and offsets from the table, so that a wrong header cannot hide. */
static void test_raw_numbers(void) {
  const int fd = npu_open_or_die();
  unsigned char action[8] = {0}, create[48] = {0}, map[16] = {0}, sync[32] = {0}, destroy[16] = {0}, submit[104] = {0};
  uint64_t cookie;
  void *memory;

  put_u32(action, 1);
  REQUIRE(ioctl(fd, 0xC0086440u, action) == 0);
  CHECK_EQ(get_u32(action + 4), 908);

  put_u32(create + 4, 0x403);
  put_u64(create + 8, 5000);
  REQUIRE(ioctl(fd, 0xC0306442u, create) == 0, "(%s)", strerror(errno));
  CHECK(get_u32(create) != 0);
  CHECK(get_u64(create + 8) >= 5000);
  CHECK(get_u64(create + 24) != 0);
  CHECK(get_u64(create + 24) + 8192 <= UINT64_C(1) << 32);
  cookie = get_u64(create + 16);
  CHECK(cookie != 0);

  put_u32(map, get_u32(create));
  REQUIRE(ioctl(fd, 0xC0106443u, map) == 0, "(%s)", strerror(errno));
  memory = mmap(NULL, 5000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)get_u64(map + 8));
  REQUIRE(memory != MAP_FAILED, "(%s)", strerror(errno));
  memset(memory, 0x5a, 5000);

  put_u32(sync, 3);
  put_u64(sync + 8, cookie);
  put_u64(sync + 16, 4096);
  put_u64(sync + 24, 904);
  CHECK(ioctl(fd, 0xC0206445u, sync) == 0, "(%s)", strerror(errno));

  /* A submit whose task array is empty of sense must reach the driver and be refused: number and size are known. */
  put_u64(submit + 24, cookie);
  put_u32(submit + 60, (uint32_t)-1);
  CHECK_ERRNO(ioctl(fd, 0xC0686441u, submit), EINVAL);

  munmap(memory, 5000);
  put_u32(destroy, get_u32(create));
  put_u64(destroy + 8, cookie);
  CHECK(ioctl(fd, 0xC0106444u, destroy) == 0, "(%s)", strerror(errno));
}

static void test_actions(void) {
  const int fd = npu_open_or_die();
  static const uint32_t zero[] = {RKNPU_GET_DT_WR_AMOUNT, RKNPU_GET_DT_RD_AMOUNT, RKNPU_GET_WT_RD_AMOUNT, RKNPU_GET_TOTAL_RW_AMOUNT,
                                  RKNPU_GET_TOTAL_SRAM_SIZE, RKNPU_GET_FREE_SRAM_SIZE};
  static const uint32_t unsupported[] = {RKNPU_SET_FREQ,      RKNPU_SET_VOLT,      RKNPU_GET_BW_PRIORITY, RKNPU_SET_BW_PRIORITY,
                                         RKNPU_GET_BW_EXPECT, RKNPU_SET_BW_EXPECT, RKNPU_GET_BW_TW,       RKNPU_SET_BW_TW};
  uint32_t value = 0;

  CHECK(npu_action(fd, RKNPU_GET_HW_VERSION, &value) == 0);
  CHECK(value != 0);
  CHECK(npu_action(fd, RKNPU_GET_DRV_VERSION, &value) == 0);
  CHECK_EQ(value, 908);
  CHECK(npu_action(fd, RKNPU_GET_IOMMU_EN, &value) == 0);
  CHECK_EQ(value, 1);
  CHECK(npu_action(fd, RKNPU_ACT_CLR_TOTAL_RW_AMOUNT, NULL) == 0 || vendor);
  for (unsigned i = 0; i < sizeof(zero) / sizeof(zero[0]); i++) {
    value = 0xdeadbeef;
    CHECK(npu_action(fd, zero[i], &value) == 0, "(action %u: %s)", zero[i], strerror(errno));
    CHECK_EQ(value, 0);
  }
  value = 0;
  CHECK(npu_action(fd, RKNPU_SET_IOMMU_DOMAIN_ID, &value) == 0);
  value = 99;
  CHECK(npu_action(fd, RKNPU_GET_IOMMU_DOMAIN_ID, &value) == 0);
  CHECK_EQ(value, 0);
  CHECK(npu_action(fd, RKNPU_POWER_ON, NULL) == 0);
  CHECK(npu_action(fd, RKNPU_POWER_OFF, NULL) == 0);
  if (vendor) return;
  for (unsigned i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++) {
    value = 1;
    CHECK_ERRNO(npu_action(fd, unsupported[i], &value), EOPNOTSUPP);
  }
  /* With a clock or a regulator they have a value, without they say so: never a made-up number. */
  value = 0;
  CHECK(npu_action(fd, RKNPU_GET_FREQ, &value) == 0 ? value != 0 : errno == EOPNOTSUPP);
  value = 0;
  CHECK(npu_action(fd, RKNPU_GET_VOLT, &value) == 0 ? value != 0 : errno == EOPNOTSUPP);
  for (uint32_t action = 26; action < 0x100; action++) CHECK_ERRNO(npu_action(fd, action, NULL), EINVAL);
  CHECK_ERRNO(npu_action(fd, 0x103, NULL), EINVAL);
  CHECK_ERRNO(npu_action(fd, 0xffffffff, NULL), EINVAL);
}

static void test_actions_power_is_counted_per_file(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct gemm g;

  NPUD_ONLY();
  /* Another file's POWER_OFF, or one too many of our own, must not take the power from under anyone. */
  CHECK(npu_action(a, RKNPU_POWER_ON, NULL) == 0);
  for (int i = 0; i < 3; i++) npu_action(b, RKNPU_POWER_OFF, NULL);
  for (int i = 0; i < 3; i++) npu_action(a, RKNPU_POWER_OFF, NULL);
  REQUIRE(gemm_small(&g, a, 0, true, 4) == 0);
  CHECK_EQ(gemm_run(&g, 2), 0);
}

static void test_set_domain_action(void) {
  const int fd = npu_open_or_die();
  uint32_t value;

  NPUD_ONLY();
  for (uint32_t domain = 0; domain < RKNPU_MAX_DOMAINS; domain++) {
    value = domain;
    CHECK(npu_action(fd, domain % 2 ? RKNPU_SET_IOMMU_DOMAIN_ID : RKNPU_ACT_SET_DOMAIN, &value) == 0);
    value = 99;
    CHECK(npu_action(fd, RKNPU_GET_IOMMU_DOMAIN_ID, &value) == 0);
    CHECK_EQ(value, domain);
  }
  value = 16;
  CHECK_ERRNO(npu_action(fd, RKNPU_SET_IOMMU_DOMAIN_ID, &value), EINVAL);
  value = 0xffffffff;
  CHECK_ERRNO(npu_action(fd, RKNPU_ACT_SET_DOMAIN, &value), EINVAL);
}

/* --- memory -------------------------------------------------------------------------------------------------------------------------- */

static void test_create_and_map(void) {
  static const uint32_t flags[] = {0,
                                   RKNPU_MEM_NON_CONTIGUOUS,
                                   RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_CACHEABLE | RKNPU_MEM_IOMMU_LIMIT_IOVA_ALIGNMENT,
                                   RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_CACHEABLE | RKNPU_MEM_KERNEL_MAPPING |
                                       RKNPU_MEM_IOMMU_LIMIT_IOVA_ALIGNMENT,
                                   RKNPU_MEM_WRITE_COMBINE | RKNPU_MEM_NON_CONTIGUOUS,
                                   RKNPU_MEM_KERNEL_MAPPING,
                                   RKNPU_MEM_IOMMU | RKNPU_MEM_NON_CONTIGUOUS,
                                   RKNPU_MEM_ZEROING | RKNPU_MEM_NON_CONTIGUOUS};
  const int fd = npu_open_or_die();
  struct bo bos[sizeof(flags) / sizeof(flags[0])];

  for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
    const uint64_t size = 1 + i * 5000;

    REQUIRE(bo_create(fd, &bos[i], size, flags[i], 0) == 0, "(flags 0x%x: %s)", flags[i], strerror(errno));
    CHECK(bos[i].handle != 0);
    CHECK(bos[i].size >= size);
    CHECK(bos[i].iova != 0 && bos[i].iova % NPU_PAGE == 0, "(0x%llx)", (unsigned long long)bos[i].iova);
    CHECK(bos[i].iova + bos[i].size <= UINT64_C(1) << 32);
    for (unsigned j = 0; j < i; j++) {
      CHECK(bos[j].iova + bos[j].size <= bos[i].iova || bos[i].iova + bos[i].size <= bos[j].iova);
      CHECK(bos[j].cookie != bos[i].cookie && bos[j].handle != bos[i].handle);
    }
    REQUIRE(bo_map(&bos[i]) == 0, "(%s)", strerror(errno));
    if (!vendor)
      for (uint64_t at = 0; at < bos[i].size; at++) CHECK(((unsigned char *)bos[i].map)[at] == 0);
    memset(bos[i].map, (int)i + 1, bos[i].size);
  }
  for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
    for (uint64_t at = 0; at < bos[i].size; at += 97) CHECK(((unsigned char *)bos[i].map)[at] == i + 1);
    bo_destroy(&bos[i]);
  }
}

static void test_create_40_bytes(void) {
  const int fd = npu_open_or_die();
  unsigned char create[48];

  memset(create, 0xee, sizeof(create));
  put_u32(create, 0);
  put_u32(create + 4, 0x403);
  put_u64(create + 8, 4096);
  put_u64(create + 32, 0);
  REQUIRE(ioctl(fd, 0xC0286442u, create) == 0, "(%s)", strerror(errno));
  CHECK(get_u32(create) != 0);
  CHECK(get_u64(create + 24) != 0);
  for (int i = 40; i < 48; i++) CHECK(create[i] == 0xee); /* nothing beyond what the caller gave */
}

static void test_create_refused(void) {
  const int fd = npu_open_or_die();
  struct rknpu_mem_create create;
  struct bo bo;

  NPUD_ONLY();
  for (unsigned bit = 11; bit < 32; bit++) CHECK_ERRNO(bo_create(fd, &bo, 4096, 1u << bit, 0), EINVAL);
  CHECK_ERRNO(bo_create(fd, &bo, 4096, RKNPU_MEM_SECURE, 0), EOPNOTSUPP);
  CHECK_ERRNO(bo_create(fd, &bo, 0, 0, 0), EINVAL);
  CHECK_ERRNO(bo_create(fd, &bo, 4096, 0, 16), EINVAL);
  CHECK_ERRNO(bo_create(fd, &bo, 4096, 0, -1), EINVAL);
  CHECK_ERRNO(bo_create(fd, &bo, 4096, 0, INT32_MIN), EINVAL);
  /* Sizes that wrap or cannot fit a window of 4 GiB. */
  CHECK(bo_create(fd, &bo, UINT64_MAX, 0, 0) == -1 && (errno == EINVAL || errno == ENOSPC || errno == ENOMEM || errno == E2BIG));
  CHECK(bo_create(fd, &bo, UINT64_MAX - 4095, 0, 0) == -1);
  CHECK(bo_create(fd, &bo, UINT64_C(1) << 32, 0, 0) == -1 && errno != 0);
  CHECK(bo_create(fd, &bo, UINT64_C(1) << 63, 0, 0) == -1);
  create = (struct rknpu_mem_create){.size = 4096, .core_mask = 8};
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_MEM_CREATE, &create), EINVAL);
  create = (struct rknpu_mem_create){.size = 4096, .core_mask = 7};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_CREATE, &create) == 0);
  create = (struct rknpu_mem_create){.handle = 12345, .size = 4096};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_CREATE, &create) == -1 && (errno == EINVAL || errno == ENOENT));
}

static void test_create_sram_wish(void) {
  const int fd = npu_open_or_die();
  struct rknpu_mem_create create = {.flags = RKNPU_MEM_TRY_ALLOC_SRAM | RKNPU_MEM_NON_CONTIGUOUS, .size = 8192, .sram_size = 4096};

  NPUD_ONLY();
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_MEM_CREATE, &create) == 0, "(%s)", strerror(errno));
  CHECK_EQ(create.sram_size, 0);
  create = (struct rknpu_mem_create){.flags = RKNPU_MEM_TRY_ALLOC_NBUF | RKNPU_MEM_NON_CONTIGUOUS, .size = 8192, .sram_size = 4096};
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_MEM_CREATE, &create) == 0, "(%s)", strerror(errno));
  CHECK_EQ(create.sram_size, 0);
}

static void test_create_with_handle(void) {
  const int fd = npu_open_or_die();
  struct bo bo, again;
  struct rknpu_npud_file_info before, after;

  REQUIRE(bo_create(fd, &bo, 20000, RKNPU_MEM_NON_CONTIGUOUS, 0) == 0);
  if (!vendor) CHECK(query_file(fd, &before) == 0);
  REQUIRE(bo_lookup(fd, &again, bo.handle, 0) == 0, "(%s)", strerror(errno));
  CHECK_EQ(again.handle, bo.handle);
  CHECK_EQ(again.iova, bo.iova);
  CHECK_EQ(again.cookie, bo.cookie);
  if (!vendor) {
    CHECK_EQ(again.size, bo.size);
    CHECK(query_file(fd, &after) == 0);
    CHECK_EQ(after.bytes, before.bytes);
    CHECK_EQ(after.objects, before.objects);
  }
  bo_destroy(&bo);
}

static void test_map_refused(void) {
  const int fd = npu_open_or_die(), other = npu_open_or_die();
  struct rknpu_mem_map map = {0};
  struct bo bo;
  void *at;

  NPUD_ONLY();
  REQUIRE(bo_create(fd, &bo, 3 * 4096, 0, 0) == 0);
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_MAP, &map) == -1 && (errno == EINVAL || errno == ENOENT));
  map = (struct rknpu_mem_map){.handle = bo.handle, .reserved = 1};
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_MEM_MAP, &map), EINVAL);
  map = (struct rknpu_mem_map){.handle = bo.handle};
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_MEM_MAP, &map) == 0);
  at = mmap(NULL, bo.size + 4096, PROT_READ, MAP_SHARED, fd, (off_t)map.offset);
  CHECK(at == MAP_FAILED, "(a mapping longer than the buffer)");
  at = mmap(NULL, bo.size, PROT_READ, MAP_SHARED, other, (off_t)map.offset);
  CHECK(at == MAP_FAILED, "(another file's offset)");
  at = mmap(NULL, bo.size, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(at == MAP_FAILED);
  CHECK(bo_map(&bo) == 0);
}

static void test_destroy(void) {
  const int fd = npu_open_or_die();
  struct rknpu_mem_destroy destroy = {0};
  struct bo bo, keep;

  REQUIRE(bo_create(fd, &bo, 4096, 0, 0) == 0 && bo_create(fd, &keep, 4096, 0, 0) == 0);
  if (!vendor) {
    destroy = (struct rknpu_mem_destroy){.handle = bo.handle, .obj_addr = keep.cookie};
    CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy), EINVAL);
    destroy = (struct rknpu_mem_destroy){.handle = bo.handle, .reserved = 7};
    CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy), EINVAL);
  }
  destroy = (struct rknpu_mem_destroy){.handle = bo.handle, .obj_addr = bo.cookie};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy) == 0);
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy) == -1 && (errno == EINVAL || errno == ENOENT));
  if (!vendor) {
    destroy = (struct rknpu_mem_destroy){.handle = keep.handle};
    CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy) == 0);
    /* The value of a destroyed buffer names nothing. */
    CHECK(bo_sync(&keep, RKNPU_MEM_SYNC_TO_DEVICE, 0, 1) == -1 && (errno == EINVAL || errno == ENOENT));
  }
}

static void test_mapping_outlives_handle(void) {
  const int fd = npu_open_or_die();
  struct rknpu_mem_destroy destroy;
  struct bo bo;

  REQUIRE(bo_create(fd, &bo, 64 * 4096, 0, 0) == 0 && bo_map(&bo) == 0);
  destroy = (struct rknpu_mem_destroy){.handle = bo.handle, .obj_addr = bo.cookie};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy) == 0);
  memset(bo.map, 0x77, bo.size);
  for (uint64_t i = 0; i < bo.size; i += 4096) CHECK(((unsigned char *)bo.map)[i] == 0x77);
  munmap(bo.map, bo.size);
}

static void test_sync(void) {
  const int fd = npu_open_or_die();
  struct rknpu_mem_sync sync;
  struct bo bo;

  REQUIRE(bo_create(fd, &bo, 4 * 4096, RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_CACHEABLE, 0) == 0 && bo_map(&bo) == 0);
  CHECK(bo_sync(&bo, RKNPU_MEM_SYNC_TO_DEVICE, 0, bo.size) == 0);
  CHECK(bo_sync(&bo, RKNPU_MEM_SYNC_FROM_DEVICE, 0, bo.size) == 0);
  CHECK(bo_sync(&bo, RKNPU_MEM_SYNC_TO_DEVICE | RKNPU_MEM_SYNC_FROM_DEVICE, 100, 4000) == 0);
  CHECK(bo_sync(&bo, RKNPU_MEM_SYNC_TO_DEVICE, bo.size - 1, 1) == 0);
  if (vendor) return;
  CHECK_ERRNO(bo_sync(&bo, 0, 0, 1), EINVAL);
  CHECK_ERRNO(bo_sync(&bo, 4, 0, 1), EINVAL);
  CHECK_ERRNO(bo_sync(&bo, 1, 0, bo.size + 1), EINVAL);
  CHECK_ERRNO(bo_sync(&bo, 1, bo.size, 1), EINVAL);
  CHECK_ERRNO(bo_sync(&bo, 1, 1, UINT64_MAX), EINVAL);
  CHECK_ERRNO(bo_sync(&bo, 1, UINT64_MAX, 2), EINVAL);
  sync = (struct rknpu_mem_sync){.flags = 1, .reserved = 1, .obj_addr = bo.cookie, .size = 1};
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_MEM_SYNC, &sync), EINVAL);
}

/* --- jobs ----------------------------------------------------------------------------------------------------------------------------- */

static void test_gemm_each_core(void) {
  const int fd = npu_open_or_die();
  static const uint32_t masks[] = {1, 2, 4, 0};

  for (int fp16 = 0; fp16 < 2; fp16++) {
    for (unsigned i = 0; i < 4; i++) {
      struct gemm g;

      REQUIRE(gemm_small(&g, fd, 0, fp16, 10 + i) == 0, "(%s)", strerror(errno));
      CHECK_EQ(gemm_run(&g, masks[i]), 0);
      gemm_destroy(&g);
    }
  }
}

static void test_gemm_shapes(void) {
  static const struct npu_gemm shapes[] = {
      {.m = 4, .k = 32, .n = 32, .fp16 = 0},   {.m = 64, .k = 128, .n = 96, .fp16 = 0}, {.m = 128, .k = 512, .n = 32, .fp16 = 0},
      {.m = 16, .k = 1024, .n = 64, .fp16 = 0}, {.m = 4, .k = 32, .n = 32, .fp16 = 1},   {.m = 64, .k = 256, .n = 64, .fp16 = 1},
      {.m = 12, .k = 96, .n = 160, .fp16 = 1},
  };
  const int fd = npu_open_or_die();

  for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
    struct npu_gemm shape = shapes[i];
    struct gemm g;

    shape.seed = 100 + i;
    REQUIRE(gemm_create(&g, fd, 0, &shape, 1) == 0, "(%s)", strerror(errno));
    CHECK_EQ(gemm_run(&g, 1u << i % NPU_CORES), 0);
    gemm_destroy(&g);
  }
}

static void test_core_masks_refused(void) {
  const int fd = npu_open_or_die();
  static const uint32_t masks[] = {5, 6, 8, 9, 15, 0x80000001, 0xffffffff};
  struct gemm g;

  NPUD_ONLY();
  REQUIRE(gemm_small(&g, fd, 0, true, 1) == 0);
  for (unsigned i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
    struct rknpu_submit submit;

    gemm_prepare(&g, &submit, 1);
    submit.core_mask = masks[i];
    CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  }
  CHECK_EQ(gemm_run(&g, 1), 0);
}

static void test_submit_refused(void) {
  const int fd = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm g;

  REQUIRE(gemm_small(&g, fd, 0, true, 1) == 0);
  gemm_prepare(&g, &submit, 1);
  submit.flags = 0;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_prepare(&g, &submit, 1);
  submit.task_number = 0;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  if (vendor) return;
  for (unsigned bit = 5; bit < 32; bit++) {
    gemm_prepare(&g, &submit, 1);
    submit.flags |= 1u << bit;
    CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  }
  gemm_prepare(&g, &submit, 1);
  submit.reserved = 1;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_prepare(&g, &submit, 1);
  submit.iommu_domain_id = 16;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_prepare(&g, &submit, 1);
  submit.priority = 20;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_prepare(&g, &submit, 1);
  submit.priority = -21;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_prepare(&g, &submit, 1);
  submit.flags |= RKNPU_JOB_FENCE_IN;
  submit.fence_fd = -1;
  CHECK(npu_submit(fd, &submit) == -1 && (errno == EINVAL || errno == EBADF));
  gemm_prepare(&g, &submit, 1);
  submit.flags |= RKNPU_JOB_FENCE_IN;
  submit.fence_fd = fd; /* a descriptor, but no fence */
  CHECK(npu_submit(fd, &submit) == -1 && (errno == EINVAL || errno == EBADF));
  gemm_task(&g, 0)->regcfg_amount = 0;
  gemm_prepare(&g, &submit, 1);
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_task(&g, 0)->regcfg_amount = 0xffffffff;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_task(&g, 0)->regcfg_amount = NPU_GEMM_BODY_WORDS;
  gemm_task(&g, 0)->regcmd_addr = UINT64_C(1) << 32;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_task(&g, 0)->regcmd_addr = g.data.iova;
  CHECK_EQ(gemm_run(&g, 1), 0);
}

static void test_outputs(void) {
  const int fd = npu_open_or_die();
  struct npu_gemm shape = {.m = 16, .k = 256, .n = 64, .fp16 = 1, .seed = 77};
  struct rknpu_submit submit;
  struct gemm g;

  REQUIRE(gemm_create(&g, fd, 0, &shape, 5) == 0);
  gemm_prepare(&g, &submit, 2);
  submit.hw_elapse_time = -1;
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(gemm_wrong(&g), 0);
  CHECK_EQ(submit.task_counter, 5);
  CHECK(submit.hw_elapse_time > 0, "(%lld)", (long long)submit.hw_elapse_time);
  CHECK(gemm_task(&g, 4)->int_status & NPU_GEMM_INT_MASK, "(int_status 0x%x)", gemm_task(&g, 4)->int_status);
  CHECK((gemm_task(&g, 4)->int_status & ~NPU_GEMM_INT_MASK) == 0, "(int_status 0x%x)", gemm_task(&g, 4)->int_status);
}

static void test_chained_tasks(void) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 4, .k = 32, .n = 32, .fp16 = 1, .seed = 5};
  struct gemm g;

  for (unsigned tasks = 1; tasks < 20; tasks += 3) {
    REQUIRE(gemm_create(&g, fd, 0, &shape, tasks) == 0);
    CHECK_EQ(gemm_run(&g, 4), 0);
    gemm_destroy(&g);
  }
}

static void test_subcore_tasks(void) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = 6};
  struct rknpu_submit submit;
  struct gemm g;

  REQUIRE(gemm_create(&g, fd, 0, &shape, 7) == 0);
  CHECK_EQ(gemm_run(&g, 3), 0);
  CHECK_EQ(gemm_run(&g, 7), 0);
  gemm_clear(&g);
  gemm_prepare(&g, &submit, 7);
  REQUIRE(npu_submit(fd, &submit) == 0);
  CHECK_EQ(submit.task_counter, 7);
  /* One core with its entry filled, as other user space does it, and the others' entries empty but for a start. */
  gemm_clear(&g);
  gemm_prepare(&g, &submit, 1);
  submit.subcore_task[0] = (struct rknpu_subcore_task){.task_start = 0, .task_number = 7};
  submit.subcore_task[1] = (struct rknpu_subcore_task){.task_start = 7, .task_number = 0};
  submit.subcore_task[2] = (struct rknpu_subcore_task){.task_start = 7, .task_number = 0};
  CHECK(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(gemm_wrong(&g), 0);
}

static void test_task_start(void) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 8, .k = 32, .n = 32, .fp16 = 1, .seed = 8};
  struct rknpu_submit submit;
  struct gemm g;

  REQUIRE(gemm_create(&g, fd, 0, &shape, 6) == 0);
  gemm_prepare(&g, &submit, 1);
  submit.task_start = 2;
  submit.task_number = 3;
  submit.subcore_task[0] = (struct rknpu_subcore_task){.task_start = 2, .task_number = 3};
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(submit.task_counter, 3);
  CHECK_EQ(gemm_wrong_range(&g, 2, 3), 0);
  CHECK(gemm_wrong_range(&g, 0, 2) != 0 && gemm_wrong_range(&g, 5, 1) != 0, "(tasks outside the window ran)");
  if (vendor) return;
  /* The same window named by task_start alone. */
  gemm_clear(&g);
  gemm_prepare(&g, &submit, 1);
  memset(submit.subcore_task, 0, sizeof(submit.subcore_task));
  submit.task_start = 1;
  submit.task_number = 2;
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(gemm_wrong_range(&g, 1, 2), 0);
  CHECK(gemm_wrong_range(&g, 0, 1) != 0 && gemm_wrong_range(&g, 3, 3) != 0);
}

static void test_more_tasks_than_the_hardware_counts(void) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 4, .k = 32, .n = 32, .fp16 = 1, .seed = 9};
  struct rknpu_submit submit;
  struct gemm g;

  NPUD_ONLY();
  /* 4095 is all that fits the task number field of the RK3588. */
  REQUIRE(gemm_create(&g, fd, 0, &shape, 4100) == 0, "(%s)", strerror(errno));
  gemm_prepare(&g, &submit, 1);
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(submit.task_counter, 4100);
  CHECK_EQ(gemm_wrong(&g), 0);
}

static void test_domains(void) {
  const int fd = npu_open_or_die();
  struct gemm g[RKNPU_MAX_DOMAINS];

  for (int domain = 0; domain < RKNPU_MAX_DOMAINS; domain++)
    REQUIRE(gemm_small(&g[domain], fd, domain, domain % 2, 20 + (uint32_t)domain) == 0, "(domain %d: %s)", domain, strerror(errno));
  for (int round = 0; round < 3; round++)
    for (int domain = 0; domain < RKNPU_MAX_DOMAINS; domain++)
      CHECK_EQ(gemm_run(&g[(domain * 5) % RKNPU_MAX_DOMAINS], 1u << (domain + round) % NPU_CORES), 0);
}

static void test_nonblock(void) {
  const int fd = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm g;
  unsigned wrong = 1;

  REQUIRE(gemm_small(&g, fd, 0, false, 30) == 0);
  gemm_prepare(&g, &submit, 1);
  submit.flags |= RKNPU_JOB_NONBLOCK;
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  /* As programs without fences do it: watch the last output. */
  for (int i = 0; i < 5000 && (wrong = gemm_wrong(&g)) != 0; i++) sleep_ms(2);
  CHECK_EQ(wrong, 0);
}

static void test_fence_out(void) {
  const int fd = npu_open_or_die();
  struct gemm g;
  int fence;

  REQUIRE(gemm_small(&g, fd, 0, true, 31) == 0);
  fence = gemm_start(&g, 1, NPU_TIMEOUT_MS, 0);
  REQUIRE(fence >= 0, "(%s)", strerror(errno));
  CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_wrong(&g), 0);
  CHECK(fcntl(fence, F_GETFD) & FD_CLOEXEC);
}

static void test_fence_in_orders_jobs(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm slow, quick;
  int first, second;

  REQUIRE(gemm_long(&slow, a, 0, 200000000, 32) == 0, "(%s)", strerror(errno));
  REQUIRE(gemm_small(&quick, b, 0, true, 33) == 0);
  first = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  REQUIRE(first >= 0);
  gemm_prepare(&quick, &submit, 2); /* another core: only the fence makes it wait */
  submit.flags |= RKNPU_JOB_NONBLOCK | RKNPU_JOB_FENCE_IN | RKNPU_JOB_FENCE_OUT;
  submit.fence_fd = first;
  REQUIRE(npu_submit(b, &submit) == 0, "(%s)", strerror(errno));
  second = submit.fence_fd;
  CHECK(second >= 0 && second != first);
  CHECK_EQ(fence_wait(second, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(fence_wait(first, 0), 1);
  CHECK_EQ(gemm_wrong(&slow), 0);
  CHECK_EQ(gemm_wrong(&quick), 0);
  CHECK(fence_time_ns(first) <= fence_time_ns(second));
}

static void test_priorities(void) {
  const int fd = npu_open_or_die();
  struct gemm slow, urgent, lazy;
  int busy, fence_lazy, fence_urgent;

  NPUD_ONLY();
  REQUIRE(gemm_long(&slow, fd, 0, 200000000, 34) == 0);
  REQUIRE(gemm_small(&urgent, fd, 0, true, 35) == 0 && gemm_small(&lazy, fd, 0, true, 36) == 0);
  busy = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  fence_lazy = gemm_start(&lazy, 1, NPU_TIMEOUT_MS, 15);
  fence_urgent = gemm_start(&urgent, 1, NPU_TIMEOUT_MS, 3);
  REQUIRE(busy >= 0 && fence_lazy >= 0 && fence_urgent >= 0);
  if (fence_wait(busy, 0) != 0) SKIP("the first job was over before the others were queued");
  CHECK_EQ(fence_wait(fence_lazy, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(fence_wait(fence_urgent, NPU_TIMEOUT_MS), 1);
  CHECK(fence_time_ns(fence_urgent) < fence_time_ns(fence_lazy), "(the urgent job ran last)");
}

static void test_negative_priority_is_a_privilege(void) {
  const int fd = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm g;

  NPUD_ONLY();
  REQUIRE(gemm_small(&g, fd, 0, true, 37) == 0);
  gemm_prepare(&g, &submit, 1);
  submit.priority = -5;
  CHECK(npu_submit(fd, &submit) == 0, "(as root: %s)", strerror(errno));
  REQUIRE(drop_capabilities() == 0);
  CHECK(npu_submit(fd, &submit) == -1 && (errno == EACCES || errno == EPERM), "(%s)", strerror(errno));
  submit.priority = 0;
  CHECK(npu_submit(fd, &submit) == 0);
}

static void test_three_cores_side_by_side(void) {
  struct gemm g[NPU_CORES];
  int fence[NPU_CORES];

  /* Different files, so different address spaces, at the same time. */
  for (unsigned core = 0; core < NPU_CORES; core++) {
    REQUIRE(gemm_long(&g[core], npu_open_or_die(), 0, 100000000, 40 + core) == 0, "(%s)", strerror(errno));
    gemm_clear(&g[core]);
  }
  for (unsigned core = 0; core < NPU_CORES; core++) fence[core] = gemm_start(&g[core], 1u << core, NPU_TIMEOUT_MS, 0);
  for (unsigned core = 0; core < NPU_CORES; core++) {
    REQUIRE(fence[core] >= 0);
    CHECK_EQ(fence_wait(fence[core], NPU_TIMEOUT_MS), 1);
    CHECK_EQ(gemm_wrong(&g[core]), 0);
  }
}

static void test_timeouts_accepted(void) {
  const int fd = npu_open_or_die();
  static const uint32_t timeouts[] = {0, 6000, 4294968, 0x7fffffff, 0xffffffff};
  struct rknpu_submit submit;
  struct gemm g;

  NPUD_ONLY();
  REQUIRE(gemm_small(&g, fd, 0, true, 50) == 0);
  for (unsigned i = 0; i < sizeof(timeouts) / sizeof(timeouts[0]); i++) {
    gemm_prepare(&g, &submit, 1);
    submit.timeout = timeouts[i];
    CHECK(npu_submit(fd, &submit) == 0, "(timeout %u: %s)", timeouts[i], strerror(errno));
  }
}

/* --- sharing --------------------------------------------------------------------------------------------------------------------------- */

static void test_prime_between_files(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct gemm g;
  struct bo shared;
  uint32_t handle = 0, domain = 5;
  int dmabuf;

  REQUIRE(gemm_small(&g, a, 0, false, 60) == 0);
  CHECK_EQ(gemm_run(&g, 1), 0);
  dmabuf = bo_export(&g.data);
  REQUIRE(dmabuf >= 0, "(%s)", strerror(errno));
  CHECK_EQ(lseek(dmabuf, 0, SEEK_END), (off_t)g.data.size);
  if (!vendor) CHECK(npu_action(b, RKNPU_ACT_SET_DOMAIN, &domain) == 0);
  if (vendor) domain = 0;
  REQUIRE(bo_import(b, dmabuf, &handle) == 0, "(%s)", strerror(errno));
  REQUIRE(bo_lookup(b, &shared, handle, (int)domain) == 0, "(%s)", strerror(errno));
  CHECK(shared.iova != 0 && shared.cookie != 0);
  if (!vendor) CHECK_EQ(shared.size, g.data.size);
  REQUIRE(bo_map(&shared) == 0, "(%s)", strerror(errno));
  CHECK(memcmp(shared.map, g.data.map, g.data.size) == 0);
  ((char *)shared.map)[g.out_offset] ^= 0x55;
  CHECK(((char *)shared.map)[g.out_offset] == ((char *)g.data.map)[g.out_offset]);
  bo_destroy(&shared);
  close(dmabuf);
  CHECK_EQ(gemm_run(&g, 2), 0); /* the exporter goes on */
}

static void test_prime_reimport_gives_the_same_buffer(void) {
  const int fd = npu_open_or_die();
  struct bo bo;
  uint32_t handle = 0;
  int dmabuf;

  REQUIRE(bo_create(fd, &bo, 8192, RKNPU_MEM_NON_CONTIGUOUS, 0) == 0);
  dmabuf = bo_export(&bo);
  REQUIRE(dmabuf >= 0 && bo_import(fd, dmabuf, &handle) == 0);
  CHECK_EQ(handle, bo.handle);
}

/* A job of one file whose operands another file exported: weights come from there, results go there. */
static void test_prime_import_is_used_by_a_job(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct gemm source, sink;
  struct bo foreign;
  uint32_t handle = 0, domain = 2;
  uint64_t words[NPU_GEMM_WORDS];
  struct npu_gemm shape;
  int dmabuf;

  NPUD_ONLY();
  REQUIRE(gemm_small(&source, a, 0, false, 61) == 0 && gemm_small(&sink, b, 2, false, 62) == 0);
  dmabuf = bo_export(&source.data);
  REQUIRE(dmabuf >= 0);
  CHECK(npu_action(b, RKNPU_ACT_SET_DOMAIN, &domain) == 0);
  REQUIRE(bo_import(b, dmabuf, &handle) == 0 && bo_lookup(b, &foreign, handle, 2) == 0, "(%s)", strerror(errno));
  /* The sink's command words, pointing at the operands and the output of the source, at the importer's addresses. */
  shape = source.shape;
  shape.features = (uint32_t)(foreign.iova + (source.shape.features - source.data.iova));
  shape.weights = (uint32_t)(foreign.iova + (source.shape.weights - source.data.iova));
  shape.out = (uint32_t)(foreign.iova + source.out_offset);
  npu_gemm_emit((__u64 *)words, &shape, 0);
  memcpy(sink.data.map, words, sizeof(words));
  gemm_clear(&source);
  gemm_clear(&sink);
  {
    struct rknpu_submit submit;

    gemm_prepare(&sink, &submit, 4);
    REQUIRE(npu_submit(b, &submit) == 0, "(%s)", strerror(errno));
  }
  CHECK_EQ(gemm_wrong(&source), 0);
  CHECK(gemm_untouched(&sink));
}

static void test_import_from_udmabuf(void) {
  const int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd = npu_open_or_die();
  struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = 16 * 4096};
  struct gemm g;
  struct npu_gemm shape;
  struct rknpu_submit submit;
  struct bo foreign;
  uint64_t words[NPU_GEMM_WORDS];
  uint32_t handle = 0, *out;
  int memfd, dmabuf;

  if (device < 0) SKIP("this kernel has no /dev/udmabuf");
  memfd = (int)syscall(SYS_memfd_create, "shared", 3u /* CLOEXEC | ALLOW_SEALING */);
  REQUIRE(memfd >= 0 && ftruncate(memfd, 16 * 4096) == 0 && fcntl(memfd, 1033 /* F_ADD_SEALS */, 2 /* F_SEAL_SHRINK */) == 0);
  create.memfd = (uint32_t)memfd;
  dmabuf = ioctl(device, UDMABUF_CREATE, &create);
  REQUIRE(dmabuf >= 0, "(%s)", strerror(errno));
  REQUIRE(bo_import(fd, dmabuf, &handle) == 0, "(%s)", strerror(errno));
  REQUIRE(bo_lookup(fd, &foreign, handle, 0) == 0, "(%s)", strerror(errno));
  CHECK(foreign.size >= 16 * 4096);
  REQUIRE(gemm_small(&g, fd, 0, true, 63) == 0);
  shape = g.shape;
  shape.out = (uint32_t)foreign.iova + 4096;
  npu_gemm_emit((__u64 *)words, &shape, 0);
  memcpy(g.data.map, words, sizeof(words));
  gemm_prepare(&g, &submit, 1);
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  out = mmap(NULL, 16 * 4096, PROT_READ, MAP_SHARED, memfd, 0);
  REQUIRE(out != MAP_FAILED);
  CHECK_EQ(npu_gemm_wrong(&g.shape, out + 1024), 0);
}

/* --- beyond the vendor's interface ------------------------------------------------------------------------------------------------------ */

static int set_limit(int fd, struct rknpu_npud_limit limit) { return ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit); }

static void test_limits_only_fall(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_limit limit = {.flags = RKNPU_NPUD_LIMIT_CORES, .core_mask = 3};
  struct rknpu_submit submit;
  struct gemm g;
  struct bo bo;

  NPUD_ONLY();
  REQUIRE(gemm_small(&g, fd, 0, true, 70) == 0);
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(limit.core_mask, 3);
  CHECK_EQ(gemm_run(&g, 1), 0);
  CHECK_EQ(gemm_run(&g, 0), 0);
  gemm_prepare(&g, &submit, 4);
  CHECK_ERRNO(npu_submit(fd, &submit), EPERM);
  limit = (struct rknpu_npud_limit){.flags = RKNPU_NPUD_LIMIT_CORES, .core_mask = 7};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0);
  CHECK_EQ(limit.core_mask, 3);
  CHECK_ERRNO(set_limit(fd, (struct rknpu_npud_limit){.flags = RKNPU_NPUD_LIMIT_CORES, .core_mask = 4}), EINVAL);
  CHECK_ERRNO(npu_submit(fd, &submit), EPERM);

  limit = (struct rknpu_npud_limit){.flags = RKNPU_NPUD_LIMIT_BYTES, .bytes = 1 << 20};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0);
  CHECK_ERRNO(bo_create(fd, &bo, 2 << 20, 0, 0), EDQUOT);
  CHECK(bo_create(fd, &bo, 1 << 16, 0, 0) == 0, "(%s)", strerror(errno));
  bo_destroy(&bo);

  limit = (struct rknpu_npud_limit){.flags = RKNPU_NPUD_LIMIT_PRIORITY, .priority = 5};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0);
  gemm_prepare(&g, &submit, 1);
  submit.priority = 4;
  CHECK_ERRNO(npu_submit(fd, &submit), EPERM);
  submit.priority = 5;
  CHECK(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));

  CHECK_ERRNO(set_limit(fd, (struct rknpu_npud_limit){.flags = 0x10}), EINVAL);
  CHECK_ERRNO(set_limit(fd, (struct rknpu_npud_limit){.flags = RKNPU_NPUD_LIMIT_JOBS, .jobs = 0}), EINVAL);
  CHECK_ERRNO(set_limit(fd, (struct rknpu_npud_limit){.reserved = 1}), EINVAL);
}

static void test_limit_of_jobs(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_limit limit = {.flags = RKNPU_NPUD_LIMIT_JOBS, .jobs = 3};
  struct gemm slow, small;
  int fences[3], started = 0, extra;

  NPUD_ONLY();
  REQUIRE(gemm_long(&slow, fd, 0, 400000000, 71) == 0 && gemm_small(&small, fd, 0, true, 72) == 0);
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0);
  fences[started++] = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  while (started < 3) fences[started++] = gemm_start(&small, 1, NPU_TIMEOUT_MS, 0);
  for (int i = 0; i < 3; i++) REQUIRE(fences[i] >= 0, "(%s)", strerror(errno));
  errno = 0;
  extra = gemm_start(&small, 1, NPU_TIMEOUT_MS, 0);
  if (fence_wait(fences[0], 0) == 0) CHECK(extra == -1 && errno == EAGAIN, "(%d, %s)", extra, strerror(errno));
  for (int i = 0; i < 3; i++) CHECK_EQ(fence_wait(fences[i], NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_run(&small, 1), 0); /* there is room again */
}

static void test_limits_travel_with_the_descriptor(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_limit limit = {.flags = RKNPU_NPUD_LIMIT_CORES, .core_mask = 2};
  struct gemm g;
  int status;
  pid_t child;

  NPUD_ONLY();
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0);
  child = fork();
  if (child == 0) {
    struct rknpu_submit submit;

    if (gemm_small(&g, fd, 0, true, 73) || gemm_run(&g, 2)) _exit(1);
    gemm_prepare(&g, &submit, 1);
    _exit(npu_submit(fd, &submit) == -1 && errno == EPERM ? 0 : 2);
  }
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

static void test_revoke(void) {
  const int fd = npu_open_or_die(), other = npu_open_or_die();
  struct rknpu_npud_revoke revoke = {0};
  struct rknpu_npud_query query = {.what = RKNPU_NPUD_QUERY_FILE};
  struct rknpu_submit submit;
  struct rknpu_mem_map map;
  struct gemm slow, queued, innocent;
  struct bo bo;
  int running, waiting;

  NPUD_ONLY();
  REQUIRE(gemm_long(&slow, fd, 0, 2000000000, 74) == 0 && gemm_small(&queued, fd, 0, true, 75) == 0);
  REQUIRE(gemm_small(&innocent, other, 0, true, 76) == 0);
  map = (struct rknpu_mem_map){.handle = queued.data.handle};
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_MEM_MAP, &map) == 0);
  running = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  waiting = gemm_start(&queued, 1, NPU_TIMEOUT_MS, 0);
  REQUIRE(running >= 0 && waiting >= 0);
  revoke.flags = 1;
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_REVOKE, &revoke), EINVAL);
  revoke.flags = 0;
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_REVOKE, &revoke) == 0, "(%s)", strerror(errno));
  /* It returned: nothing of the file runs any more, and every fence has its answer. */
  CHECK(fence_wait(running, 0) == -ECANCELED || fence_wait(running, 0) == 1, "(%d)", fence_wait(running, 0));
  CHECK(fence_wait(waiting, 0) == -ECANCELED || fence_wait(waiting, 0) == 1, "(%d)", fence_wait(waiting, 0));
  gemm_prepare(&queued, &submit, 1);
  CHECK_ERRNO(npu_submit(fd, &submit), ENODEV);
  CHECK_ERRNO(bo_create(fd, &bo, 4096, 0, 0), ENODEV);
  CHECK_ERRNO(npu_action(fd, RKNPU_GET_DRV_VERSION, NULL), ENODEV);
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_QUERY, &query), ENODEV);
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_MEM_MAP, &map), ENODEV);
  CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, (off_t)map.offset) == MAP_FAILED);
  CHECK_EQ(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_REVOKE, &revoke), 0); /* again: harmless */
  CHECK_EQ(gemm_run(&innocent, 1), 0);
}

static void test_queries(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_file_info file, file_after;
  struct rknpu_npud_space_info space;
  struct rknpu_npud_device_info device;
  struct rknpu_npud_query query = {.what = 3};
  struct bo bo;
  struct gemm g;

  NPUD_ONLY();
  REQUIRE(query_file(fd, &file) == 0 && query_device(fd, &device) == 0, "(%s)", strerror(errno));
  CHECK_EQ(file.bytes, 0);
  CHECK_EQ(file.objects, 0);
  CHECK_EQ(device.cores, 3);
  CHECK(device.files >= 1);
  CHECK_EQ(device.flags, 0);
  CHECK_ERRNO(query_space(fd, 9, &space), ENOENT);
  CHECK_ERRNO(query_space(fd, 16, &space), EINVAL);
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_QUERY, &query), EINVAL);
  query = (struct rknpu_npud_query){.what = RKNPU_NPUD_QUERY_DEVICE, .index = 1};
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_QUERY, &query), EINVAL);
  REQUIRE(bo_create(fd, &bo, 10 * 4096, 0, 9) == 0);
  REQUIRE(query_space(fd, 9, &space) == 0 && query_file(fd, &file) == 0);
  CHECK_EQ(space.used_bytes, 10 * 4096);
  CHECK_EQ(space.mappings, 1);
  CHECK(space.iova_bytes > UINT64_C(3) << 30 && space.iova_bytes <= UINT64_C(4) << 30);
  CHECK_EQ(space.largest_hole_bytes + space.used_bytes <= space.iova_bytes, 1);
  CHECK_EQ(file.bytes, 10 * 4096);
  CHECK_EQ(file.objects, 1);
  CHECK(file.spaces & 1u << 9);
  bo_destroy(&bo);
  REQUIRE(query_file(fd, &file) == 0);
  CHECK_EQ(file.bytes, 0);
  CHECK_EQ(file.objects, 0);
  REQUIRE(gemm_small(&g, fd, 0, true, 80) == 0);
  CHECK_EQ(gemm_run(&g, 1), 0);
  REQUIRE(query_file(fd, &file_after) == 0);
  CHECK_EQ(file_after.jobs_done, file.jobs_done + 1);
  CHECK_EQ(file_after.jobs_failed, 0);
  CHECK_EQ(file_after.jobs_active, 0);
  CHECK(file_after.busy_ns > file.busy_ns);
}

static void test_fdinfo(void) {
  const int fd = npu_open_or_die();
  char path[64], text[4096];
  unsigned long long before = 0, after = 0;
  struct gemm g;

  NPUD_ONLY();
  REQUIRE(gemm_small(&g, fd, 0, true, 81) == 0);
  CHECK_EQ(gemm_run(&g, 2), 0);
  snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
  REQUIRE(read_file(path, text, sizeof(text)) > 0);
  CHECK(strstr(text, "drm-driver:\trknpu\n") != NULL, "(%s)", text);
  CHECK(strstr(text, "drm-client-id:") != NULL);
  CHECK(strstr(text, "drm-engine-npu-core0:") != NULL);
  CHECK(strstr(text, "drm-engine-npu-core2:") != NULL);
  CHECK(strstr(text, "drm-memory-") != NULL || strstr(text, "drm-total-") != NULL);
  REQUIRE(strstr(text, "drm-engine-npu-core1:") != NULL);
  sscanf(strstr(text, "drm-engine-npu-core1:"), "drm-engine-npu-core1: %llu ns", &before);
  CHECK(before > 0);
  CHECK_EQ(gemm_run(&g, 2), 0);
  REQUIRE(read_file(path, text, sizeof(text)) > 0 && strstr(text, "drm-engine-npu-core1:") != NULL);
  sscanf(strstr(text, "drm-engine-npu-core1:"), "drm-engine-npu-core1: %llu ns", &after);
  CHECK(after > before);
}

static void test_debugfs(void) {
  char text[4096];
  int load[3], end = 0;

  mount_debugfs();
  if (access("/sys/kernel/debug/rknpu", F_OK)) {
    CHECK(access("/sys/kernel/debug", R_OK) != 0, "(/sys/kernel/debug/rknpu is missing)");
    return;
  }
  REQUIRE(read_file("/sys/kernel/debug/rknpu/version", text, sizeof(text)) > 0);
  CHECK(strcmp(text, "RKNPU driver: v0.9.8\n") == 0, "('%s')", text);
  REQUIRE(read_file("/sys/kernel/debug/rknpu/load", text, sizeof(text)) > 0);
  CHECK(sscanf(text, "NPU load:  Core0: %2d%%, Core1: %2d%%, Core2: %2d%%,%n", &load[0], &load[1], &load[2], &end) == 3 && end > 0,
        "('%s')", text);
  for (int core = 0; core < 3; core++) CHECK(load[core] >= 0 && load[core] <= 100);
  static const char *const files[] = {"power", "freq", "volt", "delayms", "reset", "mm"};
  for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
    char path[64];

    snprintf(path, sizeof(path), "/sys/kernel/debug/rknpu/%s", files[i]);
    CHECK(access(path, F_OK) == 0, "(%s)", path);
    if (!vendor) CHECK(read_file(path, text, sizeof(text)) >= 0, "(%s)", path);
  }
}

static void test_set_proc_nice(void) {
  const int fd = npu_open_or_die();
  uint32_t nice = (uint32_t)-19;

  CHECK(npu_action(fd, RKNPU_SET_PROC_NICE, &nice) == 0, "(as root: %s)", strerror(errno));
  errno = 0;
  CHECK_EQ(getpriority(PRIO_PROCESS, 0), -19);
}

static const struct test tests[] = {
    {"version", test_version, 0},
    {"both-nodes", test_both_nodes, 0},
    {"raw-numbers", test_raw_numbers, 0},
    {"actions", test_actions, 0},
    {"actions-power-is-counted-per-file", test_actions_power_is_counted_per_file, 0},
    {"actions-set-domain", test_set_domain_action, 0},
    {"actions-set-proc-nice", test_set_proc_nice, 0},
    {"memory-create-and-map", test_create_and_map, 0},
    {"memory-create-40-bytes", test_create_40_bytes, 0},
    {"memory-create-refused", test_create_refused, 0},
    {"memory-create-sram-wish", test_create_sram_wish, 0},
    {"memory-create-with-handle", test_create_with_handle, 0},
    {"memory-map-refused", test_map_refused, 0},
    {"memory-destroy", test_destroy, 0},
    {"memory-mapping-outlives-handle", test_mapping_outlives_handle, 0},
    {"memory-sync", test_sync, 0},
    {"job-gemm-each-core", test_gemm_each_core, 0},
    {"job-gemm-shapes", test_gemm_shapes, 0},
    {"job-core-masks-refused", test_core_masks_refused, 0},
    {"job-submit-refused", test_submit_refused, 0},
    {"job-outputs", test_outputs, 0},
    {"job-chained-tasks", test_chained_tasks, 0},
    {"job-subcore-tasks", test_subcore_tasks, 0},
    {"job-task-start", test_task_start, 0},
    {"job-more-tasks-than-the-hardware-counts", test_more_tasks_than_the_hardware_counts, 0},
    {"job-domains", test_domains, 0},
    {"job-nonblock", test_nonblock, 0},
    {"job-fence-out", test_fence_out, 0},
    {"job-fence-in-orders-jobs", test_fence_in_orders_jobs, 0},
    {"job-priorities", test_priorities, 0},
    {"job-negative-priority-is-a-privilege", test_negative_priority_is_a_privilege, 0},
    {"job-three-cores-side-by-side", test_three_cores_side_by_side, 0},
    {"job-timeouts-accepted", test_timeouts_accepted, 0},
    {"prime-between-files", test_prime_between_files, 0},
    {"prime-reimport-gives-the-same-buffer", test_prime_reimport_gives_the_same_buffer, 0},
    {"prime-import-is-used-by-a-job", test_prime_import_is_used_by_a_job, 0},
    {"prime-import-from-udmabuf", test_import_from_udmabuf, 0},
    {"limits-only-fall", test_limits_only_fall, 0},
    {"limits-of-jobs", test_limit_of_jobs, 0},
    {"limits-travel-with-the-descriptor", test_limits_travel_with_the_descriptor, 0},
    {"revoke", test_revoke, 0},
    {"queries", test_queries, 0},
    {"fdinfo", test_fdinfo, 0},
    {"debugfs", test_debugfs, 0},
};

int main(int argc, char **argv) {
  const char *pattern = NULL;

  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--driver") == 0 && i + 1 < argc) {
      i++;
      vendor = strcmp(argv[i], "vendor") == 0;
      if (!vendor && strcmp(argv[i], "npud")) {
        fprintf(stderr, "--driver is npud or vendor, not '%s'\n", argv[i]);
        return 2;
      }
    } else if (argv[i][0] == '-') {
      fprintf(stderr, "usage: rknpu-conformance [--driver npud|vendor] [PATTERN]\n");
      return 2;
    } else {
      pattern = argv[i];
    }
  }
  return tap_run(tests, sizeof(tests) / sizeof(tests[0]), pattern, NULL);
}
