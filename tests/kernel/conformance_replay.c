// SPDX-License-Identifier: Apache-2.0
/*
 * The calls that known programs make, in their order and with their flags, sizes and habits, as public traces and sources show them. Each
 * replay computes something and checks it, so that a call which is answered but does the wrong thing shows.
 *
 *   librknnrt     liej6799/rk3588 librknnrt/RUNTIME_SPEC.md (2.3.2, traced) and rknn-dump/README.md (strace)
 *   rknn-llm      matmul contexts in iommu_domain_ids of their own: airockchip/rknn-llm, airockchip/rknn-toolkit2 rknn_matmul_api
 *   ork-driver    oRKLLM/ork-driver src/, examples/
 *   rk3588-npu    mtx512/rk3588-npu src/npu_interface.c, tests/
 *   allbilly      allbilly/rk3588 examples/ (a 40-byte MEM_CREATE, a submit with flags 1 and 5 on any core)
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>

#include "conformance.h"

enum { DATA_FLAGS = 0x403, TASK_FLAGS = 0x40b }; /* NON_CONTIGUOUS, CACHEABLE, (KERNEL_MAPPING,) IOMMU_LIMIT_IOVA_ALIGNMENT */

/* A buffer as a runtime keeps it: bo.fd is the NPU's, `dmabuf` what it was exported as or imported from. */
struct memory {
  struct bo bo;
  int dmabuf;
};

static struct rknpu_task task_of(uint64_t words, uint32_t op_idx) {
  return (struct rknpu_task){.op_idx = op_idx,
                             .enable_mask = NPU_GEMM_ENABLE_MASK,
                             .int_mask = NPU_GEMM_INT_MASK,
                             .int_clear = 0x1ffff,
                             .regcfg_amount = NPU_GEMM_BODY_WORDS,
                             .regcmd_addr = words};
}

static void say_version(int fd) {
  char name[32] = "", date[32] = "", description[64] = "";
  struct drm_version version = {
      .name = name, .name_len = sizeof(name), .date = date, .date_len = sizeof(date), .desc = description, .desc_len = sizeof(description)};

  CHECK(ioctl(fd, DRM_IOCTL_VERSION, &version) == 0, "(%s)", strerror(errno));
}

/* --- librknnrt -------------------------------------------------------------------------------------------------------------------------------- */

/* MEM_CREATE, GEM_FLINK (which nobody may use on a render node, and whose failure it doesn't mind), PRIME_HANDLE_TO_FD, MEM_MAP, mmap. */
static int rknnrt_create(int fd, struct memory *m, uint64_t size, uint32_t flags, int domain) {
  struct drm_gem_flink name = {0};

  if (bo_create(fd, &m->bo, size, flags, domain)) return -1;
  name.handle = m->bo.handle;
  ioctl(fd, DRM_IOCTL_GEM_FLINK, &name);
  m->dmabuf = bo_export(&m->bo);
  return m->dmabuf < 0 ? -1 : bo_map(&m->bo);
}

static void rknnrt_destroy(struct memory *m) {
  close(m->dmabuf);
  bo_destroy(&m->bo);
}

static int rknnrt_submit(int fd, const struct memory *tasks, uint32_t flags, uint32_t start, uint32_t number, uint32_t core_mask) {
  struct rknpu_submit submit = {.flags = flags,
                                .timeout = 6000,
                                .task_start = start,
                                .task_number = number,
                                .task_obj_addr = tasks->bo.cookie,
                                .core_mask = core_mask,
                                .fence_fd = -1,
                                .subcore_task = {{.task_start = start, .task_number = number}}};

  return npu_submit(fd, &submit);
}

/*
 * A model of three tasks, each a GEMM on the same operands: rknn_init with six buffers and a task array with the ping-pong repeats, rknn_run in
 * one submit, and as a hybrid model does it in two, with the CPU's turn between, MEM_SYNC of parts in front and behind.
 */
static void replay_librknnrt(int fd) {
  enum { TASKS = 3, BODY = 7488 };
  struct npu_gemm shape = {.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = 100};
  const uint32_t in = npu_gemm_feature_bytes(&shape), kernels = npu_gemm_weight_bytes(&shape), out = npu_gemm_out_bytes(&shape);
  struct memory model, tasks, working, input, weights, output;
  uint32_t value = 0, nice = (uint32_t)-19;
  struct rknpu_task *array;

  say_version(fd);
  CHECK(npu_action(fd, RKNPU_GET_HW_VERSION, &value) == 0);
  CHECK(npu_action(fd, RKNPU_GET_DRV_VERSION, &value) == 0);
  CHECK_EQ(value, 908);
  CHECK(npu_action(fd, RKNPU_POWER_ON, NULL) == 0 || vendor);
  CHECK(npu_action(fd, RKNPU_SET_PROC_NICE, &nice) == 0, "(%s)", strerror(errno));
  CHECK(npu_action(fd, RKNPU_GET_IOMMU_EN, &value) == 0);
  CHECK(npu_action(fd, RKNPU_GET_TOTAL_SRAM_SIZE, &value) == 0);

  /* rknn_init */
  REQUIRE(rknnrt_create(fd, &model, BODY + 6 * NPU_GEMM_SLOT_BYTES + kernels, DATA_FLAGS, 0) == 0, "(%s)", strerror(errno));
  REQUIRE(rknnrt_create(fd, &tasks, 2 * TASKS * sizeof(*array), TASK_FLAGS, 0) == 0, "(%s)", strerror(errno));
  REQUIRE(rknnrt_create(fd, &working, TASKS * out + 64, DATA_FLAGS, 0) == 0, "(%s)", strerror(errno));
  REQUIRE(rknnrt_create(fd, &input, in, DATA_FLAGS, 0) == 0 && rknnrt_create(fd, &weights, kernels, DATA_FLAGS, 0) == 0);
  REQUIRE(rknnrt_create(fd, &output, out, DATA_FLAGS, 0) == 0, "(%s)", strerror(errno));
  shape.features = (uint32_t)input.bo.iova;
  shape.weights = (uint32_t)weights.bo.iova;
  array = tasks.bo.map;
  for (unsigned i = 0; i < 2 * TASKS; i++) {
    const uint32_t at = BODY + i * NPU_GEMM_SLOT_BYTES;
    uint64_t words[NPU_GEMM_WORDS];

    shape.out = (uint32_t)working.bo.iova + i % TASKS * out;
    npu_gemm_emit((__u64 *)words, &shape, i % TASKS + 1 < TASKS ? (uint32_t)model.bo.iova + at + NPU_GEMM_SLOT_BYTES : 0);
    memcpy((char *)model.bo.map + at, words, sizeof(words));
    array[i] = task_of(model.bo.iova + at, 4);
  }
  CHECK(bo_sync(&model.bo, RKNPU_MEM_SYNC_TO_DEVICE, 0, model.bo.size) == 0, "(%s)", strerror(errno));
  CHECK(bo_sync(&tasks.bo, RKNPU_MEM_SYNC_TO_DEVICE, 0, 2 * TASKS * sizeof(*array)) == 0);

  for (int run = 0; run < 2; run++) {
    memset(working.bo.map, 0xa5, working.bo.size);
    /* rknn_inputs_set: parts of buffers, one byte, and the whole size of one behind an offset into it */
    npu_gemm_fill(&shape, input.bo.map, weights.bo.map);
    CHECK(bo_sync(&working.bo, RKNPU_MEM_SYNC_TO_DEVICE, 0, working.bo.size) == 0);
    CHECK(bo_sync(&input.bo, RKNPU_MEM_SYNC_TO_DEVICE, 0, in) == 0);
    CHECK(bo_sync(&weights.bo, RKNPU_MEM_SYNC_TO_DEVICE, 0, kernels) == 0);
    CHECK(bo_sync(&working.bo, RKNPU_MEM_SYNC_TO_DEVICE, out - 1, 1) == 0);
    CHECK(bo_sync(&model.bo, RKNPU_MEM_SYNC_TO_DEVICE, BODY, vendor ? 4096 : model.bo.size) == 0, "(%s)", strerror(errno));
    /* rknn_run */
    if (run == 0) {
      CHECK(rknnrt_submit(fd, &tasks, 5, 0, TASKS, 0) == 0, "(%s)", strerror(errno));
    } else {
      CHECK(rknnrt_submit(fd, &tasks, 5, 0, TASKS, 1) == 0, "(%s)", strerror(errno));
      CHECK(rknnrt_submit(fd, &tasks, 5, 1, TASKS - 1, 1) == 0, "(%s)", strerror(errno));
      CHECK(rknnrt_submit(fd, &tasks, 1, TASKS, TASKS, 0) == 0, "(%s)", strerror(errno));
    }
    /* rknn_outputs_get */
    for (unsigned i = 0; i < TASKS; i++) {
      CHECK(bo_sync(&working.bo, RKNPU_MEM_SYNC_FROM_DEVICE, i * out, out) == 0);
      memcpy(output.bo.map, (char *)working.bo.map + i * out, out);
      CHECK_EQ(npu_gemm_wrong(&shape, output.bo.map), 0);
    }
    CHECK(bo_sync(&output.bo, RKNPU_MEM_SYNC_TO_DEVICE | RKNPU_MEM_SYNC_FROM_DEVICE, 0, out) == 0);
  }

  /* rknn_destroy */
  rknnrt_destroy(&output);
  rknnrt_destroy(&weights);
  rknnrt_destroy(&input);
  rknnrt_destroy(&working);
  rknnrt_destroy(&tasks);
  rknnrt_destroy(&model);
  npu_action(fd, RKNPU_POWER_OFF, NULL);
}

static void test_librknnrt(void) {
  const int fd = npu_open(NPU_CARD), render = npu_open_or_die();

  REQUIRE(fd >= 0);
  replay_librknnrt(fd);
  close(fd);
  REQUIRE(drop_capabilities() == 0);
  replay_librknnrt(render);
}

/* --- rknn-llm --------------------------------------------------------------------------------------------------------------------------------- */

struct llm_part {
  struct gemm g;
  uint32_t core_mask;
  int runs, failures;
};

static void *llm_loop(void *argument) {
  struct llm_part *part = argument;

  for (int i = 0; i < part->runs; i++) part->failures += gemm_run(&part->g, part->core_mask) != 0;
  return NULL;
}

/*
 * A language model's weights fill several domains of one file. Layers run on three cores at once (entries 2 to 4 of subcore_task), with one
 * after another in different domains, while another thread of the process works in a third.
 */
static void test_rknn_llm(void) {
  static const struct npu_gemm shape = {.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = 101};
  const int fd = npu_open_or_die();
  struct llm_part layers[2], other = {.core_mask = 1, .runs = 8};
  struct bo weights[4];
  pthread_t thread;

  NPUD_ONLY(); /* the vendor's domains are the device's */
  CHECK(npu_action(fd, RKNPU_POWER_ON, NULL) == 0);
  for (int domain = 0; domain < 4; domain++) {
    REQUIRE(bo_create(fd, &weights[domain], 16 << 20, DATA_FLAGS, domain) == 0, "(%s)", strerror(errno));
    REQUIRE(bo_export(&weights[domain]) >= 0);
    CHECK(bo_sync(&weights[domain], RKNPU_MEM_SYNC_TO_DEVICE, 0, weights[domain].size) == 0);
  }
  for (int i = 0; i < 2; i++) {
    layers[i] = (struct llm_part){.core_mask = 7, .runs = 1};
    REQUIRE(gemm_create(&layers[i].g, fd, 1 + i, &shape, 6) == 0, "(%s)", strerror(errno));
  }
  REQUIRE(gemm_create(&other.g, fd, 3, &shape, 1) == 0);
  REQUIRE(pthread_create(&thread, NULL, llm_loop, &other) == 0);
  for (int round = 0; round < 8; round++) llm_loop(&layers[round % 2]);
  pthread_join(thread, NULL);
  CHECK_EQ(layers[0].failures + layers[1].failures, 0);
  CHECK_EQ(other.failures, 0);
}

/* --- ork-driver ------------------------------------------------------------------------------------------------------------------------------- */

static void ork_begin(int fd) {
  uint32_t value = 0, nice = (uint32_t)-19;

  CHECK(npu_action(fd, RKNPU_GET_DRV_VERSION, &value) == 0);
  npu_action(fd, RKNPU_POWER_ON, NULL); /* optional: not every vendor tree has it */
  CHECK(npu_action(fd, RKNPU_SET_PROC_NICE, &nice) == 0, "(%s)", strerror(errno));
}

struct ork {
  struct npu_gemm shape;
  struct bo words, tasks, a, b, c;
};

static void ork_program(struct ork *o) {
  uint64_t words[NPU_GEMM_WORDS];

  o->shape.features = (uint32_t)o->a.iova;
  o->shape.weights = (uint32_t)o->b.iova;
  o->shape.out = (uint32_t)o->c.iova;
  npu_gemm_emit((__u64 *)words, &o->shape, 0);
  memcpy(o->words.map, words, sizeof(words));
  npu_gemm_fill(&o->shape, o->a.map, o->b.map);
  ((struct rknpu_task *)o->tasks.map)[0] = task_of(o->words.iova, 0);
}

static struct rknpu_submit ork_submit(const struct ork *o, uint32_t flags, uint32_t core_mask, unsigned domain) {
  return (struct rknpu_submit){.flags = flags,
                               .timeout = 6000,
                               .task_number = 1,
                               .task_obj_addr = o->tasks.cookie,
                               .iommu_domain_id = domain,
                               .core_mask = core_mask,
                               .fence_fd = -1,
                               .subcore_task = {{0, 1}, {0, 1}, {0, 1}}};
}

/* Blocking, then NONBLOCK with a sentinel in the last word of the output that is polled through MEM_SYNC, then ACT_RESET and once more. */
static void test_ork(void) {
  const int fd = npu_open(NPU_CARD);
  struct ork o = {.shape = {.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = 102}};
  const size_t last = npu_gemm_out_bytes(&o.shape) / 4 - 1;
  struct rknpu_submit submit;
  volatile uint32_t *c;

  REQUIRE(fd >= 0);
  ork_begin(fd);
  REQUIRE(bo_create(fd, &o.words, 4096, DATA_FLAGS, 0) == 0 && bo_map(&o.words) == 0);
  REQUIRE(bo_create(fd, &o.tasks, 4096, TASK_FLAGS, 0) == 0 && bo_map(&o.tasks) == 0);
  REQUIRE(bo_create(fd, &o.a, npu_gemm_feature_bytes(&o.shape), DATA_FLAGS, 0) == 0 && bo_map(&o.a) == 0);
  REQUIRE(bo_create(fd, &o.b, npu_gemm_weight_bytes(&o.shape), DATA_FLAGS, 0) == 0 && bo_map(&o.b) == 0);
  REQUIRE(bo_create(fd, &o.c, npu_gemm_out_bytes(&o.shape), DATA_FLAGS, 0) == 0 && bo_map(&o.c) == 0);
  ork_program(&o);
  c = o.c.map;
  for (int round = 0; round < 4; round++) {
    const bool nonblock = round % 2;

    memset(o.c.map, 0xff, o.c.size); /* no result has this: a NaN */
    CHECK(bo_sync(&o.words, RKNPU_MEM_SYNC_TO_DEVICE, 0, o.words.size) == 0 && bo_sync(&o.tasks, RKNPU_MEM_SYNC_TO_DEVICE, 0, o.tasks.size) == 0);
    CHECK(bo_sync(&o.a, RKNPU_MEM_SYNC_TO_DEVICE, 0, o.a.size) == 0 && bo_sync(&o.b, RKNPU_MEM_SYNC_TO_DEVICE, 0, o.b.size) == 0);
    CHECK(bo_sync(&o.c, RKNPU_MEM_SYNC_TO_DEVICE, 0, o.c.size) == 0);
    submit = ork_submit(&o, RKNPU_JOB_PC | RKNPU_JOB_PINGPONG | (nonblock ? RKNPU_JOB_NONBLOCK : 0), round < 2 ? 1 : 2, 0);
    CHECK(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
    for (uint64_t end = now_ns() + 20 * UINT64_C(1000000000); nonblock && now_ns() < end;) {
      CHECK(bo_sync(&o.c, RKNPU_MEM_SYNC_FROM_DEVICE, last * 4, 4) == 0);
      if (c[last] != 0xffffffff) break;
    }
    if (nonblock) sleep_ms(20); /* the last word needn't be written last */
    CHECK(bo_sync(&o.c, RKNPU_MEM_SYNC_FROM_DEVICE, 0, o.c.size) == 0);
    CHECK_EQ(npu_gemm_wrong(&o.shape, o.c.map), 0);
    if (round == 1) CHECK(npu_action(fd, RKNPU_ACT_RESET, NULL) == 0, "(%s)", strerror(errno));
  }
  npu_action(fd, RKNPU_POWER_OFF, NULL);
}

/* From a DMA heap: ACT_SET_DOMAIN, PRIME_FD_TO_HANDLE, MEM_CREATE with the handle and without a size, as ork-driver keeps weights and task arrays. */
static int ork_import(int fd, struct bo *bo, int dmabuf, size_t size, uint32_t flags, uint32_t domain) {
  struct rknpu_mem_create create = {.flags = flags, .iommu_domain_id = (int)domain, .core_mask = 1};

  npu_action(fd, RKNPU_ACT_SET_DOMAIN, &domain);
  if (bo_import(fd, dmabuf, &create.handle) || ioctl(fd, DRM_IOCTL_RKNPU_MEM_CREATE, &create)) return -1;
  bo->fd = fd;
  bo->handle = create.handle;
  bo->size = size;
  bo->iova = create.dma_addr;
  bo->cookie = create.obj_addr;
  return 0;
}

static int heap_alloc(int heap, struct bo *bo, size_t size) {
  struct dma_heap_allocation_data allocation = {.len = (size + NPU_PAGE - 1) / NPU_PAGE * NPU_PAGE, .fd_flags = O_RDWR | O_CLOEXEC};

  if (ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &allocation)) return -1;
  bo->size = allocation.len;
  bo->map = mmap(NULL, bo->size, PROT_READ | PROT_WRITE, MAP_SHARED, (int)allocation.fd, 0);
  return bo->map == MAP_FAILED ? -1 : (int)allocation.fd;
}

static void heap_sync(int dmabuf, uint64_t flags) {
  struct dma_buf_sync sync = {.flags = flags};

  CHECK(ioctl(dmabuf, DMA_BUF_IOCTL_SYNC, &sync) == 0, "(%s)", strerror(errno));
}

static void test_ork_imports(void) {
  const int heap = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC);
  struct ork o = {.shape = {.m = 8, .k = 64, .n = 32, .fp16 = 0, .seed = 103}};
  const size_t sizes[5] = {4096, 4096, npu_gemm_feature_bytes(&o.shape), npu_gemm_weight_bytes(&o.shape), npu_gemm_out_bytes(&o.shape)};
  struct bo *const bos[5] = {&o.words, &o.tasks, &o.a, &o.b, &o.c};
  int dmabuf[5];

  NPUD_ONLY();
  if (heap < 0) SKIP("this kernel has no system DMA heap");
  for (int i = 0; i < 5; i++) REQUIRE((dmabuf[i] = heap_alloc(heap, bos[i], sizes[i])) >= 0, "(%s)", strerror(errno));
  /* Twice: the file is closed and opened anew in between, the buffers stay and are imported again, in another domain. */
  for (unsigned domain = 2; domain < 4; domain++) {
    const int fd = npu_open(NPU_CARD);
    struct rknpu_submit submit;

    REQUIRE(fd >= 0);
    ork_begin(fd);
    for (int i = 0; i < 5; i++)
      REQUIRE(ork_import(fd, bos[i], dmabuf[i], bos[i]->size, i == 1 ? RKNPU_MEM_KERNEL_MAPPING : 0, domain) == 0, "(%s)", strerror(errno));
    for (int i = 0; i < 5; i++) heap_sync(dmabuf[i], DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE);
    memset(o.c.map, 0xa5, o.c.size);
    ork_program(&o);
    for (int i = 0; i < 5; i++) heap_sync(dmabuf[i], DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE);
    CHECK(bo_sync(&o.b, RKNPU_MEM_SYNC_TO_DEVICE, 0, o.b.size) == 0, "(%s)", strerror(errno));
    submit = ork_submit(&o, RKNPU_JOB_PC | RKNPU_JOB_PINGPONG, 4, domain);
    CHECK(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
    CHECK_EQ(submit.task_counter, 1);
    CHECK(bo_sync(&o.c, RKNPU_MEM_SYNC_FROM_DEVICE, 0, o.c.size) == 0, "(%s)", strerror(errno));
    heap_sync(dmabuf[4], DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ);
    CHECK_EQ(npu_gemm_wrong(&o.shape, o.c.map), 0);
    heap_sync(dmabuf[4], DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ);
    heap_sync(dmabuf[1], DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ);
    CHECK(((struct rknpu_task *)o.tasks.map)[0].int_status & NPU_GEMM_INT_MASK, "(the task array in the import got no status)");
    heap_sync(dmabuf[1], DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ);
    close(fd);
  }
}

/* --- rk3588-npu and allbilly -------------------------------------------------------------------------------------------------------------------- */

/* VERSION, buffers of one kind, ACT_RESET before each submit, flags 5, core 0; destroyed in the order in which they were made. */
static void test_rk3588_npu(void) {
  const int fd = npu_open(NPU_CARD);
  struct ork o = {.shape = {.m = 4, .k = 64, .n = 32, .fp16 = 1, .seed = 104}};
  struct bo *const bos[5] = {&o.words, &o.tasks, &o.a, &o.b, &o.c};

  REQUIRE(fd >= 0);
  say_version(fd);
  for (int i = 0; i < 5; i++)
    REQUIRE(bo_create(fd, bos[i], i == 1 ? 1024 : 1 << 20, i == 1 ? RKNPU_MEM_KERNEL_MAPPING : 0, 0) == 0 && bo_map(bos[i]) == 0, "(%s)",
            strerror(errno));
  ork_program(&o);
  for (int i = 0; i < 3; i++) {
    struct rknpu_submit submit = ork_submit(&o, 5, 1, 0);

    memset(o.c.map, 0xa5, npu_gemm_out_bytes(&o.shape));
    CHECK(npu_action(fd, RKNPU_ACT_RESET, NULL) == 0, "(%s)", strerror(errno));
    CHECK(npu_submit(fd, &submit) == 0, "(%s)", strerror(errno));
    CHECK_EQ(npu_gemm_wrong(&o.shape, o.c.map), 0);
  }
  for (int i = 0; i < 5; i++) bo_destroy(bos[i]);
}

/* The 40-byte MEM_CREATE, a MEM_SYNC whose struct lacks `reserved` (the compiler's padding is in its place), subcore entries that name nothing. */
static void test_allbilly(void) {
  const int fd = npu_open(NPU_CARD);
  struct ork o = {.shape = {.m = 4, .k = 64, .n = 32, .fp16 = 1, .seed = 105}};
  struct bo *const bos[5] = {&o.words, &o.tasks, &o.a, &o.b, &o.c};

  REQUIRE(fd >= 0);
  for (int i = 0; i < 5; i++) {
    struct rknpu_mem_create create = {.flags = i == 1 ? TASK_FLAGS : DATA_FLAGS, .size = 1 << 16};

    REQUIRE(ioctl(fd, 0xC0286442u, &create) == 0, "(%s)", strerror(errno));
    *bos[i] = (struct bo){.fd = fd, .handle = create.handle, .size = create.size, .iova = create.dma_addr, .cookie = create.obj_addr};
    REQUIRE(bo_map(bos[i]) == 0, "(%s)", strerror(errno));
  }
  ork_program(&o);
  for (uint32_t flags = 1; flags < 6; flags += 4) {
    struct rknpu_submit submit = {.flags = flags, .timeout = 10000, .task_number = 1, .task_obj_addr = o.tasks.cookie, .fence_fd = -1,
                                  .subcore_task = {{0, 1}, {1, 0}, {2, 0}}};
    struct rknpu_mem_sync sync = {.flags = RKNPU_MEM_SYNC_TO_DEVICE, .reserved = 0xaaaaaaaa, .obj_addr = o.a.cookie, .size = 2 * o.a.size};

    memset(o.c.map, 0xa5, npu_gemm_out_bytes(&o.shape));
    if (!vendor) CHECK(ioctl(fd, DRM_IOCTL_RKNPU_MEM_SYNC, &sync) == 0, "(%s)", strerror(errno));
    CHECK(npu_submit(fd, &submit) == 0, "(flags %u: %s)", flags, strerror(errno));
    CHECK_EQ(npu_gemm_wrong(&o.shape, o.c.map), 0);
  }
}

const struct test replay_tests[] = {
    {"replay-librknnrt", test_librknnrt, 0},
    {"replay-rknn-llm", test_rknn_llm, 0},
    {"replay-ork", test_ork, 0},
    {"replay-ork-imports", test_ork_imports, 0},
    {"replay-rk3588-npu", test_rk3588_npu, 0},
    {"replay-allbilly", test_allbilly, 0},
};
const unsigned replay_test_count = sizeof(replay_tests) / sizeof(replay_tests[0]);
