// SPDX-License-Identifier: Apache-2.0
#include "npu.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <linux/sync_file.h>

enum { CLEAR_PATTERN = 0xa5 };

static int ioctl_retry(int fd, unsigned long request, void *argument) {
  int result;

  do {
    result = ioctl(fd, request, argument);
  } while (result == -1 && errno == EINTR);
  return result;
}

/* --- nodes ----------------------------------------------------------------------------------------------------------------------- */

static bool is_rknpu(int fd) {
  char name[32] = "";
  struct drm_version version;

  memset(&version, 0, sizeof(version));
  version.name = name;
  version.name_len = sizeof(name) - 1;
  return ioctl_retry(fd, DRM_IOCTL_VERSION, &version) == 0 && strcmp(name, RKNPU_DRM_NAME) == 0;
}

int npu_open(enum npu_node kind) {
  const int first = kind == NPU_RENDER ? 128 : 0;

  for (int minor = first; minor < first + 64; minor++) {
    char path[64];
    int fd;

    snprintf(path, sizeof(path), kind == NPU_RENDER ? "/dev/dri/renderD%d" : "/dev/dri/card%d", minor);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) continue;
    if (is_rknpu(fd)) return fd;
    close(fd);
  }
  errno = ENODEV;
  return -1;
}

int npu_open_or_die(void) {
  const int fd = npu_open(NPU_RENDER);

  if (fd < 0) {
    printf("Bail out! no render node in /dev/dri has a driver called " RKNPU_DRM_NAME ": is its module loaded?\n");
    fflush(stdout);
    _exit(1);
  }
  return fd;
}

int npu_action(int fd, uint32_t action, uint32_t *value) {
  struct rknpu_action argument = {.flags = action, .value = value ? *value : 0};
  const int result = ioctl_retry(fd, DRM_IOCTL_RKNPU_ACTION, &argument);

  if (value) *value = argument.value;
  return result;
}

/* --- buffers --------------------------------------------------------------------------------------------------------------------- */

static int bo_get(int fd, struct bo *bo, uint32_t handle, uint64_t size, uint32_t flags, int domain) {
  struct rknpu_mem_create create = {.handle = handle, .flags = flags, .size = size, .iommu_domain_id = domain};

  memset(bo, 0, sizeof(*bo));
  bo->fd = -1;
  if (ioctl_retry(fd, DRM_IOCTL_RKNPU_MEM_CREATE, &create)) return -1;
  bo->fd = fd;
  bo->handle = create.handle;
  bo->size = create.size;
  bo->iova = create.dma_addr;
  bo->cookie = create.obj_addr;
  return 0;
}

int bo_create(int fd, struct bo *bo, uint64_t size, uint32_t flags, int domain) {
  return bo_get(fd, bo, 0, size, flags, domain);
}

int bo_lookup(int fd, struct bo *bo, uint32_t handle, int domain) { return bo_get(fd, bo, handle, 0, 0, domain); }

int bo_map(struct bo *bo) {
  struct rknpu_mem_map map = {.handle = bo->handle};
  void *address;

  if (ioctl_retry(bo->fd, DRM_IOCTL_RKNPU_MEM_MAP, &map)) return -1;
  address = mmap(NULL, bo->size, PROT_READ | PROT_WRITE, MAP_SHARED, bo->fd, (off_t)map.offset);
  if (address == MAP_FAILED) return -1;
  bo->map = address;
  return 0;
}

int bo_sync(const struct bo *bo, uint32_t flags, uint64_t offset, uint64_t size) {
  struct rknpu_mem_sync sync = {.flags = flags, .obj_addr = bo->cookie, .offset = offset, .size = size};

  return ioctl_retry(bo->fd, DRM_IOCTL_RKNPU_MEM_SYNC, &sync);
}

int bo_export(const struct bo *bo) {
  struct drm_prime_handle prime = {.handle = bo->handle, .flags = DRM_CLOEXEC | DRM_RDWR, .fd = -1};

  return ioctl_retry(bo->fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime) ? -1 : prime.fd;
}

int bo_import(int fd, int dmabuf, uint32_t *handle) {
  struct drm_prime_handle prime = {.fd = dmabuf};

  if (ioctl_retry(fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &prime)) return -1;
  *handle = prime.handle;
  return 0;
}

void bo_destroy(struct bo *bo) {
  struct rknpu_mem_destroy destroy = {.handle = bo->handle, .obj_addr = bo->cookie};

  if (bo->map) munmap(bo->map, bo->size);
  if (bo->handle) ioctl_retry(bo->fd, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy);
  memset(bo, 0, sizeof(*bo));
  bo->fd = -1;
}

/* --- jobs ------------------------------------------------------------------------------------------------------------------------ */

static size_t page_up(size_t bytes) { return (bytes + NPU_PAGE - 1) / NPU_PAGE * NPU_PAGE; }

int gemm_create(struct gemm *g, int fd, int domain, const struct npu_gemm *shape, unsigned tasks) {
  const size_t commands = page_up((size_t)tasks * NPU_GEMM_SLOT_BYTES);
  const size_t features = page_up(npu_gemm_feature_bytes(shape));
  const size_t weights = page_up(npu_gemm_weight_bytes(shape));
  const size_t outs = (size_t)tasks * npu_gemm_out_bytes(shape);
  struct rknpu_task *array;
  int saved;

  memset(g, 0, sizeof(*g));
  g->fd = fd;
  g->domain = domain;
  g->tasks = tasks;
  g->shape = *shape;
  g->data.fd = g->array.fd = -1;
  if (!tasks || !npu_gemm_valid(shape)) {
    errno = EDOM;
    return -1;
  }
  if (bo_create(fd, &g->data, commands + features + weights + outs, 0, domain) || bo_map(&g->data) ||
      bo_create(fd, &g->array, tasks * sizeof(*array), RKNPU_MEM_KERNEL_MAPPING, domain) || bo_map(&g->array))
    goto failed;
  g->expected = malloc(npu_gemm_out_bytes(shape));
  if (!g->expected) goto failed;
  g->shape.features = (uint32_t)(g->data.iova + commands);
  g->shape.weights = (uint32_t)(g->data.iova + commands + features);
  g->out_offset = commands + features + weights;
  npu_gemm_fill(&g->shape, (char *)g->data.map + commands, (char *)g->data.map + commands + features);
  for (unsigned m = 0; m < shape->m; m++)
    for (unsigned n = 0; n < shape->n; n++)
      g->expected[npu_gemm_out_index(&g->shape, m, n)] = npu_gemm_expected(&g->shape, m, n);
  array = g->array.map;
  for (unsigned i = 0; i < tasks; i++) {
    const uint64_t address = g->data.iova + (uint64_t)i * NPU_GEMM_SLOT_BYTES;
    uint64_t words[NPU_GEMM_WORDS];

    g->shape.out = (uint32_t)(g->data.iova + g->out_offset + (size_t)i * npu_gemm_out_bytes(shape));
    npu_gemm_emit((__u64 *)words, &g->shape, i + 1 < tasks ? (uint32_t)address + NPU_GEMM_SLOT_BYTES : 0);
    memcpy((char *)g->data.map + (size_t)i * NPU_GEMM_SLOT_BYTES, words, sizeof(words));
    array[i] = (struct rknpu_task){
        .op_idx = i,
        .enable_mask = NPU_GEMM_ENABLE_MASK,
        .int_mask = NPU_GEMM_INT_MASK,
        .int_clear = 0x1ffff,
        .regcfg_amount = NPU_GEMM_BODY_WORDS,
        .regcmd_addr = address,
    };
  }
  gemm_clear(g);
  return 0;
failed:
  saved = errno;
  gemm_destroy(g);
  errno = saved;
  return -1;
}

int gemm_small(struct gemm *g, int fd, int domain, bool fp16, uint32_t seed) {
  const struct npu_gemm shape = {.m = 8, .k = 64, .n = 32, .fp16 = fp16, .seed = seed};

  return gemm_create(g, fd, domain, &shape, 1);
}

int gemm_long(struct gemm *g, int fd, int domain, uint64_t macs, uint32_t seed) {
  /* A task's results are all checked on the CPU once, so the task is small beside the job. */
  const struct npu_gemm shape = {.m = 64, .k = 512, .n = 32, .fp16 = 1, .seed = seed};
  const uint64_t per_task = (uint64_t)shape.m * shape.k * shape.n;
  uint64_t tasks = (macs + per_task - 1) / per_task;

  if (tasks > 4000) tasks = 4000;
  return gemm_create(g, fd, domain, &shape, (unsigned)tasks);
}

void gemm_clear(struct gemm *g) { memset((char *)g->data.map + g->out_offset, CLEAR_PATTERN, g->data.size - g->out_offset); }

unsigned gemm_wrong_range(const struct gemm *g, unsigned first, unsigned count) {
  const size_t words = npu_gemm_out_bytes(&g->shape) / 4;
  unsigned wrong = 0;

  for (unsigned i = first; i < first + count; i++) {
    const volatile uint32_t *out =
        (const volatile uint32_t *)((const char *)g->data.map + g->out_offset + (size_t)i * words * 4);

    for (size_t w = 0; w < words; w++) wrong += out[w] != g->expected[w];
  }
  return wrong;
}

unsigned gemm_wrong(const struct gemm *g) { return gemm_wrong_range(g, 0, g->tasks); }

bool gemm_untouched(const struct gemm *g) {
  const unsigned char *at = (const unsigned char *)g->data.map + g->out_offset;

  for (size_t i = 0; i < g->tasks * npu_gemm_out_bytes(&g->shape); i++)
    if (at[i] != CLEAR_PATTERN) return false;
  return true;
}

struct rknpu_task *gemm_task(const struct gemm *g, unsigned task) { return (struct rknpu_task *)g->array.map + task; }

void gemm_destroy(struct gemm *g) {
  bo_destroy(&g->data);
  bo_destroy(&g->array);
  free(g->expected);
  g->expected = NULL;
}

void gemm_prepare(const struct gemm *g, struct rknpu_submit *submit, uint32_t core_mask) {
  const unsigned cores = (unsigned)__builtin_popcount(core_mask);
  unsigned first = 0, index = 0;

  memset(submit, 0, sizeof(*submit));
  submit->flags = RKNPU_JOB_PC | RKNPU_JOB_PINGPONG;
  submit->timeout = NPU_TIMEOUT_MS;
  submit->task_number = g->tasks;
  submit->task_obj_addr = g->array.cookie;
  submit->iommu_domain_id = (uint32_t)g->domain;
  submit->core_mask = core_mask;
  submit->fence_fd = -1;
  for (unsigned core = 0; core < NPU_CORES; core++) {
    unsigned share;

    if (!(core_mask & 1u << core)) continue;
    index++;
    share = index == cores ? g->tasks - first : g->tasks / cores;
    submit->subcore_task[cores == 3 ? core + 2 : core] =
        (struct rknpu_subcore_task){.task_start = first, .task_number = share};
    first += share;
  }
}

int npu_submit(int fd, struct rknpu_submit *submit) {
  /* Not repeated on EINTR: a job would run twice. */
  return ioctl(fd, DRM_IOCTL_RKNPU_SUBMIT, submit);
}

int gemm_run(struct gemm *g, uint32_t core_mask) {
  struct rknpu_submit submit;

  gemm_clear(g);
  gemm_prepare(g, &submit, core_mask);
  if (npu_submit(g->fd, &submit)) return -1;
  return (int)gemm_wrong(g);
}

int gemm_start(struct gemm *g, uint32_t core_mask, uint32_t timeout_ms, int priority) {
  struct rknpu_submit submit;

  gemm_prepare(g, &submit, core_mask);
  submit.flags |= RKNPU_JOB_NONBLOCK | RKNPU_JOB_FENCE_OUT;
  submit.timeout = timeout_ms;
  submit.priority = priority;
  if (npu_submit(g->fd, &submit)) return -1;
  return submit.fence_fd;
}

/* --- fences ------------------------------------------------------------------------------------------------------------------------ */

static int fence_info(int fence, struct sync_fence_info *info) {
  struct sync_file_info file;

  memset(&file, 0, sizeof(file));
  memset(info, 0, sizeof(*info));
  file.num_fences = 1;
  file.sync_fence_info = (uintptr_t)info;
  return ioctl_retry(fence, SYNC_IOC_FILE_INFO, &file);
}

int fence_wait(int fence, int timeout_ms) {
  struct pollfd wait = {.fd = fence, .events = POLLIN};
  struct sync_fence_info info;
  const uint64_t end = now_ns() + (uint64_t)timeout_ms * 1000000;

  for (;;) {
    const int64_t left = (int64_t)(end - now_ns()) / 1000000;
    const int ready = poll(&wait, 1, left > 0 ? (int)left + 1 : 0);

    if (ready > 0) break;
    if (ready == 0) return 0;
    if (errno != EINTR) return -errno;
  }
  if (wait.revents & POLLNVAL) return -EBADF;
  if (fence_info(fence, &info)) return -errno;
  return info.status;
}

uint64_t fence_time_ns(int fence) {
  struct sync_fence_info info;

  return fence_info(fence, &info) || info.status == 0 ? 0 : info.timestamp_ns;
}

/* --- private queries ---------------------------------------------------------------------------------------------------------------- */

static int query(int fd, uint32_t what, uint32_t index, struct rknpu_npud_query *query) {
  memset(query, 0, sizeof(*query));
  query->what = what;
  query->index = index;
  return ioctl_retry(fd, DRM_IOCTL_RKNPU_NPUD_QUERY, query);
}

int query_file(int fd, struct rknpu_npud_file_info *info) {
  struct rknpu_npud_query argument;

  if (query(fd, RKNPU_NPUD_QUERY_FILE, 0, &argument)) return -1;
  *info = argument.file;
  return 0;
}

int query_space(int fd, uint32_t domain, struct rknpu_npud_space_info *info) {
  struct rknpu_npud_query argument;

  if (query(fd, RKNPU_NPUD_QUERY_SPACE, domain, &argument)) return -1;
  *info = argument.space;
  return 0;
}

int query_device(int fd, struct rknpu_npud_device_info *info) {
  struct rknpu_npud_query argument;

  if (query(fd, RKNPU_NPUD_QUERY_DEVICE, 0, &argument)) return -1;
  *info = argument.device;
  return 0;
}

bool npu_has_private(int fd) {
  struct rknpu_npud_device_info info;

  return query_device(fd, &info) == 0;
}

/* --- small things -------------------------------------------------------------------------------------------------------------------- */

uint64_t now_ns(void) {
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sleep_ms(unsigned ms) {
  struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

  while (nanosleep(&left, &left) == -1 && errno == EINTR) {
  }
}

void rng_seed(struct rng *rng, uint64_t seed) { rng->state = (seed + 1) * 0x9e3779b97f4a7c15u | 1; }

uint32_t rng_next(struct rng *rng) {
  rng->state ^= rng->state >> 12;
  rng->state ^= rng->state << 25;
  rng->state ^= rng->state >> 27;
  return (uint32_t)(rng->state * 0x2545f4914f6cdd1du >> 32);
}

uint32_t rng_below(struct rng *rng, uint32_t bound) { return bound ? rng_next(rng) % bound : 0; }

int read_file(const char *path, char *text, size_t size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  size_t length = 0;
  ssize_t got;

  if (fd < 0) return -1;
  while (length + 1 < size && (got = read(fd, text + length, size - 1 - length)) > 0) length += (size_t)got;
  text[length] = 0;
  close(fd);
  return (int)length;
}

int write_file(const char *path, const char *text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  const ssize_t length = (ssize_t)strlen(text);
  int saved;
  ssize_t put;

  if (fd < 0) return -1;
  put = write(fd, text, (size_t)length);
  saved = errno;
  close(fd);
  errno = saved;
  return put == length ? 0 : -1;
}

void mount_debugfs(void) {
  struct stat status;

  if (stat("/sys/kernel/debug/dri", &status) && stat("/sys/kernel/debug/gpio", &status) &&
      mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL) && errno != EBUSY)
    perror("# mounting debugfs");
}

int drop_capabilities(void) {
  /* Going from uid 0 to another clears the effective and permitted sets. */
  if (prctl(PR_SET_KEEPCAPS, 0) || setgid(65534) || setuid(65534)) return -1;
  return 0;
}
