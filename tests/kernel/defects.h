// SPDX-License-Identifier: Apache-2.0
/* The parts of rknpu-defects. */
#ifndef NPUD_TESTS_KERNEL_DEFECTS_H
#define NPUD_TESTS_KERNEL_DEFECTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "baseline.h"
#include "board.h"
#include "npu.h"
#include "tap.h"

enum { STALL_TIMEOUT_MS = 300 };

extern const struct test space_tests[];
extern const unsigned space_test_count;
extern const struct test job_tests[];
extern const unsigned job_test_count;
extern const struct test security_tests[];
extern const unsigned security_test_count;
extern const struct test isolation_tests[];
extern const unsigned isolation_test_count;
extern const struct test race_tests[];
extern const unsigned race_test_count;
extern const struct test silicon_tests[];
extern const unsigned silicon_test_count;
extern const struct test power_tests[];
extern const unsigned power_test_count;

#define NEEDS_BOARD() \
  do {                \
    if (!board_present()) SKIP("no virtual board: its faults are needed"); \
  } while (0)

/* Forks a child that runs `body` and then stays until it is killed; returns when the body is through. A body that returns false
   makes this return -1. */
pid_t child_start(bool (*body)(void *), void *argument);
void child_kill(pid_t child);
/* Forks a child that runs `body` and returns whether that was true. */
bool child_run(bool (*body)(void *), void *argument);
/* Every address space of a fresh file on every core computes right. */
bool all_spaces_work(void);
/* A driver may see a stall before the time is over, then it is an I/O error. */
bool core_failed(int status);
void wait_for_strike(uint32_t fired_before);
/* A number of debugfs' npud/state, -1 if it isn't there. */
long long state_number(const char *name);

#endif
