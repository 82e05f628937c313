// SPDX-License-Identifier: Apache-2.0
/*
 * rknpu-defects [PATTERN]: one test for each known defect of other RKNPU drivers. A row-* test fails on a driver that has the fault of
 * that row of the table in kernel/README.md ("Known defects"), a security-* test on one that has the hole. Most need the virtual board.
 */
#include "defects.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t driver_faults_before;

pid_t child_start(bool (*body)(void *), void *argument) {
  int ready[2];
  char answer = 0;
  pid_t child;

  if (pipe(ready)) return -1;
  child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ready[0]);
    answer = body(argument) ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  if (child > 0 && (read(ready[0], &answer, 1) != 1 || answer != 'y')) {
    child_kill(child);
    child = -1;
  }
  close(ready[0]);
  return child;
}

void child_kill(pid_t child) {
  if (child <= 0) return;
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

bool child_run(bool (*body)(void *), void *argument) {
  int status = 1;
  pid_t child;

  child = fork();
  if (child == 0) {
    const bool good = body(argument);

    fflush(stdout);
    _exit(good ? 0 : 1);
  }
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

bool all_spaces_work(void) {
  const int fd = npu_open_or_die();
  bool good = true;

  for (int domain = 0; domain < RKNPU_MAX_DOMAINS && good; domain++) {
    struct gemm g;
    int wrong;

    if (gemm_small(&g, fd, domain, domain % 2, 900 + (uint32_t)domain)) {
      tap_note("domain %d: no memory: %s", domain, strerror(errno));
      good = false;
      break;
    }
    for (unsigned core = 0; core < NPU_CORES && good; core++) {
      wrong = gemm_run(&g, 1u << core);
      if (wrong) {
        tap_note("domain %d, core %u: %d wrong (%s)", domain, core, wrong, wrong < 0 ? strerror(errno) : "no error");
        good = false;
      }
    }
    gemm_destroy(&g);
  }
  close(fd);
  return good;
}

/* Behind each test: the board is left without faults, and the driver did nothing that no driver may do. */
static void epilogue(void) {
  if (!board_present()) return;
  board_clear_faults();
  CHECK_EQ(board_driver_faults(), driver_faults_before);
}

bool core_failed(int status) { return status == -ETIMEDOUT || status == -EIO; }

long long state_number(const char *name) {
  char text[8192], line[64];
  const char *found;

  mount_debugfs();
  snprintf(line, sizeof(line), "\n%s ", name);
  if (read_file("/sys/kernel/debug/rknpu/npud/state", text, sizeof(text)) <= 0) return -1;
  found = strstr(text, line);
  return found ? strtoll(found + strlen(line), NULL, 0) : -1;
}

void wait_for_strike(uint32_t fired_before) {
  for (int i = 0; i < 5000 && board_fired() == fired_before; i++) sleep_ms(1);
  CHECK(board_fired() != fired_before, "(the fault found nobody)");
}

static void test_nothing_is_left(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_device_info info;

  for (int i = 0; i < 2000 && query_device(fd, &info) == 0 && (info.files > 1 || info.spaces || info.jobs_queued || info.jobs_running); i++)
    sleep_ms(10);
  REQUIRE(query_device(fd, &info) == 0);
  CHECK_EQ(info.files, 1);
  CHECK_EQ(info.spaces, 0);
  CHECK_EQ(info.iova_bytes, 0);
  CHECK_EQ(info.jobs_queued, 0);
  CHECK_EQ(info.jobs_running, 0);
  CHECK_EQ(info.flags, 0);
}

int main(int argc, char **argv) {
  const struct test last = {"nothing-is-left", test_nothing_is_left, 0};
  const struct {
    const struct test *tests;
    unsigned count;
  } parts[] = {
      {space_tests, space_test_count}, {job_tests, job_test_count}, {security_tests, security_test_count}, {isolation_tests, isolation_test_count}, {race_tests, race_test_count}, {silicon_tests, silicon_test_count}, {power_tests, power_test_count}, {&last, 1},
  };
  const unsigned part_count = sizeof(parts) / sizeof(parts[0]);
  unsigned total = 0, filled = 0;
  struct test *tests;
  const int fd = npu_open_or_die();

  for (unsigned i = 0; i < part_count; i++) total += parts[i].count;
  tests = calloc(total, sizeof(*tests));
  if (!tests) return 1;
  if (!npu_has_private(fd)) {
    printf("Bail out! this driver does not count what it holds: rknpu-defects judges npud_rknpu only\n");
    return 1;
  }
  close(fd);
  if (board_present()) driver_faults_before = board_driver_faults();
  for (unsigned i = 0; i < part_count; i++) {
    memcpy(tests + filled, parts[i].tests, parts[i].count * sizeof(*tests));
    filled += parts[i].count;
  }
  return tap_run(tests, total, argc > 1 ? argv[1] : NULL, epilogue);
}
