// SPDX-License-Identifier: Apache-2.0
/*
 * npud-board-check: what its parts share. A finding is one line "finding KEY = VALUE", then what was measured, what npud assumes and what follows.
 */
#ifndef NPUD_TESTS_KERNEL_BOARDCHECK_H
#define NPUD_TESTS_KERNEL_BOARDCHECK_H

#include <stdio.h>

#include "npu.h"

/* --- report: to the file and to the terminal --------------------------------------------------------------------------------------- */

int report_open(const char *path); /* 0, or -1 with errno */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report_file(const char *title, const char *path); /* its text, indented */
int report_close(void);

/* What can come out for one assumption. */
struct outcome {
  const char *value;
  const char *follows;
};
struct assumption {
  const char *key;     /* as the virtual board's option is called, where it has one */
  const char *assumed; /* the value that npud is made for, and why */
  struct outcome outcomes[4];
};
extern const struct assumption assumptions[];
extern const unsigned assumption_count;

/* `measured` is what was seen, as text. A value that no outcome has is a program error. */
void finding(const char *key, const char *value, const char *measured, ...) __attribute__((format(printf, 3, 4)));
/* Why nothing can be said. */
void not_known(const char *key, const char *why, ...) __attribute__((format(printf, 2, 3)));

/* --- what the driver noted (debugfs npud/observed) ----------------------------------------------------------------------------------- */

struct seen {
  unsigned count, running, data_addr, int_mask, int_raw, task_control, task_status;
  int stall;
  unsigned banks, mmu_status[2], mmu_dir[2];
};

bool observe_begin(void); /* false: not root, or a driver without it */
void observe_end(void);
void observe_also(unsigned what); /* 0, 2: try stalls in faults, 4: jobs without the core's number */
void observe_forget(void);
/* The core's line for "now", "start", "look", "end", "halt" or "reset"; false if there was no such moment. */
bool observe_core(unsigned core, const char *moment, struct seen *seen);
bool observe_version(unsigned core, unsigned *version, unsigned *number);
void observe_report(const char *title);
long driver_count(const char *name); /* a line of npud/state; -1 if it isn't there */

/* --- GEMM tasks that are not as they should be ------------------------------------------------------------------------------------------ */

struct probe {
  struct npu_gemm shape;
  unsigned tasks;
  unsigned data_banks;  /* 0: as many as are needed */
  unsigned reuse;       /* CBUF_CON0.DATA_REUSE of the first task */
  bool without_rdma;    /* no words for DPU_RDMA, and it isn't started */
  bool unmapped;        /* features lie where nothing is mapped */
  uint32_t other_seed;  /* features of this seed in memory, while the expected results are those of shape.seed */
};
struct result {
  int error;            /* 0, or the errno of the job */
  unsigned wrong, first_wrong_task, last_rows_wrong, results;
};

enum { PROBE_MS = 500 };
/* Runs it blocking on one core; false if it couldn't be set up. */
bool probe_run(int fd, const struct probe *probe, uint32_t core_mask, struct result *result);

/* --- steps -------------------------------------------------------------------------------------------------------------------------------- */

void steps_harmless(int fd, unsigned cores);
void steps_dangerous(int fd, unsigned cores);

#endif
