// SPDX-License-Identifier: Apache-2.0
/*
 * rknpu-faults [--count N] [--seed S] [--workers W] [--job-timeout MS]: every fault of the virtual board N times (default 200) in random
 * order, while W processes (default 4) compute on all cores. A job that is struck may take MS (default 1500) to be noticed; no other may take
 * as long, so the less the machine has to do, the shorter it can be.
 *
 * What must hold: nothing wedges (every job ends, with or without an error, within its deadline); no result is wrong without an error,
 * but for the two faults that no driver can see (a wrong bit, and an interrupt before the last write-back, whose results come right a
 * moment later), and those no oftener than they struck; an innocent's job fails no oftener than there were strikes; and at the end the
 * device holds nothing.
 *
 * Cores that are dead for good are not among the N: they are the last test, since only a reset of the board revives it.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baseline.h"
#include "board.h"
#include "npu.h"
#include "tap.h"

enum { MAX_WORKERS = 16, RECOVERY_MS = 30000, EARLY_US = 20000 };

struct outcome {
  uint64_t right, errors, wrong, late, hung;
  uint64_t trespasses; /* jobs that reached for memory which is not mapped, and were told so */
};

struct shared {
  volatile int stop;
  struct outcome outcomes[MAX_WORKERS];
  volatile uint64_t progress[MAX_WORKERS];
};

static unsigned count = 200;
static unsigned workers = 4;
static unsigned job_timeout_ms = 1500;
static uint64_t seed = 1;
static struct shared *shared;
static pid_t children[MAX_WORKERS];
static uint64_t strikes[VBOARD_FAULT_WRONG_BIT + 1];

/* --- a worker ------------------------------------------------------------------------------------------------------------------------ */

static void judge(unsigned me, struct gemm *g, int status) {
  struct outcome *outcome = &shared->outcomes[me];

  if (status == 0) {
    outcome->hung++;
  } else if (status < 0) {
    outcome->errors++;
  } else if (gemm_wrong(g) == 0) {
    outcome->right++;
  } else {
    sleep_ms(EARLY_US / 1000 * 5);
    if (gemm_wrong(g) == 0)
      outcome->late++;
    else
      outcome->wrong++;
  }
}

/* Runs a job whose command words are not mapped: it must fail, by a page fault or, if the core hangs, by its time. */
static void trespass(unsigned me, struct gemm *g, uint32_t mask) {
  struct rknpu_submit submit;

  gemm_task(g, 0)->regcmd_addr = 0xb0000000;
  gemm_prepare(g, &submit, mask);
  submit.timeout = job_timeout_ms;
  if (npu_submit(g->fd, &submit) == 0)
    shared->outcomes[me].wrong++;
  else
    shared->outcomes[me].trespasses++;
  gemm_task(g, 0)->regcmd_addr = g->data.iova;
}

static void work(unsigned me) {
  static const uint32_t masks[] = {0, 1, 2, 4, 0, 1, 2, 4, 3, 7};
  const struct npu_gemm chain = {.m = 8, .k = 96, .n = 32, .fp16 = 1, .seed = 1000 + me};
  struct gemm jobs[6];
  struct rng rng;
  const int fd = npu_open_or_die();

  rng_seed(&rng, seed * 31 + me);
  for (unsigned i = 0; i < 5; i++)
    if (gemm_small(&jobs[i], fd, (int)(i * 3 + me) % RKNPU_MAX_DOMAINS, i % 2, 100 * me + i)) _exit(3);
  if (gemm_create(&jobs[5], fd, 0, &chain, 6)) _exit(3);
  while (!shared->stop) {
    struct gemm *g = &jobs[rng_below(&rng, 6)];
    uint32_t mask = masks[rng_below(&rng, sizeof(masks) / sizeof(masks[0]))];
    int status;

    if (g->tasks < 3 && (mask == 3 || mask == 7)) mask = 1;
    if (g->tasks == 1 && rng_below(&rng, 8) == 0) trespass(me, g, mask);
    gemm_clear(g);
    if (rng_below(&rng, 2)) {
      const int fence = gemm_start(g, mask, job_timeout_ms, 0);

      if (fence >= 0) {
        status = fence_wait(fence, RECOVERY_MS);
        close(fence);
      } else {
        status = -errno;
      }
    } else {
      struct rknpu_submit submit;

      gemm_prepare(g, &submit, mask);
      submit.timeout = job_timeout_ms;
      status = npu_submit(fd, &submit) == 0 ? 1 : -errno;
    }
    judge(me, g, status);
    shared->progress[me]++;
    if (status == -ENODEV) break;
  }
  for (unsigned i = 0; i < 6; i++) gemm_destroy(&jobs[i]);
  _exit(0);
}

static bool workers_start(void) {
  memset(shared, 0, sizeof(*shared));
  for (unsigned i = 0; i < workers; i++) {
    children[i] = fork();
    if (children[i] < 0) return false;
    if (children[i] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      work(i);
    }
  }
  return true;
}

/* Every worker has to get two more jobs done: what was under way at a strike, and one begun after it. */
static bool workers_advance(void) {
  uint64_t goal[MAX_WORKERS];

  for (unsigned i = 0; i < workers; i++) goal[i] = shared->progress[i] + 2;
  for (unsigned i = 0; i < workers; i++) {
    unsigned waited = 0;

    for (; shared->progress[i] < goal[i] && waited < RECOVERY_MS * 2; waited += 2) sleep_ms(2);
    if (shared->progress[i] < goal[i]) {
      tap_note("worker %u gets no job done any more", i);
      return false;
    }
  }
  return true;
}

static bool workers_stop(struct outcome *sum) {
  bool good = true;

  shared->stop = 1;
  memset(sum, 0, sizeof(*sum));
  for (unsigned i = 0; i < workers; i++) {
    int status = -1;
    unsigned waited = 0;

    while (waitpid(children[i], &status, WNOHANG) == 0 && waited++ < 4 * RECOVERY_MS / 10) sleep_ms(10);
    if (status != 0) {
      kill(children[i], SIGKILL);
      tap_note("worker %u ended with status 0x%x", i, (unsigned)status);
      good = false;
    }
    sum->right += shared->outcomes[i].right;
    sum->errors += shared->outcomes[i].errors;
    sum->wrong += shared->outcomes[i].wrong;
    sum->late += shared->outcomes[i].late;
    sum->hung += shared->outcomes[i].hung;
    sum->trespasses += shared->outcomes[i].trespasses;
  }
  return good;
}

/* --- strikes --------------------------------------------------------------------------------------------------------------------------- */

static uint32_t argument_of(enum vboard_fault kind, struct rng *rng) {
  switch (kind) {
    case VBOARD_FAULT_STALL:
      return rng_below(rng, 4);
    case VBOARD_FAULT_IRQ_LATE:
      return 1000 + rng_below(rng, 50000);
    case VBOARD_FAULT_IRQ_EARLY:
      return 1000 + rng_below(rng, EARLY_US - 1000);
    case VBOARD_FAULT_IRQ_SPURIOUS:
      return 1u << rng_below(rng, 12);
    default:
      return 0;
  }
}

/* Whether the job that is struck leaves its core without any progress. */
static bool is_lethal(enum vboard_fault kind) {
  return kind == VBOARD_FAULT_DISPATCH_DROP || kind == VBOARD_FAULT_STALL || kind == VBOARD_FAULT_DEAD_UNTIL_RESET ||
         kind == VBOARD_FAULT_UNMAPPED_HANGS;
}

/* Some jobs of our own, until one succeeds on that core: a driver is right to give a core up that fails again and again. */
static void let_succeed(struct gemm *g, uint32_t core) {
  for (int i = 0; i < 20 && gemm_run(g, 1u << core) != 0; i++) {
  }
}

/* Strikes once and waits until it has; a fault that finds no victim (a stall after the last task, say) is disarmed again. */
static void strike(enum vboard_fault kind, struct rng *rng, struct gemm *own) {
  static unsigned in_a_row[NPU_CORES];
  const uint32_t fired = board_fired();
  /* With its own banks the driver never does what this fault strikes at. */
  const unsigned patience = kind == VBOARD_FAULT_MMU_NO_READBACK ? 10 : 150;
  const uint32_t target = kind == VBOARD_FAULT_MMU_NO_READBACK ? rng_below(rng, VBOARD_BANKS) : rng_below(rng, NPU_CORES);
  unsigned waited = 0;

  if (is_lethal(kind) && ++in_a_row[target] > 2) {
    let_succeed(own, target);
    in_a_row[target] = 1;
  }
  board_fault(kind, target, argument_of(kind, rng), 1);
  while (board_fired() == fired && waited++ < patience) sleep_ms(2);
  strikes[kind] += board_fired() - fired;
  board_clear_faults();
}

static void test_all_faults(void) {
  static const enum vboard_fault kinds[] = {VBOARD_FAULT_DISPATCH_DROP, VBOARD_FAULT_STALL,     VBOARD_FAULT_IRQ_LATE,
                                            VBOARD_FAULT_IRQ_LOST,      VBOARD_FAULT_IRQ_SPURIOUS, VBOARD_FAULT_IRQ_EARLY,
                                            VBOARD_FAULT_MMU_NO_READBACK, VBOARD_FAULT_DEAD_UNTIL_RESET, VBOARD_FAULT_UNMAPPED_HANGS,
                                            VBOARD_FAULT_WRONG_BIT};
  enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };
  const int fd = npu_open_or_die();
  struct rknpu_npud_device_info device_before, device;
  uint32_t driver_faults;
  unsigned left[KINDS], total = 0, done = 0;
  uint64_t struck = 0;
  struct baseline before;
  struct outcome sum;
  struct gemm own;
  struct rng rng;

  if (!board_present()) SKIP("no virtual board");
  REQUIRE(gemm_small(&own, fd, 9, true, 99) == 0);
  driver_faults = board_driver_faults();
  REQUIRE(query_device(fd, &device_before) == 0 && baseline_take(fd, &before));
  shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED && workers_start());
  rng_seed(&rng, seed);
  for (unsigned i = 0; i < KINDS; i++) total += left[i] = count;
  tap_note("seed %llu, %u strikes, %u workers", (unsigned long long)seed, total, workers);
  while (done < total) {
    unsigned pick = rng_below(&rng, total - done), kind = 0;

    while (pick >= left[kind]) pick -= left[kind++];
    left[kind]--;
    done++;
    strike(kinds[kind], &rng, &own);
    /* Half of the time the next strike comes while the driver still recovers from this one. */
    if (rng_below(&rng, 2)) REQUIRE(workers_advance(), "(after %u strikes; the last was %s)", done, board_fault_name(kinds[kind]));
    if (done % 100 == 0) tap_note("%u strikes", done);
  }
  REQUIRE(workers_advance(), "(at the end)");
  CHECK(workers_stop(&sum));
  for (unsigned i = 0; i < KINDS; i++) {
    tap_note("%s: struck %llu times", board_fault_name(kinds[i]), (unsigned long long)strikes[kinds[i]]);
    struck += strikes[kinds[i]];
  }
  tap_note("jobs right %llu, failed with an error %llu, right a moment later %llu, wrong %llu, without end %llu", (unsigned long long)sum.right,
           (unsigned long long)sum.errors, (unsigned long long)sum.late, (unsigned long long)sum.wrong, (unsigned long long)sum.hung);
  tap_note("jobs that reached beyond their memory and failed %llu", (unsigned long long)sum.trespasses);
  CHECK(sum.right > workers * 10);
  CHECK(sum.trespasses > 0);
  /* Each fault did strike, but for the one that the driver with its own banks gives no occasion to. */
  for (unsigned i = 0; i < KINDS; i++)
    CHECK(strikes[kinds[i]] > 0 || (kinds[i] == VBOARD_FAULT_MMU_NO_READBACK && device_before.mmu == RKNPU_NPUD_MMU_BANK), "(%s)",
          board_fault_name(kinds[i]));
  CHECK_EQ(sum.hung, 0);
  CHECK(sum.wrong <= strikes[VBOARD_FAULT_WRONG_BIT], "(%llu wrong results, %llu wrong bits)", (unsigned long long)sum.wrong,
        (unsigned long long)strikes[VBOARD_FAULT_WRONG_BIT]);
  CHECK(sum.late <= strikes[VBOARD_FAULT_IRQ_EARLY]);
  CHECK(sum.errors <= struck, "(%llu failed jobs, %llu strikes: innocents failed)", (unsigned long long)sum.errors, (unsigned long long)struck);
  CHECK(baseline_restored(fd, &before));
  REQUIRE(query_device(fd, &device) == 0);
  CHECK_EQ(device.flags, 0);
  CHECK_EQ(board_driver_faults(), driver_faults);
  tap_note("resets %llu, time-outs %llu", (unsigned long long)(device.resets - device_before.resets),
           (unsigned long long)(device.timeouts - device_before.timeouts));
}

static void test_everything_works_afterwards(void) {
  const int fd = npu_open_or_die();

  for (int domain = 0; domain < RKNPU_MAX_DOMAINS; domain++) {
    struct gemm g;

    REQUIRE(gemm_small(&g, fd, domain, true, 500 + (uint32_t)domain) == 0);
    for (unsigned core = 0; core < NPU_CORES; core++) CHECK_EQ(gemm_run(&g, 1u << core), 0);
    gemm_destroy(&g);
  }
}

/* The same fault again and again on one core, nothing else going on: recovery does not wear out. */
static void test_one_fault_in_a_row(void) {
  static const enum vboard_fault kinds[] = {VBOARD_FAULT_STALL, VBOARD_FAULT_DISPATCH_DROP, VBOARD_FAULT_DEAD_UNTIL_RESET};
  const int fd = npu_open_or_die();
  struct gemm g;

  if (!board_present()) SKIP("no virtual board");
  REQUIRE(gemm_small(&g, fd, 3, true, 600) == 0);
  for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
    for (unsigned round = 0; round < 4; round++) {
      int fence;

      board_fault(kinds[i], 1, 0, 1);
      fence = gemm_start(&g, 2, 200, 0);
      REQUIRE(fence >= 0, "(%s, round %u: %s)", board_fault_name(kinds[i]), round, strerror(errno));
      CHECK(fence_wait(fence, RECOVERY_MS) != 0, "(%s)", board_fault_name(kinds[i]));
      close(fence);
      board_clear_faults();
      CHECK_EQ(gemm_run(&g, 2), 0);
    }
  }
}

/* Jobs on a core that is dead for good: each ends with an error. Returns the last one. */
static int wear_out(struct gemm *g, uint32_t core) {
  int last = 0;

  for (unsigned round = 0; round < 12; round++) {
    struct rknpu_submit submit;

    gemm_prepare(g, &submit, 1u << core);
    submit.timeout = 200;
    CHECK(npu_submit(g->fd, &submit) == -1);
    last = errno;
    CHECK(last == ETIMEDOUT || last == EIO || last == ENODEV, "(%s)", strerror(last));
    if (last == ENODEV) break;
  }
  return last;
}

/* One dead core is given up and the others go on; when all are dead, the device says so at once. */
static void test_dead_cores(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_device_info device;
  struct gemm g;

  if (!board_present()) SKIP("no virtual board");
  REQUIRE(gemm_small(&g, fd, 0, true, 700) == 0);
  board_fault(VBOARD_FAULT_DEAD, 2, 0, 1);
  wear_out(&g, 2);
  REQUIRE(query_device(fd, &device) == 0);
  if (!(device.flags & RKNPU_NPUD_DEVICE_DEAD)) {
    for (int i = 0; i < 6; i++) CHECK_EQ(gemm_run(&g, (uint32_t[]){0, 1, 2}[i % 3]), 0);
    for (uint32_t core = 0; core < 2; core++) {
      board_fault(VBOARD_FAULT_DEAD, core, 0, 1);
      wear_out(&g, core);
    }
  }
  REQUIRE(query_device(fd, &device) == 0);
  CHECK(device.flags & RKNPU_NPUD_DEVICE_DEAD);
  for (uint32_t mask = 0; mask < 5; mask += 1 + (mask == 2)) CHECK(gemm_run(&g, mask) == -1 && errno == ENODEV, "(mask %u: %s)", mask, strerror(errno));
}

int main(int argc, char **argv) {
  static struct test tests[] = {
      {"faults-in-random-order", test_all_faults, 0},
      {"faults-in-a-row", test_one_fault_in_a_row, 300},
      {"everything-works-afterwards", test_everything_works_afterwards, 0},
      {"dead-cores-are-said-to-be-dead", test_dead_cores, 300},
  };
  const char *pattern = NULL;

  for (int i = 1; i < argc; i++) {
    if (i + 1 < argc && strcmp(argv[i], "--count") == 0)
      count = (unsigned)strtoul(argv[++i], NULL, 0);
    else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
      seed = strtoull(argv[++i], NULL, 0);
    else if (i + 1 < argc && strcmp(argv[i], "--workers") == 0)
      workers = (unsigned)strtoul(argv[++i], NULL, 0);
    else if (i + 1 < argc && strcmp(argv[i], "--job-timeout") == 0)
      job_timeout_ms = (unsigned)strtoul(argv[++i], NULL, 0);
    else if (argv[i][0] != '-')
      pattern = argv[i];
    else {
      fprintf(stderr, "usage: rknpu-faults [--count N] [--seed S] [--workers W] [--job-timeout MS] [PATTERN]\n");
      return 2;
    }
  }
  if (!count || !workers || workers > MAX_WORKERS) {
    fprintf(stderr, "--count must be above 0, --workers 1 to %d\n", MAX_WORKERS);
    return 2;
  }
  if (job_timeout_ms < 100 || job_timeout_ms > 10000) {
    fprintf(stderr, "--job-timeout must be 100 to 10000\n");
    return 2;
  }
  tests[0].seconds = 300 + count * 60;
  return tap_run(tests, sizeof(tests) / sizeof(tests[0]), pattern, NULL);
}
