// SPDX-License-Identifier: Apache-2.0
/*
 * Handing buffers over between CPU and device, where it shows: with swiotlb=force on the kernel's command line the device works on copies, and what
 * isn't synced, or at the wrong time, doesn't arrive. On a board it is the CPU's caches that hide it now and then.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <linux/dma-buf.h>

#include "board.h"
#include "conformance.h"

enum { FAILED = -2 }; /* bounced_start(): else a fence, or -1 for a job without one */

/* One task in a cacheable buffer: words, features, weights and the output, a page or more each. */
struct bounced {
  struct npu_gemm shape;
  struct bo data, array;
  size_t features, weights, out;
};

static size_t pages(size_t bytes) { return (bytes + NPU_PAGE - 1) / NPU_PAGE * NPU_PAGE; }

static int bounced_create(struct bounced *b, int fd, uint32_t seed) {
  uint64_t words[NPU_GEMM_WORDS];

  memset(b, 0, sizeof(*b));
  b->shape = (struct npu_gemm){.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = seed};
  b->features = NPU_PAGE;
  b->weights = b->features + pages(npu_gemm_feature_bytes(&b->shape));
  b->out = b->weights + pages(npu_gemm_weight_bytes(&b->shape));
  if (bo_create(fd, &b->data, b->out + pages(npu_gemm_out_bytes(&b->shape)), RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_CACHEABLE, 0) ||
      bo_map(&b->data) || bo_create(fd, &b->array, NPU_PAGE, RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_CACHEABLE | RKNPU_MEM_KERNEL_MAPPING, 0) ||
      bo_map(&b->array))
    return -1;
  b->shape.features = (uint32_t)(b->data.iova + b->features);
  b->shape.weights = (uint32_t)(b->data.iova + b->weights);
  b->shape.out = (uint32_t)(b->data.iova + b->out);
  npu_gemm_emit((__u64 *)words, &b->shape, 0);
  memcpy(b->data.map, words, sizeof(words));
  npu_gemm_fill(&b->shape, (char *)b->data.map + b->features, (char *)b->data.map + b->weights);
  memset((char *)b->data.map + b->out, 0xa5, npu_gemm_out_bytes(&b->shape));
  *(struct rknpu_task *)b->array.map = (struct rknpu_task){.enable_mask = NPU_GEMM_ENABLE_MASK,
                                                           .int_mask = NPU_GEMM_INT_MASK,
                                                           .int_clear = 0x1ffff,
                                                           .regcfg_amount = NPU_GEMM_BODY_WORDS,
                                                           .regcmd_addr = b->data.iova};
  return 0;
}

static int bounced_start(const struct bounced *b, uint32_t flags) {
  struct rknpu_submit submit = {.flags = RKNPU_JOB_PC | RKNPU_JOB_PINGPONG | flags,
                                .timeout = NPU_TIMEOUT_MS,
                                .task_number = 1,
                                .task_obj_addr = b->array.cookie,
                                .core_mask = 1,
                                .fence_fd = -1,
                                .subcore_task = {{0, 1}}};

  return npu_submit(b->data.fd, &submit) ? FAILED : submit.fence_fd;
}

static unsigned bounced_wrong(const struct bounced *b) {
  return npu_gemm_wrong(&b->shape, (const uint32_t *)((const char *)b->data.map + b->out));
}

static bool bouncing(void) {
  char text[4096];

  return read_file("/proc/cmdline", text, sizeof(text)) > 0 && strstr(text, "swiotlb=force");
}

#define NEEDS_BOUNCING()                                                       \
  do {                                                                         \
    NPUD_ONLY();                                                               \
    if (!bouncing()) SKIP("needs swiotlb=force on the kernel's command line"); \
  } while (0)

/* MEM_SYNC carries data there and back, in the range that is asked for and no other. */
static void test_mem_sync(void) {
  const int fd = npu_open_or_die();
  struct bounced b;

  NEEDS_BOUNCING();
  REQUIRE(bounced_create(&b, fd, 120) == 0, "(%s)", strerror(errno));
  CHECK(bo_sync(&b.data, RKNPU_MEM_SYNC_TO_DEVICE, 0, b.data.size) == 0);
  REQUIRE(bounced_start(&b, 0) != FAILED, "(%s)", strerror(errno));
  CHECK(bounced_wrong(&b) != 0, "(the result is there without a sync: nothing bounces)");
  CHECK(bo_sync(&b.data, RKNPU_MEM_SYNC_FROM_DEVICE, 0, b.out) == 0);
  CHECK(bounced_wrong(&b) != 0, "(a sync of another range brought the result)");
  CHECK(bo_sync(&b.data, RKNPU_MEM_SYNC_FROM_DEVICE, b.out, 2 * b.data.size) == 0);
  CHECK_EQ(bounced_wrong(&b), 0);
}

/* The kernel writes int_status; a sync of the task array from the device, which never wrote there, must not undo that. */
static void test_status_survives(void) {
  const int fd = npu_open_or_die();
  struct bounced b;

  NEEDS_BOUNCING();
  REQUIRE(bounced_create(&b, fd, 123) == 0, "(%s)", strerror(errno));
  CHECK(bo_sync(&b.data, RKNPU_MEM_SYNC_TO_DEVICE, 0, b.data.size) == 0 && bo_sync(&b.array, RKNPU_MEM_SYNC_TO_DEVICE, 0, b.array.size) == 0);
  REQUIRE(bounced_start(&b, 0) != FAILED, "(%s)", strerror(errno));
  CHECK(bo_sync(&b.array, RKNPU_MEM_SYNC_FROM_DEVICE, 0, b.array.size) == 0);
  CHECK(((struct rknpu_task *)b.array.map)->int_status & NPU_GEMM_INT_MASK);
}

static int cpu_access(int dmabuf, uint64_t flags) {
  struct dma_buf_sync sync = {.flags = flags};

  return ioctl(dmabuf, DMA_BUF_IOCTL_SYNC, &sync);
}

/* The dma-buf's begin and end do the same. The job that writes the buffer starts only when the reader already waits. */
static void test_cpu_access_waits_first(void) {
  const int fd = npu_open_or_die();
  struct bounced slow, b;
  int dmabuf, first, second;

  NEEDS_BOUNCING();
  if (!board_present()) SKIP("no virtual board: a job that takes its time is needed");
  REQUIRE(bounced_create(&slow, fd, 121) == 0 && bounced_create(&b, fd, 122) == 0, "(%s)", strerror(errno));
  dmabuf = bo_export(&b.data);
  REQUIRE(dmabuf >= 0);
  CHECK(bo_sync(&slow.data, RKNPU_MEM_SYNC_TO_DEVICE, 0, slow.data.size) == 0);
  CHECK(cpu_access(dmabuf, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW) == 0, "(%s)", strerror(errno));
  board_fault(VBOARD_FAULT_IRQ_LATE, 0, 1500000, 1);
  first = bounced_start(&slow, RKNPU_JOB_NONBLOCK | RKNPU_JOB_FENCE_OUT);
  second = bounced_start(&b, RKNPU_JOB_NONBLOCK | RKNPU_JOB_FENCE_OUT);
  REQUIRE(first >= 0 && second >= 0, "(%s)", strerror(errno));
  if (fence_wait(first, 0) != 0) tap_note("the slow job was over early");
  CHECK(cpu_access(dmabuf, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ) == 0, "(%s)", strerror(errno));
  CHECK_EQ(fence_wait(second, 0), 1);
  CHECK_EQ(bounced_wrong(&b), 0);
}

const struct test bounce_tests[] = {
    {"bounce-mem-sync", test_mem_sync, 0},
    {"bounce-status-survives-a-sync", test_status_survives, 0},
    {"bounce-cpu-access-waits-first", test_cpu_access_waits_first, 0},
};
const unsigned bounce_test_count = sizeof(bounce_tests) / sizeof(bounce_tests[0]);
