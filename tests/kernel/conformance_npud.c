// SPDX-License-Identifier: Apache-2.0
/* What goes beyond the vendor's interface, and what monitors read. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

static int set_limit(int fd, struct rknpu_npud_limit limit) { return ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit); }

static void test_limits_only_fall(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_limit limit = {.flags = RKNPU_NPUD_LIMIT_CORES, .core_mask = 3};
  struct rknpu_submit submit;
  struct gemm g;
  struct bo bo;

  NPUD_ONLY();
  REQUIRE(gemm_small(&g, fd, 0, true, 70) == 0);
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(limit.core_mask, 3);
  CHECK_EQ(gemm_run(&g, 1), 0);
  CHECK_EQ(gemm_run(&g, 0), 0);
  gemm_prepare(&g, &submit, 4);
  CHECK_ERRNO(npu_submit(fd, &submit), EPERM);
  limit = (struct rknpu_npud_limit){.flags = RKNPU_NPUD_LIMIT_CORES, .core_mask = 7};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0);
  CHECK_EQ(limit.core_mask, 3);
  CHECK_ERRNO(set_limit(fd, (struct rknpu_npud_limit){.flags = RKNPU_NPUD_LIMIT_CORES, .core_mask = 4}), EINVAL);
  CHECK_ERRNO(npu_submit(fd, &submit), EPERM);

  limit = (struct rknpu_npud_limit){.flags = RKNPU_NPUD_LIMIT_BYTES, .bytes = 1 << 20};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0);
  CHECK_ERRNO(bo_create(fd, &bo, 2 << 20, 0, 0), EDQUOT);
  CHECK(bo_create(fd, &bo, 1 << 16, 0, 0) == 0, "(%s)", strerror(errno));
  bo_destroy(&bo);

  limit = (struct rknpu_npud_limit){.flags = RKNPU_NPUD_LIMIT_PRIORITY, .priority = 5};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0);
  gemm_prepare(&g, &submit, 1);
  submit.priority = 4; /* counts as 5 */
  CHECK(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  submit.priority = 5;
  CHECK(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));

  CHECK_ERRNO(set_limit(fd, (struct rknpu_npud_limit){.flags = 0x10}), EINVAL);
  CHECK_ERRNO(set_limit(fd, (struct rknpu_npud_limit){.flags = RKNPU_NPUD_LIMIT_JOBS, .jobs = 0}), EINVAL);
  CHECK_ERRNO(set_limit(fd, (struct rknpu_npud_limit){.reserved = 1}), EINVAL);
}

static void test_limit_of_jobs(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_limit limit = {.flags = RKNPU_NPUD_LIMIT_JOBS, .jobs = 3};
  struct gemm slow, small;
  int fences[3], started = 0, extra;

  NPUD_ONLY();
  REQUIRE(gemm_long(&slow, fd, 0, 400000000, 71) == 0 && gemm_small(&small, fd, 0, true, 72) == 0);
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0);
  fences[started++] = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  while (started < 3) fences[started++] = gemm_start(&small, 1, NPU_TIMEOUT_MS, 0);
  for (int i = 0; i < 3; i++) REQUIRE(fences[i] >= 0, "(%s)", strerror(errno));
  errno = 0;
  extra = gemm_start(&small, 1, NPU_TIMEOUT_MS, 0);
  if (fence_wait(fences[0], 0) == 0) CHECK(extra == -1 && errno == EAGAIN, "(%d, %s)", extra, strerror(errno));
  for (int i = 0; i < 3; i++) CHECK_EQ(fence_wait(fences[i], NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_run(&small, 1), 0); /* there is room again */
}

static void test_limits_travel_with_the_descriptor(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_limit limit = {.flags = RKNPU_NPUD_LIMIT_CORES, .core_mask = 2};
  struct gemm g;
  int status;
  pid_t child;

  NPUD_ONLY();
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0);
  child = fork();
  if (child == 0) {
    struct rknpu_submit submit;

    if (gemm_small(&g, fd, 0, true, 73) || gemm_run(&g, 2)) _exit(1);
    gemm_prepare(&g, &submit, 1);
    _exit(npu_submit(fd, &submit) == -1 && errno == EPERM ? 0 : 2);
  }
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

static void test_revoke(void) {
  const int fd = npu_open_or_die(), other = npu_open_or_die();
  struct rknpu_npud_revoke revoke = {0};
  struct rknpu_npud_query query = {.what = RKNPU_NPUD_QUERY_FILE};
  struct rknpu_submit submit;
  struct rknpu_mem_map map;
  struct gemm slow, queued, innocent;
  struct bo bo;
  int running, waiting;

  NPUD_ONLY();
  REQUIRE(gemm_long(&slow, fd, 0, 2000000000, 74) == 0 && gemm_small(&queued, fd, 0, true, 75) == 0);
  REQUIRE(gemm_small(&innocent, other, 0, true, 76) == 0);
  map = (struct rknpu_mem_map){.handle = queued.data.handle};
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_MEM_MAP, &map) == 0);
  running = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  waiting = gemm_start(&queued, 1, NPU_TIMEOUT_MS, 0);
  REQUIRE(running >= 0 && waiting >= 0);
  revoke.flags = 1;
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_REVOKE, &revoke), EINVAL);
  revoke.flags = 0;
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_REVOKE, &revoke) == 0, "(%s)", strerror(errno));
  /* It returned: nothing of the file runs any more, and every fence has its answer. */
  CHECK(fence_wait(running, 0) == -ECANCELED || fence_wait(running, 0) == 1, "(%d)", fence_wait(running, 0));
  CHECK(fence_wait(waiting, 0) == -ECANCELED || fence_wait(waiting, 0) == 1, "(%d)", fence_wait(waiting, 0));
  gemm_prepare(&queued, &submit, 1);
  CHECK_ERRNO(npu_submit(fd, &submit), ENODEV);
  CHECK_ERRNO(bo_create(fd, &bo, 4096, 0, 0), ENODEV);
  CHECK_ERRNO(npu_action(fd, RKNPU_GET_DRV_VERSION, NULL), ENODEV);
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_QUERY, &query), ENODEV);
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_MEM_MAP, &map), ENODEV);
  CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, (off_t)map.offset) == MAP_FAILED);
  CHECK_EQ(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_REVOKE, &revoke), 0); /* again: harmless */
  CHECK_EQ(gemm_run(&innocent, 1), 0);
}

static void test_queries(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_file_info file, file_after;
  struct rknpu_npud_space_info space;
  struct rknpu_npud_device_info device;
  struct rknpu_npud_query query = {.what = 3};
  struct bo bo;
  struct gemm g;

  NPUD_ONLY();
  REQUIRE(query_file(fd, &file) == 0 && query_device(fd, &device) == 0, "(%s)", strerror(errno));
  CHECK_EQ(file.bytes, 0);
  CHECK_EQ(file.objects, 0);
  CHECK_EQ(device.cores, 3);
  CHECK(device.files >= 1);
  CHECK_EQ(device.flags, 0);
  CHECK_ERRNO(query_space(fd, 9, &space), ENOENT);
  CHECK_ERRNO(query_space(fd, 16, &space), EINVAL);
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_QUERY, &query), EINVAL);
  query = (struct rknpu_npud_query){.what = RKNPU_NPUD_QUERY_DEVICE, .index = 1};
  CHECK_ERRNO(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_QUERY, &query), EINVAL);
  REQUIRE(bo_create(fd, &bo, 10 * 4096, 0, 9) == 0);
  REQUIRE(query_space(fd, 9, &space) == 0 && query_file(fd, &file) == 0);
  CHECK_EQ(space.used_bytes, 10 * 4096);
  CHECK_EQ(space.mappings, 1);
  CHECK(space.iova_bytes > UINT64_C(3) << 30 && space.iova_bytes <= UINT64_C(4) << 30);
  CHECK_EQ(space.largest_hole_bytes + space.used_bytes <= space.iova_bytes, 1);
  CHECK_EQ(file.bytes, 10 * 4096);
  CHECK_EQ(file.objects, 1);
  CHECK(file.spaces & 1u << 9);
  bo_destroy(&bo);
  REQUIRE(query_file(fd, &file) == 0);
  CHECK_EQ(file.bytes, 0);
  CHECK_EQ(file.objects, 0);
  REQUIRE(gemm_small(&g, fd, 0, true, 80) == 0);
  CHECK_EQ(gemm_run(&g, 1), 0);
  REQUIRE(query_file(fd, &file_after) == 0);
  CHECK_EQ(file_after.jobs_done, file.jobs_done + 1);
  CHECK_EQ(file_after.jobs_failed, 0);
  CHECK_EQ(file_after.jobs_active, 0);
  CHECK(file_after.busy_ns > file.busy_ns);
}

static void test_fdinfo(void) {
  const int fd = npu_open_or_die();
  char path[64], text[4096];
  unsigned long long before = 0, after = 0;
  struct gemm g;

  NPUD_ONLY();
  REQUIRE(gemm_small(&g, fd, 0, true, 81) == 0);
  CHECK_EQ(gemm_run(&g, 2), 0);
  snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
  REQUIRE(read_file(path, text, sizeof(text)) > 0);
  CHECK(strstr(text, "drm-driver:\trknpu\n") != NULL, "(%s)", text);
  CHECK(strstr(text, "drm-client-id:") != NULL);
  CHECK(strstr(text, "drm-engine-npu-core0:") != NULL);
  CHECK(strstr(text, "drm-engine-npu-core2:") != NULL);
  CHECK(strstr(text, "drm-memory-") != NULL || strstr(text, "drm-total-") != NULL);
  REQUIRE(strstr(text, "drm-engine-npu-core1:") != NULL);
  sscanf(strstr(text, "drm-engine-npu-core1:"), "drm-engine-npu-core1: %llu ns", &before);
  CHECK(before > 0);
  CHECK_EQ(gemm_run(&g, 2), 0);
  REQUIRE(read_file(path, text, sizeof(text)) > 0 && strstr(text, "drm-engine-npu-core1:") != NULL);
  sscanf(strstr(text, "drm-engine-npu-core1:"), "drm-engine-npu-core1: %llu ns", &after);
  CHECK(after > before);
}

static void test_debugfs(void) {
  char text[4096];
  int load[3], end = 0;

  mount_debugfs();
  if (access("/sys/kernel/debug/rknpu", F_OK)) {
    CHECK(access("/sys/kernel/debug", R_OK) != 0, "(/sys/kernel/debug/rknpu is missing)");
    return;
  }
  REQUIRE(read_file("/sys/kernel/debug/rknpu/version", text, sizeof(text)) > 0);
  CHECK(strcmp(text, "RKNPU driver: v0.9.8\n") == 0, "('%s')", text);
  REQUIRE(read_file("/sys/kernel/debug/rknpu/load", text, sizeof(text)) > 0);
  CHECK(sscanf(text, "NPU load:  Core0: %2d%%, Core1: %2d%%, Core2: %2d%%,%n", &load[0], &load[1], &load[2], &end) == 3 && end > 0,
        "('%s')", text);
  for (int core = 0; core < 3; core++) CHECK(load[core] >= 0 && load[core] <= 100);
  static const char *const files[] = {"power", "freq", "volt", "delayms", "reset", "mm"};
  for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
    char path[64];

    snprintf(path, sizeof(path), "/sys/kernel/debug/rknpu/%s", files[i]);
    CHECK(access(path, F_OK) == 0, "(%s)", path);
    if (!vendor) CHECK(read_file(path, text, sizeof(text)) >= 0, "(%s)", path);
  }
}

/* What a runtime asks for at start must not fail it, whoever runs it; whether it gets it is another matter. */
static void test_set_proc_nice(void) {
  const int fd = npu_open_or_die();
  const struct rlimit none = {0, 0};
  uint32_t nice = (uint32_t)-19;

  CHECK(npu_action(fd, RKNPU_SET_PROC_NICE, &nice) == 0, "(as root: %s)", strerror(errno));
  errno = 0;
  CHECK_EQ(getpriority(PRIO_PROCESS, 0), -19);
  if (vendor) return;
  nice = 0;
  CHECK(npu_action(fd, RKNPU_SET_PROC_NICE, &nice) == 0, "(%s)", strerror(errno));
  REQUIRE(setrlimit(RLIMIT_NICE, &none) == 0 && drop_capabilities() == 0);
  nice = (uint32_t)-19;
  CHECK(npu_action(fd, RKNPU_SET_PROC_NICE, &nice) == 0, "(without the privilege: %s)", strerror(errno));
  CHECK_EQ(getpriority(PRIO_PROCESS, 0), 0);
  nice = 100;
  CHECK(npu_action(fd, RKNPU_SET_PROC_NICE, &nice) == 0, "(out of range: %s)", strerror(errno));
  CHECK_EQ(getpriority(PRIO_PROCESS, 0), 0);
  nice = 5;
  CHECK(npu_action(fd, RKNPU_SET_PROC_NICE, &nice) == 0, "(%s)", strerror(errno));
  CHECK_EQ(getpriority(PRIO_PROCESS, 0), 5);
}

const struct test npud_tests[] = {
    {"actions-set-proc-nice", test_set_proc_nice, 0},
    {"limits-only-fall", test_limits_only_fall, 0},
    {"limits-of-jobs", test_limit_of_jobs, 0},
    {"limits-travel-with-the-descriptor", test_limits_travel_with_the_descriptor, 0},
    {"revoke", test_revoke, 0},
    {"queries", test_queries, 0},
    {"fdinfo", test_fdinfo, 0},
    {"debugfs", test_debugfs, 0},
};
const unsigned npud_test_count = sizeof(npud_tests) / sizeof(npud_tests[0]);
