// SPDX-License-Identifier: Apache-2.0
/*
 * rknpu-stress [--seconds N] [--seed S] [--processes P]: P processes (default 8) that create, map, submit, export, import, close and
 * are killed, at random, for N seconds (default 20). Afterwards the device holds nothing and still computes right. What happens inside
 * is for the kernel's own checks (KASAN, lockdep, kmemleak); here it is checked that no finished job has a wrong result.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baseline.h"
#include "npu.h"
#include "tap.h"

enum { MAX_PROCESSES = 64, SLOTS = 12, EXCHANGE = 2 };

struct counters {
  volatile uint64_t operations, jobs, failed, wrong, killed, imports;
};

static unsigned seconds = 20, processes = 8;
static uint64_t seed = 1;
static struct counters *counters;
static int exchange[EXCHANGE]; /* a socket pair over which dma-bufs go from process to process */

static void send_descriptor(int descriptor) {
  char byte = 'd', control[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec io = {.iov_base = &byte, .iov_len = 1};
  struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);

  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  sendmsg(exchange[0], &message, MSG_DONTWAIT);
}

static int receive_descriptor(void) {
  char byte, control[CMSG_SPACE(sizeof(int))];
  struct iovec io = {.iov_base = &byte, .iov_len = 1};
  struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  struct cmsghdr *header;
  int descriptor = -1;

  if (recvmsg(exchange[1], &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1) return -1;
  header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_type == SCM_RIGHTS) memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
  return descriptor;
}

/* One file's random life. Returns when it closes the file; the parent may kill it at any moment. */
static void life(struct rng *rng) {
  struct gemm jobs[SLOTS];
  struct bo bos[SLOTS];
  int fences[SLOTS];
  const int fd = npu_open(rng_below(rng, 4) ? NPU_RENDER : NPU_CARD);

  if (fd < 0) _exit(3);
  memset(jobs, 0, sizeof(jobs));
  memset(bos, 0, sizeof(bos));
  for (int i = 0; i < SLOTS; i++) fences[i] = -1;
  for (unsigned step = 5 + rng_below(rng, 200); step; step--) {
    const uint32_t at = rng_below(rng, SLOTS);
    struct gemm *g = &jobs[at];
    struct bo *bo = &bos[at];

    __atomic_fetch_add(&counters->operations, 1, __ATOMIC_RELAXED);
    switch (rng_below(rng, 12)) {
      case 0:
        if (!g->expected) gemm_small(g, fd, (int)rng_below(rng, RKNPU_MAX_DOMAINS), rng_below(rng, 2), rng_next(rng) % 1000);
        break;
      case 1: { /* run and check */
        int wrong;

        if (!g->expected || fences[at] >= 0) break;
        wrong = gemm_run(g, (uint32_t[]){0, 1, 2, 4}[rng_below(rng, 4)]);
        __atomic_fetch_add(&counters->jobs, 1, __ATOMIC_RELAXED);
        if (wrong > 0) __atomic_fetch_add(&counters->wrong, 1, __ATOMIC_RELAXED);
        if (wrong < 0) __atomic_fetch_add(&counters->failed, 1, __ATOMIC_RELAXED);
        break;
      }
      case 2: /* start, and leave it running */
        if (g->expected && fences[at] < 0) fences[at] = gemm_start(g, (uint32_t[]){0, 1, 2, 4}[rng_below(rng, 4)], 10000, (int)rng_below(rng, 20));
        break;
      case 3:
        if (fences[at] < 0) break;
        if (fence_wait(fences[at], 30000) == 1 && gemm_wrong(g)) __atomic_fetch_add(&counters->wrong, 1, __ATOMIC_RELAXED);
        close(fences[at]);
        fences[at] = -1;
        break;
      case 4: /* pull the memory from under it */
        if (g->expected) gemm_destroy(g);
        if (fences[at] >= 0) close(fences[at]);
        fences[at] = -1;
        break;
      case 5:
        if (!bo->handle && bo_create(fd, bo, 1 + rng_below(rng, 300000), rng_next(rng) & 0x72f, (int)rng_below(rng, 16)) == 0 &&
            rng_below(rng, 2) && bo_map(bo) == 0)
          memset(bo->map, 1, bo->size);
        break;
      case 6:
        bo_destroy(bo);
        break;
      case 7:
        if (bo->handle) {
          const int dmabuf = bo_export(bo);

          if (dmabuf >= 0) send_descriptor(dmabuf);
          if (dmabuf >= 0) close(dmabuf);
        }
        break;
      case 8: {
        const int dmabuf = receive_descriptor();
        uint32_t handle = 0;

        if (dmabuf < 0) break;
        if (!bo->handle && bo_import(fd, dmabuf, &handle) == 0) {
          __atomic_fetch_add(&counters->imports, 1, __ATOMIC_RELAXED);
          if (bo_lookup(fd, bo, handle, (int)rng_below(rng, 16))) memset(bo, 0, sizeof(*bo));
        }
        close(dmabuf);
        break;
      }
      case 9:
        if (bo->handle) bo_sync(bo, 1 + rng_below(rng, 3), rng_below(rng, 5000), rng_below(rng, 5000));
        break;
      case 10: {
        uint32_t value = rng_below(rng, 8);

        npu_action(fd, (uint32_t[]){RKNPU_ACT_RESET, RKNPU_ACT_RESET_CORE, RKNPU_SET_IOMMU_DOMAIN_ID, RKNPU_POWER_ON}[rng_below(rng, 4)], &value);
        break;
      }
      case 11: {
        struct rknpu_npud_file_info file;
        struct rknpu_npud_revoke revoke = {0};

        query_file(fd, &file);
        if (rng_below(rng, 60) == 0) ioctl(fd, DRM_IOCTL_RKNPU_NPUD_REVOKE, &revoke);
        break;
      }
    }
  }
  for (int i = 0; i < SLOTS; i++) {
    if (rng_below(rng, 2)) bo_destroy(&bos[i]);
    if (jobs[i].expected) gemm_destroy(&jobs[i]);
    if (fences[i] >= 0) close(fences[i]);
    if (bos[i].map) munmap(bos[i].map, bos[i].size);
  }
  close(fd);
}

static pid_t spawn(uint64_t number) {
  const pid_t child = fork();

  if (child == 0) {
    struct rng rng;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rng_seed(&rng, seed * 1000003 + number);
    for (int lives = 0; lives < 20; lives++) life(&rng);
    _exit(0);
  }
  return child;
}

/* On a busy host the time is over before much was done; then it goes on, up to the test's own limit. */
static bool enough_done(void) { return counters->operations > processes * 20 && counters->jobs > processes; }

static void test_stress(void) {
  const int fd = npu_open_or_die();
  pid_t children[MAX_PROCESSES];
  struct baseline before;
  uint64_t number = 0, end, latest;
  struct rng rng;

  REQUIRE(baseline_take(fd, &before));
  counters = mmap(NULL, sizeof(*counters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(counters != MAP_FAILED && socketpair(AF_UNIX, SOCK_DGRAM, 0, exchange) == 0);
  rng_seed(&rng, seed);
  tap_note("seed %llu, %u processes, %u s", (unsigned long long)seed, processes, seconds);
  for (unsigned i = 0; i < processes; i++) REQUIRE((children[i] = spawn(number++)) > 0);
  end = now_ns() + (uint64_t)seconds * 1000000000u;
  latest = end + (uint64_t)(180 + seconds * 2) * 1000000000u;
  while (now_ns() < end || (!enough_done() && now_ns() < latest)) {
    const unsigned victim = rng_below(&rng, processes);
    int status;

    sleep_ms(rng_below(&rng, 60));
    if (rng_below(&rng, 3) == 0) {
      kill(children[victim], SIGKILL);
      __atomic_fetch_add(&counters->killed, 1, __ATOMIC_RELAXED);
    } else if (waitpid(children[victim], &status, WNOHANG) != children[victim]) {
      continue;
    } else {
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "(status 0x%x)", (unsigned)status);
      children[victim] = spawn(number++);
      continue;
    }
    waitpid(children[victim], &status, 0);
    children[victim] = spawn(number++);
  }
  for (unsigned i = 0; i < processes; i++) {
    kill(children[i], SIGKILL);
    waitpid(children[i], NULL, 0);
  }
  close(exchange[0]);
  close(exchange[1]); /* the dma-bufs under way go with it */
  tap_note("%llu operations, %llu blocking jobs (%llu failed), %llu imports, %llu processes killed", (unsigned long long)counters->operations,
           (unsigned long long)counters->jobs, (unsigned long long)counters->failed, (unsigned long long)counters->imports,
           (unsigned long long)counters->killed);
  CHECK(enough_done());
  CHECK_EQ(counters->wrong, 0);
  CHECK(baseline_restored(fd, &before));
}

int main(int argc, char **argv) {
  static struct test tests[] = {
      {"stress", test_stress, 0},
      {"everything-works-afterwards", device_works, 0},
  };

  for (int i = 1; i < argc; i++) {
    if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0)
      seconds = (unsigned)strtoul(argv[++i], NULL, 0);
    else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
      seed = strtoull(argv[++i], NULL, 0);
    else if (i + 1 < argc && strcmp(argv[i], "--processes") == 0)
      processes = (unsigned)strtoul(argv[++i], NULL, 0);
    else {
      fprintf(stderr, "usage: rknpu-stress [--seconds N] [--seed S] [--processes P]\n");
      return 2;
    }
  }
  if (!processes || processes > MAX_PROCESSES) {
    fprintf(stderr, "--processes must be 1 to %d\n", MAX_PROCESSES);
    return 2;
  }
  tests[0].seconds = 240 + seconds * 4;
  return tap_run(tests, 2, NULL, NULL);
}
