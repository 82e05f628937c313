// SPDX-License-Identifier: Apache-2.0
/* The clock: whether it follows the load, and who may say how slow it gets. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance.h"

enum { PATIENCE_MS = 60000 };

static uint32_t frequency(int fd) {
  uint32_t hz = 0;

  return npu_action(fd, RKNPU_GET_FREQ, &hz) == 0 ? hz : 0;
}

static unsigned long sysfs_number(const char *directory, const char *name) {
  char path[256], text[64];

  snprintf(path, sizeof(path), "%s/%s", directory, name);
  return read_file(path, text, sizeof(text)) > 0 ? strtoul(text, NULL, 10) : 0;
}

/* The NPU's devfreq, or NULL. A board whose device tree has a table for it must have one. */
static const char *devfreq(void) {
  static char directory[256];
  glob_t found;

  *directory = 0;
  if (glob("/sys/class/devfreq/*npu*", 0, NULL, &found) == 0) {
    snprintf(directory, sizeof(directory), "%s", found.gl_pathv[0]);
    globfree(&found);
  }
  CHECK(*directory || access("/proc/device-tree/npud-vboard/opp-table", F_OK) != 0, "(a table of OPPs, but no devfreq)");
  return *directory ? directory : NULL;
}

static bool comes_to(int fd, uint32_t hz) {
  for (int i = 0; i < PATIENCE_MS / 10; i++) {
    if (frequency(fd) == hz) return true;
    sleep_ms(10);
  }
  return false;
}

static void test_frequency_follows_the_load(void) {
  const char *const directory = devfreq();
  const int fd = npu_open_or_die();
  unsigned long lowest, highest;
  struct gemm g;
  int fence;

  NPUD_ONLY();
  if (!directory) SKIP("nothing scales the clock here");
  lowest = sysfs_number(directory, "min_freq");
  highest = sysfs_number(directory, "max_freq");
  REQUIRE(lowest > 0 && lowest < highest, "(%lu to %lu)", lowest, highest);
  REQUIRE(gemm_long(&g, fd, 0, 20000000, 400) == 0, "(%s)", strerror(errno));
  CHECK_EQ(gemm_run(&g, 1), 0); /* power is on from here, for some seconds */
  CHECK(comes_to(fd, (uint32_t)lowest), "(idle, %u Hz)", frequency(fd));

  /* One core is kept busy; each job that a change of the clock falls into is right. */
  for (int i = 0; i < 2000 && frequency(fd) != highest && !tap_failed(); i++) {
    gemm_clear(&g);
    fence = gemm_start(&g, 1, NPU_TIMEOUT_MS, 0);
    REQUIRE(fence >= 0, "(%s)", strerror(errno));
    CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), 1);
    close(fence);
    CHECK_EQ(gemm_wrong(&g), 0);
  }
  CHECK_EQ(frequency(fd), highest);
  /* As long as there is power the governor looks. */
  REQUIRE(npu_action(fd, RKNPU_POWER_ON, NULL) == 0);
  CHECK(comes_to(fd, (uint32_t)lowest), "(idle, %u Hz)", frequency(fd));
  CHECK_EQ(gemm_run(&g, 7), 0);
}

/* The virtual board's table has rates for this part up to 1 GHz, and one for other bins (opp-supported-hw). */
static void test_opps_of_this_part(void) {
  const char *const directory = devfreq();
  char path[300], rates[256];

  NPUD_ONLY();
  if (!directory || access("/proc/device-tree/npud-vboard/opp-table", F_OK)) SKIP("not the virtual board's table");
  snprintf(path, sizeof(path), "%s/available_frequencies", directory);
  REQUIRE(read_file(path, rates, sizeof(rates)) > 0, "(%s)", strerror(errno));
  CHECK(strncmp(rates, "200000000 300000000 600000000 1000000000", 40) == 0 && !strstr(rates, "1200000000"), "(%s)", rates);
}

static void test_set_freq(void) {
  const char *const directory = devfreq();
  const int watcher = npu_open_or_die(), fd = npu_open_or_die();
  unsigned long lowest, highest;
  uint32_t hz;

  NPUD_ONLY();
  if (!directory) {
    hz = 1;
    CHECK_ERRNO(npu_action(fd, RKNPU_SET_FREQ, &hz), EOPNOTSUPP);
    return;
  }
  lowest = sysfs_number(directory, "min_freq");
  highest = sysfs_number(directory, "max_freq");
  REQUIRE(npu_action(watcher, RKNPU_POWER_ON, NULL) == 0);
  hz = (uint32_t)highest + 1;
  CHECK_ERRNO(npu_action(fd, RKNPU_SET_FREQ, &hz), EINVAL);
  hz = (uint32_t)highest;
  CHECK(npu_action(fd, RKNPU_SET_FREQ, &hz) == 0, "(as root: %s)", strerror(errno));
  /* A floor for all of the time that the file is open, for it only. */
  CHECK(comes_to(watcher, (uint32_t)highest), "(%u Hz)", frequency(watcher));
  hz = 0;
  CHECK(npu_action(fd, RKNPU_SET_FREQ, &hz) == 0);
  CHECK(comes_to(watcher, (uint32_t)lowest), "(%u Hz)", frequency(watcher));
  hz = (uint32_t)highest;
  CHECK(npu_action(fd, RKNPU_SET_FREQ, &hz) == 0);
  CHECK(comes_to(watcher, (uint32_t)highest), "(%u Hz)", frequency(watcher));
  close(fd);
  CHECK(comes_to(watcher, (uint32_t)lowest), "(after close: %u Hz)", frequency(watcher));
  REQUIRE(drop_capabilities() == 0);
  hz = (uint32_t)highest;
  CHECK_ERRNO(npu_action(watcher, RKNPU_SET_FREQ, &hz), EACCES);
}

const struct test power_tests[] = {
    {"power-frequency-follows-the-load", test_frequency_follows_the_load, 0},
    {"power-opps-of-this-part", test_opps_of_this_part, 0},
    {"power-set-freq", test_set_freq, 0},
};
const unsigned power_test_count = sizeof(power_tests) / sizeof(power_tests[0]);
