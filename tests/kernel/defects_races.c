// SPDX-License-Identifier: Apache-2.0
/* What only luck meets: two faults at once, or windows that kernel/tests/rknpu_windows holds open. */
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "defects.h"

#define PARAMETERS "/sys/module/rknpu_windows/parameters/"

static int parameter(const char *name) {
  char path[128], text[32];

  snprintf(path, sizeof(path), PARAMETERS "%s", name);
  return read_file(path, text, sizeof(text)) > 0 ? atoi(text) : -1;
}

static void set_parameter(const char *name, int value) {
  char path[128], text[32];

  snprintf(path, sizeof(path), PARAMETERS "%s", name);
  snprintf(text, sizeof(text), "%d", value);
  write_file(path, text);
}

/*
 * 1. The victim's job waits behind one that faults, on one core.
 * 2. While the core stands in the fault the guilty file frees a buffer: the MMU doesn't forget it so, the scheduler is asked to see to that.
 * 3. Before the request arrives the core is reset for the fault, and the victim's job starts.
 * 4. The request arrives. It isn't about the victim.
 * False if the victim's job was over before 4.
 */
static bool meet_a_late_request(unsigned seed) {
  const int guilty = npu_open_or_die(), victim = npu_open_or_die();
  const int faults = parameter("page_faults"), forgets = parameter("forgets");
  struct gemm faulting, working;
  struct bo buffer;
  int fence_faulting = -1, fence_working = -1;
  bool met = false;

  if (gemm_small(&faulting, guilty, 0, true, seed) || bo_create(guilty, &buffer, 1 << 20, RKNPU_MEM_NON_CONTIGUOUS, 0) ||
      gemm_long(&working, victim, 0, 3000000000, seed + 1)) {
    tap_fail(__FILE__, __LINE__, "no memory: %s", strerror(errno));
    return true;
  }
  gemm_task(&faulting, 0)->regcmd_addr = 0xc0001000;
  gemm_clear(&working);
  set_parameter("page_fault_ms", 100);
  set_parameter("forget_ms", 200);
  fence_faulting = gemm_start(&faulting, 1, NPU_TIMEOUT_MS, 0);
  fence_working = gemm_start(&working, 1, NPU_TIMEOUT_MS, 0);
  if (fence_faulting < 0 || fence_working < 0) {
    tap_fail(__FILE__, __LINE__, "submit: %s", strerror(errno));
    goto out;
  }
  for (int i = 0; i < NPU_TIMEOUT_MS && parameter("page_faults") == faults; i++) sleep_ms(1);
  bo_destroy(&buffer);
  met = parameter("forgets") > forgets && fence_wait(fence_faulting, 0) != 0 && fence_wait(fence_working, 0) != 1;
  if (!met)
    tap_note("%d requests; the faulting job %s, the other one %s", parameter("forgets") - forgets,
             fence_wait(fence_faulting, 0) ? "ended" : "runs", fence_wait(fence_working, 0) ? "ended" : "runs");
  CHECK_EQ(fence_wait(fence_faulting, NPU_TIMEOUT_MS), -EFAULT);
  CHECK_EQ(fence_wait(fence_working, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_wrong(&working), 0);
out:
  set_parameter("page_fault_ms", 0);
  set_parameter("forget_ms", 0);
  gemm_destroy(&faulting);
  gemm_destroy(&working);
  close(guilty);
  close(victim);
  if (fence_faulting >= 0) close(fence_faulting);
  if (fence_working >= 0) close(fence_working);
  return met;
}

static void test_forgetting_spares_the_next_job(void) {
  char state[4096];
  bool met = false;

  NEEDS_BOARD();
  if (parameter("forgets") < 0) SKIP("the module rknpu_windows isn't loaded");
  mount_debugfs();
  REQUIRE(read_file("/sys/kernel/debug/rknpu/npud/state", state, sizeof(state)) > 0);
  if (!strstr(state, "mmu bank")) SKIP("with the kernel's IOMMU nobody asks for that");
  for (unsigned attempt = 0; attempt < 10 && !met && !tap_failed(); attempt++) met = meet_a_late_request(300 + attempt);
  CHECK(met, "(the request never arrived while the other job ran)");
}

/* The core stalls behind its last task, and before the job's time is over somebody's interrupt says that it is done. */
static void test_a_core_that_is_done_but_hangs_is_reset(void) {
  const int fd = npu_open_or_die();
  struct gemm stalls, next;
  int fence;

  NEEDS_BOARD();
  REQUIRE(gemm_small(&stalls, fd, 0, true, 330) == 0 && gemm_small(&next, fd, 0, true, 331) == 0);
  for (unsigned core = 0; core < NPU_CORES; core++) {
    const uint32_t fired = board_fired();

    gemm_clear(&stalls);
    board_fault(VBOARD_FAULT_STALL, core, 1, 1);
    fence = gemm_start(&stalls, 1u << core, NPU_TIMEOUT_MS, 0);
    REQUIRE(fence >= 0, "(%s)", strerror(errno));
    for (int i = 0; i < NPU_TIMEOUT_MS && board_fired() == fired; i++) sleep_ms(1);
    CHECK_EQ(board_fired(), fired + 1);
    board_fault(VBOARD_FAULT_IRQ_SPURIOUS, core, 0x300, 1);
    /* It did all of its work, so either answer is right; a wrong result without an error isn't. */
    if (fence_wait(fence, NPU_TIMEOUT_MS * 2) == 1) CHECK_EQ(gemm_wrong(&stalls), 0);
    CHECK(fence_wait(fence, 0) != 0);
    close(fence);
    board_clear_faults();
    CHECK_EQ(gemm_run(&next, 1u << core), 0);
  }
}

/* --- the driver is unbound ------------------------------------------------------------------------------------------------------------------ */

#define DRIVER "/sys/bus/platform/drivers/npud-rknpu"

enum { MAX_NODES = 4 };

/* The platform devices that the driver is bound to. */
static unsigned bound_devices(char names[MAX_NODES][64]) {
  DIR *dir = opendir(DRIVER);
  struct dirent *entry;
  unsigned n = 0;

  while (dir && (entry = readdir(dir)) && n < MAX_NODES)
    if (entry->d_type == DT_LNK && strcmp(entry->d_name, "module")) snprintf(names[n++], sizeof(names[0]), "%.63s", entry->d_name);
  if (dir) closedir(dir);
  return n;
}

/* What the driver makes for each NPU. */
static unsigned facades(void) {
  unsigned count = 0;
  glob_t found;

  if (glob("/sys/bus/platform/devices/rknpu-facade*", 0, NULL, &found)) return 0;
  count = (unsigned)found.gl_pathc;
  globfree(&found);
  return count;
}

struct user {
  unsigned core;
  volatile int *gone; /* how many saw -ENODEV */
};

/* Has power, a job that runs and memory that comes and goes, until the device is gone; the file stays open. */
static bool use_until_gone(void *argument) {
  const struct user *user = argument;
  const int fd = npu_open_or_die();
  uint32_t value = 0;
  static struct gemm g;

  if (npu_action(fd, RKNPU_POWER_ON, &value) || gemm_long(&g, fd, 0, 200000000, 340 + user->core)) return false;
  if (fork()) return true;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
    struct rknpu_submit submit;
    struct bo bo;

    gemm_prepare(&g, &submit, 1u << user->core);
    if (npu_submit(fd, &submit) && errno == ENODEV) break;
    if (bo_create(fd, &bo, 1 << 16, RKNPU_MEM_NON_CONTIGUOUS, 1) == 0) bo_destroy(&bo);
  }
  __sync_fetch_and_add(user->gone, 1);
  for (;;) pause();
}

static void test_unbinding_under_jobs(void) {
  volatile int *gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  char names[MAX_NODES][64];
  unsigned count;

  /* Known and open: under a device tree the supplies go while an IOMMU still keeps a power domain on, of which the board complains. */
  if (access("/proc/device-tree", F_OK) == 0) SKIP("supplies and power domains go in the wrong order when power is held");
  for (unsigned round = 0; round < 3; round++) {
    pid_t child[NPU_CORES];
    struct gemm g;
    int fd;

    *gone = 0;
    for (unsigned core = 0; core < NPU_CORES; core++) {
      struct user user = {core, gone};

      child[core] = child_start(use_until_gone, &user);
      REQUIRE(child[core] > 0);
    }
    sleep_ms(20 + 40 * round);
    count = bound_devices(names);
    REQUIRE(count > 0, "(the driver has no device in " DRIVER ")");
    for (unsigned i = 0; i < count; i++) CHECK(write_file(DRIVER "/unbind", names[i]) == 0, "(%s: %s)", names[i], strerror(errno));
    for (int i = 0; i < NPU_TIMEOUT_MS && *gone < NPU_CORES; i++) sleep_ms(1);
    CHECK_EQ(*gone, NPU_CORES);
    for (unsigned i = 0; i < count; i++) CHECK(write_file(DRIVER "/bind", names[i]) == 0, "(%s: %s)", names[i], strerror(errno));
    /* Files of before are open still. */
    fd = npu_open_or_die();
    REQUIRE(gemm_small(&g, fd, 0, true, 350) == 0);
    for (unsigned core = 0; core < NPU_CORES; core++) CHECK_EQ(gemm_run(&g, 1u << core), 0);
    for (unsigned core = 0; core < NPU_CORES; core++) child_kill(child[core]);
    for (unsigned core = 0; core < NPU_CORES; core++) CHECK_EQ(gemm_run(&g, 1u << core), 0);
    gemm_destroy(&g);
    close(fd);
  }
}

/* Needs rknpu_bad_nodes.ko. A probe that fails, at whichever step, leaves nothing behind, and those that are bound don't feel it. */
static void test_a_probe_that_fails_leaves_nothing(void) {
  static const char *const bad[] = {"rk3588-rknpu-bank.0", "rk3588-rknpu-bank.1", "rk3588-rknpu-bank.2", "rk3588-rknpu-bank.3"};
  char names[MAX_NODES][64];
  struct gemm g;
  int fd;

  if (access("/sys/module/rknpu_bad_nodes", F_OK)) SKIP("rknpu_bad_nodes.ko isn't loaded");
  if (bound_devices(names) != 1) SKIP("for an NPU of one node");
  for (unsigned round = 0; round < 3; round++) {
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
      CHECK(write_file(DRIVER "/bind", bad[i]) == -1 && (errno == ENODEV || errno == ENXIO || errno == EINVAL), "(%s: %s)", bad[i], strerror(errno));
      CHECK_EQ(facades(), 1);
    }
    fd = npu_open_or_die();
    REQUIRE(gemm_small(&g, fd, 0, true, 360) == 0);
    for (unsigned core = 0; core < NPU_CORES; core++) CHECK_EQ(gemm_run(&g, 1u << core), 0);
    gemm_destroy(&g);
    close(fd);
    CHECK(write_file(DRIVER "/unbind", names[0]) == 0, "(%s: %s)", names[0], strerror(errno));
    CHECK_EQ(facades(), 0);
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) CHECK(write_file(DRIVER "/bind", bad[i]) == -1);
    CHECK_EQ(facades(), 0);
    CHECK(npu_open(NPU_RENDER) < 0);
    REQUIRE(write_file(DRIVER "/bind", names[0]) == 0, "(%s: %s)", names[0], strerror(errno));
  }
  device_works();
}

#define NO_WORKER "/sys/module/rknpu_no_worker/parameters/"

/* Needs rknpu_no_worker.ko. The first step of a probe that has something to undo, when there is no thread yet that could be told to stop. */
static void test_a_probe_without_a_thread(void) {
  char names[MAX_NODES][64], refused[32] = "";

  if (access(NO_WORKER "arm", F_OK)) SKIP("rknpu_no_worker.ko isn't loaded");
  if (bound_devices(names) != 1) SKIP("for an NPU of one node");
  for (int round = 1; round <= 3; round++) {
    REQUIRE(write_file(DRIVER "/unbind", names[0]) == 0);
    REQUIRE(write_file(NO_WORKER "arm", "1") == 0);
    CHECK_ERRNO(write_file(DRIVER "/bind", names[0]), ENOMEM);
    CHECK(read_file(NO_WORKER "refused", refused, sizeof(refused)) > 0 && atoi(refused) == round, "(%s)", refused);
    CHECK_EQ(facades(), 0);
    REQUIRE(write_file(DRIVER "/bind", names[0]) == 0);
  }
  device_works();
}

const struct test race_tests[] = {
    {"a-core-that-is-done-but-hangs-is-reset", test_a_core_that_is_done_but_hangs_is_reset, 0},
    {"unbinding-under-jobs", test_unbinding_under_jobs, 0},
    {"a-probe-that-fails-leaves-nothing", test_a_probe_that_fails_leaves_nothing, 0},
    {"a-probe-without-a-thread", test_a_probe_without_a_thread, 0},
    {"forgetting-spares-the-next-job", test_forgetting_spares_the_next_job, 300},
};
const unsigned race_test_count = sizeof(race_tests) / sizeof(race_tests[0]);
