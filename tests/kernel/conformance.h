// SPDX-License-Identifier: Apache-2.0
/* The parts of rknpu-conformance. */
#ifndef NPUD_TESTS_KERNEL_CONFORMANCE_H
#define NPUD_TESTS_KERNEL_CONFORMANCE_H

#include <stdbool.h>

#include "npu.h"
#include "tap.h"

extern bool vendor; /* --driver vendor */

#define NPUD_ONLY()                                          \
  do {                                                       \
    if (vendor) SKIP("the vendor driver has no such thing"); \
  } while (0)

extern const struct test base_tests[], memory_tests[], job_tests[], sharing_tests[], power_tests[], line_tests[], npud_tests[], replay_tests[], observe_tests[], bounce_tests[];
extern const unsigned base_test_count, memory_test_count, job_test_count, sharing_test_count, power_test_count, line_test_count, npud_test_count,
    replay_test_count, observe_test_count, bounce_test_count;

#endif
