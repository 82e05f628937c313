// SPDX-License-Identifier: Apache-2.0
/* Interrupts on the virtual board: each core has a line of its own, and a handler is called for its core only. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "board.h"
#include "conformance.h"

enum { JOBS = 5 };
#define CONTROLLER "npud-vboard"

struct line {
  unsigned handlers; /* of the NPU's driver */
  unsigned long long count;
};

/* The board's lines as /proc/interrupts shows them: "45:  12  3  npud-vboard  0 Level  fdab9000.iommu, rknpu". */
static void read_lines(struct line lines[NPU_CORES]) {
  FILE *const file = fopen("/proc/interrupts", "r");
  char text[1024], *at, *end;

  memset(lines, 0, NPU_CORES * sizeof(*lines));
  REQUIRE(file != NULL, "(%s)", strerror(errno));
  while (fgets(text, sizeof(text), file)) {
    char *const controller = strstr(text, CONTROLLER);
    unsigned core;

    if (!controller || sscanf(controller + strlen(CONTROLLER), "%u", &core) != 1 || core >= NPU_CORES) continue;
    for (at = controller; (at = strstr(at, "rknpu")) != NULL; at++) lines[core].handlers++;
    at = strchr(text, ':');
    for (at = at ? at + 1 : controller; at < controller; at = end) {
      const unsigned long long count = strtoull(at, &end, 10);

      if (end == at) break;
      lines[core].count += count;
    }
  }
  fclose(file);
}

static void test_each_core_has_a_line_of_its_own(void) {
  const int fd = npu_open_or_die();
  struct line before[NPU_CORES], after[NPU_CORES];
  struct gemm g;
  uint32_t faults;

  if (!board_present()) SKIP("no virtual board");
  REQUIRE(gemm_small(&g, fd, 0, true, 410) == 0, "(%s)", strerror(errno));
  faults = board_driver_faults();
  for (unsigned core = 0; core < NPU_CORES; core++) {
    CHECK_EQ(gemm_run(&g, 1u << core), 0); /* power is on from here */
    read_lines(before);
    for (unsigned i = 0; i < JOBS; i++) CHECK_EQ(gemm_run(&g, 1u << core), 0);
    read_lines(after);
    for (unsigned other = 0; other < NPU_CORES; other++) {
      CHECK_EQ(after[other].handlers, 1);
      if (other == core)
        CHECK(after[other].count >= before[other].count + JOBS, "(core %u: %llu, then %llu)", core, before[other].count, after[other].count);
      else
        CHECK(after[other].count == before[other].count, "(line %u while core %u works: %llu, then %llu)", other, core,
              before[other].count, after[other].count);
    }
  }
  CHECK_EQ(board_driver_faults(), faults);
}

const struct test line_tests[] = {
    {"lines-each-core-has-a-line-of-its-own", test_each_core_has_a_line_of_its_own, 0},
};
const unsigned line_test_count = sizeof(line_tests) / sizeof(line_tests[0]);
