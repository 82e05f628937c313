// SPDX-License-Identifier: Apache-2.0
/* What a core could carry from one file's jobs to another's: translations, registers, operands in its buffer, a stream that still runs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "defects.h"

enum { NOWHERE = 0xc0001000 }; /* an address that no space here maps */

/* --- each of a core's banks ------------------------------------------------------------------------------------------------------------- */

/* Reads go through one bank of a core and writes, where it has two, through the other: neither leads anywhere else than the space says. */
static void test_each_bank_is_programmed(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_device_info info;
  struct npu_gemm shape;
  uint64_t words[NPU_GEMM_WORDS];
  struct gemm g;

  REQUIRE(query_device(fd, &info) == 0);
  REQUIRE(gemm_small(&g, fd, 3, true, 700) == 0);
  for (unsigned core = 0; core < info.cores; core++) {
    CHECK_EQ(gemm_run(&g, 1u << core), 0);
    shape = g.shape;
    shape.out = NOWHERE;
    npu_gemm_emit((__u64 *)words, &shape, 0);
    memcpy(g.data.map, words, sizeof(words));
    CHECK(gemm_run(&g, 1u << core) == -1 && errno == EFAULT, "(write: %s)", strerror(errno));
    shape = g.shape;
    shape.features = NOWHERE;
    npu_gemm_emit((__u64 *)words, &shape, 0);
    memcpy(g.data.map, words, sizeof(words));
    CHECK(gemm_run(&g, 1u << core) == -1 && errno == EFAULT, "(read: %s)", strerror(errno));
    npu_gemm_emit((__u64 *)words, &g.shape, 0);
    memcpy(g.data.map, words, sizeof(words));
    CHECK_EQ(gemm_run(&g, 1u << core), 0);
  }
}

const struct test isolation_tests[] = {
    {"isolation-each-bank-is-programmed", test_each_bank_is_programmed, 0},
};
const unsigned isolation_test_count = sizeof(isolation_tests) / sizeof(isolation_tests[0]);
