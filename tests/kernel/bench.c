// SPDX-License-Identifier: Apache-2.0
/*
 * rknpu-bench [--driver NAME] [--quick]: what an RKNPU driver costs, one JSON object a line:
 *
 *   {"name": "...", "driver": "NAME", "mmu": "bank|iommu|unknown", "value": N, "unit": "..."}
 *
 * Nothing here depends on npud's own calls, so that any driver with the interface can be measured in the same guest; what only the
 * virtual board can count is left out without it. Medians of many runs; a ratio is of two measurements of the same run.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "board.h"
#include "npu.h"

enum { JOB_US = 20000 };

static const char *driver = "npud";
static const char *mmu = "unknown";
static unsigned scale = 1; /* divides the counts */
static int failures;

static void report(const char *name, double value, const char *unit) {
  printf("{\"name\": \"%s\", \"driver\": \"%s\", \"mmu\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n", name, driver, mmu, value, unit);
  fflush(stdout);
}

static void failed(const char *name) {
  fprintf(stderr, "rknpu-bench: %s: %s\n", name, strerror(errno));
  failures++;
}

static int compare(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

  return x < y ? -1 : x > y;
}

static double median(uint64_t *values, unsigned count) {
  qsort(values, count, sizeof(*values), compare);
  return (double)values[count / 2];
}

/* --- one call, one job ------------------------------------------------------------------------------------------------------------------ */

static void ioctl_round_trip(void) {
  enum { BATCHES = 50, CALLS = 100 };
  const int fd = npu_open_or_die();
  uint64_t times[BATCHES];

  for (unsigned batch = 0; batch < BATCHES; batch++) {
    const uint64_t start = now_ns();

    for (unsigned i = 0; i < CALLS; i++) {
      uint32_t value = 0;

      if (npu_action(fd, RKNPU_GET_DRV_VERSION, &value)) return failed("ioctl");
    }
    times[batch] = (now_ns() - start) / CALLS;
  }
  report("ioctl_round_trip", median(times, BATCHES), "ns");
  close(fd);
}

static void smallest_job(void) {
  const struct npu_gemm shape = {.m = 4, .k = 32, .n = 32, .fp16 = 1, .seed = 1};
  const unsigned count = 300 / scale;
  const int fd = npu_open_or_die();
  uint64_t times[300];
  struct rknpu_submit submit;
  struct gemm g;

  if (gemm_create(&g, fd, 0, &shape, 1)) return failed("smallest job");
  for (unsigned i = 0; i < count; i++) {
    uint64_t start;

    gemm_prepare(&g, &submit, 1);
    start = now_ns();
    if (npu_submit(fd, &submit)) return failed("smallest job");
    times[i] = now_ns() - start;
  }
  if (gemm_wrong(&g)) return failed("smallest job: wrong result");
  report("smallest_job", median(times, count) / 1000, "us");
  gemm_destroy(&g);
  close(fd);
}

/* --- switching ----------------------------------------------------------------------------------------------------------------------------- */

static uint64_t register_accesses(void) {
  return board_counter(0, VBOARD_COUNT_REG_READS) + board_counter(0, VBOARD_COUNT_REG_WRITES);
}

/* Jobs on core 0 that alternate between two buffers' spaces: median time of one, and register accesses a job (0 without a board). */
static int alternate(struct gemm *a, struct gemm *b, unsigned count, double *time_ns, double *accesses) {
  const bool board = board_present();
  uint64_t times[400], before = 0;
  struct rknpu_submit submit;

  for (unsigned i = 0; i < count + 2; i++) {
    struct gemm *g = i % 2 ? a : b;
    uint64_t start;

    if (i == 2 && board) before = register_accesses(); /* two to warm up */
    gemm_prepare(g, &submit, 1);
    start = now_ns();
    if (npu_submit(g->fd, &submit)) return -1;
    if (i >= 2) times[i - 2] = now_ns() - start;
  }
  *accesses = board ? (double)(register_accesses() - before) / count : 0;
  *time_ns = median(times, count);
  return gemm_wrong(a) || gemm_wrong(b) ? -1 : 0;
}

static void switching(void) {
  const struct npu_gemm shape = {.m = 4, .k = 32, .n = 32, .fp16 = 1, .seed = 2};
  const unsigned count = 400 / scale;
  const int fd = npu_open_or_die();
  const int stranger = npu_open_or_die();
  double same_ns, other_ns, owner_ns, same, other, owner;
  struct gemm a, b, c, d;

  if (gemm_create(&a, fd, 0, &shape, 1) || gemm_create(&b, fd, 0, &shape, 1) || gemm_create(&c, fd, 1, &shape, 1) || gemm_create(&d, stranger, 0, &shape, 1))
    return failed("switching");
  if (alternate(&a, &b, count, &same_ns, &same) || alternate(&a, &c, count, &other_ns, &other) || alternate(&a, &d, count, &owner_ns, &owner))
    return failed("switching");
  report("job_same_space", same_ns / 1000, "us");
  report("job_other_space", other_ns / 1000, "us");
  report("space_switch", (other_ns - same_ns) / 1000, "us");
  /* The same between two files, whose cores are wiped in between. */
  report("owner_switch", (owner_ns - same_ns) / 1000, "us");
  if (board_present()) {
    report("register_accesses_per_job", same, "accesses");
    report("register_accesses_per_switch", other - same, "accesses");
    report("register_accesses_per_owner_switch", owner - same, "accesses");
    report("register_accesses_per_switch_and_bank", (other - same) / 2, "accesses"); /* core 0 has two banks */
  }
  gemm_destroy(&a);
  gemm_destroy(&b);
  gemm_destroy(&c);
  gemm_destroy(&d);
  close(stranger);
  close(fd);
}

/* --- three cores ------------------------------------------------------------------------------------------------------------------------------- */

static volatile uint64_t *finished; /* of each process, in shared memory */
static volatile int *go;
static double measured_jobs; /* by throughput() */

static void loop_on_core(unsigned core) {
  const struct npu_gemm shape = {.m = 4, .k = 32, .n = 32, .fp16 = 1, .seed = 3};
  struct rknpu_submit submit;
  struct gemm g;
  const int fd = npu_open_or_die();

  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (gemm_create(&g, fd, 0, &shape, 1)) _exit(1);
  finished[core]++; /* ready */
  while (!*go) usleep(500);
  for (;;) {
    gemm_prepare(&g, &submit, 1u << core);
    if (npu_submit(fd, &submit)) _exit(1);
    finished[core]++;
  }
}

/* Jobs a second of `processes` processes, each on its own core. */
static double throughput(unsigned processes, unsigned milliseconds) {
  pid_t children[NPU_CORES];
  uint64_t start, sum = 0, before = 0;
  double seconds;
  bool good = true;

  for (unsigned i = 0; i < NPU_CORES; i++) finished[i] = 0;
  *go = 0;
  for (unsigned i = 0; i < processes; i++) {
    children[i] = fork();
    if (children[i] == 0) loop_on_core(i);
    while (!finished[i] && waitpid(children[i], NULL, WNOHANG) == 0) usleep(500);
  }
  start = now_ns();
  for (unsigned i = 0; i < processes; i++) before += finished[i];
  *go = 1;
  sleep_ms(milliseconds);
  /* A host that is busy with other things may need longer for a number that means something. */
  while (now_ns() - start < 60 * UINT64_C(1000000000)) {
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < processes; i++) least = finished[i] < least ? finished[i] : least;
    if (least > 15) break;
    sleep_ms(50);
  }
  for (unsigned i = 0; i < processes; i++) sum += finished[i];
  measured_jobs = (double)(sum - before);
  seconds = (double)(now_ns() - start) / 1e9;
  for (unsigned i = 0; i < processes; i++) {
    good = good && waitpid(children[i], NULL, WNOHANG) == 0;
    kill(children[i], SIGKILL);
    waitpid(children[i], NULL, 0);
  }
  return good ? (double)(sum - before) / seconds : -1;
}

static uint64_t switches(int fd) {
  struct rknpu_npud_device_info info;

  return query_device(fd, &info) == 0 ? info.switches : 0;
}

static void three_cores(void) {
  const int fd = npu_open_or_die();
  uint64_t before;
  double one, three;

  finished = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  go = (volatile int *)(finished + NPU_CORES);
  /* Each job takes 20 ms of the core and next to nothing of the host, so that this measures the driver's concurrency, and not how many
     processors the machine under the virtual board has. */
  if (board_present())
    for (unsigned core = 0; core < NPU_CORES; core++) board_fault(VBOARD_FAULT_IRQ_LATE, core, JOB_US, 0);
  one = throughput(1, 3000 / scale);
  before = switches(fd);
  three = throughput(NPU_CORES, 3000 / scale);
  if (board_present()) board_clear_faults();
  if (one <= 0 || three <= 0) return failed("three cores");
  report("jobs_per_second_one_core", one, "1/s");
  report("jobs_per_second_three_cores", three, "1/s");
  report("three_cores_over_one", three / one, "ratio");
  /* Where cores share an MMU, how well jobs of one space are kept together. */
  if (npu_has_private(fd)) report("jobs_per_switch_three_cores", measured_jobs / (double)(switches(fd) - before + 1), "ratio");
  close(fd);
}

/* --- addresses ----------------------------------------------------------------------------------------------------------------------------------- */

static void iova_after_many(void) {
  const unsigned count = 10000 / scale;
  const int fd = npu_open_or_die();
  struct rknpu_npud_space_info before, after;
  struct bo keep, bo, last;
  const bool exact = npu_has_private(fd);
  uint64_t start;

  if (bo_create(fd, &keep, 4096, RKNPU_MEM_NON_CONTIGUOUS, 0) || (exact && query_space(fd, 0, &before))) return failed("addresses");
  if (bo_create(fd, &bo, 3 * 4096 + 1, RKNPU_MEM_NON_CONTIGUOUS, 0)) return failed("addresses");
  bo_destroy(&bo);
  start = now_ns();
  for (unsigned i = 0; i < count; i++) {
    if (bo_create(fd, &bo, 4096u * (1 + i % 9) + 1, RKNPU_MEM_NON_CONTIGUOUS, 0)) return failed("addresses");
    bo_destroy(&bo);
  }
  report("create_destroy", (double)(now_ns() - start) / count / 1000, "us");
  if (bo_create(fd, &last, 4096, RKNPU_MEM_NON_CONTIGUOUS, 0)) return failed("addresses");
  report("iova_drift_after_create_destroy", (double)(last.iova > keep.iova ? last.iova - keep.iova : keep.iova - last.iova), "bytes");
  bo_destroy(&last);
  if (exact) {
    if (query_space(fd, 0, &after)) return failed("addresses");
    report("iova_lost_after_create_destroy", (double)after.used_bytes - (double)before.used_bytes, "bytes");
  }
  close(fd);
}

/* --- handles --------------------------------------------------------------------------------------------------------------------------------------- */

enum { FEW_HANDLES = 10, MANY_HANDLES = 1000 };

/* Buffers with an exported descriptor each, as librknnrt makes of all it has. */
static int export_more(int fd, unsigned from, unsigned to) {
  for (unsigned i = from; i < to; i++) {
    struct bo bo;

    if (bo_create(fd, &bo, 4096, RKNPU_MEM_NON_CONTIGUOUS, 0) || bo_export(&bo) < 0) return -1;
  }
  return 0;
}

/*
 * What a submit costs with few and with many exported handles. Two files take turns, so that whatever else the machine does meets both. The
 * job is one that ends by itself, but only the call that submits it is timed.
 */
static void submit_with_handles(void) {
  const struct npu_gemm shape = {.m = 4, .k = 32, .n = 32, .fp16 = 1, .seed = 4};
  static const unsigned handles[2] = {FEW_HANDLES, MANY_HANDLES};
  const unsigned count = 400 / scale;
  struct rlimit files = {4096, 4096};
  uint64_t times[2][400];
  struct gemm g[2];
  int fd[2];

  if (setrlimit(RLIMIT_NOFILE, &files)) return failed("handles: descriptors");
  for (unsigned k = 0; k < 2; k++) {
    fd[k] = npu_open_or_die();
    if (gemm_create(&g[k], fd[k], 0, &shape, 1) || export_more(fd[k], 0, handles[k])) return failed("handles");
  }
  for (unsigned i = 0; i < 2 * count; i++) {
    const unsigned k = i % 2;
    struct rknpu_submit submit;
    uint64_t start;

    gemm_prepare(&g[k], &submit, 1);
    submit.flags |= RKNPU_JOB_NONBLOCK | RKNPU_JOB_FENCE_OUT;
    start = now_ns();
    if (npu_submit(fd[k], &submit)) return failed("handles: submit");
    times[k][i / 2] = now_ns() - start;
    if (fence_wait(submit.fence_fd, NPU_TIMEOUT_MS) != 1) return failed("handles: job");
    close(submit.fence_fd);
  }
  report("submit_10_exported_handles", median(times[0], count) / 1000, "us");
  report("submit_1000_exported_handles", median(times[1], count) / 1000, "us");
  for (unsigned k = 0; k < 2; k++) {
    gemm_destroy(&g[k]);
    close(fd[k]);
  }
}

int main(int argc, char **argv) {
  struct rknpu_npud_device_info device;
  int fd;

  for (int i = 1; i < argc; i++) {
    if (i + 1 < argc && strcmp(argv[i], "--driver") == 0)
      driver = argv[++i];
    else if (strcmp(argv[i], "--quick") == 0)
      scale = 10;
    else {
      fprintf(stderr, "usage: rknpu-bench [--driver NAME] [--quick]\n");
      return 2;
    }
  }
  fd = npu_open_or_die();
  if (query_device(fd, &device) == 0) mmu = device.mmu == RKNPU_NPUD_MMU_BANK ? "bank" : "iommu";
  close(fd);
  ioctl_round_trip();
  smallest_job();
  switching();
  three_cores();
  iova_after_many();
  submit_with_handles();
  return failures ? 1 : 0;
}
