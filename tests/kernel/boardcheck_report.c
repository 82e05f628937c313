// SPDX-License-Identifier: Apache-2.0
/* The report, what npud assumes of a board, and what follows from each way that it can be. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "boardcheck.h"

static FILE *out;

const struct assumption assumptions[] = {
    {"jobs", "right: GEMMs give the results that integer arithmetic says",
     {{"right", "the driver and its command words work on this board"},
      {"wrong", "nothing else here means much: report this file"},
      {"fail", "jobs don't end as the driver expects: report this file, with the kernel's log"}}},
    {"task-status", "modulo: the counter is 0 again when a job is done (completion needs none of the three)",
     {{"modulo", "as dumps of RK3588 boards show it"},
      {"count", "the counter ends at the number of tasks; the driver learns that at the first job"},
      {"stuck", "the counter means nothing here; the driver learns that, and completes by interrupt bits"}}},
    {"int-raw", "done-bits: bits 31:30 of INT_RAW are set in a core that has worked, and mean no stall",
     {{"done-bits", "as measured by others; the driver reads nothing from them"}, {"plain", "they are clear; the driver reads nothing from them"}}},
    {"reset-values", "silicon: after a reset BASE_ADDRESS is 1 and TASK_STATUS 0x5000",
     {{"silicon", "as dumps of RK3588 boards show it"}, {"zero", "the driver writes all that it needs at each start"}}},
    {"s-status", "running: S_STATUS of CNA, CORE and DPU tells that a block works",
     {{"running", "a late interrupt can be told from a job that still runs"},
      {"zero", "it is always 0; the driver has only the counter to object to an early interrupt"}}},
    {"short-height", "wrong: 1x1 tasks of fewer than four rows are never emitted",
     {{"wrong", "the planner pads to four rows, as it must"}, {"ok", "fewer than four rows would work here; the device's canary finds out by itself"}}},
    {"chained-int", "accumulate: integer tasks go one to a job",
     {{"accumulate", "the second of two chained integer tasks has the first one's sums in it"},
      {"clear", "integer tasks can be chained; the device's canary finds out by itself"}}},
    {"fp16-k128", "refuse: fp16 GEMMs with K = 128 are split",
     {{"refuse", "the planner's split is needed"}, {"ok", "the hole at K = 128 isn't there; the split costs a little and is right"}}},
    {"cbuf", "garbage: a row takes whole entries of 64 bytes, and rows beyond their banks are wrong",
     {{"garbage", "the closed form of the need holds"},
      {"strict", "such a task never ends; the planner never emits one"},
      {"off", "the need is smaller than the closed form says; the planner wastes a bank at most"}}},
    {"mrdma", "needed: convolutions have words for DPU_RDMA",
     {{"needed", "programs that leave them out (mtx512's way) hang here"}, {"optional", "both ways run"}}},
    {"cbuf-state", "survives: operands stay in the CBUF from job to job",
     {{"survives", "the driver must scrub a core that changes its owner, and does"}, {"cleared", "a job begins with a clean CBUF"}}},
    {"reset-cbuf", "keeps: a reset leaves the CBUF as it is",
     {{"keeps", "a reset is no scrub; the driver's own task is"}, {"clears", "a reset would do as a scrub"}}},
    {"core-pointer", "required: S_POINTER must name cores 1 and 2",
     {{"required", "the driver writes it at each start"}, {"optional", "jobs run without as well"}}},
    {"fault", "reported: an access to an unmapped address ends its job with EFAULT, and only it",
     {{"reported", "isolation works"}, {"silent", "the job ended otherwise: the MMU or its interrupt isn't as assumed; report this file"}}},
    {"stall-in-fault", "fails: an MMU that stands in a fault can't be stalled",
     {{"fails", "the core must be reset before its MMU, as the driver does"}, {"works", "the order is free here"}}},
    {"reset-mmu", "clears: a core's reset takes its MMU's registers along",
     {{"clears", "the MMU is programmed anew after each reset, as the driver does"}, {"keeps", "the driver programs it anew all the same"}}},
    {"spaces", "apart: two spaces and two processes in turn get their own results",
     {{"apart", "switching address spaces works"}, {"mixed", "results of one were found in the other: report this file, don't share this NPU"}}},
};
const unsigned assumption_count = sizeof(assumptions) / sizeof(assumptions[0]);

int report_open(const char *path) {
  out = fopen(path, "we");
  return out ? 0 : -1;
}

static void both(const char *format, va_list arguments) {
  va_list again;

  va_copy(again, arguments);
  vprintf(format, arguments);
  fflush(stdout);
  vfprintf(out, format, again);
  fflush(out); /* a board that hangs in the next step leaves what came before */
  va_end(again);
}

void report(const char *format, ...) {
  va_list arguments;

  va_start(arguments, format);
  both(format, arguments);
  va_end(arguments);
}

void report_file(const char *title, const char *path) {
  char text[8192];
  char *rest = text, *line;
  const int length = read_file(path, text, sizeof(text) - 1);

  if (length < 0) {
    report("%s: %s: %s\n", title, path, strerror(errno));
    return;
  }
  report("%s:\n", title);
  while ((line = strsep(&rest, "\n")))
    if (*line) report("    %s\n", line);
}

int report_close(void) { return fclose(out); }

static const struct assumption *lookup(const char *key) {
  for (unsigned i = 0; i < assumption_count; i++)
    if (strcmp(assumptions[i].key, key) == 0) return &assumptions[i];
  abort();
}

void finding(const char *key, const char *value, const char *measured, ...) {
  const struct assumption *const a = lookup(key);
  va_list arguments;

  for (unsigned i = 0; i < sizeof(a->outcomes) / sizeof(a->outcomes[0]) && a->outcomes[i].value; i++) {
    if (strcmp(a->outcomes[i].value, value)) continue;
    report("\nfinding %s = %s%s\n  measured  ", key, value, i ? "  (DEVIATES)" : "");
    va_start(arguments, measured);
    both(measured, arguments);
    va_end(arguments);
    report("\n  assumed   %s\n  follows   %s\n", a->assumed, a->outcomes[i].follows);
    return;
  }
  abort();
}

void not_known(const char *key, const char *why, ...) {
  const struct assumption *const a = lookup(key);
  va_list arguments;

  report("\nfinding %s = unknown\n  measured  nothing: ", key);
  va_start(arguments, why);
  both(why, arguments);
  va_end(arguments);
  report("\n  assumed   %s\n", a->assumed);
}
