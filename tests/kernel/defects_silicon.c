// SPDX-License-Identifier: Apache-2.0
/* What others met on silicon: task counters that lag, interrupts that get lost, jobs that never start. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "defects.h"

static double now_ms(void) {
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Of several tasks, so that the counter has a middle. */
static bool gemm_chain(struct gemm *g, int fd, uint32_t seed) {
  const struct npu_gemm shape = {.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = seed};

  return gemm_create(g, fd, 0, &shape, 4) == 0;
}

static void test_a_lost_interrupt_is_counted_and_no_other(void) {
  const int fd = npu_open_or_die();
  struct gemm g;
  long long lost;

  NEEDS_BOARD();
  REQUIRE(gemm_chain(&g, fd, 700));
  lost = state_number("lost_irqs");
  REQUIRE(lost >= 0);
  for (uint32_t round = 0; round < 30; round++) CHECK_EQ(gemm_run(&g, 1u << round % NPU_CORES), 0);
  CHECK_EQ(state_number("lost_irqs"), lost);
  for (uint32_t core = 0; core < NPU_CORES; core++) {
    board_fault(VBOARD_FAULT_IRQ_LOST, core, 0, 1);
    CHECK_EQ(gemm_run(&g, 1u << core), 0);
    CHECK_EQ(state_number("lost_irqs"), lost + 1 + core);
  }
}

/* The interrupt comes while the counter still shows the task before. */
static void test_a_counter_that_lags_costs_its_lag(void) {
  const int fd = npu_open_or_die();
  double least[2] = {1e9, 1e9};
  long long lost;
  struct gemm g;

  NEEDS_BOARD();
  REQUIRE(gemm_chain(&g, fd, 710));
  lost = state_number("lost_irqs");
  for (uint32_t round = 0; round < 20; round++) {
    const bool lags = round % 2;
    double start;

    if (lags) board_fault(VBOARD_FAULT_STATUS_LAGS, 0, 300, 1);
    start = now_ms();
    CHECK_EQ(gemm_run(&g, 1), 0);
    start = now_ms() - start;
    if (start < least[lags]) least[lags] = start;
    board_clear_faults();
  }
  tap_note("%.1f ms, with a counter that lags 0.3 ms %.1f ms", least[0], least[1]);
  /* Of 50 ms, after which a lost interrupt is looked for, it must be far away. */
  CHECK(least[1] < least[0] + 15, "(%.1f ms, without a lag %.1f ms)", least[1], least[0]);
  CHECK_EQ(state_number("lost_irqs"), lost);
}

static void test_jobs_that_never_start_cost_no_core(void) {
  const int fd = npu_open_or_die(), other_fd = npu_open_or_die();
  struct gemm g, other;

  NEEDS_BOARD();
  /* A core that loses its power is as good as reset. */
  REQUIRE(npu_action(fd, RKNPU_POWER_ON, NULL) == 0);
  REQUIRE(gemm_small(&g, fd, 0, true, 720) == 0);
  REQUIRE(gemm_long(&other, other_fd, 0, 2000000, 721) == 0);
  for (uint32_t core = 0; core < NPU_CORES; core++) {
    const long long together = state_number("resets_together");
    unsigned failed = 0;
    int fence = -1;

    CHECK_EQ(gemm_run(&g, 1u << core), 0);
    board_fault(VBOARD_FAULT_NEVER_STARTS, core, 0, 1);
    for (unsigned i = 0; i < 4 && fence_wait(fence, 0) != 1; i++) {
      int elsewhere;

      if (fence >= 0) close(fence);
      /* Another core is at work whenever this one is given up. */
      elsewhere = gemm_start(&other, 1u << (core + 1) % NPU_CORES, NPU_TIMEOUT_MS, 0);
      fence = gemm_start(&g, 1u << core, STALL_TIMEOUT_MS, 0);
      REQUIRE(fence >= 0 && elsewhere >= 0, "(%s)", strerror(errno));
      failed += fence_wait(fence, NPU_TIMEOUT_MS) != 1;
      CHECK_EQ(fence_wait(elsewhere, NPU_TIMEOUT_MS), 1);
      CHECK_EQ(gemm_wrong(&other), 0);
      close(elsewhere);
    }
    CHECK_EQ(fence_wait(fence, 0), 1);
    close(fence);
    board_clear_faults();
    CHECK_EQ(gemm_wrong(&g), 0);
    /* The core's own reset, which is tried first, doesn't help. */
    CHECK_EQ(failed, 2);
    CHECK_EQ(state_number("resets_together"), together + 1);
    CHECK_EQ(gemm_run(&g, 7), 0);
  }
  CHECK_EQ(state_number("dead_cores"), 0);
}

const struct test silicon_tests[] = {
    {"a-lost-interrupt-is-counted-and-no-other", test_a_lost_interrupt_is_counted_and_no_other, 0},
    {"a-counter-that-lags-costs-its-lag", test_a_counter_that_lags_costs_its_lag, 0},
    {"jobs-that-never-start-cost-no-core", test_jobs_that_never_start_cost_no_core, 0},
};
const unsigned silicon_test_count = sizeof(silicon_tests) / sizeof(silicon_tests[0]);
