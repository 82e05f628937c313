// SPDX-License-Identifier: Apache-2.0
/* What tells an owner afterwards what happened: trace events, device coredumps, messages about refused calls. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "board.h"
#include "conformance.h"

#define TRACING "/sys/kernel/tracing"
#define DUMPS "/sys/class/devcoredump"
#define DUMP_PARAMETER "/sys/module/npud_rknpu/parameters/coredump"

enum { TEXT_BYTES = 1 << 18, NEXT_DUMP_MS = 1200 };

/* --- trace events ------------------------------------------------------------------------------------------------------------------------------- */

/* The number behind `key` in the first line from *at on that has `event` and `what`; *at is then behind that line. -1: there is none. */
static long long event_number(const char **at, const char *event, const char *what, const char *key) {
  const char *line = *at;

  while (line && *line) {
    const char *end = strchrnul(line, '\n');
    char copy[512];
    const char *found;

    snprintf(copy, sizeof(copy), "%.*s", (int)(end - line), line);
    line = *end ? end + 1 : end;
    if (!strstr(copy, event) || !strstr(copy, what)) continue;
    found = strstr(copy, key);
    if (!found) continue;
    *at = line;
    return strtoll(found + strlen(key), NULL, 0);
  }
  return -1;
}

/* Events of before, such as the reset of a core that was another file's, are gone. */
static bool clear_trace(void) {
  const int fd = open(TRACING "/trace", O_WRONLY | O_TRUNC | O_CLOEXEC);

  return fd >= 0 && close(fd) == 0;
}

static void test_trace_events(void) {
  static const char *const names[] = {"job_queued", "job_started", "job_ended", "space_switched", "core_reset"};
  const int fd = npu_open_or_die();
  char *text = malloc(TEXT_BYTES), own[64], path[128];
  const char *at;
  struct gemm g[2];
  long long job;

  NPUD_ONLY();
  if (access(TRACING "/events", F_OK) && mount("tracefs", TRACING, "tracefs", 0, NULL)) SKIP("no tracefs: %s", strerror(errno));
  for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    snprintf(path, sizeof(path), TRACING "/events/rknpu/%s/format", names[i]);
    CHECK(access(path, F_OK) == 0, "(%s)", path);
  }
  for (int i = 0; i < 2; i++) REQUIRE(gemm_small(&g[i], fd, i, true, 110 + (uint32_t)i) == 0);
  REQUIRE(clear_trace() && write_file(TRACING "/events/rknpu/enable", "1") == 0, "(%s)", strerror(errno));
  for (int i = 0; i < 2; i++) CHECK_EQ(gemm_run(&g[i], 2), 0);
  CHECK(write_file(TRACING "/events/rknpu/enable", "0") == 0);
  REQUIRE(read_file(TRACING "/trace", text, TEXT_BYTES) > 0);
  at = text;
  for (int i = 0; i < 2; i++) {
    snprintf(own, sizeof(own), "pid=%d comm=rknpu-conforman space=%d", getpid(), i);
    job = event_number(&at, "job_queued:", own, "job=");
    CHECK(job > 0, "(no event of the queued job in domain %d)", i);
    snprintf(own, sizeof(own), "space=%d", i);
    CHECK(event_number(&at, "space_switched:", own, "unit=") >= 0, "(no switch to domain %d)", i);
    snprintf(own, sizeof(own), "job=%lld ", job);
    CHECK_EQ(event_number(&at, "job_started:", own, "cores="), 2);
    CHECK_EQ(event_number(&at, "job_ended:", own, "result="), 0);
  }
  if (!board_present()) return;
  CHECK(clear_trace() && write_file(TRACING "/events/rknpu/enable", "1") == 0);
  board_fault(VBOARD_FAULT_DISPATCH_DROP, 1, 0, 1);
  job = gemm_start(&g[0], 2, 200, 0);
  CHECK_EQ(fence_wait((int)job, NPU_TIMEOUT_MS), -ETIMEDOUT);
  CHECK(write_file(TRACING "/events/rknpu/enable", "0") == 0);
  board_clear_faults();
  REQUIRE(read_file(TRACING "/trace", text, TEXT_BYTES) > 0);
  at = text;
  CHECK_EQ(event_number(&at, "core_reset:", "core=1", "result="), 0);
  CHECK_EQ(event_number(&at, "job_ended:", "cores=0x2", "result="), -ETIMEDOUT);
}

/* --- coredumps ---------------------------------------------------------------------------------------------------------------------------------- */

/* Opens the NPU's dump, waiting for it for `ms`, and says its path; -1 if there is none. */
static int open_dump(char *path, size_t size, unsigned ms) {
  for (const uint64_t end = now_ns() + ms * UINT64_C(1000000);;) {
    DIR *dir = opendir(DUMPS);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
      int fd;

      if (strncmp(entry->d_name, "devcd", 5)) continue;
      snprintf(path, size, DUMPS "/%s/data", entry->d_name);
      fd = open(path, O_RDONLY | O_CLOEXEC);
      closedir(dir);
      return fd;
    }
    if (dir) closedir(dir);
    if (now_ns() > end) return -1;
    sleep_ms(20);
  }
}

static int read_dump(char *path, size_t size, char *text, unsigned ms) {
  const int fd = open_dump(path, size, ms);
  size_t length = 0;
  ssize_t got;

  if (fd < 0) return -1;
  while (length + 1 < TEXT_BYTES && (got = read(fd, text + length, TEXT_BYTES - 1 - length)) > 0) length += (size_t)got;
  text[length] = 0;
  close(fd);
  return (int)length;
}

/* Frees the dump that is there, and lets the driver make another. */
static void drop_dump(void) {
  char path[300];
  const int fd = open_dump(path, sizeof(path), 0);

  if (fd >= 0) {
    close(fd);
    write_file(path, "1");
  }
  sleep_ms(NEXT_DUMP_MS);
}

/* A job that reads its features at an address where nothing is. */
static int run_into_nowhere(struct gemm *g, uint32_t features) {
  struct npu_gemm shape = g->shape;
  uint64_t words[NPU_GEMM_WORDS];
  struct rknpu_submit submit;

  shape.features = features;
  shape.out = (uint32_t)(g->data.iova + g->out_offset);
  npu_gemm_emit((__u64 *)words, &shape, 0);
  memcpy(g->data.map, words, sizeof(words));
  gemm_prepare(g, &submit, 1);
  return npu_submit(g->fd, &submit);
}

static void test_coredump_of_a_fault(void) {
  const int fd = npu_open_or_die();
  char *text = malloc(TEXT_BYTES), path[300], line[64];
  struct stat status;
  struct gemm g;
  glob_t nodes;

  NPUD_ONLY();
  if (access(DUMPS, F_OK)) SKIP("this kernel makes no device coredumps");
  REQUIRE(gemm_small(&g, fd, 5, true, 112) == 0);
  drop_dump();
  CHECK_ERRNO(run_into_nowhere(&g, 0xe0004560), EFAULT);
  REQUIRE(read_dump(path, sizeof(path), text, 5000) > 0, "(no dump of the fault)");
  CHECK(strncmp(text, "rknpu device coredump 1\n", 24) == 0, "('%.40s')", text);
  snprintf(line, sizeof(line), "of pid %d (rknpu-conforman), space 5: page fault on core 0", getpid());
  CHECK(strstr(text, line) != NULL, "(%s)", text);
  CHECK(strstr(text, "page fault at 0xe0004") != NULL, "(%s)", text);
  snprintf(line, sizeof(line), "PC 0x10 %#010x", (uint32_t)g.data.iova);
  CHECK(strstr(text, "PC 0x2c 0x") != NULL, "(%s)", text);
  /* Mainline's nodes, a core each, name no window of the DPU. */
  if (glob("/proc/device-tree/npud-vboard/npu@*", 0, NULL, &nodes) || nodes.gl_pathc < NPU_CORES)
    CHECK(strstr(text, "DPU S_STATUS") != NULL, "(%s)", text);
  /* The command word that names the page, with a mark, and as many words as the task has. */
  snprintf(line, sizeof(line), "task 0 at %#x, %u words\n", (uint32_t)g.data.iova, NPU_GEMM_WORDS);
  CHECK(strstr(text, line) != NULL, "(%s: %s)", line, text);
  CHECK(strstr(text, "0201 1070 e0004560 <- the page of the fault\n") != NULL, "(%s)", text);
  /* Whose it is, and who may read it. */
  CHECK(stat(path, &status) == 0 && (status.st_mode & 077) == 0, "(mode %o)", status.st_mode);
  /* It stays while it isn't freed: the next one is dropped. */
  sleep_ms(NEXT_DUMP_MS);
  CHECK_ERRNO(run_into_nowhere(&g, 0xd0000000), EFAULT);
  sleep_ms(500);
  REQUIRE(read_dump(path, sizeof(path), text, 0) > 0);
  CHECK(strstr(text, "page fault at 0xe0004") != NULL);
  drop_dump();
  CHECK_ERRNO(run_into_nowhere(&g, 0xd0000000), EFAULT);
  REQUIRE(read_dump(path, sizeof(path), text, 5000) > 0);
  CHECK(strstr(text, "page fault at 0xd0000") != NULL);
  REQUIRE(drop_capabilities() == 0);
  CHECK(open(path, O_RDONLY) == -1 && errno == EACCES, "(%s)", strerror(errno));
}

/* A chain that stops: the dump shows the first task, and the one that the core was at. */
static void test_coredump_of_a_timeout(void) {
  static const struct npu_gemm shape = {.m = 4, .k = 32, .n = 32, .fp16 = 1, .seed = 113};
  const int fd = npu_open_or_die();
  char *text = malloc(TEXT_BYTES), path[300], line[64];
  const char *at;
  struct gemm g;
  int fence;

  NPUD_ONLY();
  if (access(DUMPS, F_OK)) SKIP("this kernel makes no device coredumps");
  if (!board_present()) SKIP("no virtual board: a core that stalls is needed");
  REQUIRE(gemm_create(&g, fd, 0, &shape, 6) == 0);
  drop_dump();
  board_fault(VBOARD_FAULT_STALL, 2, 3, 1);
  fence = gemm_start(&g, 4, 300, 0);
  REQUIRE(fence >= 0);
  CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), -ETIMEDOUT);
  board_clear_faults();
  REQUIRE(read_dump(path, sizeof(path), text, 5000) > 0, "(no dump of the time-out)");
  CHECK(strstr(text, "timed out on core 2 after ") != NULL, "(%s)", text);
  CHECK(strstr(text, "\ncore 2: 0 tasks done before, chunk of 6, ") != NULL, "(%s)", text);
  CHECK(strstr(text, "\ntask 0 at ") != NULL, "(%s)", text);
  at = strstr(text, "counter at ");
  REQUIRE(at != NULL);
  snprintf(line, sizeof(line), "\ntask %d at %#x, ", atoi(at + 11), (uint32_t)g.data.iova + (unsigned)atoi(at + 11) * NPU_GEMM_SLOT_BYTES);
  CHECK(strstr(text, line) != NULL, "(%s: %s)", line, text);
  CHECK(strstr(text, "page fault") == NULL);
  drop_dump();
}

static void test_coredump_off(void) {
  const int fd = npu_open_or_die();
  char path[300];
  struct gemm g;

  NPUD_ONLY();
  if (access(DUMPS, F_OK)) SKIP("this kernel makes no device coredumps");
  REQUIRE(gemm_small(&g, fd, 0, true, 114) == 0);
  drop_dump();
  REQUIRE(write_file(DUMP_PARAMETER, "N") == 0, "(%s)", strerror(errno));
  CHECK_ERRNO(run_into_nowhere(&g, 0xd0000000), EFAULT);
  CHECK(open_dump(path, sizeof(path), 1000) == -1);
  CHECK(write_file(DUMP_PARAMETER, "Y") == 0);
  CHECK_ERRNO(run_into_nowhere(&g, 0xd0000000), EFAULT);
  CHECK(open_dump(path, sizeof(path), 5000) >= 0);
  drop_dump();
}

/* --- messages ----------------------------------------------------------------------------------------------------------------------------------- */

static bool logged(int kmsg, const char *what) {
  char line[1024];
  bool found = false;
  ssize_t got;

  while ((got = read(kmsg, line, sizeof(line) - 1)) > 0 || (got < 0 && errno == EPIPE)) {
    if (got < 0) continue;
    line[got] = 0;
    found = found || strstr(line, what);
  }
  return found;
}

/* With drm.debug=2 the log says why a call was refused, else nothing. */
static void test_refusals_say_why(void) {
  const int fd = npu_open_or_die(), kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct rknpu_submit submit;
  struct gemm g;
  char before[32];
  struct bo bo;

  NPUD_ONLY();
  if (kmsg < 0 || read_file("/sys/module/drm/parameters/debug", before, sizeof(before)) < 0) SKIP("no kernel log, or no drm.debug");
  REQUIRE(gemm_small(&g, fd, 0, true, 115) == 0);
  lseek(kmsg, 0, SEEK_END);
  gemm_prepare(&g, &submit, 1);
  submit.core_mask = 5;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  CHECK(!logged(kmsg, "no such core_mask"));
  REQUIRE(write_file("/sys/module/drm/parameters/debug", "2") == 0, "(%s)", strerror(errno));
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  CHECK(logged(kmsg, "no such core_mask"), "(SUBMIT)");
  gemm_prepare(&g, &submit, 1);
  submit.task_obj_addr++;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  CHECK(logged(kmsg, "task_obj_addr is no buffer of this file"), "(SUBMIT)");
  CHECK_ERRNO(bo_create(fd, &bo, 0, 0, 0), EINVAL);
  CHECK(logged(kmsg, "MEM_CREATE of 0 bytes"), "(MEM_CREATE)");
  CHECK_ERRNO(bo_sync(&g.data, 8, 0, 1), EINVAL);
  CHECK(logged(kmsg, "MEM_SYNC: unknown flags"), "(MEM_SYNC)");
  CHECK_ERRNO(npu_action(fd, 99, NULL), EINVAL);
  CHECK(logged(kmsg, "ACTION 99"), "(ACTION)");
  CHECK(write_file("/sys/module/drm/parameters/debug", before) == 0);
}

const struct test observe_tests[] = {
    {"observe-trace-events", test_trace_events, 0},
    {"observe-coredump-of-a-fault", test_coredump_of_a_fault, 0},
    {"observe-coredump-of-a-timeout", test_coredump_of_a_timeout, 0},
    {"observe-coredump-off", test_coredump_off, 0},
    {"observe-refusals-say-why", test_refusals_say_why, 0},
};
const unsigned observe_test_count = sizeof(observe_tests) / sizeof(observe_tests[0]);
