// SPDX-License-Identifier: Apache-2.0
/* PRIME, in and out. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/dma-buf.h>
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

/* A job that takes `ms`, on core 0 and with its fence; the board's fault makes it so. */
static int start_slow(struct gemm *g, unsigned ms) {
  board_fault(VBOARD_FAULT_IRQ_LATE, 0, ms * 1000, 1);
  return gemm_start(g, 1, NPU_TIMEOUT_MS, 0);
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
  first = start_slow(&slow, 3000);
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

/* That a buffer is exported makes no job leave its fence there; that somebody imports it does, for jobs that run by then, too. */
static void test_sharing_late(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct gemm slow, quick;
  struct bo foreign;
  uint32_t handle = 0;
  int dmabuf, first, second;

  NPUD_ONLY();
  if (!board_present()) SKIP("no virtual board: a job that takes its time is needed");
  REQUIRE(gemm_small(&slow, a, 0, true, 66) == 0 && gemm_small(&quick, b, 0, true, 67) == 0);
  dmabuf = bo_export(&slow.data);
  REQUIRE(dmabuf >= 0);
  first = start_slow(&slow, 2000);
  REQUIRE(first >= 0);
  REQUIRE(bo_import(b, dmabuf, &handle) == 0 && bo_lookup(b, &foreign, handle, 0) == 0, "(%s)", strerror(errno));
  if (fence_wait(first, 0) == 0) CHECK(!readable(dmabuf) || fence_wait(first, 0) != 0, "(the importer sees no fence of the running job)");
  second = gemm_start(&quick, 2, NPU_TIMEOUT_MS, 0);
  REQUIRE(second >= 0, "(%s)", strerror(errno));
  CHECK_EQ(fence_wait(second, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(fence_wait(first, 0), 1);
  CHECK_EQ(gemm_wrong(&slow), 0);
  CHECK_EQ(gemm_wrong(&quick), 0);
}

struct importer {
  pthread_barrier_t start, end;
  int fd, dmabuf, rounds;
  unsigned failures;
};

static void *import_at_once(void *argument) {
  struct importer *importer = argument;

  for (int i = 0; i < importer->rounds; i++) {
    struct drm_gem_close gone = {0};

    pthread_barrier_wait(&importer->start);
    if (bo_import(importer->fd, importer->dmabuf, &gone.handle)) importer->failures++;
    pthread_barrier_wait(&importer->end);
    /* The submitter has looked. */
    pthread_barrier_wait(&importer->start);
    if (gone.handle && ioctl(importer->fd, DRM_IOCTL_GEM_CLOSE, &gone)) importer->failures++;
    pthread_barrier_wait(&importer->end);
  }
  return NULL;
}

/* A job and an import at the same moment: whichever comes first, the buffer has the job's fence when both are done. */
static void test_sharing_races_with_submits(void) {
  struct importer importer = {.fd = npu_open_or_die(), .rounds = 100};
  unsigned missed = 0, looked = 0;
  pthread_t thread;
  struct gemm g;

  NPUD_ONLY();
  if (!board_present()) SKIP("no virtual board: a job that takes its time is needed");
  REQUIRE(gemm_small(&g, npu_open_or_die(), 0, true, 66) == 0);
  importer.dmabuf = bo_export(&g.data);
  REQUIRE(importer.dmabuf >= 0);
  pthread_barrier_init(&importer.start, NULL, 2);
  pthread_barrier_init(&importer.end, NULL, 2);
  REQUIRE(pthread_create(&thread, NULL, import_at_once, &importer) == 0);
  for (int i = 0; i < importer.rounds; i++) {
    int fence;

    board_fault(VBOARD_FAULT_IRQ_LATE, 0, 30000, 1);
    pthread_barrier_wait(&importer.start);
    if (i % 4) usleep((useconds_t)(i % 4) * 20);
    fence = gemm_start(&g, 1, NPU_TIMEOUT_MS, 0);
    pthread_barrier_wait(&importer.end);
    if (fence >= 0) {
      const bool ready = readable(importer.dmabuf);

      /* Readable although the job wasn't over when that was asked: its fence isn't there. */
      if (fence_wait(fence, 0) == 0) {
        looked++;
        missed += ready;
      }
      if (fence_wait(fence, NPU_TIMEOUT_MS) != 1) importer.failures++;
      close(fence);
    } else {
      importer.failures++;
    }
    pthread_barrier_wait(&importer.start);
    pthread_barrier_wait(&importer.end);
  }
  pthread_join(thread, NULL);
  board_clear_faults();
  CHECK_EQ(importer.failures, 0);
  CHECK_EQ(missed, 0);
  CHECK(looked > 0, "(no job was under way when its import was looked at)");
  CHECK_EQ(gemm_wrong(&g), 0);
}

static int cpu_access(int dmabuf, uint64_t flags) {
  struct dma_buf_sync sync = {.flags = flags};

  return ioctl(dmabuf, DMA_BUF_IOCTL_SYNC, &sync);
}

/* Whoever reads through the dma-buf waits for the jobs that use it, also for those of its own file, which left no fence. */
static void test_cpu_access_waits(void) {
  const int fd = npu_open_or_die();
  struct gemm g;
  int dmabuf, fence;

  NPUD_ONLY();
  if (!board_present()) SKIP("no virtual board: a job that takes its time is needed");
  REQUIRE(gemm_small(&g, fd, 0, true, 68) == 0);
  dmabuf = bo_export(&g.data);
  REQUIRE(dmabuf >= 0);
  fence = start_slow(&g, 1500);
  REQUIRE(fence >= 0);
  REQUIRE(cpu_access(dmabuf, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ) == 0, "(%s)", strerror(errno));
  CHECK_EQ(fence_wait(fence, 0), 1);
  CHECK_EQ(gemm_wrong(&g), 0);
  CHECK(cpu_access(dmabuf, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ) == 0);
}

static int make_udmabuf(size_t pages) {
  const int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
  struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = pages * NPU_PAGE};
  int memfd, dmabuf;

  if (device < 0) return -1;
  memfd = (int)syscall(SYS_memfd_create, "shared", 3u /* CLOEXEC | ALLOW_SEALING */);
  if (memfd < 0 || ftruncate(memfd, (off_t)create.size) || fcntl(memfd, 1033 /* F_ADD_SEALS */, 2 /* F_SEAL_SHRINK */)) return -1;
  create.memfd = (uint32_t)memfd;
  dmabuf = ioctl(device, UDMABUF_CREATE, &create);
  close(memfd);
  close(device);
  return dmabuf;
}

/* MEM_SYNC of an import is its exporter's affair: here, a fence of somebody else's that the exporter knows is waited for. */
static void test_sync_of_import_asks_the_exporter(void) {
  const int fd = npu_open_or_die(), other = npu_open_or_die(), dmabuf = make_udmabuf(16);
  struct dma_buf_import_sync_file attach = {.flags = DMA_BUF_SYNC_WRITE};
  struct bo foreign;
  struct gemm slow;
  uint32_t handle = 0;

  NPUD_ONLY();
  if (dmabuf < 0) SKIP("this kernel has no /dev/udmabuf");
  if (!board_present()) SKIP("no virtual board: a job that takes its time is needed");
  REQUIRE(bo_import(fd, dmabuf, &handle) == 0 && bo_lookup(fd, &foreign, handle, 0) == 0, "(%s)", strerror(errno));
  CHECK(bo_sync(&foreign, RKNPU_MEM_SYNC_TO_DEVICE, 0, foreign.size) == 0, "(%s)", strerror(errno));
  REQUIRE(gemm_small(&slow, other, 0, true, 69) == 0);
  attach.fd = start_slow(&slow, 1500);
  REQUIRE(attach.fd >= 0);
  REQUIRE(ioctl(dmabuf, DMA_BUF_IOCTL_IMPORT_SYNC_FILE, &attach) == 0, "(%s)", strerror(errno));
  CHECK(bo_sync(&foreign, 0, 0, foreign.size) == 0);
  CHECK(bo_sync(&foreign, RKNPU_MEM_SYNC_FROM_DEVICE, foreign.size, 1) == 0);
  if (fence_wait(attach.fd, 0) != 0) tap_note("the slow job was over early");
  CHECK(bo_sync(&foreign, RKNPU_MEM_SYNC_FROM_DEVICE, 0, foreign.size) == 0, "(%s)", strerror(errno));
  CHECK_EQ(fence_wait(attach.fd, 0), 1);
}

/* The dma-buf's own mapping is the same memory, and keeps it when handle and file are gone. */
static void test_dmabuf_mmap(void) {
  const int fd = npu_open_or_die();
  struct rknpu_mem_destroy destroy;
  unsigned char *map;
  struct bo bo;
  int dmabuf;

  REQUIRE(bo_create(fd, &bo, 4 * NPU_PAGE, RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_CACHEABLE, 0) == 0 && bo_map(&bo) == 0);
  dmabuf = bo_export(&bo);
  REQUIRE(dmabuf >= 0);
  map = mmap(NULL, bo.size, PROT_READ | PROT_WRITE, MAP_SHARED, dmabuf, 0);
  REQUIRE(map != MAP_FAILED, "(%s)", strerror(errno));
  CHECK(mmap(NULL, bo.size + NPU_PAGE, PROT_READ, MAP_SHARED, dmabuf, 0) == MAP_FAILED);
  CHECK(cpu_access(dmabuf, DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW) == 0, "(%s)", strerror(errno));
  memset(map, 0x3c, bo.size);
  CHECK(cpu_access(dmabuf, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW) == 0, "(%s)", strerror(errno));
  CHECK_EQ(memcmp(map, bo.map, bo.size), 0);
  munmap(bo.map, bo.size);
  destroy = (struct rknpu_mem_destroy){.handle = bo.handle, .obj_addr = bo.cookie};
  CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy) == 0);
  close(fd);
  close(dmabuf);
  for (uint64_t i = 0; i < bo.size; i += 97) CHECK(map[i] == 0x3c);
  munmap(map, bo.size);
}

/* An import keeps its memory in being, so it counts for the file that has it, by its whole size and once, until the handle goes. */
static void test_imports_are_charged(void) {
  const int fd = npu_open_or_die(), big = make_udmabuf(512), small = make_udmabuf(16);
  struct rknpu_npud_limit limit = {.flags = RKNPU_NPUD_LIMIT_BYTES, .bytes = 1 << 20};
  struct rknpu_npud_file_info info;
  struct drm_gem_close gone = {0};
  uint32_t handle = 0, again = 0;
  struct bo foreign;

  NPUD_ONLY();
  if (big < 0 || small < 0) SKIP("this kernel has no /dev/udmabuf");
  REQUIRE(ioctl(fd, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit) == 0);
  CHECK_ERRNO(bo_import(fd, big, &handle), EDQUOT);
  REQUIRE(query_file(fd, &info) == 0);
  CHECK_EQ(info.bytes, 0);
  CHECK_EQ(info.objects, 0);
  REQUIRE(bo_import(fd, small, &handle) == 0 && bo_import(fd, small, &again) == 0, "(%s)", strerror(errno));
  CHECK_EQ(handle, again);
  REQUIRE(bo_lookup(fd, &foreign, handle, 0) == 0 && bo_lookup(fd, &foreign, handle, 3) == 0, "(%s)", strerror(errno));
  REQUIRE(query_file(fd, &info) == 0);
  CHECK_EQ(info.bytes, 16 * NPU_PAGE);
  CHECK_EQ(info.objects, 1);
  gone.handle = handle;
  CHECK(ioctl(fd, DRM_IOCTL_GEM_CLOSE, &gone) == 0);
  REQUIRE(query_file(fd, &info) == 0);
  CHECK_EQ(info.bytes, 0);
}

const struct test sharing_tests[] = {
    {"prime-between-files", test_prime_between_files, 0},
    {"prime-reimport-gives-the-same-buffer", test_prime_reimport_gives_the_same_buffer, 0},
    {"prime-import-is-used-by-a-job", test_prime_import_is_used_by_a_job, 0},
    {"prime-import-from-udmabuf", test_import_from_udmabuf, 0},
    {"prime-implicit-fences", test_implicit_fences, 0},
    {"prime-sharing-late", test_sharing_late, 0},
    {"prime-sharing-races-with-submits", test_sharing_races_with_submits, 0},
    {"prime-cpu-access-waits", test_cpu_access_waits, 0},
    {"prime-sync-of-import-asks-the-exporter", test_sync_of_import_asks_the_exporter, 0},
    {"prime-dmabuf-mmap", test_dmabuf_mmap, 0},
    {"prime-imports-are-charged", test_imports_are_charged, 0},
};
const unsigned sharing_test_count = sizeof(sharing_tests) / sizeof(sharing_tests[0]);
