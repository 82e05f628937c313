// SPDX-License-Identifier: Apache-2.0
/* PRIME, in and out. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/udmabuf.h>

#include "board.h"
#include "conformance.h"

static void test_prime_between_files(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct gemm g;
  struct bo shared;
  uint32_t handle = 0, domain = 5;
  int dmabuf;

  REQUIRE(gemm_small(&g, a, 0, false, 60) == 0);
  CHECK_EQ(gemm_run(&g, 1), 0);
  dmabuf = bo_export(&g.data);
  REQUIRE(dmabuf >= 0, "(%s)", strerror(errno));
  CHECK_EQ(lseek(dmabuf, 0, SEEK_END), (off_t)g.data.size);
  if (!vendor) CHECK(npu_action(b, RKNPU_ACT_SET_DOMAIN, &domain) == 0);
  if (vendor) domain = 0;
  REQUIRE(bo_import(b, dmabuf, &handle) == 0, "(%s)", strerror(errno));
  REQUIRE(bo_lookup(b, &shared, handle, (int)domain) == 0, "(%s)", strerror(errno));
  CHECK(shared.iova != 0 && shared.cookie != 0);
  if (!vendor) CHECK_EQ(shared.size, g.data.size);
  REQUIRE(bo_map(&shared) == 0, "(%s)", strerror(errno));
  CHECK(memcmp(shared.map, g.data.map, g.data.size) == 0);
  ((char *)shared.map)[g.out_offset] ^= 0x55;
  CHECK(((char *)shared.map)[g.out_offset] == ((char *)g.data.map)[g.out_offset]);
  bo_destroy(&shared);
  close(dmabuf);
  CHECK_EQ(gemm_run(&g, 2), 0); /* the exporter goes on */
}

static void test_prime_reimport_gives_the_same_buffer(void) {
  const int fd = npu_open_or_die();
  struct bo bo;
  uint32_t handle = 0;
  int dmabuf;

  REQUIRE(bo_create(fd, &bo, 8192, RKNPU_MEM_NON_CONTIGUOUS, 0) == 0);
  dmabuf = bo_export(&bo);
  REQUIRE(dmabuf >= 0 && bo_import(fd, dmabuf, &handle) == 0);
  CHECK_EQ(handle, bo.handle);
}

/* A job of one file whose operands another file exported: weights come from there, results go there. */
static void test_prime_import_is_used_by_a_job(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct gemm source, sink;
  struct bo foreign;
  uint32_t handle = 0, domain = 2;
  uint64_t words[NPU_GEMM_WORDS];
  struct npu_gemm shape;
  int dmabuf;

  NPUD_ONLY();
  REQUIRE(gemm_small(&source, a, 0, false, 61) == 0 && gemm_small(&sink, b, 2, false, 62) == 0);
  dmabuf = bo_export(&source.data);
  REQUIRE(dmabuf >= 0);
  CHECK(npu_action(b, RKNPU_ACT_SET_DOMAIN, &domain) == 0);
  REQUIRE(bo_import(b, dmabuf, &handle) == 0 && bo_lookup(b, &foreign, handle, 2) == 0, "(%s)", strerror(errno));
  /* The sink's command words, pointing at the operands and the output of the source, at the importer's addresses. */
  shape = source.shape;
  shape.features = (uint32_t)(foreign.iova + (source.shape.features - source.data.iova));
  shape.weights = (uint32_t)(foreign.iova + (source.shape.weights - source.data.iova));
  shape.out = (uint32_t)(foreign.iova + source.out_offset);
  npu_gemm_emit((__u64 *)words, &shape, 0);
  memcpy(sink.data.map, words, sizeof(words));
  gemm_clear(&source);
  gemm_clear(&sink);
  {
    struct rknpu_submit submit;

    gemm_prepare(&sink, &submit, 4);
    REQUIRE(npu_submit(b, &submit) == 0, "(%s)", strerror(errno));
  }
  CHECK_EQ(gemm_wrong(&source), 0);
  CHECK(gemm_untouched(&sink));
}

static void test_import_from_udmabuf(void) {
  const int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd = npu_open_or_die();
  struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = 16 * 4096};
  struct gemm g;
  struct npu_gemm shape;
  struct rknpu_submit submit;
  struct bo foreign;
  uint64_t words[NPU_GEMM_WORDS];
  uint32_t handle = 0, *out;
  int memfd, dmabuf;

  if (device < 0) SKIP("this kernel has no /dev/udmabuf");
  memfd = (int)syscall(SYS_memfd_create, "shared", 3u /* CLOEXEC | ALLOW_SEALING */);
  REQUIRE(memfd >= 0 && ftruncate(memfd, 16 * 4096) == 0 && fcntl(memfd, 1033 /* F_ADD_SEALS */, 2 /* F_SEAL_SHRINK */) == 0);
  create.memfd = (uint32_t)memfd;
  dmabuf = ioctl(device, UDMABUF_CREATE, &create);
  REQUIRE(dmabuf >= 0, "(%s)", strerror(errno));
  REQUIRE(bo_import(fd, dmabuf, &handle) == 0, "(%s)", strerror(errno));
  REQUIRE(bo_lookup(fd, &foreign, handle, 0) == 0, "(%s)", strerror(errno));
  CHECK(foreign.size >= 16 * 4096);
  REQUIRE(gemm_small(&g, fd, 0, true, 63) == 0);
  shape = g.shape;
  shape.out = (uint32_t)foreign.iova + 4096;
  npu_gemm_emit((__u64 *)words, &shape, 0);
  memcpy(g.data.map, words, sizeof(words));
  gemm_prepare(&g, &submit, 1);
  REQUIRE(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
  out = mmap(NULL, 16 * 4096, PROT_READ, MAP_SHARED, memfd, 0);
  REQUIRE(out != MAP_FAILED);
  CHECK_EQ(npu_gemm_wrong(&g.shape, out + 1024), 0);
}

static bool readable(int dmabuf) {
  struct pollfd wait = {.fd = dmabuf, .events = POLLIN};

  return poll(&wait, 1, 0) == 1 && (wait.revents & POLLIN);
}

/* What a job writes to a shared buffer, others wait for without being told: who polls the dma-buf, and jobs of files that import it. */
static void test_implicit_fences(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct gemm slow, quick;
  struct bo foreign;
  uint32_t handle = 0;
  int dmabuf, first, second;

  NPUD_ONLY();
  if (!board_present()) SKIP("no virtual board: a job that takes its time is needed");
  REQUIRE(gemm_small(&slow, a, 0, true, 64) == 0 && gemm_small(&quick, b, 0, true, 65) == 0);
  dmabuf = bo_export(&slow.data);
  REQUIRE(dmabuf >= 0 && bo_import(b, dmabuf, &handle) == 0 && bo_lookup(b, &foreign, handle, 0) == 0, "(%s)", strerror(errno));
  CHECK(readable(dmabuf));
  board_fault(VBOARD_FAULT_IRQ_LATE, 0, 3000000, 1);
  first = gemm_start(&slow, 1, NPU_TIMEOUT_MS, 0);
  REQUIRE(first >= 0);
  if (fence_wait(first, 0) == 0) CHECK(!readable(dmabuf) || fence_wait(first, 0) != 0, "(the dma-buf is readable under a running job)");
  second = gemm_start(&quick, 2, NPU_TIMEOUT_MS, 0);
  REQUIRE(second >= 0, "(%s)", strerror(errno));
  CHECK_EQ(fence_wait(second, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(fence_wait(first, 0), 1); /* the importer's job came after the exporter's, on another core all the same */
  CHECK(fence_time_ns(first) <= fence_time_ns(second));
  CHECK_EQ(fence_wait(first, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_wrong(&slow), 0);
  CHECK_EQ(gemm_wrong(&quick), 0);
  for (int i = 0; i < 2000 && !readable(dmabuf); i++) sleep_ms(5);
  CHECK(readable(dmabuf));
}

const struct test sharing_tests[] = {
    {"prime-between-files", test_prime_between_files, 0},
    {"prime-reimport-gives-the-same-buffer", test_prime_reimport_gives_the_same_buffer, 0},
    {"prime-import-is-used-by-a-job", test_prime_import_is_used_by_a_job, 0},
    {"prime-import-from-udmabuf", test_import_from_udmabuf, 0},
    {"prime-implicit-fences", test_implicit_fences, 0},
};
const unsigned sharing_test_count = sizeof(sharing_tests) / sizeof(sharing_tests[0]);
