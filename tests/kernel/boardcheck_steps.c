// SPDX-License-Identifier: Apache-2.0
/* The walk over a board, from what can't hurt to what hangs cores. Each step ends with a finding or says why there is none. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "boardcheck.h"

enum { CHAIN = 8, TRIES = 5, TURNS = 50, MANY = 300, LONG_MACS = 200000000, MMU_PAGING = 1 };

static const struct npu_gemm kSmall = {.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = 11};

static bool right(int fd, uint32_t core_mask, bool fp16) {
  struct probe probe = {.shape = kSmall, .tasks = 1};
  struct result result;

  probe.shape.fp16 = fp16;
  return probe_run(fd, &probe, core_mask, &result) && !result.error && !result.wrong;
}

/* After what may have left a core hanging. */
static void still_works(int fd, const char *after) {
  if (!right(fd, 1, true)) report("\nafter %s a good job on core 0 fails\n", after);
}

static const char *outcome_of(const struct result *result, char *text, size_t size) {
  if (result->error)
    snprintf(text, size, "the job ended with %s", strerror(result->error));
  else
    snprintf(text, size, "%u of %u results are wrong, %u of them in the lower half", result->wrong, result->results, result->last_rows_wrong);
  return text;
}

/* --- without --yes -------------------------------------------------------------------------------------------------------------------------- */

static bool step_jobs(int fd, unsigned cores) {
  unsigned good = 0;

  for (unsigned core = 0; core < cores; core++)
    for (int fp16 = 0; fp16 < 2; fp16++) {
      struct probe probe = {.shape = kSmall, .tasks = 1};
      struct result result = {0};
      char text[128];

      probe.shape.fp16 = fp16;
      if (!probe_run(fd, &probe, 1u << core, &result) || result.error) {
        finding("jobs", "fail", "core %u, %s: %s", core, fp16 ? "fp16" : "int8", outcome_of(&result, text, sizeof(text)));
        return false;
      }
      if (result.wrong) {
        finding("jobs", "wrong", "core %u, %s: %s", core, fp16 ? "fp16" : "int8", outcome_of(&result, text, sizeof(text)));
        return false;
      }
      good++;
    }
  finding("jobs", "right", "%u jobs on %u cores, int8 and fp16", good, cores);
  return true;
}

static void step_chain(int fd) {
  const struct probe probe = {.shape = {.m = 64, .k = 512, .n = 64, .fp16 = 1, .seed = 12}, .tasks = CHAIN};
  struct result result = {.error = EAGAIN};
  struct seen now, start, end;
  char text[128];
  unsigned tasks;

  observe_core(0, "now", &now);
  /* A driver that waited for another counter learns from a few jobs what this one does. */
  for (int i = 0; i < TRIES && result.error; i++) {
    observe_forget();
    if (!probe_run(fd, &probe, 1, &result)) return;
    if (result.error) report("\ntry %d of a chain of %d tasks: %s\n", i + 1, CHAIN, outcome_of(&result, text, sizeof(text)));
  }
  if (result.error || result.wrong || !observe_core(0, "end", &end)) {
    not_known("task-status", "a chain of %d fp16 tasks didn't end well: %s", CHAIN, outcome_of(&result, text, sizeof(text)));
    return;
  }
  observe_core(0, "start", &start);
  tasks = end.task_status & 0xfff;
  if (tasks == 0 || tasks == CHAIN || tasks == 1)
    finding("task-status", tasks == 0 ? "modulo" : tasks == 1 ? "stuck" : "count", "TASK_STATUS 0x%x right after the start, 0x%x at the end of %d tasks",
            start.task_status, end.task_status, CHAIN);
  else
    not_known("task-status", "TASK_STATUS 0x%x at the end of %d tasks fits no report", end.task_status, CHAIN);
  if (end.int_raw >> 30 == 3 || end.int_raw >> 30 == 0)
    finding("int-raw", end.int_raw >> 30 ? "done-bits" : "plain", "INT_RAW 0x%x before, 0x%x at the end", now.int_raw, end.int_raw);
  else
    not_known("int-raw", "INT_RAW 0x%x before, 0x%x at the end", now.int_raw, end.int_raw);
}

/* A long job, looked at while it surely runs. */
static void step_status(int fd) {
  struct seen now, start, look;
  unsigned running = 0, looks = 0;
  struct gemm g;

  observe_core(0, "now", &now);
  observe_forget();
  if (gemm_long(&g, fd, 0, LONG_MACS, 13)) {
    not_known("s-status", "no memory for a long job");
    return;
  }
  for (int i = 0; i < TRIES && !(running & ~now.running); i++) {
    const int bad = gemm_run(&g, 1);

    if (bad) report("\ntry %d of a long job of %u tasks: %s\n", i + 1, g.tasks, bad < 0 ? strerror(errno) : "wrong results");
    observe_core(0, "start", &start);
    observe_core(0, "look", &look);
    running = start.running | look.running;
    looks = start.count + look.count;
  }
  gemm_destroy(&g);
  finding("s-status", running & ~now.running ? "running" : "zero", "S_STATUS of CNA, CORE and DPU together: 0x%x idle, 0x%x in %u looks at work", now.running,
          running, looks);
}

static void step_many(int fd, unsigned cores) {
  const long lost = driver_count("lost_irqs"), spurious = driver_count("spurious_irqs");
  const uint64_t from = now_ns();
  unsigned bad = 0;
  struct gemm g;

  if (gemm_create(&g, fd, 0, &kSmall, 1)) return;
  for (unsigned i = 0; i < MANY; i++) bad += gemm_run(&g, 1u << i % cores) != 0;
  report("\n%d jobs one after the other: %u bad, %llu us each, %ld interrupts lost, %ld spurious\n", MANY, bad,
         (unsigned long long)((now_ns() - from) / 1000 / MANY), driver_count("lost_irqs") - lost, driver_count("spurious_irqs") - spurious);
  gemm_destroy(&g);
}

static unsigned turns(int fd, int domains, uint32_t seed) {
  unsigned bad = 0;
  struct gemm g[2];

  for (int d = 0; d < domains; d++)
    if (gemm_small(&g[d], fd, d, true, seed + (uint32_t)d)) return TURNS;
  for (int i = 0; i < TURNS; i++) bad += gemm_run(&g[i % domains], 1) != 0;
  for (int d = 0; d < domains; d++) gemm_destroy(&g[d]);
  return bad;
}

static void step_spaces(int fd) {
  const long before = driver_count("switches");
  const unsigned alone = turns(fd, 2, 21);
  unsigned both;
  int status = 0;
  const pid_t child = fork();

  if (child == 0) {
    const int own = npu_open(NPU_RENDER);

    _exit(own < 0 ? TURNS : (int)turns(own, 2, 31));
  }
  both = turns(fd, 2, 41);
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
    not_known("spaces", "no second process could be run");
    return;
  }
  both += (unsigned)WEXITSTATUS(status);
  finding("spaces", alone + both ? "mixed" : "apart", "%u of %d jobs bad in two spaces of one process, %u of %d in two processes; %ld switches", alone, TURNS,
          both, 2 * TURNS, driver_count("switches") - before);
}

void steps_harmless(int fd, unsigned cores) {
  unsigned version, number;

  for (unsigned core = 0; core < cores; core++)
    if (observe_version(core, &version, &number)) report("core %u: VERSION 0x%x, VERSION_NUM 0x%x\n", core, version, number);
  observe_report("registers before any job of this program");
  if (!step_jobs(fd, cores)) return;
  step_chain(fd);
  step_status(fd);
  step_many(fd, cores);
  step_spaces(fd);
}

/* --- with --yes ----------------------------------------------------------------------------------------------------------------------------- */

/* What a probe that is right, wrong or fails means. */
static void encoding(int fd, const char *key, const struct probe *probe, const char *if_right, const char *if_wrong, const char *if_failed) {
  struct result result;
  char text[128];

  if (!probe_run(fd, probe, 1, &result)) {
    not_known(key, "no memory for the job");
    return;
  }
  finding(key, result.error ? if_failed : result.wrong ? if_wrong : if_right, "%s", outcome_of(&result, text, sizeof(text)));
  if (result.error) still_works(fd, key);
}

static void step_encodings(int fd) {
  const struct probe short_rows = {.shape = {.m = 2, .k = 64, .n = 32, .fp16 = 1, .seed = 51}, .tasks = 1};
  const struct probe k128 = {.shape = {.m = 8, .k = 128, .n = 32, .fp16 = 1, .seed = 53}, .tasks = 1};
  /* 13 entries a row: 6.1 banks, where the bytes alone would fit in six (rockchip-npu-notes, cbuf-bank-slack.md). */
  const struct probe slack = {.shape = {.m = 240, .k = 800, .n = 32, .seed = 54}, .tasks = 1, .data_banks = 6};
  const struct probe bare = {.shape = kSmall, .tasks = 1, .without_rdma = true};
  const struct probe chain = {.shape = {.m = 8, .k = 64, .n = 32, .seed = 52}, .tasks = 2};
  struct result result;
  char text[128];

  encoding(fd, "short-height", &short_rows, "ok", "wrong", "wrong");
  encoding(fd, "fp16-k128", &k128, "ok", "refuse", "refuse");
  encoding(fd, "cbuf", &slack, "off", "garbage", "strict");
  encoding(fd, "mrdma", &bare, "optional", "needed", "needed");
  if (!probe_run(fd, &chain, 1, &result) || result.error || (result.wrong && result.first_wrong_task == 0))
    not_known("chained-int", "%s", outcome_of(&result, text, sizeof(text)));
  else
    finding("chained-int", result.wrong ? "accumulate" : "clear", "of two chained int8 tasks: %s", outcome_of(&result, text, sizeof(text)));
}

/* Whether the features of the job before are still in the CBUF: a job with DATA_REUSE then has the results of those, not of its own. */
static bool leftovers(int fd, bool reset_between, char *text, size_t size) {
  const struct probe first = {.shape = kSmall, .tasks = 1};
  const struct probe second = {.shape = kSmall, .tasks = 1, .reuse = 1, .other_seed = 77};
  struct result result;

  if (!probe_run(fd, &first, 1, &result) || result.error) return false;
  if (reset_between) {
    write_file("/sys/kernel/debug/rknpu/reset", "1");
    write_file("/sys/kernel/debug/npud_rknpu/reset", "1");
    sleep_ms(50);
  }
  if (!probe_run(fd, &second, 1, &result)) return false;
  outcome_of(&result, text, size);
  return !result.error && !result.wrong;
}

static void step_cbuf(int fd) {
  char text[128] = "the first job failed";
  const bool survives = leftovers(fd, false, text, sizeof(text));

  finding("cbuf-state", survives ? "survives" : "cleared", "a job that reuses the features of the one before: %s", text);
  still_works(fd, "cbuf-state");
  if (!survives) {
    not_known("reset-cbuf", "the CBUF doesn't outlive a job here");
    return;
  }
  finding("reset-cbuf", leftovers(fd, true, text, sizeof(text)) ? "keeps" : "clears", "the same with a reset in between: %s", text);
  still_works(fd, "reset-cbuf");
}

static void step_core_pointer(int fd, unsigned cores) {
  const struct probe probe = {.shape = kSmall, .tasks = 1};
  struct result result;
  char text[128];

  if (cores < 2) {
    not_known("core-pointer", "there is one core only");
    return;
  }
  observe_also(4);
  if (probe_run(fd, &probe, 2, &result))
    finding("core-pointer", result.error || result.wrong ? "required" : "optional", "core 1 without its number: %s", outcome_of(&result, text, sizeof(text)));
  observe_also(0);
  if (!right(fd, 2, true)) report("\nafter core-pointer a good job on core 1 fails\n");
}

static void step_fault(int fd) {
  const struct probe probe = {.shape = kSmall, .tasks = 1, .unmapped = true};
  struct seen halt, reset;
  struct result result;
  char text[128];

  observe_forget();
  observe_also(2);
  if (!probe_run(fd, &probe, 1, &result)) return;
  observe_also(0);
  finding("fault", result.error == EFAULT ? "reported" : "silent", "features at an unmapped address: %s", outcome_of(&result, text, sizeof(text)));
  still_works(fd, "a page fault");
  if (!observe_core(0, "halt", &halt) || !observe_core(0, "reset", &reset)) {
    not_known("reset-values", "the driver reset nothing: no reset lines?");
    not_known("stall-in-fault", "no reset was seen");
    not_known("reset-mmu", "no reset was seen");
    return;
  }
  if ((reset.data_addr == 1 && reset.task_status == 0x5000) || (!reset.data_addr && !reset.task_status))
    finding("reset-values", reset.data_addr ? "silicon" : "zero", "after a reset BASE_ADDRESS 0x%x, INT_MASK 0x%x, INT_RAW 0x%x, TASK_STATUS 0x%x",
            reset.data_addr, reset.int_mask, reset.int_raw, reset.task_status);
  else
    not_known("reset-values", "BASE_ADDRESS 0x%x, INT_MASK 0x%x, INT_RAW 0x%x, TASK_STATUS 0x%x fit no report", reset.data_addr, reset.int_mask,
              reset.int_raw, reset.task_status);
  if (!halt.banks) {
    not_known("stall-in-fault", "the kernel's IOMMU driver has the MMU: load with the bank overlay");
    not_known("reset-mmu", "the kernel's IOMMU driver has the MMU: load with the bank overlay");
    return;
  }
  if (halt.stall)
    finding("stall-in-fault", halt.stall > 0 ? "works" : "fails", "MMU status 0x%x in the fault; a stall %s", halt.mmu_status[0],
            halt.stall > 0 ? "became active" : "wasn't active after 2 ms");
  else
    not_known("stall-in-fault", "MMU status 0x%x: no fault stood when the core was reset", halt.mmu_status[0]);
  if (halt.mmu_status[0] & MMU_PAGING)
    finding("reset-mmu", reset.mmu_status[0] & MMU_PAGING ? "keeps" : "clears", "MMU status 0x%x, directory 0x%x before; 0x%x, 0x%x after",
            halt.mmu_status[0], halt.mmu_dir[0], reset.mmu_status[0], reset.mmu_dir[0]);
  else
    not_known("reset-mmu", "paging was off before (status 0x%x)", halt.mmu_status[0]);
}

void steps_dangerous(int fd, unsigned cores) {
  if (!right(fd, 1, true)) {
    report("\njobs don't work: the steps that hang cores are left out\n");
    return;
  }
  step_fault(fd);
  step_cbuf(fd);
  step_encodings(fd);
  step_core_pointer(fd, cores);
  observe_report("registers at the end");
}
