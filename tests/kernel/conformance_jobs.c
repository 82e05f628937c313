// SPDX-License-Identifier: Apache-2.0
/* Jobs: cores, tasks, order, fences. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "conformance.h"

static void test_gemm_each_core(void) {
  const int fd = npu_open_or_die();
  static const uint32_t masks[] = {1, 2, 4, 0};

  for (int fp16 = 0; fp16 < 2; fp16++) {
    for (unsigned i = 0; i < 4; i++) {
      struct gemm g;

      REQUIRE(gemm_small(&g, fd, 0, fp16, 10 + i) == 0, "(%s)", strerror(errno));
      CHECK_EQ(gemm_run(&g, masks[i]), 0);
      gemm_destroy(&g);
    }
  }
}

static void test_gemm_shapes(void) {
  static const struct npu_gemm shapes[] = {
      {.m = 4, .k = 32, .n = 32, .fp16 = 0},   {.m = 64, .k = 128, .n = 96, .fp16 = 0}, {.m = 128, .k = 512, .n = 32, .fp16 = 0},
      {.m = 16, .k = 1024, .n = 64, .fp16 = 0}, {.m = 4, .k = 32, .n = 32, .fp16 = 1},   {.m = 64, .k = 256, .n = 64, .fp16 = 1},
      {.m = 12, .k = 96, .n = 160, .fp16 = 1},
  };
  const int fd = npu_open_or_die();

  for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
    struct npu_gemm shape = shapes[i];
    struct gemm g;

    shape.seed = 100 + i;
    REQUIRE(gemm_create(&g, fd, 0, &shape, 1) == 0, "(%s)", strerror(errno));
    CHECK_EQ(gemm_run(&g, 1u << i % NPU_CORES), 0);
    gemm_destroy(&g);
  }
}

static void test_core_masks_refused(void) {
  const int fd = npu_open_or_die();
  static const uint32_t masks[] = {5, 6, 8, 9, 15, 0x80000001, 0xffffffff};
  struct gemm g;

  NPUD_ONLY();
  REQUIRE(gemm_small(&g, fd, 0, true, 1) == 0);
  for (unsigned i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
    struct rknpu_submit submit;

    gemm_prepare(&g, &submit, 1);
    submit.core_mask = masks[i];
    CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  }
  CHECK_EQ(gemm_run(&g, 1), 0);
}

static void test_submit_refused(void) {
  const int fd = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm g;

  REQUIRE(gemm_small(&g, fd, 0, true, 1) == 0);
  gemm_prepare(&g, &submit, 1);
  submit.flags = 0;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_prepare(&g, &submit, 1);
  submit.task_number = 0;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  if (vendor) return;
  for (unsigned bit = 5; bit < 32; bit++) {
    gemm_prepare(&g, &submit, 1);
    submit.flags |= 1u << bit;
    CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  }
  gemm_prepare(&g, &submit, 1);
  submit.iommu_domain_id = 16;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_prepare(&g, &submit, 1);
  submit.flags |= RKNPU_JOB_FENCE_IN;
  submit.fence_fd = -1;
  CHECK(npu_submit(fd, &submit) == -1 && (errno == EINVAL || errno == EBADF));
  gemm_prepare(&g, &submit, 1);
  submit.flags |= RKNPU_JOB_FENCE_IN;
  submit.fence_fd = fd; /* a descriptor, but no fence */
  CHECK(npu_submit(fd, &submit) == -1 && (errno == EINVAL || errno == EBADF));
  gemm_task(&g, 0)->regcfg_amount = 0;
  gemm_prepare(&g, &submit, 1);
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_task(&g, 0)->regcfg_amount = 0xffffffff;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_task(&g, 0)->regcfg_amount = NPU_GEMM_BODY_WORDS;
  gemm_task(&g, 0)->regcmd_addr = UINT64_C(1) << 32;
  CHECK_ERRNO(npu_submit(fd, &submit), EINVAL);
  gemm_task(&g, 0)->regcmd_addr = g.data.iova;
  CHECK_EQ(gemm_run(&g, 1), 0);
}

static void test_outputs(void) {
  const int fd = npu_open_or_die();
  struct npu_gemm shape = {.m = 16, .k = 256, .n = 64, .fp16 = 1, .seed = 77};
  struct rknpu_submit submit;
  struct gemm g;

  REQUIRE(gemm_create(&g, fd, 0, &shape, 5) == 0);
  gemm_prepare(&g, &submit, 2);
  submit.hw_elapse_time = -1;
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(gemm_wrong(&g), 0);
  CHECK_EQ(submit.task_counter, 5);
  CHECK(submit.hw_elapse_time > 0, "(%lld)", (long long)submit.hw_elapse_time);
  CHECK(gemm_task(&g, 4)->int_status & NPU_GEMM_INT_MASK, "(int_status 0x%x)", gemm_task(&g, 4)->int_status);
  CHECK((gemm_task(&g, 4)->int_status & ~NPU_GEMM_INT_MASK) == 0, "(int_status 0x%x)", gemm_task(&g, 4)->int_status);
}

static void test_chained_tasks(void) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 4, .k = 32, .n = 32, .fp16 = 1, .seed = 5};
  struct gemm g;

  for (unsigned tasks = 1; tasks < 20; tasks += 3) {
    REQUIRE(gemm_create(&g, fd, 0, &shape, tasks) == 0);
    CHECK_EQ(gemm_run(&g, 4), 0);
    gemm_destroy(&g);
  }
}

static void test_subcore_tasks(void) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = 6};
  struct rknpu_submit submit;
  struct gemm g;

  REQUIRE(gemm_create(&g, fd, 0, &shape, 7) == 0);
  CHECK_EQ(gemm_run(&g, 3), 0);
  CHECK_EQ(gemm_run(&g, 7), 0);
  gemm_clear(&g);
  gemm_prepare(&g, &submit, 7);
  REQUIRE(npu_submit(fd, &submit) == 0);
  CHECK_EQ(submit.task_counter, 7);
  /* One core with its entry filled, as other user space does it, and the others' entries empty but for a start. */
  gemm_clear(&g);
  gemm_prepare(&g, &submit, 1);
  submit.subcore_task[0] = (struct rknpu_subcore_task){.task_start = 0, .task_number = 7};
  submit.subcore_task[1] = (struct rknpu_subcore_task){.task_start = 7, .task_number = 0};
  submit.subcore_task[2] = (struct rknpu_subcore_task){.task_start = 7, .task_number = 0};
  CHECK(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(gemm_wrong(&g), 0);
}

static void test_task_start(void) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 8, .k = 32, .n = 32, .fp16 = 1, .seed = 8};
  struct rknpu_submit submit;
  struct gemm g;

  REQUIRE(gemm_create(&g, fd, 0, &shape, 6) == 0);
  gemm_prepare(&g, &submit, 1);
  submit.task_start = 2;
  submit.task_number = 3;
  submit.subcore_task[0] = (struct rknpu_subcore_task){.task_start = 2, .task_number = 3};
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(submit.task_counter, 3);
  CHECK_EQ(gemm_wrong_range(&g, 2, 3), 0);
  CHECK(gemm_wrong_range(&g, 0, 2) != 0 && gemm_wrong_range(&g, 5, 1) != 0, "(tasks outside the window ran)");
  if (vendor) return;
  /* The same window named by task_start alone. */
  gemm_clear(&g);
  gemm_prepare(&g, &submit, 1);
  memset(submit.subcore_task, 0, sizeof(submit.subcore_task));
  submit.task_start = 1;
  submit.task_number = 2;
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(gemm_wrong_range(&g, 1, 2), 0);
  CHECK(gemm_wrong_range(&g, 0, 1) != 0 && gemm_wrong_range(&g, 3, 3) != 0);
}

static void test_more_tasks_than_the_hardware_counts(void) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 4, .k = 32, .n = 32, .fp16 = 1, .seed = 9};
  struct rknpu_submit submit;
  struct gemm g;

  NPUD_ONLY();
  /* 4095 is all that fits the task number field of the RK3588. */
  REQUIRE(gemm_create(&g, fd, 0, &shape, 4100) == 0, "(%s)", strerror(errno));
  gemm_prepare(&g, &submit, 1);
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  CHECK_EQ(submit.task_counter, 4100);
  CHECK_EQ(gemm_wrong(&g), 0);
}

static void test_domains(void) {
  const int fd = npu_open_or_die();
  struct gemm g[RKNPU_MAX_DOMAINS];

  for (int domain = 0; domain < RKNPU_MAX_DOMAINS; domain++)
    REQUIRE(gemm_small(&g[domain], fd, domain, domain % 2, 20 + (uint32_t)domain) == 0, "(domain %d: %s)", domain, strerror(errno));
  for (int round = 0; round < 3; round++)
    for (int domain = 0; domain < RKNPU_MAX_DOMAINS; domain++)
      CHECK_EQ(gemm_run(&g[(domain * 5) % RKNPU_MAX_DOMAINS], 1u << (domain + round) % NPU_CORES), 0);
}

static void test_nonblock(void) {
  const int fd = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm g;
  unsigned wrong = 1;

  REQUIRE(gemm_small(&g, fd, 0, false, 30) == 0);
  gemm_prepare(&g, &submit, 1);
  submit.flags |= RKNPU_JOB_NONBLOCK;
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  /* As programs without fences do it: watch the last output. */
  for (int i = 0; i < 5000 && (wrong = gemm_wrong(&g)) != 0; i++) sleep_ms(2);
  CHECK_EQ(wrong, 0);
}

static void test_fence_out(void) {
  const int fd = npu_open_or_die();
  struct gemm g;
  int fence;

  REQUIRE(gemm_small(&g, fd, 0, true, 31) == 0);
  fence = gemm_start(&g, 1, NPU_TIMEOUT_MS, 0);
  REQUIRE(fence >= 0, "(%s)", strerror(errno));
  CHECK_EQ(fence_wait(fence, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_wrong(&g), 0);
  CHECK(fcntl(fence, F_GETFD) & FD_CLOEXEC);
}

static void test_fence_in_orders_jobs(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm slow, quick;
  int first, second;

  REQUIRE(gemm_long(&slow, a, 0, 200000000, 32) == 0, "(%s)", strerror(errno));
  REQUIRE(gemm_small(&quick, b, 0, true, 33) == 0);
  first = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  REQUIRE(first >= 0);
  gemm_prepare(&quick, &submit, 2); /* another core: only the fence makes it wait */
  submit.flags |= RKNPU_JOB_NONBLOCK | RKNPU_JOB_FENCE_IN | RKNPU_JOB_FENCE_OUT;
  submit.fence_fd = first;
  REQUIRE(npu_submit(b, &submit) == 0, "(%s)", strerror(errno));
  second = submit.fence_fd;
  CHECK(second >= 0 && second != first);
  CHECK_EQ(fence_wait(second, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(fence_wait(first, 0), 1);
  CHECK_EQ(gemm_wrong(&slow), 0);
  CHECK_EQ(gemm_wrong(&quick), 0);
  CHECK(fence_time_ns(first) <= fence_time_ns(second));
}

static void test_priorities(void) {
  const int fd = npu_open_or_die();
  struct gemm slow, urgent, lazy;
  int busy, fence_lazy, fence_urgent;

  NPUD_ONLY();
  REQUIRE(gemm_long(&slow, fd, 0, 200000000, 34) == 0);
  REQUIRE(gemm_small(&urgent, fd, 0, true, 35) == 0 && gemm_small(&lazy, fd, 0, true, 36) == 0);
  busy = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  fence_lazy = gemm_start(&lazy, 1, NPU_TIMEOUT_MS, 15);
  fence_urgent = gemm_start(&urgent, 1, NPU_TIMEOUT_MS, 3);
  REQUIRE(busy >= 0 && fence_lazy >= 0 && fence_urgent >= 0);
  if (fence_wait(busy, 0) != 0) SKIP("the first job was over before the others were queued");
  CHECK_EQ(fence_wait(fence_lazy, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(fence_wait(fence_urgent, NPU_TIMEOUT_MS), 1);
  CHECK(fence_time_ns(fence_urgent) < fence_time_ns(fence_lazy), "(the urgent job ran last)");
}

/* The vendor's driver takes any priority and ignores it, so no value may fail. Below 0 counts as 0 without the privilege. */
static void test_priorities_are_wishes(void) {
  static const int32_t wishes[] = {INT32_MIN, -21, -20, -1, 0, 19, 20, INT32_MAX};
  const int fd = npu_open_or_die();
  struct rknpu_submit submit;
  struct gemm first, second, slow;
  int busy, fence_first, fence_second;

  REQUIRE(gemm_small(&first, fd, 0, true, 37) == 0 && gemm_small(&second, fd, 0, true, 38) == 0);
  for (unsigned i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
    gemm_prepare(&first, &submit, 1);
    submit.priority = wishes[i];
    CHECK(npu_submit(fd, &submit) == 0, "(as root, %d: %s)", wishes[i], strerror(errno));
  }
  REQUIRE(drop_capabilities() == 0);
  for (unsigned i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
    gemm_prepare(&first, &submit, 1);
    submit.priority = wishes[i];
    CHECK(npu_submit(fd, &submit) == 0, "(%d: %s)", wishes[i], strerror(errno));
  }
  if (vendor) return;
  REQUIRE(gemm_long(&slow, fd, 0, 200000000, 39) == 0);
  busy = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  fence_first = gemm_start(&first, 1, NPU_TIMEOUT_MS, 0);
  fence_second = gemm_start(&second, 1, NPU_TIMEOUT_MS, -20);
  REQUIRE(busy >= 0 && fence_first >= 0 && fence_second >= 0, "(%s)", strerror(errno));
  if (fence_wait(busy, 0) != 0) SKIP("the first job was over before the others were queued");
  CHECK_EQ(fence_wait(fence_first, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(fence_wait(fence_second, NPU_TIMEOUT_MS), 1);
  CHECK(fence_time_ns(fence_first) < fence_time_ns(fence_second), "(-20 overtook 0 without the privilege)");
}

static void test_three_cores_side_by_side(void) {
  struct gemm g[NPU_CORES];
  int fence[NPU_CORES];

  /* Different files, so different address spaces, at the same time. */
  for (unsigned core = 0; core < NPU_CORES; core++) {
    REQUIRE(gemm_long(&g[core], npu_open_or_die(), 0, 100000000, 40 + core) == 0, "(%s)", strerror(errno));
    gemm_clear(&g[core]);
  }
  for (unsigned core = 0; core < NPU_CORES; core++) fence[core] = gemm_start(&g[core], 1u << core, NPU_TIMEOUT_MS, 0);
  for (unsigned core = 0; core < NPU_CORES; core++) {
    REQUIRE(fence[core] >= 0);
    CHECK_EQ(fence_wait(fence[core], NPU_TIMEOUT_MS), 1);
    CHECK_EQ(gemm_wrong(&g[core]), 0);
  }
}

static void test_timeouts_accepted(void) {
  const int fd = npu_open_or_die();
  static const uint32_t timeouts[] = {0, 6000, 4294968, 0x7fffffff, 0xffffffff};
  struct rknpu_submit submit;
  struct gemm g;

  NPUD_ONLY();
  REQUIRE(gemm_small(&g, fd, 0, true, 50) == 0);
  for (unsigned i = 0; i < sizeof(timeouts) / sizeof(timeouts[0]); i++) {
    gemm_prepare(&g, &submit, 1);
    submit.timeout = timeouts[i];
    CHECK(npu_submit(fd, &submit) == 0, "(timeout %u: %s)", timeouts[i], strerror(errno));
  }
}

const struct test job_tests[] = {
    {"job-gemm-each-core", test_gemm_each_core, 0},
    {"job-gemm-shapes", test_gemm_shapes, 0},
    {"job-core-masks-refused", test_core_masks_refused, 0},
    {"job-submit-refused", test_submit_refused, 0},
    {"job-outputs", test_outputs, 0},
    {"job-chained-tasks", test_chained_tasks, 0},
    {"job-subcore-tasks", test_subcore_tasks, 0},
    {"job-task-start", test_task_start, 0},
    {"job-more-tasks-than-the-hardware-counts", test_more_tasks_than_the_hardware_counts, 0},
    {"job-domains", test_domains, 0},
    {"job-nonblock", test_nonblock, 0},
    {"job-fence-out", test_fence_out, 0},
    {"job-fence-in-orders-jobs", test_fence_in_orders_jobs, 0},
    {"job-priorities", test_priorities, 0},
    {"job-priorities-are-wishes", test_priorities_are_wishes, 0},
    {"job-three-cores-side-by-side", test_three_cores_side_by_side, 0},
    {"job-timeouts-accepted", test_timeouts_accepted, 0},
};
const unsigned job_test_count = sizeof(job_tests) / sizeof(job_tests[0]);
