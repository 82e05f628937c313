// SPDX-License-Identifier: Apache-2.0
/* Rows x to xvi of the table of defects: time, resets, power, fences, accounting. */
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "defects.h"

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

const struct test job_tests[] = {
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
const unsigned job_test_count = sizeof(job_tests) / sizeof(job_tests[0]);
