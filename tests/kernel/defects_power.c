// SPDX-License-Identifier: Apache-2.0
/* Power: what must not happen without it, and a system that goes to sleep. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "defects.h"

enum { PATIENCE_MS = 20000 };

#define CALL "/sys/module/rknpu_pm/parameters/call"

static bool power_is(const char *state) {
  char text[64] = "";

  for (int i = 0; i < PATIENCE_MS / 5; i++) {
    if (read_file("/sys/kernel/debug/rknpu/power", text, sizeof(text)) > 0 && !strncmp(text, state, strlen(state))) return true;
    sleep_ms(5);
  }
  return false;
}

static uint32_t frequency(int fd) {
  uint32_t hz = 0;

  return npu_action(fd, RKNPU_GET_FREQ, &hz) == 0 ? hz : 0;
}

static bool job_runs(int fd) {
  struct rknpu_npud_device_info info;

  return query_device(fd, &info) == 0 && info.jobs_running > 0;
}

static bool comes_to(int fd, uint32_t hz) {
  for (int i = 0; i < PATIENCE_MS / 10; i++) {
    if (frequency(fd) == hz) return true;
    sleep_ms(10);
  }
  return false;
}

/* The range of the NPU's devfreq, and its files for limits. */
static bool find_devfreq(char *directory, size_t size, uint32_t *lowest, uint32_t *highest) {
  char path[300], text[64];
  glob_t found;
  bool good;

  if (glob("/sys/class/devfreq/*npu*", 0, NULL, &found)) return false;
  snprintf(directory, size, "%s", found.gl_pathv[0]);
  globfree(&found);
  snprintf(path, sizeof(path), "%s/min_freq", directory);
  good = read_file(path, text, sizeof(text)) > 0;
  *lowest = (uint32_t)strtoul(text, NULL, 10);
  snprintf(path, sizeof(path), "%s/max_freq", directory);
  good = good && read_file(path, text, sizeof(text)) > 0;
  *highest = (uint32_t)strtoul(text, NULL, 10);
  return good;
}

static void test_the_rate_never_changes_without_power(void) {
  const int fd = npu_open_or_die(), floor_fd = npu_open_or_die();
  char directory[256], path[300], number[32];
  uint32_t lowest, highest, hz, driver_faults;
  struct gemm g;

  NEEDS_BOARD();
  if (!find_devfreq(directory, sizeof(directory), &lowest, &highest)) SKIP("nothing scales the clock here");
  REQUIRE(lowest < highest && gemm_small(&g, fd, 0, true, 750) == 0);
  mount_debugfs();
  REQUIRE(write_file("/sys/kernel/debug/rknpu/delayms", "5\n") == 0);
  driver_faults = board_driver_faults();
  snprintf(path, sizeof(path), "%s/min_freq", directory);
  for (int round = 0; round < 3; round++) {
    REQUIRE(npu_action(fd, RKNPU_POWER_ON, NULL) == 0);
    hz = highest;
    REQUIRE(npu_action(floor_fd, RKNPU_SET_FREQ, &hz) == 0);
    CHECK(comes_to(fd, highest), "(%u Hz)", frequency(fd));
    REQUIRE(npu_action(fd, RKNPU_POWER_OFF, NULL) == 0);
    REQUIRE(power_is("off"));
    CHECK_EQ(frequency(fd), lowest);
    /* Everything that asks for another rate. */
    hz = 0;
    CHECK(npu_action(floor_fd, RKNPU_SET_FREQ, &hz) == 0);
    snprintf(number, sizeof(number), "%u\n", highest);
    CHECK(write_file(path, number) == 0);
    snprintf(number, sizeof(number), "%u\n", lowest);
    CHECK(write_file(path, number) == 0);
    hz = highest;
    CHECK(npu_action(floor_fd, RKNPU_SET_FREQ, &hz) == 0);
    sleep_ms(100);
    REQUIRE(power_is("off"));
    CHECK_EQ(frequency(fd), lowest);
    CHECK_EQ(board_driver_faults(), driver_faults);
    /* The wish counts from when there is power. */
    REQUIRE(npu_action(fd, RKNPU_POWER_ON, NULL) == 0);
    CHECK(comes_to(fd, highest), "(%u Hz)", frequency(fd));
    CHECK_EQ(gemm_run(&g, 1u << round % NPU_CORES), 0);
    hz = 0;
    CHECK(npu_action(floor_fd, RKNPU_SET_FREQ, &hz) == 0);
  }
  REQUIRE(npu_action(fd, RKNPU_POWER_OFF, NULL) == 0);
  write_file("/sys/kernel/debug/rknpu/delayms", "50\n");
}

/* As far as devices are asked to sleep: then they wake again. */
static void test_a_system_suspend_waits_for_what_runs(void) {
  const int fd = npu_open_or_die();
  struct gemm runs, queued, blocks;
  int first, second, status = 1;
  pid_t child;

  NEEDS_BOARD();
  if (write_file("/sys/power/pm_test", "devices\n")) SKIP("this kernel has no /sys/power/pm_test");
  write_file("/sys/module/suspend/parameters/pm_test_delay", "1\n");
  REQUIRE(gemm_long(&runs, fd, 0, 1500000000, 760) == 0 && gemm_small(&queued, fd, 1, true, 761) == 0);
  for (uint32_t core = 0; core < NPU_CORES; core++) {
    gemm_clear(&runs);
    gemm_clear(&queued);
    first = gemm_start(&runs, 1u << core, NPU_TIMEOUT_MS, 0);
    second = gemm_start(&queued, 1u << core, NPU_TIMEOUT_MS, 0);
    child = fork();
    if (child == 0) {
      const int own = npu_open_or_die();

      _exit(gemm_small(&blocks, own, 0, true, 762) || gemm_run(&blocks, 1u << core) ? 1 : 0);
    }
    REQUIRE(first >= 0 && second >= 0 && child > 0);
    sleep_ms(20);
    CHECK(write_file("/sys/power/state", "freeze\n") == 0, "(%s)", strerror(errno));
    CHECK_EQ(fence_wait(first, NPU_TIMEOUT_MS), 1);
    CHECK_EQ(fence_wait(second, NPU_TIMEOUT_MS), 1);
    CHECK_EQ(gemm_wrong(&runs), 0);
    CHECK_EQ(gemm_wrong(&queued), 0);
    (void)!waitpid(child, &status, 0);
    CHECK_EQ(status, 0);
    close(first);
    close(second);
    CHECK_EQ(gemm_run(&runs, 7), 0);
  }
  write_file("/sys/power/pm_test", "none\n");
}

/* Needs rknpu_pm.ko: a runtime suspend that meets a job on whichever core is refused, and none of the cores has lost anything by it. */
static void test_a_refused_runtime_suspend_leaves_none_half_down(void) {
  const int fd = npu_open_or_die();
  struct gemm runs, others;
  long long lost;
  int fence;

  if (access(CALL, F_OK)) SKIP("rknpu_pm.ko isn't loaded");
  REQUIRE(gemm_long(&runs, fd, 0, 1500000000, 770) == 0 && gemm_small(&others, fd, 0, true, 771) == 0);
  lost = state_number("lost_irqs");
  for (unsigned core = 0; core < NPU_CORES; core++) {
    gemm_clear(&runs);
    fence = gemm_start(&runs, 1u << core, NPU_TIMEOUT_MS, 0);
    REQUIRE(fence >= 0, "(%s)", strerror(errno));
    while (fence_wait(fence, 0) == 0 && !job_runs(fd)) sleep_ms(1);
    CHECK_ERRNO(write_file(CALL, "runtime_suspend\n"), EBUSY);
    CHECK(fence_wait(fence, 0) == 0, "(core %u: the job was over too early)", core);
    for (unsigned other = 0; other < NPU_CORES; other++)
      if (other != core) CHECK_EQ(gemm_run(&others, 1u << other), 0);
    CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), 1);
    CHECK_EQ(gemm_wrong(&runs), 0);
    close(fence);
  }
  /* A core without an interrupt is found in the end, too, but late. */
  CHECK_EQ(state_number("lost_irqs"), lost);
}

const struct test power_tests[] = {
    {"the-rate-never-changes-without-power", test_the_rate_never_changes_without_power, 0},
    {"a-system-suspend-waits-for-what-runs", test_a_system_suspend_waits_for_what_runs, 0},
    {"a-refused-runtime-suspend-leaves-none-half-down", test_a_refused_runtime_suspend_leaves_none_half_down, 0},
};
const unsigned power_test_count = sizeof(power_tests) / sizeof(power_tests[0]);
