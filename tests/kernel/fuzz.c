// SPDX-License-Identifier: Apache-2.0
/*
 * rknpu-fuzz [--rounds N] [--seed S]: calls from a grammar of the interface. Arguments are mostly right and wrong in one place, since a
 * call that is wrong all over is refused at the first check; handles, cookies, addresses and descriptors come from pools of those that
 * lived in this run, living or dead. Every failing round is known by its seed: --rounds 1 --seed S repeats it.
 *
 * It passes when every call returned, the kernel did not complain (that is for the kernel's own checks) and the device still works and
 * holds nothing at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baseline.h"
#include "npu.h"
#include "tap.h"

enum { POOL = 16, FILES = 3, CALLS_PER_ROUND = 150 };

static unsigned rounds = 200;
static uint64_t seed = 1;

struct pools {
  int fd[FILES];
  uint64_t handle[POOL], cookie[POOL], iova[POOL], size[POOL], offset[POOL];
  int descriptor[POOL]; /* dma-bufs and fences */
  void *map[POOL];
  size_t map_size[POOL];
  struct gemm gemm;
};

struct totals {
  volatile uint64_t calls, succeeded, jobs;
};
static struct totals *totals; /* of all rounds, in shared memory */

static void count(int result) {
  __atomic_fetch_add(&totals->calls, 1, __ATOMIC_RELAXED);
  if (result == 0) __atomic_fetch_add(&totals->succeeded, 1, __ATOMIC_RELAXED);
}

/* --- values ------------------------------------------------------------------------------------------------------------------------------- */

static uint64_t odd_value(struct rng *rng) {
  static const uint64_t values[] = {0,          1,          2,          3,          7,          8,          16,
                                    39,         40,         4095,       4096,       4097,       0x7fffffff, 0x80000000,
                                    0xffffffff, 0xfffff000, 1ull << 32, 1ull << 63, ~0ull,      ~0ull - 4095, 0xffff888000001000ull};

  switch (rng_below(rng, 3)) {
    case 0:
      return values[rng_below(rng, sizeof(values) / sizeof(values[0]))];
    case 1:
      return 1ull << rng_below(rng, 64);
    default:
      return (uint64_t)rng_next(rng) << 32 | rng_next(rng);
  }
}

/* Mostly the first, sometimes anything. */
static uint64_t mostly(struct rng *rng, uint64_t value) { return rng_below(rng, 10) ? value : odd_value(rng); }

static uint64_t pick(struct rng *rng, const uint64_t *pool) { return mostly(rng, pool[rng_below(rng, POOL)]); }

static int pick_descriptor(struct rng *rng, const struct pools *p) {
  return rng_below(rng, 12) ? p->descriptor[rng_below(rng, POOL)] : (int)rng_below(rng, 20) - 1;
}

static void keep_descriptor(struct rng *rng, struct pools *p, int descriptor) {
  const unsigned at = rng_below(rng, POOL);

  if (p->descriptor[at] > 0) close(p->descriptor[at]);
  p->descriptor[at] = descriptor;
}

/* --- the grammar ---------------------------------------------------------------------------------------------------------------------------- */

static int call_on(int fd, unsigned long request, void *argument) {
  const int result = ioctl(fd, request, argument);

  count(result);
  return result;
}

static int call(struct pools *p, struct rng *rng, unsigned long request, void *argument) {
  return call_on(p->fd[rng_below(rng, FILES)], request, argument);
}

static void fuzz_create(struct pools *p, struct rng *rng) {
  struct rknpu_mem_create create = {
      .handle = rng_below(rng, 4) ? 0 : (uint32_t)pick(rng, p->handle),
      .flags = (uint32_t)mostly(rng, rng_next(rng) & RKNPU_MEM_MASK & ~(uint32_t)RKNPU_MEM_SECURE),
      .size = mostly(rng, 1 + rng_below(rng, 200000)),
      .obj_addr = mostly(rng, 0),
      .sram_size = mostly(rng, 0),
      .iommu_domain_id = (int32_t)mostly(rng, rng_below(rng, 16)),
      .core_mask = (uint32_t)mostly(rng, rng_below(rng, 8)),
  };
  const unsigned at = rng_below(rng, POOL);
  /* The old 40-byte form, and sizes that nobody has. */
  unsigned long request = DRM_IOCTL_RKNPU_MEM_CREATE;

  if (rng_below(rng, 5) == 0) request = 0xC0286442u;
  if (rng_below(rng, 30) == 0) request = (request & ~0x3fff0000ul) | (unsigned long)rng_below(rng, 256) << 16;
  {
    /* A larger buffer than any size above: the kernel copies as many bytes back as the number says. */
    unsigned char room[512];

    memset(room, 0, sizeof(room));
    memcpy(room, &create, sizeof(create));
    if (call(p, rng, request, room) == 0) {
      memcpy(&create, room, sizeof(create));
      p->handle[at] = create.handle;
      p->cookie[at] = create.obj_addr;
      p->iova[at] = create.dma_addr;
      p->size[at] = create.size;
    }
  }
}

static void fuzz_map(struct pools *p, struct rng *rng) {
  struct rknpu_mem_map map = {.handle = (uint32_t)pick(rng, p->handle), .reserved = (uint32_t)(rng_below(rng, 20) ? 0 : odd_value(rng))};
  const unsigned at = rng_below(rng, POOL), source = rng_below(rng, POOL);
  size_t size = (size_t)(rng_below(rng, 4) ? p->size[source] : 4096u * rng_below(rng, 64));

  if (call(p, rng, DRM_IOCTL_RKNPU_MEM_MAP, &map) == 0) p->offset[at] = map.offset;
  if (!size || size > 1 << 20) size = 4096;
  if (p->map[at]) munmap(p->map[at], p->map_size[at]);
  p->map[at] = mmap(NULL, size, PROT_READ | PROT_WRITE, rng_below(rng, 8) ? MAP_SHARED : MAP_PRIVATE, p->fd[rng_below(rng, FILES)],
                    (off_t)(pick(rng, p->offset) & ~UINT64_C(4095)));
  if (p->map[at] == MAP_FAILED) {
    p->map[at] = NULL;
    return;
  }
  p->map_size[at] = size;
  /* Touching a page that was refused later would be SIGBUS: this process is expendable, its parent goes by the kernel's state. */
  *(volatile char *)p->map[at] = 1;
}

static void fuzz_destroy(struct pools *p, struct rng *rng) {
  struct rknpu_mem_destroy destroy = {.handle = (uint32_t)pick(rng, p->handle),
                                      .reserved = (uint32_t)(rng_below(rng, 20) ? 0 : odd_value(rng)),
                                      .obj_addr = rng_below(rng, 2) ? 0 : pick(rng, p->cookie)};
  struct drm_gem_close gem_close = {.handle = destroy.handle};

  if (rng_below(rng, 5))
    call(p, rng, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy);
  else
    call(p, rng, DRM_IOCTL_GEM_CLOSE, &gem_close);
}

static void fuzz_sync(struct pools *p, struct rng *rng) {
  struct rknpu_mem_sync sync = {.flags = (uint32_t)mostly(rng, 1 + rng_below(rng, 3)),
                                .reserved = (uint32_t)(rng_below(rng, 20) ? 0 : odd_value(rng)),
                                .obj_addr = pick(rng, p->cookie),
                                .offset = mostly(rng, rng_below(rng, 10000)),
                                .size = mostly(rng, rng_below(rng, 10000))};

  call(p, rng, DRM_IOCTL_RKNPU_MEM_SYNC, &sync);
}

static void fuzz_action(struct pools *p, struct rng *rng) {
  struct rknpu_action action = {.flags = rng_below(rng, 8) ? rng_below(rng, 28) : 0x100 + rng_below(rng, 5), .value = (uint32_t)mostly(rng, rng_below(rng, 16))};

  if (rng_below(rng, 15) == 0) action.flags = (uint32_t)odd_value(rng);
  if (action.flags == RKNPU_SET_PROC_NICE) action.value = 0; /* the fuzzer itself must go on running */
  call(p, rng, DRM_IOCTL_RKNPU_ACTION, &action);
}

static void fuzz_submit(struct pools *p, struct rng *rng) {
  static const uint32_t masks[] = {0, 1, 2, 4, 3, 7, 5, 6};
  struct rknpu_submit submit;
  struct gemm *g = &p->gemm;

  gemm_prepare(g, &submit, masks[rng_below(rng, 8)]);
  /* Everything right but for one or two places. */
  submit.timeout = 100; /* enough for what is right; what isn't often hangs its core */
  if (rng_below(rng, 2)) submit.flags |= RKNPU_JOB_NONBLOCK;
  if (rng_below(rng, 3) == 0) submit.flags |= RKNPU_JOB_FENCE_OUT;
  if (rng_below(rng, 6) == 0) {
    submit.flags |= RKNPU_JOB_FENCE_IN;
    submit.fence_fd = pick_descriptor(rng, p);
  }
  for (unsigned n = rng_below(rng, 3); n; n--) {
    const uint32_t odd = (uint32_t)odd_value(rng);

    switch (rng_below(rng, 13)) {
      case 0: submit.flags = odd; break;
      case 1: submit.timeout = odd % 2 ? 0 : 1 + odd % 500; break;
      case 2: submit.task_start = odd; break;
      case 3: submit.task_number = odd; break;
      case 4: submit.priority = (int32_t)odd; break;
      case 5: submit.task_obj_addr = pick(rng, p->cookie); break;
      case 6: submit.iommu_domain_id = odd % 3 ? rng_below(rng, 16) : odd; break;
      case 7: submit.reserved = odd; break;
      case 8: submit.task_base_addr = odd_value(rng); break;
      case 9: submit.core_mask = odd; break;
      case 10: submit.subcore_task[rng_below(rng, 5)].task_start = odd; break;
      case 11: submit.subcore_task[rng_below(rng, 5)].task_number = odd; break;
      default: {
        struct rknpu_task *task = gemm_task(g, rng_below(rng, g->tasks));
        uint32_t *words = (uint32_t *)task;

        words[rng_below(rng, 10)] = odd; /* stays wrong for the rest of the round */
        break;
      }
    }
  }
  /* A word of the command buffer: the hardware's problem, and the page tables'. */
  if (rng_below(rng, 12) == 0) ((uint64_t *)g->data.map)[rng_below(rng, NPU_GEMM_WORDS)] = odd_value(rng);
  if (call_on(p->fd[0], DRM_IOCTL_RKNPU_SUBMIT, &submit) == 0) {
    __atomic_fetch_add(&totals->jobs, 1, __ATOMIC_RELAXED);
    if (submit.flags & RKNPU_JOB_FENCE_OUT) keep_descriptor(rng, p, submit.fence_fd);
  }
}

static void fuzz_prime(struct pools *p, struct rng *rng) {
  struct drm_prime_handle prime = {.handle = (uint32_t)pick(rng, p->handle), .flags = rng_below(rng, 2) ? DRM_CLOEXEC | DRM_RDWR : rng_next(rng), .fd = pick_descriptor(rng, p)};

  if (rng_below(rng, 2)) {
    if (call(p, rng, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime) == 0) keep_descriptor(rng, p, prime.fd);
  } else if (call(p, rng, DRM_IOCTL_PRIME_FD_TO_HANDLE, &prime) == 0) {
    p->handle[rng_below(rng, POOL)] = prime.handle;
  }
}

static void fuzz_private(struct pools *p, struct rng *rng) {
  struct rknpu_npud_limit limit = {.flags = (uint32_t)mostly(rng, rng_below(rng, 16)),
                                   .core_mask = (uint32_t)mostly(rng, 7),
                                   .bytes = mostly(rng, 64 << 20),
                                   .priority = (int32_t)mostly(rng, 0),
                                   .jobs = (uint32_t)mostly(rng, 16),
                                   .reserved = rng_below(rng, 20) ? 0 : odd_value(rng)};
  struct rknpu_npud_revoke revoke = {.flags = (uint32_t)(rng_below(rng, 4) ? 0 : odd_value(rng))};
  struct rknpu_npud_query query = {.what = (uint32_t)mostly(rng, rng_below(rng, 4)), .index = (uint32_t)mostly(rng, rng_below(rng, 17))};

  switch (rng_below(rng, 40)) {
    case 0: call(p, rng, DRM_IOCTL_RKNPU_NPUD_REVOKE, &revoke); break;
    case 1 ... 4: call(p, rng, DRM_IOCTL_RKNPU_NPUD_LIMIT, &limit); break;
    default: call(p, rng, DRM_IOCTL_RKNPU_NPUD_QUERY, &query); break;
  }
}

static void fuzz_number(struct pools *p, struct rng *rng) {
  unsigned char room[1 << 14];

  /* Any number in the driver's range with any size and direction: the core must refuse what is not in the table. */
  memset(room, (int)rng_next(rng), sizeof(room));
  call(p, rng, (unsigned long)rng_below(rng, 4) << 30 | (unsigned long)rng_below(rng, 512) << 16 | 0x6400 | (0x40 + rng_below(rng, 0x60)), room);
  call(p, rng, DRM_IOCTL_RKNPU_SUBMIT, (void *)(uintptr_t)(rng_below(rng, 2) ? 0 : odd_value(rng)));
}

static void fuzz_life(struct pools *p, struct rng *rng) {
  const unsigned at = 1 + rng_below(rng, FILES - 1);

  close(p->fd[at]);
  p->fd[at] = npu_open(rng_below(rng, 2) ? NPU_RENDER : NPU_CARD);
}

static void run_round(uint64_t round_seed) {
  static void (*const grammar[])(struct pools *, struct rng *) = {fuzz_create, fuzz_create, fuzz_create,  fuzz_map,    fuzz_destroy, fuzz_sync,  fuzz_action,
                                                                  fuzz_submit, fuzz_submit, fuzz_submit,  fuzz_submit, fuzz_prime,   fuzz_prime, fuzz_private,
                                                                  fuzz_number, fuzz_life};
  const struct npu_gemm shape = {.m = 4, .k = 32, .n = 32, .fp16 = 1, .seed = 1};
  struct pools p;
  struct rng rng;

  memset(&p, 0, sizeof(p));
  rng_seed(&rng, round_seed);
  for (int i = 0; i < FILES; i++) p.fd[i] = npu_open(NPU_RENDER);
  for (int i = 0; i < POOL; i++) p.descriptor[i] = -1;
  if (p.fd[0] < 0 || gemm_create(&p.gemm, p.fd[0], (int)rng_below(&rng, 16), &shape, 1 + rng_below(&rng, 8))) _exit(3);
  p.cookie[0] = p.gemm.array.cookie;
  p.handle[0] = p.gemm.data.handle;
  for (unsigned i = 0; i < CALLS_PER_ROUND; i++) grammar[rng_below(&rng, sizeof(grammar) / sizeof(grammar[0]))](&p, &rng);
  _exit(0);
}

static void test_fuzz(void) {
  const int fd = npu_open_or_die();
  struct baseline before;
  unsigned died = 0;

  totals = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(totals != MAP_FAILED && baseline_take(fd, &before));
  tap_note("seeds %llu to %llu", (unsigned long long)seed, (unsigned long long)(seed + rounds - 1));
  for (uint64_t round = 0; round < rounds; round++) {
    const uint64_t end = now_ns() + 180 * UINT64_C(1000000000) * tap_patience();
    int status = 0;
    pid_t child;

    child = fork();
    if (child == 0) {
      const struct rlimit files = {256, 256}, core = {0, 0};

      setrlimit(RLIMIT_NOFILE, &files);
      setrlimit(RLIMIT_CORE, &core);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      run_round(seed + round);
    }
    REQUIRE(child > 0);
    while (waitpid(child, &status, WNOHANG) == 0 && now_ns() < end) usleep(1000);
    if (now_ns() >= end) {
      kill(child, SIGKILL);
      CHECK(false, "(seed %llu: a call does not return)", (unsigned long long)(seed + round));
      waitpid(child, NULL, WNOHANG);
      return;
    }
    /* SIGBUS and SIGSEGV are the fuzzer's own doing: it touches what it mapped. */
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGBUS || WTERMSIG(status) == SIGSEGV))
      died++;
    else
      CHECK(status == 0, "(seed %llu: status 0x%x)", (unsigned long long)(seed + round), (unsigned)status);
  }
  tap_note("%u of %u rounds ended at a page they had mapped", died, rounds);
  tap_note("%llu calls, %llu succeeded, %llu of them jobs", (unsigned long long)totals->calls, (unsigned long long)totals->succeeded,
           (unsigned long long)totals->jobs);
  CHECK(died * 2 < rounds);
  /* Enough must get through, or the grammar meets the first check of each call only. */
  CHECK(totals->succeeded * 10 > totals->calls && totals->jobs > rounds);
  CHECK(baseline_restored(fd, &before));
}

int main(int argc, char **argv) {
  static struct test tests[] = {
      {"fuzz", test_fuzz, 0},
      {"everything-works-afterwards", device_works, 0},
  };

  for (int i = 1; i < argc; i++) {
    if (i + 1 < argc && strcmp(argv[i], "--rounds") == 0)
      rounds = (unsigned)strtoul(argv[++i], NULL, 0);
    else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
      seed = strtoull(argv[++i], NULL, 0);
    else {
      fprintf(stderr, "usage: rknpu-fuzz [--rounds N] [--seed S]\n");
      return 2;
    }
  }
  if (!rounds) {
    fprintf(stderr, "--rounds must be above 0\n");
    return 2;
  }
  tests[0].seconds = 300 + rounds * 10;
  return tap_run(tests, 2, NULL, NULL);
}
