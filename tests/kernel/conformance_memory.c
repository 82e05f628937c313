// SPDX-License-Identifier: Apache-2.0
/* Buffers: creating, mapping, handing over, destroying. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conformance.h"

static void put_u32(unsigned char *at, uint32_t value) { memcpy(at, &value, sizeof(value)); }
static void put_u64(unsigned char *at, uint64_t value) { memcpy(at, &value, sizeof(value)); }
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
}

/* A handle that names nothing asks for a new buffer, as an old one of the caller's does after MEM_DESTROY. */
static void test_create_with_unknown_handle(void) {
  const int fd = npu_open_or_die();
  struct rknpu_mem_create create = {.handle = 12345, .flags = RKNPU_MEM_NON_CONTIGUOUS, .size = 5000};
  struct bo bo;
  uint32_t old;

  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_MEM_CREATE, &create) == 0, "(%s)", strerror(errno));
  CHECK(create.handle != 12345 && create.handle != 0);
  CHECK(create.size >= 5000 && create.dma_addr != 0 && create.obj_addr != 0);
  REQUIRE(bo_create(fd, &bo, 4096, 0, 0) == 0);
  old = bo.handle;
  bo_destroy(&bo);
  create = (struct rknpu_mem_create){.handle = old, .flags = RKNPU_MEM_NON_CONTIGUOUS, .size = 3 * 4096};
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_MEM_CREATE, &create) == 0, "(%s)", strerror(errno));
  CHECK_EQ(create.size, 3 * 4096);
  if (vendor) return;
  create = (struct rknpu_mem_create){.handle = 12345};
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_MEM_CREATE, &create), EINVAL);
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

/* Beyond the end there is nothing to do, and nothing is what is done; callers give whole sizes with an offset, or none at all. */
static void test_sync(void) {
  const int fd = npu_open_or_die();
  struct bo bo;

  REQUIRE(bo_create(fd, &bo, 4 * 4096, RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_CACHEABLE, 0) == 0 && bo_map(&bo) == 0);
  CHECK(bo_sync(&bo, RKNPU_MEM_SYNC_TO_DEVICE, 0, bo.size) == 0);
  CHECK(bo_sync(&bo, RKNPU_MEM_SYNC_FROM_DEVICE, 0, bo.size) == 0);
  CHECK(bo_sync(&bo, RKNPU_MEM_SYNC_TO_DEVICE | RKNPU_MEM_SYNC_FROM_DEVICE, 100, 4000) == 0);
  CHECK(bo_sync(&bo, RKNPU_MEM_SYNC_TO_DEVICE, bo.size - 1, 1) == 0);
  CHECK(bo_sync(&bo, 0, 0, bo.size) == 0, "(flags 0: %s)", strerror(errno));
  if (vendor) return;
  for (uint32_t way = 1; way < 4; way++) {
    CHECK(bo_sync(&bo, way, 0, bo.size + 1) == 0, "(%s)", strerror(errno));
    CHECK(bo_sync(&bo, way, 4096, bo.size) == 0, "(%s)", strerror(errno));
    CHECK(bo_sync(&bo, way, bo.size, 1) == 0, "(%s)", strerror(errno));
    CHECK(bo_sync(&bo, way, 1, UINT64_MAX) == 0, "(%s)", strerror(errno));
    CHECK(bo_sync(&bo, way, UINT64_MAX, 2) == 0, "(%s)", strerror(errno));
  }
  CHECK_ERRNO(bo_sync(&bo, 4, 0, 1), EINVAL);
  bo.cookie++;
  CHECK_ERRNO(bo_sync(&bo, 1, 0, 1), EINVAL);
  CHECK_ERRNO(bo_sync(&bo, 0, 0, 1), EINVAL);
  bo.cookie--;
}

/* Callers leave on the stack what they don't know: `reserved` is not looked at, anywhere. */
static void test_reserved_is_ignored(void) {
  const int fd = npu_open_or_die();
  struct rknpu_mem_map map;
  struct rknpu_mem_sync sync;
  struct rknpu_mem_destroy destroy;
  struct rknpu_submit submit;
  struct gemm g;
  struct bo bo;

  REQUIRE(bo_create(fd, &bo, 4096, RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_CACHEABLE, 0) == 0);
  map = (struct rknpu_mem_map){.handle = bo.handle, .reserved = 0xffff8000};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_MAP, &map) == 0, "(MEM_MAP: %s)", strerror(errno));
  sync = (struct rknpu_mem_sync){.flags = 1, .reserved = 1, .obj_addr = bo.cookie, .size = 1};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_SYNC, &sync) == 0, "(MEM_SYNC: %s)", strerror(errno));
  destroy = (struct rknpu_mem_destroy){.handle = bo.handle, .reserved = 7, .obj_addr = bo.cookie};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy) == 0, "(MEM_DESTROY: %s)", strerror(errno));
  REQUIRE(gemm_small(&g, fd, 0, true, 90) == 0);
  gemm_clear(&g);
  gemm_prepare(&g, &submit, 1);
  submit.reserved = 0xffff8000;
  CHECK(npu_submit(fd, &submit) == 0, "(SUBMIT: %s)", strerror(errno));
  CHECK_EQ(gemm_wrong(&g), 0);
}

const struct test memory_tests[] = {
    {"memory-create-and-map", test_create_and_map, 0},
    {"memory-create-40-bytes", test_create_40_bytes, 0},
    {"memory-create-refused", test_create_refused, 0},
    {"memory-create-sram-wish", test_create_sram_wish, 0},
    {"memory-create-with-handle", test_create_with_handle, 0},
    {"memory-create-with-unknown-handle", test_create_with_unknown_handle, 0},
    {"memory-map-refused", test_map_refused, 0},
    {"memory-destroy", test_destroy, 0},
    {"memory-mapping-outlives-handle", test_mapping_outlives_handle, 0},
    {"memory-sync", test_sync, 0},
    {"memory-reserved-is-ignored", test_reserved_is_ignored, 0},
};
const unsigned memory_test_count = sizeof(memory_tests) / sizeof(memory_tests[0]);
