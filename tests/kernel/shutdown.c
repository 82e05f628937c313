// SPDX-License-Identifier: Apache-2.0
/*
 * rknpu-shutdown PATTERN: the machine goes down under jobs. Needs rknpu_pm.ko, which calls the driver's shutdown callback, and the board. The
 * driver is of no use behind it: a guest runs one of the tests and nothing else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "board.h"
#include "npu.h"
#include "tap.h"

enum { ALL_CORES = (1 << NPU_CORES) - 1, HANGS = 1, ENDS_MS = 1500 /* within the two seconds that the shutdown is held up, behind the half one that it waits */ };

#define CALL "/sys/module/rknpu_pm/parameters/call"

static uint64_t accesses(void) { return board_counter_sum(VBOARD_COUNT_REG_READS) + board_counter_sum(VBOARD_COUNT_REG_WRITES); }

/* What runs ends, if it must by a reset; then no core has power or clock, and nobody touches one any more, whatever is still asked for. */
static void test_shutdown(void) {
  const int fd = npu_open_or_die();
  const uint32_t driver_faults = board_driver_faults(), fired = board_fired();
  /* An IOMMU of the kernel's is in the same power domain until its own shutdown, which comes later. */
  const bool alone = access("/proc/device-tree", F_OK) != 0;
  struct gemm runs[NPU_CORES], queued[NPU_CORES];
  int running[NPU_CORES], waiting[NPU_CORES], late;
  uint64_t touched, tasks;

  REQUIRE(access(CALL, F_OK) == 0 && npu_action(fd, RKNPU_POWER_ON, NULL) == 0);
  board_fault(VBOARD_FAULT_STALL, HANGS, 0, 1);
  for (unsigned core = 0; core < NPU_CORES; core++) {
    REQUIRE(gemm_small(&queued[core], fd, 1, true, 20 + core) == 0);
    /* One is over soon, one never, and one when its time is over. */
    REQUIRE((core ? gemm_long(&runs[core], fd, 0, 1500000000, 10 + core) : gemm_small(&runs[core], fd, 0, true, 10)) == 0);
    gemm_clear(&runs[core]);
    gemm_clear(&queued[core]);
  }
  for (unsigned core = 0; core < NPU_CORES; core++) running[core] = gemm_start(&runs[core], 1u << core, NPU_TIMEOUT_MS, 0);
  for (unsigned core = 1; core < NPU_CORES; core++) waiting[core] = gemm_start(&queued[core], 1u << core, NPU_TIMEOUT_MS, 0);
  for (int i = 0; i < NPU_TIMEOUT_MS && board_fired() == fired; i++) sleep_ms(1);
  CHECK_EQ(board_fired(), fired + 1);
  CHECK(write_file(CALL, "shutdown\n") == 0, "(%s)", strerror(errno));

  if (alone) {
    CHECK_EQ(board_read(VBOARD_POWER) & ALL_CORES, 0);
    CHECK_EQ(board_read(VBOARD_CLOCK) & ALL_CORES, 0);
  }
  CHECK_EQ(board_read(VBOARD_RESET), 0);
  touched = accesses();
  tasks = board_counter_sum(VBOARD_COUNT_TASKS);
  for (unsigned core = 0; core < NPU_CORES; core++) CHECK(fence_wait(running[core], 0) != 0, "(core %u's job isn't over)", core);
  CHECK(fence_wait(running[HANGS], 0) < 0);
  CHECK(fence_wait(running[0], 0) == 1 && gemm_wrong(&runs[0]) == 0);
  for (unsigned core = 1; core < NPU_CORES; core++) CHECK(gemm_untouched(&queued[core]), "(core %u began another job)", core);
  late = gemm_start(&queued[0], 1, NPU_TIMEOUT_MS, 0);
  sleep_ms(500);
  CHECK(gemm_untouched(&queued[0]));
  CHECK_EQ(board_counter_sum(VBOARD_COUNT_TASKS), tasks);
  if (alone) {
    CHECK_EQ(accesses(), touched);
    CHECK_EQ(board_read(VBOARD_POWER) & ALL_CORES, 0);
  }
  CHECK_EQ(board_driver_faults(), driver_faults);
  close(late);
  for (unsigned core = 0; core < NPU_CORES; core++) close(running[core]);
  for (unsigned core = 1; core < NPU_CORES; core++) close(waiting[core]);
}

#define WINDOWS "/sys/module/rknpu_windows/parameters/"

/* Needs rknpu_windows.ko. The shutdown has waited long enough, and before it says so the last job ends by itself. */
static void test_shutdown_meets_an_end(void) {
  const int fd = npu_open_or_die();
  const uint32_t fired = board_fired();
  char passed[32] = "";
  struct gemm g;
  int fence;

  if (access(WINDOWS "end_running_ms", F_OK)) SKIP("rknpu_windows.ko isn't loaded");
  REQUIRE(access(CALL, F_OK) == 0 && gemm_small(&g, fd, 0, true, 30) == 0);
  board_fault(VBOARD_FAULT_STALL, 0, 0, 1);
  fence = gemm_start(&g, 1, ENDS_MS, 0);
  for (int i = 0; i < NPU_TIMEOUT_MS && board_fired() == fired; i++) sleep_ms(1);
  REQUIRE(fence >= 0 && write_file(WINDOWS "end_running_ms", "2000\n") == 0);
  CHECK(write_file(CALL, "shutdown\n") == 0, "(%s)", strerror(errno));
  CHECK(read_file(WINDOWS "end_runnings", passed, sizeof(passed)) > 0 && atoi(passed) == 1, "(%s)", passed);
  CHECK_EQ(-fence_wait(fence, 0), ETIMEDOUT);
  CHECK_EQ(board_read(VBOARD_POWER) & ALL_CORES, 0);
  close(fence);
}

static const struct test tests[] = {
    {"shutdown-leaves-no-core-at-work", test_shutdown, 0},
    {"shutdown-meets-the-end-of-a-job", test_shutdown_meets_an_end, 60},
};

int main(int argc, char **argv) { return tap_run(tests, sizeof(tests) / sizeof(tests[0]), argc > 1 ? argv[1] : NULL, NULL); }
