// SPDX-License-Identifier: Apache-2.0
/* The security list: what a client of a render node must not be able to do. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "defects.h"

static bool refused(int result) { return result == -1 && (errno == EINVAL || errno == ENOENT); }

static int submit_cookie(int fd, const struct gemm *g, uint64_t cookie) {
  struct rknpu_submit submit;

  gemm_prepare(g, &submit, 1);
  submit.task_obj_addr = cookie;
  return npu_submit(fd, &submit);
}

static int sync_cookie(int fd, uint64_t cookie) {
  const struct bo bo = {.fd = fd, .cookie = cookie};

  return bo_sync(&bo, RKNPU_MEM_SYNC_TO_DEVICE, 0, 1);
}

/* Values that a driver which trusts them would follow: null, user memory, kernel text, the linear map, off by a little. */
static void test_cookies(void) {
  const int fd = npu_open_or_die(), other = npu_open_or_die();
  static char user_memory[4096];
  struct gemm mine, theirs;

  REQUIRE(gemm_small(&mine, fd, 0, true, 1) == 0 && gemm_small(&theirs, other, 0, true, 2) == 0);
  const uint64_t values[] = {0,
                             1,
                             (uintptr_t)user_memory,
                             0xffffffff81000000u,
                             0xffff888000000000u,
                             0xffff000000000000u,
                             0xffff800080000000u,
                             UINT64_MAX,
                             mine.array.cookie + 1,
                             mine.array.cookie + 8,
                             mine.array.cookie - 8,
                             mine.array.cookie ^ UINT64_C(1) << 63,
                             theirs.array.cookie,
                             theirs.data.cookie};

  for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
    if (values[i] == mine.array.cookie || values[i] == mine.data.cookie) continue;
    CHECK(refused(submit_cookie(fd, &mine, values[i])), "(0x%llx: %s)", (unsigned long long)values[i], strerror(errno));
    CHECK(refused(sync_cookie(fd, values[i])), "(0x%llx: %s)", (unsigned long long)values[i], strerror(errno));
  }
  CHECK_EQ(gemm_run(&mine, 1), 0);
  CHECK_EQ(gemm_run(&theirs, 1), 0);
}

static void test_obj_addr_is_no_address(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();

  for (int i = 0; i < 50; i++) {
    struct bo bo, other;

    REQUIRE(bo_create(i % 2 ? a : b, &bo, 4096, RKNPU_MEM_KERNEL_MAPPING, 0) == 0 && bo_create(a, &other, 4096, 0, 0) == 0);
    /* Kernel addresses have their top bits set, on both architectures. */
    CHECK((bo.cookie >> 47) == 0, "(0x%llx looks like a kernel pointer)", (unsigned long long)bo.cookie);
    CHECK(bo.cookie != 0 && bo.cookie != other.cookie);
  }
}

/* A value that was good once names nothing after the buffer is gone, even when the handle is used again. */
static void test_stale_cookie(void) {
  const int fd = npu_open_or_die();
  struct gemm g;
  struct bo bo;
  uint64_t stale;

  REQUIRE(gemm_small(&g, fd, 0, true, 3) == 0);
  REQUIRE(bo_create(fd, &bo, 4096, 0, 0) == 0);
  stale = bo.cookie;
  bo_destroy(&bo);
  CHECK(refused(submit_cookie(fd, &g, stale)));
  CHECK(refused(sync_cookie(fd, stale)));
}

static void test_task_ranges(void) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = 4};
  /* The array lies in one page: 102 tasks fit it. */
  static const struct rknpu_subcore_task ranges[] = {{0, 103},          {102, 1},         {101, 2},          {0xffffffff, 1},
                                                     {1, 0xffffffff},   {0xffffffff, 0xffffffff}, {0x6666667, 1}, {0x80000000, 0x80000001}};
  struct rknpu_submit submit;
  struct gemm g;

  REQUIRE(gemm_create(&g, fd, 0, &shape, 4) == 0);
  for (unsigned i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
    gemm_prepare(&g, &submit, 1);
    submit.task_start = ranges[i].task_start;
    submit.task_number = ranges[i].task_number;
    submit.subcore_task[0] = ranges[i];
    CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
    memset(submit.subcore_task, 0, sizeof(submit.subcore_task));
    CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
    /* In one core's entry only, of a gang. */
    gemm_prepare(&g, &submit, 7);
    submit.subcore_task[4] = ranges[i];
    CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
    gemm_prepare(&g, &submit, 3);
    submit.subcore_task[1] = ranges[i];
    CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  }
  CHECK_EQ(gemm_run(&g, 7), 0);
}

/* Task arrays in buffers of every kind: with KERNEL_MAPPING and without, imported, too small. */
static void test_task_array_without_kernel_mapping(void) {
  static const uint32_t flags[] = {0, RKNPU_MEM_NON_CONTIGUOUS, RKNPU_MEM_CACHEABLE, RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_WRITE_COMBINE};
  const int fd = npu_open_or_die(), other = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm g;
  uint32_t handle = 0;
  struct bo imported;
  int dmabuf;

  REQUIRE(gemm_small(&g, fd, 0, true, 5) == 0);
  for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
    struct bo array;

    REQUIRE(bo_create(fd, &array, 4096, flags[i], 0) == 0 && bo_map(&array) == 0);
    memcpy(array.map, g.array.map, sizeof(struct rknpu_task));
    gemm_clear(&g);
    CHECK_EQ(submit_cookie(fd, &g, array.cookie), 0);
    CHECK_EQ(gemm_wrong(&g), 0);
    bo_destroy(&array);
  }
  /* An imported array: run or refused, never followed blindly. */
  {
    struct bo foreign;

    REQUIRE(bo_create(other, &foreign, 4096, 0, 0) == 0 && bo_map(&foreign) == 0);
    memcpy(foreign.map, g.array.map, sizeof(struct rknpu_task));
    dmabuf = bo_export(&foreign);
    REQUIRE(dmabuf >= 0 && bo_import(fd, dmabuf, &handle) == 0 && bo_lookup(fd, &imported, handle, 0) == 0);
    gemm_clear(&g);
    gemm_prepare(&g, &submit, 1);
    submit.task_obj_addr = imported.cookie;
    if (npu_submit(fd, &submit) == 0)
      CHECK_EQ(gemm_wrong(&g), 0);
    else
      CHECK(errno == EINVAL || errno == EOPNOTSUPP, "(%s)", strerror(errno));
  }
  CHECK_EQ(gemm_run(&g, 1), 0);
}

static void test_task_array_is_copied(void) {
  const int fd = npu_open_or_die();
  struct gemm slow, g, decoy;
  int first, second;

  NEEDS_BOARD();
  REQUIRE(gemm_small(&slow, fd, 0, true, 6) == 0 && gemm_small(&g, fd, 0, true, 7) == 0 && gemm_small(&decoy, fd, 0, true, 8) == 0);
  gemm_clear(&decoy);
  board_fault(VBOARD_FAULT_IRQ_LATE, 0, 500000, 1);
  first = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  second = gemm_start(&g, 1, NPU_TIMEOUT_MS, 0);
  REQUIRE(first >= 0 && second >= 0);
  /* It waits in the queue: what the user writes now must not count. Then the buffer itself goes. */
  gemm_task(&g, 0)->regcmd_addr = decoy.data.iova;
  gemm_task(&g, 0)->regcfg_amount = 0xffffffff;
  gemm_task(&g, 0)->int_mask = 0;
  bo_destroy(&g.array);
  CHECK_EQ(fence_wait(second, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_wrong(&g), 0);
  CHECK(gemm_untouched(&decoy));
}

/* --- isolation --------------------------------------------------------------------------------------------------------------------------------- */

/* Another file's device addresses lead nowhere, in the same domain number, for command words, inputs and outputs. */
static void test_isolation(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  const struct npu_gemm large = {.m = 64, .k = 512, .n = 32, .fp16 = 1, .seed = 9};
  struct gemm victim, spy;
  struct npu_gemm shape;
  uint64_t words[NPU_GEMM_WORDS];
  char *before;

  for (int domain = 0; domain < 6; domain += 5) {
    /* The victim's buffers are larger, so that its last addresses cannot be the spy's own. */
    REQUIRE(gemm_create(&victim, a, domain, &large, 40) == 0 && gemm_small(&spy, b, domain, true, 10) == 0);
    const uint64_t target = victim.data.iova + victim.data.size - 8192;

    if (target >= spy.data.iova && target < spy.data.iova + spy.data.size) {
      tap_note("the spy has that address itself");
      continue;
    }
    before = malloc(victim.data.size);
    REQUIRE(before != NULL);
    memcpy(before, victim.data.map, victim.data.size);
    for (unsigned core = 0; core < NPU_CORES; core++) {
      CHECK_EQ(gemm_run(&victim, 1u << core), 0); /* its space is the live one now */
      memcpy(before, victim.data.map, victim.data.size);
      shape = spy.shape;
      shape.out = (uint32_t)target;
      npu_gemm_emit((__u64 *)words, &shape, 0);
      memcpy(spy.data.map, words, sizeof(words));
      CHECK(gemm_run(&spy, 1u << core) == -1 && errno == EFAULT, "(write: %s)", strerror(errno));
      shape = spy.shape;
      shape.weights = (uint32_t)target;
      npu_gemm_emit((__u64 *)words, &shape, 0);
      memcpy(spy.data.map, words, sizeof(words));
      CHECK(gemm_run(&spy, 1u << core) == -1 && errno == EFAULT, "(read: %s)", strerror(errno));
      gemm_task(&spy, 0)->regcmd_addr = target;
      CHECK(gemm_run(&spy, 1u << core) == -1 && errno == EFAULT, "(command words: %s)", strerror(errno));
      gemm_task(&spy, 0)->regcmd_addr = spy.data.iova;
      CHECK(memcmp(before, victim.data.map, victim.data.size) == 0);
      npu_gemm_emit((__u64 *)words, &spy.shape, 0);
      memcpy(spy.data.map, words, sizeof(words));
      CHECK_EQ(gemm_run(&spy, 1u << core), 0);
    }
    free(before);
    gemm_destroy(&victim);
    gemm_destroy(&spy);
  }
}

/* task_base_addr is added to addresses by the hardware: it must not lead out either. */
static void test_task_base(void) {
  static const uint64_t bases[] = {0x40000000, 0xfffff000, UINT64_C(1) << 32, 0xffffffffffff0000u};
  const int fd = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm g;

  REQUIRE(gemm_small(&g, fd, 0, true, 11) == 0);
  for (unsigned i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
    gemm_clear(&g);
    gemm_prepare(&g, &submit, 1);
    submit.timeout = 3000;
    submit.task_base_addr = bases[i];
    if (npu_submit(fd, &submit) == 0)
      CHECK_EQ(gemm_wrong(&g), 0);
    else
      CHECK(errno == EINVAL || errno == EFAULT || errno == ETIMEDOUT || errno == EIO, "(%s)", strerror(errno));
  }
  CHECK_EQ(gemm_run(&g, 1), 0);
}

static void test_one_page_fault_fails_one_job(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct rknpu_npud_file_info info_a, info_b;
  struct gemm bad, good[NPU_CORES];
  int fences[NPU_CORES], fence;

  REQUIRE(gemm_small(&bad, a, 4, true, 12) == 0);
  for (unsigned i = 0; i < NPU_CORES; i++) REQUIRE(gemm_long(&good[i], b, (int)i, 50000000, 13 + i) == 0);
  gemm_task(&bad, 0)->regcmd_addr = 0xc0001000;
  for (unsigned core = 0; core < NPU_CORES; core++) {
    fence = gemm_start(&bad, 1u << core, NPU_TIMEOUT_MS, 0);
    REQUIRE(fence >= 0);
    for (unsigned i = 0; i < NPU_CORES; i++) {
      gemm_clear(&good[i]);
      fences[i] = gemm_start(&good[i], 1u << i, NPU_TIMEOUT_MS, 0);
      REQUIRE(fences[i] >= 0);
    }
    CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), -EFAULT);
    close(fence);
    for (unsigned i = 0; i < NPU_CORES; i++) {
      CHECK_EQ(fence_wait(fences[i], NPU_TIMEOUT_MS), 1);
      CHECK_EQ(gemm_wrong(&good[i]), 0);
      close(fences[i]);
    }
  }
  REQUIRE(query_file(a, &info_a) == 0 && query_file(b, &info_b) == 0);
  CHECK_EQ(info_a.page_faults, NPU_CORES);
  CHECK_EQ(info_a.jobs_failed, NPU_CORES);
  CHECK_EQ(info_a.last_fault_iova & ~UINT64_C(0xfff), 0xc0001000);
  CHECK_EQ(info_a.last_fault_space, 4);
  CHECK_EQ(info_a.last_fault_flags, RKNPU_NPUD_FAULT_VALID);
  CHECK_EQ(info_b.page_faults, 0);
  CHECK_EQ(info_b.jobs_failed, 0);
}

/* --- rights ------------------------------------------------------------------------------------------------------------------------------------ */

static bool unprivileged_mischief(void *unused) {
  const int fd = npu_open_or_die();
  static const uint32_t forbidden[] = {RKNPU_SET_FREQ, RKNPU_SET_VOLT, RKNPU_SET_BW_PRIORITY, RKNPU_SET_BW_EXPECT, RKNPU_SET_BW_TW};
  static const uint32_t harmless[] = {RKNPU_ACT_RESET, RKNPU_ACT_REINIT, RKNPU_ACT_CLR_TOTAL_RW_AMOUNT, RKNPU_POWER_OFF};
  uint32_t value;

  (void)unused;
  if (drop_capabilities()) return false;
  for (unsigned i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++) {
    value = 1;
    if (npu_action(fd, forbidden[i], &value) == 0) {
      tap_note("action %u succeeded", forbidden[i]);
      return false;
    }
  }
  for (unsigned i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++) {
    value = 0;
    npu_action(fd, harmless[i], &value);
  }
  for (uint32_t mask = 1; mask < 8; mask++) {
    value = mask;
    npu_action(fd, RKNPU_ACT_RESET_CORE, &value);
  }
  for (uint32_t domain = 0; domain < 16; domain++) {
    value = domain;
    npu_action(fd, RKNPU_SET_IOMMU_DOMAIN_ID, &value);
  }
  return true;
}

static void test_resets_are_not_global(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_device_info before, after;
  struct gemm g[NPU_CORES];
  int fences[NPU_CORES];

  REQUIRE(query_device(fd, &before) == 0);
  for (unsigned core = 0; core < NPU_CORES; core++) {
    REQUIRE(gemm_long(&g[core], fd, (int)core, 300000000, 20 + core) == 0);
    gemm_clear(&g[core]);
    fences[core] = gemm_start(&g[core], 1u << core, NPU_TIMEOUT_MS, 0);
    REQUIRE(fences[core] >= 0);
  }
  CHECK(child_run(unprivileged_mischief, NULL));
  for (unsigned core = 0; core < NPU_CORES; core++) {
    CHECK_EQ(fence_wait(fences[core], NPU_TIMEOUT_MS), 1);
    CHECK_EQ(gemm_wrong(&g[core]), 0);
  }
  REQUIRE(query_device(fd, &after) == 0);
  CHECK_EQ(after.resets, before.resets); /* whoever runs no job causes no reset */
}

static bool be_nicer_than_allowed(void *unused) {
  const int fd = npu_open_or_die();
  uint32_t value = (uint32_t)-10;
  struct rlimit none = {0, 0};

  (void)unused;
  if (setrlimit(RLIMIT_NICE, &none) || drop_capabilities()) return false;
  errno = 0;
  if (npu_action(fd, RKNPU_SET_PROC_NICE, &value)) {
    tap_note("SET_PROC_NICE -10 without CAP_SYS_NICE: %s", strerror(errno));
    return false;
  }
  if (getpriority(PRIO_PROCESS, 0) != 0) return false;
  value = 5;
  return npu_action(fd, RKNPU_SET_PROC_NICE, &value) == 0 && getpriority(PRIO_PROCESS, 0) == 5;
}

static void test_nice(void) { CHECK(child_run(be_nicer_than_allowed, NULL)); }

/* --- memory -------------------------------------------------------------------------------------------------------------------------------------- */

static void test_sync_bounds(void) {
  static const uint64_t edges[][2] = {{0, 8193},       {8192, 1},          {1, 8192},          {UINT64_MAX, 1},
                                      {UINT64_MAX, 2}, {1, UINT64_MAX},    {4096, UINT64_MAX - 4095}, {UINT64_C(1) << 63, UINT64_C(1) << 63},
                                      {0, UINT64_MAX}, {0xfffffffff000, 4096}};
  static const uint32_t flags[] = {RKNPU_MEM_CACHEABLE, RKNPU_MEM_CACHEABLE | RKNPU_MEM_NON_CONTIGUOUS, 0};
  const int fd = npu_open_or_die();

  for (unsigned f = 0; f < sizeof(flags) / sizeof(flags[0]); f++) {
    struct bo bo;

    REQUIRE(bo_create(fd, &bo, 8192, flags[f], 0) == 0);
    for (unsigned i = 0; i < sizeof(edges) / sizeof(edges[0]); i++)
      for (uint32_t way = 1; way < 4; way++) CHECK(bo_sync(&bo, way, edges[i][0], edges[i][1]) == 0, "(%s)", strerror(errno));
    CHECK(bo_sync(&bo, 3, 0, 8192) == 0);
    bo_destroy(&bo);
  }
}

static void test_mmap_error_path(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_file_info info;
  struct rknpu_mem_map map;
  struct bo bo;

  REQUIRE(bo_create(fd, &bo, 4 * 4096, RKNPU_MEM_TRY_ALLOC_SRAM | RKNPU_MEM_NON_CONTIGUOUS, 0) == 0);
  map = (struct rknpu_mem_map){.handle = bo.handle};
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_MEM_MAP, &map) == 0);
  /* Each failure must give back what it took, and no more. */
  for (int i = 0; i < 100; i++) {
    CHECK(mmap(NULL, bo.size + 4096u * (unsigned)(1 + i), PROT_READ, MAP_SHARED, fd, (off_t)map.offset) == MAP_FAILED);
    CHECK(mmap(NULL, bo.size, PROT_READ, MAP_SHARED, fd, (off_t)(map.offset + 4096u * (unsigned)(1 + i % 4))) == MAP_FAILED);
  }
  REQUIRE(bo_map(&bo) == 0);
  memset(bo.map, 0x42, bo.size);
  CHECK_EQ(((unsigned char *)bo.map)[bo.size - 1], 0x42);
  bo_destroy(&bo);
  REQUIRE(query_file(fd, &info) == 0);
  CHECK_EQ(info.bytes, 0);
}

static void test_private_mapping_refused(void) {
  const int fd = npu_open_or_die();
  struct rknpu_mem_map map;
  struct bo bo;
  void *at;

  REQUIRE(bo_create(fd, &bo, 4096, 0, 0) == 0);
  map = (struct rknpu_mem_map){.handle = bo.handle};
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_MEM_MAP, &map) == 0);
  /* A copy-on-write view of device memory would show the device nothing. */
  at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)map.offset);
  CHECK(at == MAP_FAILED);
}

static void test_memory_is_zeroed(void) {
  const int fd = npu_open_or_die();

  for (int round = 0; round < 6; round++) {
    struct bo bos[8];

    for (int i = 0; i < 8; i++) {
      size_t dirty = 0;

      /* Never asked for with ZEROING. */
      REQUIRE(bo_create(fd, &bos[i], 1 << 19, i % 2 ? RKNPU_MEM_CACHEABLE : RKNPU_MEM_NON_CONTIGUOUS, 0) == 0 && bo_map(&bos[i]) == 0);
      for (size_t at = 0; at < bos[i].size; at += 8) dirty += *(uint64_t *)((char *)bos[i].map + at) != 0;
      CHECK_EQ(dirty, 0);
      memset(bos[i].map, 0xdb, bos[i].size);
    }
    for (int i = 0; i < 8; i++) bo_destroy(&bos[i]);
  }
}

static void test_masks_that_hang(void) {
  const int fd = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm g;

  REQUIRE(gemm_small(&g, fd, 0, true, 30) == 0);
  for (uint32_t mask = 0; mask < 32; mask++) {
    gemm_prepare(&g, &submit, mask & 7);
    submit.core_mask = mask;
    if (mask == 0 || mask == 1 || mask == 2 || mask == 4) {
      CHECK_EQ(npu_submit(fd, &submit), 0);
    } else if (mask != 3 && mask != 7) {
      CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
    }
  }
}

static void test_timeout_does_not_overflow(void) {
  /* Times 1000, each of these is a small number in 32 bits. */
  static const uint32_t timeouts[] = {4294968, 8589935, 0x80000000, 0xffffffff};
  const int fd = npu_open_or_die();
  struct gemm g;

  NEEDS_BOARD();
  REQUIRE(gemm_small(&g, fd, 0, true, 31) == 0);
  for (unsigned i = 0; i < sizeof(timeouts) / sizeof(timeouts[0]); i++) {
    int fence;

    gemm_clear(&g);
    board_fault(VBOARD_FAULT_IRQ_LATE, VBOARD_FAULT_ANY_CORE, 1200000, 1);
    fence = gemm_start(&g, 1, timeouts[i], 0);
    REQUIRE(fence >= 0);
    CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), 1);
    CHECK_EQ(gemm_wrong(&g), 0);
    close(fence);
  }
}

static void test_flag_words(void) {
  const int fd = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm g;
  struct bo bo;

  REQUIRE(gemm_small(&g, fd, 0, true, 32) == 0);
  for (unsigned bit = 0; bit < 32; bit++) {
    if (!(RKNPU_MEM_MASK & 1u << bit)) CHECK_ERRNO(bo_create(fd, &bo, 4096, 1u << bit, 0), EINVAL);
    if (!(RKNPU_MEM_SYNC_MASK & 1u << bit)) CHECK_ERRNO(bo_sync(&g.data, 1u << bit | 1, 0, 1), EINVAL);
    if (!(RKNPU_JOB_MASK & 1u << bit)) {
      gemm_prepare(&g, &submit, 1);
      submit.flags |= 1u << bit;
      CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
    }
  }
}

/* Whoever submits nonsense that hangs a core, again and again, harms himself only: a core that answers to its reset is no dead core. */
static void test_nonsense_does_not_kill_cores(void) {
  const int fd = npu_open_or_die(), other = npu_open_or_die();
  struct rknpu_npud_device_info device;
  struct gemm bad, good;

  REQUIRE(gemm_small(&bad, fd, 0, true, 35) == 0 && gemm_small(&good, other, 0, true, 36) == 0);
  ((uint64_t *)bad.data.map)[3] = npu_gemm_word(NPU_OP_CNA, 0x1ffc, 0xffffffff);
  for (uint32_t round = 0; round < 8 * NPU_CORES; round++) {
    struct rknpu_submit submit;

    gemm_prepare(&bad, &submit, 1u << round / 8);
    submit.timeout = 150;
    CHECK(npu_submit(fd, &submit) == -1 && errno != ENODEV, "(%s)", strerror(errno));
  }
  REQUIRE(query_device(fd, &device) == 0);
  CHECK_EQ(device.flags, 0);
  for (unsigned core = 0; core < NPU_CORES; core++) CHECK_EQ(gemm_run(&good, 1u << core), 0);
}

/* One file can't fill the queue for all. */
static void test_queue_is_bounded(void) {
  const int fd = npu_open_or_die(), other = npu_open_or_die();
  struct gemm g, theirs;
  struct rknpu_npud_device_info device;
  uint32_t value = 0;
  int first, second, queued = 0;

  NEEDS_BOARD();
  REQUIRE(query_device(fd, &device) == 0);
  REQUIRE(gemm_small(&g, fd, 0, true, 33) == 0 && gemm_small(&theirs, other, 0, true, 34) == 0);
  board_fault(VBOARD_FAULT_DISPATCH_DROP, 0, 0, 1);
  first = gemm_start(&g, 1, NPU_TIMEOUT_MS, 0);
  REQUIRE(first >= 0);
  for (; queued < 100000; queued++) {
    struct rknpu_submit submit;

    gemm_prepare(&g, &submit, 1);
    submit.flags |= RKNPU_JOB_NONBLOCK;
    if (npu_submit(fd, &submit)) break;
  }
  CHECK(queued < 100000 && errno == EAGAIN, "(%d queued, then %s)", queued, strerror(errno));
  gemm_clear(&theirs);
  second = gemm_start(&theirs, 2, NPU_TIMEOUT_MS, 0);
  REQUIRE(second >= 0);
  /* On cores behind one MMU another space has to wait until the core that hangs is free; on others not. */
  if (device.mmu_units == device.cores) CHECK_EQ(fence_wait(second, NPU_TIMEOUT_MS / 2), 1);
  CHECK(npu_action(fd, RKNPU_ACT_RESET, &value) == 0);
  CHECK_EQ(fence_wait(first, 0), -ECANCELED);
  CHECK_EQ(fence_wait(second, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_wrong(&theirs), 0);
  close(first);
  close(second);
  CHECK_EQ(gemm_run(&g, 1), 0);
}

const struct test security_tests[] = {
    {"security-obj-addr-values-are-looked-up", test_cookies, 0},
    {"security-obj-addr-is-no-kernel-address", test_obj_addr_is_no_address, 0},
    {"security-obj-addr-dies-with-its-buffer", test_stale_cookie, 0},
    {"security-task-ranges-are-bounded", test_task_ranges, 0},
    {"security-task-array-needs-no-kernel-mapping", test_task_array_without_kernel_mapping, 0},
    {"security-task-array-is-copied-at-submit", test_task_array_is_copied, 0},
    {"security-addresses-of-others-lead-nowhere", test_isolation, 0},
    {"security-task-base-leads-nowhere", test_task_base, 0},
    {"security-a-page-fault-fails-one-job", test_one_page_fault_fails_one_job, 0},
    {"security-resets-and-switches-are-not-global", test_resets_are_not_global, 0},
    {"security-set-proc-nice-needs-cap-sys-nice", test_nice, 0},
    {"security-mem-sync-is-bounded", test_sync_bounds, 0},
    {"security-mmap-gives-back-once", test_mmap_error_path, 0},
    {"security-private-mappings-are-refused", test_private_mapping_refused, 0},
    {"security-memory-is-zeroed", test_memory_is_zeroed, 0},
    {"security-core-masks-that-would-hang", test_masks_that_hang, 0},
    {"security-timeouts-do-not-overflow", test_timeout_does_not_overflow, 0},
    {"security-flag-words-are-masked", test_flag_words, 0},
    {"security-nonsense-does-not-kill-cores", test_nonsense_does_not_kill_cores, 0},
    {"security-the-queue-of-a-file-is-bounded", test_queue_is_bounded, 0},
};
const unsigned security_test_count = sizeof(security_tests) / sizeof(security_tests[0]);
