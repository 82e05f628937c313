// SPDX-License-Identifier: Apache-2.0
/* Rows i to ix of the table of defects: address spaces, imports, how files end. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "defects.h"

/* --- i, ii: references of queued jobs, counts that block switching ------------------------------------------------------------------- */

/* A file whose first job hangs on core 0 and whose further jobs, in several address spaces, wait behind it. */
static bool queue_behind_a_hang(void *unused) {
  const int fd = npu_open_or_die();
  static struct gemm first, queued[6];

  (void)unused;
  if (gemm_small(&first, fd, 0, true, 1)) return false;
  board_fault(VBOARD_FAULT_DISPATCH_DROP, 0, 0, 1);
  if (gemm_start(&first, 1, NPU_TIMEOUT_MS, 0) < 0) return false;
  for (int i = 0; i < 6; i++)
    if (gemm_small(&queued[i], fd, 1 + i, true, 2) || gemm_start(&queued[i], i % 2 ? 1 : 7, NPU_TIMEOUT_MS, 0) < 0) return false;
  return true;
}

static void test_row_i(void) {
  const int fd = npu_open_or_die();
  struct baseline before;

  NEEDS_BOARD();
  REQUIRE(baseline_take(fd, &before));
  for (int round = 0; round < 3; round++) {
    const pid_t child = child_start(queue_behind_a_hang, NULL);
    struct rknpu_npud_device_info info;

    REQUIRE(child > 0);
    REQUIRE(query_device(fd, &info) == 0);
    CHECK(info.spaces >= before.device.spaces + 7, "(%u)", info.spaces);
    child_kill(child);
    board_clear_faults();
    CHECK(baseline_restored(fd, &before));
  }
  CHECK(all_spaces_work());
}

static void test_row_ii(void) {
  const int fd = npu_open_or_die();
  struct gemm g[4];
  uint32_t value = 0;

  NEEDS_BOARD();
  for (int i = 0; i < 4; i++) REQUIRE(gemm_small(&g[i], fd, 3 * i, true, 20 + (uint32_t)i) == 0);
  /* Time-outs, page faults and cancelled jobs, running and queued, in several spaces: each is where a count could slip. */
  for (int round = 0; round < 4; round++) {
    int fences[4];

    board_fault(round < 2 ? VBOARD_FAULT_STALL : VBOARD_FAULT_DISPATCH_DROP, 0, 0, 1);
    for (int i = 0; i < 4; i++) fences[i] = gemm_start(&g[(i + round) % 4], 1, STALL_TIMEOUT_MS, 0);
    if (round % 2) CHECK(npu_action(fd, RKNPU_ACT_RESET, &value) == 0);
    for (int i = 0; i < 4; i++) {
      REQUIRE(fences[i] >= 0, "(%s)", strerror(errno));
      CHECK(fence_wait(fences[i], NPU_TIMEOUT_MS) != 0, "(a fence that nobody signals)");
      close(fences[i]);
    }
    board_clear_faults();
    gemm_task(&g[round], 0)->regcmd_addr = 0xe0000000;
    CHECK(gemm_run(&g[round], 1) == -1 && errno == EFAULT, "(%s)", strerror(errno));
    gemm_task(&g[round], 0)->regcmd_addr = g[round].data.iova;
  }
  for (int i = 0; i < 4; i++) CHECK_EQ(gemm_run(&g[i], 1), 0);
  CHECK(all_spaces_work());
}

/* --- iii to vi: switching, resetting, flushing ------------------------------------------------------------------------------------------ */

static void test_row_iii(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_device_info info;
  struct gemm g[2];

  NEEDS_BOARD();
  REQUIRE(query_device(fd, &info) == 0);
  for (int i = 0; i < 2; i++) REQUIRE(gemm_small(&g[i], fd, 4 * i, true, 30 + (uint32_t)i) == 0);
  CHECK_EQ(gemm_run(&g[0], 1), 0);
  for (uint32_t bank = 0; bank < VBOARD_BANKS; bank++) board_fault(VBOARD_FAULT_MMU_NO_READBACK, bank, 0, 0);
  for (int round = 0; round < 20; round++) {
    for (unsigned core = 0; core < NPU_CORES; core++) {
      const int wrong = gemm_run(&g[(round + core) % 2], 1u << core);

      /* Our own banks are never force-reset. Where the kernel's IOMMU driver does that, the job must say that it failed. */
      if (info.mmu == RKNPU_NPUD_MMU_BANK)
        CHECK(wrong == 0, "(%d, %s)", wrong, strerror(errno));
      else
        CHECK(wrong <= 0, "(%d wrong results without an error)", wrong);
    }
  }
  board_clear_faults();
  CHECK(all_spaces_work());
}

/* A stalled job in a space that is not the first, then the next job of that space, at once. */
static void reset_reprograms_the_live_table(uint32_t core) {
  const int fd = npu_open_or_die();
  struct gemm zero, five;
  int fence;

  REQUIRE(gemm_small(&zero, fd, 0, true, 40) == 0 && gemm_small(&five, fd, 5, true, 41) == 0);
  for (int round = 0; round < 3; round++) {
    CHECK_EQ(gemm_run(&zero, 1u << core), 0);
    CHECK_EQ(gemm_run(&five, 1u << core), 0);
    board_fault(round % 2 ? VBOARD_FAULT_DISPATCH_DROP : VBOARD_FAULT_STALL, core, 0, 1);
    fence = gemm_start(&five, 1u << core, STALL_TIMEOUT_MS, 0);
    REQUIRE(fence >= 0);
    CHECK(core_failed(fence_wait(fence, NPU_TIMEOUT_MS)), "(%d)", fence_wait(fence, 0));
    close(fence);
    CHECK_EQ(gemm_run(&five, 1u << core), 0);
    CHECK_EQ(gemm_run(&zero, 1u << core), 0);
  }
}

static void test_row_iv(void) {
  NEEDS_BOARD();
  reset_reprograms_the_live_table(0);
}

static void test_row_v(void) {
  const int fd = npu_open_or_die();
  struct gemm g;

  NEEDS_BOARD();
  reset_reprograms_the_live_table(1);
  reset_reprograms_the_live_table(2);
  /* The same through the explicit reset of one core. */
  REQUIRE(gemm_small(&g, fd, 7, true, 42) == 0);
  for (uint32_t core = 0; core < NPU_CORES; core++) {
    const uint32_t fired = board_fired();
    uint32_t mask = 1u << core;
    int fence;

    board_fault(VBOARD_FAULT_DISPATCH_DROP, core, 0, 1);
    fence = gemm_start(&g, mask, NPU_TIMEOUT_MS, 0);
    REQUIRE(fence >= 0);
    wait_for_strike(fired);
    CHECK(npu_action(fd, RKNPU_ACT_RESET_CORE, &mask) == 0, "(%s)", strerror(errno));
    CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), -ECANCELED);
    board_clear_faults();
    CHECK_EQ(gemm_run(&g, 1u << core), 0);
  }
}

static void test_row_vi(void) {
  const int fd = npu_open_or_die();
  struct gemm other, g;
  unsigned reused = 0;
  uint64_t last = 0;

  REQUIRE(gemm_small(&other, fd, 0, true, 50) == 0);
  /* New memory at an address that was just in use, while another space is the live one or not. */
  for (uint32_t round = 0; round < 24; round++) {
    const uint32_t core = 1u << round % NPU_CORES;

    if (round % 4 == 3) CHECK_EQ(gemm_run(&other, core), 0);
    REQUIRE(gemm_small(&g, fd, 2, round % 2, 51 + round) == 0);
    reused += g.data.iova == last;
    last = g.data.iova;
    if (round % 4 != 2) CHECK_EQ(gemm_run(&other, core), 0);
    CHECK_EQ(gemm_run(&g, core), 0);
    gemm_destroy(&g);
    if (round % 3 == 0) CHECK_EQ(gemm_run(&other, core), 0);
  }
  if (!reused) tap_note("no address was ever used twice: this driver's allocator hides what the test is about");
}

static void test_row_vi_freed_memory_is_out_of_reach(void) {
  const int fd = npu_open_or_die();
  struct npu_gemm shape;
  uint64_t words[NPU_GEMM_WORDS];
  struct gemm g;
  struct bo gone;

  REQUIRE(gemm_small(&g, fd, 2, true, 80) == 0);
  for (unsigned core = 0; core < NPU_CORES; core++) {
    REQUIRE(bo_create(fd, &gone, 16384, 0, 2) == 0 && bo_map(&gone) == 0);
    shape = g.shape;
    shape.out = (uint32_t)gone.iova;
    npu_gemm_emit((__u64 *)words, &shape, 0);
    memcpy(g.data.map, words, sizeof(words));
    /* First with the memory there, so that every TLB knows it. */
    CHECK(gemm_run(&g, 1u << core) >= 0, "(%s)", strerror(errno));
    CHECK_EQ(npu_gemm_wrong(&shape, gone.map), 0);
    bo_destroy(&gone);
    CHECK(gemm_run(&g, 1u << core) == -1 && errno == EFAULT, "(%s)", strerror(errno));
  }
}

/* --- vii: imports --------------------------------------------------------------------------------------------------------------------------- */

static void test_row_vii(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  uint32_t handle = 0, domain = 3;
  uint64_t words[NPU_GEMM_WORDS];
  struct gemm source, three, zero;
  struct npu_gemm shape;
  struct bo foreign;
  int dmabuf;

  REQUIRE(gemm_small(&source, a, 0, true, 90) == 0);
  /* Something large in domain 0, so that an address of domain 3 that is mapped there by mistake is seen, not hidden. */
  REQUIRE(gemm_small(&zero, b, 0, true, 91) == 0 && gemm_small(&three, b, 3, true, 92) == 0);
  dmabuf = bo_export(&source.data);
  REQUIRE(dmabuf >= 0 && npu_action(b, RKNPU_ACT_SET_DOMAIN, &domain) == 0);
  REQUIRE(bo_import(b, dmabuf, &handle) == 0 && bo_lookup(b, &foreign, handle, 3) == 0, "(%s)", strerror(errno));
  shape = source.shape;
  shape.features = (uint32_t)(foreign.iova + (source.shape.features - source.data.iova));
  shape.weights = (uint32_t)(foreign.iova + (source.shape.weights - source.data.iova));
  shape.out = (uint32_t)(foreign.iova + source.out_offset);
  npu_gemm_emit((__u64 *)words, &shape, 0);
  memcpy(three.data.map, words, sizeof(words));
  gemm_clear(&source);
  CHECK(gemm_run(&three, 1) >= 0, "(%s)", strerror(errno));
  CHECK_EQ(gemm_wrong(&source), 0);
  /* The same command words in domain 0, where the import is not: a page fault, and nothing written. */
  memcpy(zero.data.map, words, sizeof(words));
  if (foreign.iova >= zero.data.iova + zero.data.size || foreign.iova + foreign.size <= zero.data.iova) {
    gemm_clear(&source);
    CHECK(gemm_run(&zero, 1) == -1 && errno == EFAULT, "(%s)", strerror(errno));
    CHECK(gemm_untouched(&source));
  }
}

/* --- viii, ix: ends ------------------------------------------------------------------------------------------------------------------------- */

static bool start_a_long_job(void *core_mask) {
  const int fd = npu_open_or_die();
  static struct gemm g;

  return gemm_long(&g, fd, 2, 3000000000u, 100) == 0 && gemm_start(&g, *(uint32_t *)core_mask, NPU_TIMEOUT_MS, 0) >= 0;
}

static void test_row_viii(void) {
  enum { BYTES = 48 << 20 };
  static const uint32_t masks[] = {1, 2, 4, 7};
  const int fd = npu_open_or_die();
  uint64_t page_faults;
  struct baseline before;
  unsigned caught = 0;
  struct gemm g;

  NEEDS_BOARD();
  REQUIRE(gemm_small(&g, fd, 0, true, 101) == 0 && baseline_take(fd, &before));
  page_faults = board_counter_sum(VBOARD_COUNT_PAGE_FAULTS);
  for (int round = 0; round < 4; round++) {
    uint32_t mask = masks[round];
    const pid_t child = child_start(start_a_long_job, &mask);
    unsigned char *memory;
    size_t changed = 0;

    struct rknpu_npud_device_info device;

    REQUIRE(child > 0 && query_device(fd, &device) == 0);
    caught += device.jobs_running != 0;
    child_kill(child);
    /* The pages that the job wrote to are free now: take all we can and see whether somebody still writes there. */
    CHECK(baseline_restored(fd, &before));
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    memset(memory, 0x3c, BYTES);
    sleep_ms(300);
    for (size_t i = 0; i < BYTES; i++) changed += memory[i] != 0x3c;
    CHECK_EQ(changed, 0);
    munmap(memory, BYTES);
    CHECK_EQ(gemm_run(&g, 1), 0);
  }
  if (!caught) tap_note("every job was over before its process was killed");
  /* A core that was still running when its table went would have faulted. */
  CHECK_EQ(board_counter_sum(VBOARD_COUNT_PAGE_FAULTS), page_faults);
}

static bool hold_many_buffers(void *unused) {
  const int fd = npu_open_or_die();

  (void)unused;
  for (int i = 0; i < 64; i++) {
    struct bo bo;

    if (bo_create(fd, &bo, 4096u * (1 + i % 7), i % 2 ? RKNPU_MEM_CACHEABLE : 0, i % RKNPU_MAX_DOMAINS) || bo_map(&bo)) return false;
    memset(bo.map, i, bo.size);
  }
  return true;
}

static void test_row_ix(void) {
  const int fd = npu_open_or_die();
  struct baseline before;
  struct gemm busy;
  int fence;

  /* While all cores belong to somebody else's space: freeing memory needs no switch. */
  NEEDS_BOARD();
  REQUIRE(gemm_long(&busy, fd, 1, 10000000u, 110) == 0);
  for (uint32_t core = 0; core < NPU_CORES; core++) board_fault(VBOARD_FAULT_IRQ_LATE, core, 6000000, 1);
  fence = gemm_start(&busy, 7, NPU_TIMEOUT_MS, 0);
  REQUIRE(fence >= 0);
  for (int i = 0; i < 500; i++) {
    REQUIRE(baseline_take(fd, &before));
    if (before.device.jobs_running) break;
    sleep_ms(2);
  }
  {
    const pid_t child = child_start(hold_many_buffers, NULL);

    REQUIRE(child > 0);
    child_kill(child);
  }
  if (fence_wait(fence, 0) == 0) {
    struct rknpu_npud_device_info info;

    for (int i = 0; i < 2000 && query_device(fd, &info) == 0 && info.files != before.device.files; i++) sleep_ms(5);
    CHECK_EQ(info.spaces, before.device.spaces);
    CHECK_EQ(info.iova_bytes, before.device.iova_bytes);
  } else {
    tap_note("the long job was over too early to be in the way");
  }
  CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_wrong(&busy), 0);
  close(fence);
  REQUIRE(baseline_take(fd, &before));
  for (int i = 0; i < 10; i++) {
    const pid_t child = child_start(hold_many_buffers, NULL);

    REQUIRE(child > 0);
    child_kill(child);
  }
  CHECK(baseline_restored(fd, &before));
}

const struct test space_tests[] = {
    {"row-i-queued-jobs-leave-no-reference", test_row_i, 0},
    {"row-ii-no-count-blocks-switching", test_row_ii, 0},
    {"row-iii-switching-survives-a-failing-force-reset", test_row_iii, 0},
    {"row-iv-a-reset-reprograms-the-live-table", test_row_iv, 0},
    {"row-v-so-does-a-reset-of-one-core", test_row_v, 0},
    {"row-vi-flushes-act-on-the-buffers-own-space", test_row_vi, 0},
    {"row-vi-freed-memory-is-out-of-reach", test_row_vi_freed_memory_is_out_of_reach, 0},
    {"row-vii-imports-are-mapped-where-they-are-used", test_row_vii, 0},
    {"row-viii-the-core-stops-before-memory-goes", test_row_viii, 0},
    {"row-ix-killed-processes-strand-nothing", test_row_ix, 0},
};
const unsigned space_test_count = sizeof(space_tests) / sizeof(space_tests[0]);
