// SPDX-License-Identifier: Apache-2.0
/* Rows i to xvi of the table of defects. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
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

/* A driver may see a stall before the time is over, then it is an I/O error. */
static bool core_failed(int status) { return status == -ETIMEDOUT || status == -EIO; }

static void wait_for_strike(uint32_t fired_before) {
  for (int i = 0; i < 5000 && board_fired() == fired_before; i++) sleep_ms(1);
  CHECK(board_fired() != fired_before, "(the fault found nobody)");
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

/* --- x to xiii: time, lists, resets, power ------------------------------------------------------------------------------------------------- */

static void test_row_x(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct gemm hangs, waits;
  int fence_a, fence_b;

  NEEDS_BOARD();
  REQUIRE(gemm_small(&hangs, a, 0, true, 120) == 0 && gemm_small(&waits, b, 0, true, 121) == 0);
  board_fault(VBOARD_FAULT_DISPATCH_DROP, 0, 0, 1);
  fence_a = gemm_start(&hangs, 1, 1500, 0);
  REQUIRE(fence_a >= 0);
  /* Its limit is far below what it must wait: it counts from when the job starts. */
  fence_b = gemm_start(&waits, 1, 700, 0);
  REQUIRE(fence_b >= 0);
  /* Nobody submits anything more: the time-out comes of itself, in ms and not in us. */
  CHECK_EQ(fence_wait(fence_a, NPU_TIMEOUT_MS), -ETIMEDOUT);
  CHECK_EQ(fence_wait(fence_b, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_wrong(&waits), 0);
}


static bool run_blocking_with_a_stall(void *unused) {
  const int fd = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm g;

  (void)unused;
  if (gemm_small(&g, fd, 0, true, 122)) return false;
  board_fault(VBOARD_FAULT_DISPATCH_DROP, 2, 0, 1);
  gemm_prepare(&g, &submit, 4);
  submit.timeout = 2000;
  /* The job's own time-out, not somebody else's reaping. */
  return npu_submit(fd, &submit) == -1 && errno == ETIMEDOUT;
}

static void test_row_x_nobody_else_reaps_a_blocking_job(void) {
  const int fd = npu_open_or_die();
  struct gemm g;

  NEEDS_BOARD();
  REQUIRE(gemm_small(&g, fd, 0, true, 123) == 0);
  {
    const pid_t child = fork();

    if (child == 0) _exit(run_blocking_with_a_stall(NULL) ? 0 : 1);
    for (int i = 0; i < 50; i++) {
      CHECK_EQ(gemm_run(&g, 1 + i % 2), 0);
      sleep_ms(5);
    }
    int status = 1;

    REQUIRE(child > 0);
    (void)!waitpid(child, &status, 0);
    CHECK_EQ(status, 0);
  }
  CHECK_EQ(gemm_run(&g, 4), 0);
}

static void test_row_xi(void) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = 130};
  struct gemm gang, single;

  NEEDS_BOARD();
  REQUIRE(gemm_create(&gang, fd, 0, &shape, 6) == 0 && gemm_small(&single, fd, 1, true, 131) == 0);
  for (uint32_t core = 0; core < NPU_CORES; core++) {
    int first, second, third;

    board_fault(core ? VBOARD_FAULT_DISPATCH_DROP : VBOARD_FAULT_STALL, core, 0, 1);
    first = gemm_start(&gang, 7, STALL_TIMEOUT_MS, 0);
    second = gemm_start(&single, 1u << (core + 1) % NPU_CORES, NPU_TIMEOUT_MS, 0);
    third = gemm_start(&gang, 7, NPU_TIMEOUT_MS, 0);
    REQUIRE(first >= 0 && second >= 0 && third >= 0);
    CHECK(core_failed(fence_wait(first, NPU_TIMEOUT_MS)), "(%d)", fence_wait(first, 0));
    CHECK_EQ(fence_wait(second, NPU_TIMEOUT_MS), 1);
    CHECK_EQ(fence_wait(third, NPU_TIMEOUT_MS), 1);
    close(first);
    close(second);
    close(third);
    CHECK_EQ(gemm_run(&gang, 7), 0);
    CHECK_EQ(gemm_run(&gang, 3), 0);
    CHECK_EQ(gemm_run(&single, 1u << core), 0);
  }
}

static bool queue_a_gang(void *unused) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = 132};
  static struct gemm gang;

  (void)unused;
  return gemm_create(&gang, fd, 0, &shape, 6) == 0 && gemm_start(&gang, 7, NPU_TIMEOUT_MS, 0) >= 0 &&
         gemm_start(&gang, 3, NPU_TIMEOUT_MS, 0) >= 0;
}

static void test_row_xi_queued_gang_dies(void) {
  const int fd = npu_open_or_die();
  struct baseline before;
  struct gemm slow;

  NEEDS_BOARD();
  REQUIRE(gemm_small(&slow, fd, 0, true, 133) == 0);
  for (uint32_t round = 0; round < 6; round++) {
    const uint32_t core = round % NPU_CORES;
    pid_t child;
    int fence;

    REQUIRE(baseline_take(fd, &before));
    board_fault(VBOARD_FAULT_IRQ_LATE, core, 400000, 1);
    fence = gemm_start(&slow, 1u << core, NPU_TIMEOUT_MS, 0);
    REQUIRE(fence >= 0);
    child = child_start(queue_a_gang, NULL);
    REQUIRE(child > 0);
    child_kill(child);
    CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), 1);
    close(fence);
    CHECK_EQ(gemm_wrong(&slow), 0);
    CHECK(baseline_restored(fd, &before));
  }
  CHECK(all_spaces_work());
}

static void test_row_xii(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct gemm mine, queued, theirs;
  uint32_t value = 0;

  NEEDS_BOARD();
  REQUIRE(gemm_small(&mine, a, 0, true, 140) == 0 && gemm_small(&queued, a, 1, true, 141) == 0);
  REQUIRE(gemm_small(&theirs, b, 0, true, 142) == 0);
  for (int round = 0; round < 10; round++) {
    const uint32_t fired = board_fired();
    int running, behind, innocent;

    board_fault(VBOARD_FAULT_DISPATCH_DROP, 0, 0, 1);
    running = gemm_start(&mine, 1, NPU_TIMEOUT_MS, 0);
    behind = gemm_start(&queued, 1, NPU_TIMEOUT_MS, 0);
    innocent = gemm_start(&theirs, 1, NPU_TIMEOUT_MS, 0);
    REQUIRE(running >= 0 && behind >= 0 && innocent >= 0);
    wait_for_strike(fired);
    /* Success means that it was done, and whatever was queued is driven again. */
    CHECK(npu_action(a, RKNPU_ACT_RESET, &value) == 0, "(%s)", strerror(errno));
    CHECK_EQ(fence_wait(running, NPU_TIMEOUT_MS), -ECANCELED);
    CHECK_EQ(fence_wait(behind, NPU_TIMEOUT_MS), -ECANCELED);
    CHECK_EQ(fence_wait(innocent, NPU_TIMEOUT_MS), 1);
    close(running);
    close(behind);
    close(innocent);
    CHECK_EQ(gemm_wrong(&theirs), 0);
    board_clear_faults();
    CHECK_EQ(gemm_run(&mine, 1), 0);
  }
}

/* The autosuspend delay of the platform devices of the NPU; returns how many have one. */
static unsigned set_autosuspend_ms(const char *delay) {
  static const char *const patterns[] = {"/sys/bus/platform/devices/*rknpu*/power/autosuspend_delay_ms",
                                         "/sys/bus/platform/devices/*.npu/power/autosuspend_delay_ms",
                                         "/sys/bus/platform/devices/*rknn*/power/autosuspend_delay_ms"};
  unsigned count = 0;

  for (unsigned p = 0; p < sizeof(patterns) / sizeof(patterns[0]); p++) {
    glob_t found;

    if (glob(patterns[p], 0, NULL, &found)) continue;
    for (size_t i = 0; i < found.gl_pathc; i++) {
      char old[32];

      if (read_file(found.gl_pathv[i], old, sizeof(old)) > 0 && write_file(found.gl_pathv[i], delay) == 0) count++;
    }
    globfree(&found);
  }
  return count;
}

static void test_row_xiii(void) {
  const int fd = npu_open_or_die();
  unsigned devices;
  struct gemm g;

  NEEDS_BOARD();
  REQUIRE(gemm_small(&g, fd, 0, true, 150) == 0);
  devices = set_autosuspend_ms("5\n");
  if (!devices) tap_note("no autosuspend delay to set: the device's default is what is tested");
  for (int round = 0; round < 6; round++) {
    int fence;

    gemm_clear(&g);
    board_fault(VBOARD_FAULT_IRQ_LATE, VBOARD_FAULT_ANY_CORE, 300000, 1);
    fence = gemm_start(&g, 1u << round % NPU_CORES, NPU_TIMEOUT_MS, 0);
    REQUIRE(fence >= 0);
    CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), 1);
    CHECK_EQ(gemm_wrong(&g), 0);
    close(fence);
    sleep_ms(60); /* long enough to fall asleep, and the next job wakes it */
  }
  if (devices) set_autosuspend_ms("50\n");
}

/* --- xiv: fences ------------------------------------------------------------------------------------------------------------------------------ */

static void test_row_xiv(void) {
  const int fd = npu_open_or_die(), other = npu_open_or_die();
  struct gemm bad, good, third;
  struct rknpu_submit submit;
  uint32_t value = 0;
  int fence, waiting;

  NEEDS_BOARD();
  REQUIRE(gemm_small(&bad, fd, 0, true, 160) == 0 && gemm_small(&good, fd, 0, true, 161) == 0 &&
          gemm_small(&third, other, 0, true, 162) == 0);
  /* Time-out: the fence is signalled with that error. */
  board_fault(VBOARD_FAULT_DISPATCH_DROP, 1, 0, 1);
  fence = gemm_start(&bad, 2, STALL_TIMEOUT_MS, 0);
  REQUIRE(fence >= 0);
  CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), -ETIMEDOUT);
  /* Stall: the same, or an I/O error where the driver sees it coming. */
  board_fault(VBOARD_FAULT_STALL, 1, 0, 1);
  fence = gemm_start(&bad, 2, STALL_TIMEOUT_MS, 0);
  REQUIRE(fence >= 0);
  CHECK(core_failed(fence_wait(fence, NPU_TIMEOUT_MS)), "(%d)", fence_wait(fence, 0));
  /* Page fault: likewise. */
  gemm_task(&bad, 0)->regcmd_addr = 0xd0000000;
  fence = gemm_start(&bad, 2, NPU_TIMEOUT_MS, 0);
  REQUIRE(fence >= 0);
  CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), -EFAULT);
  gemm_task(&bad, 0)->regcmd_addr = bad.data.iova;
  /* Cancelled while it waits for a fence of another file that never comes in time. */
  board_fault(VBOARD_FAULT_DISPATCH_DROP, 2, 0, 1);
  fence = gemm_start(&third, 4, NPU_TIMEOUT_MS, 0);
  REQUIRE(fence >= 0);
  gemm_prepare(&good, &submit, 1);
  submit.flags |= RKNPU_JOB_NONBLOCK | RKNPU_JOB_FENCE_IN | RKNPU_JOB_FENCE_OUT;
  submit.fence_fd = fence;
  gemm_clear(&good);
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  waiting = submit.fence_fd;
  CHECK_EQ(fence_wait(waiting, 100), 0); /* a wait that has not ended is no success */
  CHECK(gemm_untouched(&good));
  CHECK(npu_action(fd, RKNPU_ACT_RESET, &value) == 0);
  CHECK_EQ(fence_wait(waiting, NPU_TIMEOUT_MS), -ECANCELED);
  CHECK(gemm_untouched(&good));
  CHECK(npu_action(other, RKNPU_ACT_RESET, &value) == 0);
  CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), -ECANCELED);
  /* A job behind a fence that failed does not pretend that its input is there. */
  gemm_prepare(&good, &submit, 1);
  submit.flags |= RKNPU_JOB_FENCE_IN;
  submit.fence_fd = fence;
  CHECK(npu_submit(fd, &submit) == -1 && errno != EINVAL, "(%s)", strerror(errno));
  CHECK_EQ(gemm_run(&good, 1), 0);
}

static void test_row_xiv_timelines(void) {
  const int fd = npu_open_or_die();
  struct gemm slow, quick[2];
  int first, fences[2];

  NEEDS_BOARD();
  REQUIRE(gemm_small(&slow, fd, 0, true, 163) == 0 && gemm_small(&quick[0], fd, 0, true, 164) == 0 &&
          gemm_small(&quick[1], fd, 0, true, 165) == 0);
  /* With one fence context for all cores, a later job on an idle core would be taken to end after this one. */
  board_fault(VBOARD_FAULT_IRQ_LATE, 0, 1000000, 1);
  first = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  fences[0] = gemm_start(&quick[0], 2, NPU_TIMEOUT_MS, 0);
  fences[1] = gemm_start(&quick[1], 4, NPU_TIMEOUT_MS, 0);
  REQUIRE(first >= 0 && fences[0] >= 0 && fences[1] >= 0);
  for (int i = 0; i < 2; i++) {
    CHECK_EQ(fence_wait(fences[i], NPU_TIMEOUT_MS), 1);
    CHECK_EQ(gemm_wrong(&quick[i]), 0);
  }
  CHECK_EQ(fence_wait(first, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_wrong(&slow), 0);
}

static bool close_with_a_stall(void *out) {
  const int fd = npu_open_or_die();
  static struct gemm g;

  if (gemm_small(&g, fd, 0, true, 166)) return false;
  board_fault(VBOARD_FAULT_DISPATCH_DROP, 0, 0, 1);
  return (*(int *)out = gemm_start(&g, 1, NPU_TIMEOUT_MS, 0)) >= 0;
}

static void test_row_xiv_fence_outlives_its_file(void) {
  int fence = -1;

  NEEDS_BOARD();
  /* In this process, so that the descriptor stays here while the file that made it goes. */
  {
    const int fd = npu_open_or_die();
    struct gemm g;

    REQUIRE(gemm_small(&g, fd, 0, true, 167) == 0);
    board_fault(VBOARD_FAULT_DISPATCH_DROP, 0, 0, 1);
    fence = gemm_start(&g, 1, NPU_TIMEOUT_MS, 0);
    REQUIRE(fence >= 0);
    gemm_destroy(&g);
    close(fd);
  }
  CHECK(fence_wait(fence, NPU_TIMEOUT_MS) < 0, "(%d)", fence_wait(fence, 0));
  board_clear_faults();
  {
    int unused = -1;
    const pid_t child = child_start(close_with_a_stall, &unused);

    REQUIRE(child > 0);
    child_kill(child);
    board_clear_faults(); /* its stall, if it died before its job began */
  }
  CHECK(all_spaces_work());
}

/* --- xv, xvi: accounting, backing ----------------------------------------------------------------------------------------------------------- */

static void test_row_xv(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_space_info before, after;
  struct bo keep, bos[16];

  REQUIRE(bo_create(fd, &keep, 4096, 0, 6) == 0);
  REQUIRE(query_space(fd, 6, &before) == 0);
  /* Without IOMMU_LIMIT_IOVA_ALIGNMENT, odd sizes, in an order that leaves holes. */
  for (int round = 0; round < 25; round++) {
    for (int i = 0; i < 16; i++)
      REQUIRE(bo_create(fd, &bos[i], 4096u * (unsigned)(1 + (i * 7 + round) % 13) + 1, 0, 6) == 0, "(%s)", strerror(errno));
    for (int i = 0; i < 16; i++) bo_destroy(&bos[(i * 5 + round) % 16]);
  }
  REQUIRE(query_space(fd, 6, &after) == 0);
  CHECK_EQ(after.used_bytes, before.used_bytes);
  CHECK_EQ(after.mappings, before.mappings);
  CHECK_EQ(after.largest_hole_bytes, before.largest_hole_bytes);
}

static void test_row_xvi(void) {
  const int fd = npu_open_or_die();

  /* "Contiguous" memory of sizes that a fragmented system cannot give in one piece: every page its own, all of it mapped. */
  for (uint64_t size = 4096; size <= 24 << 20; size = size * 3 + 4096) {
    struct bo bo;

    REQUIRE(bo_create(fd, &bo, size, RKNPU_MEM_CONTIGUOUS | RKNPU_MEM_CACHEABLE, 0) == 0, "(%s)", strerror(errno));
    REQUIRE(bo_map(&bo) == 0, "(%s)", strerror(errno));
    for (uint64_t page = 0; page < bo.size / 4096; page++) {
      const uint64_t mark = page * 2654435761u + 1;

      CHECK_EQ(*(uint64_t *)((char *)bo.map + page * 4096), 0);
      *(uint64_t *)((char *)bo.map + page * 4096) = mark;
    }
    for (uint64_t page = 0; page < bo.size / 4096; page++)
      CHECK_EQ(*(uint64_t *)((char *)bo.map + page * 4096), page * 2654435761u + 1);
    CHECK(bo_sync(&bo, RKNPU_MEM_SYNC_TO_DEVICE, 0, bo.size) == 0);
    bo_destroy(&bo);
  }
}

const struct test row_tests[] = {
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
    {"row-x-a-time-limit-counts-from-the-start-of-the-job", test_row_x, 0},
    {"row-x-nobody-else-reaps-a-blocking-job", test_row_x_nobody_else_reaps_a_blocking_job, 0},
    {"row-xi-an-aborted-gang-frees-every-core", test_row_xi, 0},
    {"row-xi-a-queued-gang-dies-with-its-file", test_row_xi_queued_gang_dies, 0},
    {"row-xii-a-reset-ends-with-a-running-queue", test_row_xii, 0},
    {"row-xiii-power-stays-until-the-job-is-done", test_row_xiii, 0},
    {"row-xiv-fences-always-signal-and-carry-the-error", test_row_xiv, 0},
    {"row-xiv-each-core-has-its-timeline", test_row_xiv_timelines, 0},
    {"row-xiv-a-fence-outlives-its-file", test_row_xiv_fence_outlives_its_file, 0},
    {"row-xv-addresses-are-accounted-exactly", test_row_xv, 0},
    {"row-xvi-one-kind-of-backing-for-a-buffer", test_row_xvi, 0},
};
const unsigned row_test_count = sizeof(row_tests) / sizeof(row_tests[0]);
