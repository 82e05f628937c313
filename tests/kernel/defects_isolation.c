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

/* --- registers ---------------------------------------------------------------------------------------------------------------------------- */

/* A task that sets nothing but where its results go: what it computes is what the registers say that were there before. */
static void only_the_output(struct gemm *g, uint32_t out) {
  const uint64_t words[] = {
      npu_gemm_word(NPU_OP_DPU, 0x4020, out),
      0,
      npu_gemm_word(NPU_OP_PC, 0x14, 0),
      (uint64_t)NPU_OP_BARRIER << 48,
      npu_gemm_word(NPU_OP_ENABLE, 0x08, NPU_GEMM_TRIGGER),
      0,
  };

  memcpy(g->data.map, words, sizeof(words));
  gemm_task(g, 0)->regcfg_amount = 2;
}

/* The stranger's addresses are the spy's, too: spaces of all files begin alike. */
static void test_registers_of_another_file(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct rknpu_npud_device_info info;

  REQUIRE(query_device(b, &info) == 0);
  for (unsigned core = 0; core < info.cores; core++) {
    struct rknpu_submit submit;
    struct gemm victim, spy;
    char out[256];

    REQUIRE(gemm_small(&victim, a, 0, true, 710) == 0 && gemm_small(&spy, b, 0, true, 711) == 0);
    CHECK_EQ(gemm_run(&spy, 1u << core), 0);
    CHECK_EQ(gemm_run(&victim, 1u << core), 0);
    gemm_clear(&spy);
    only_the_output(&spy, (uint32_t)(spy.data.iova + spy.out_offset));
    gemm_prepare(&spy, &submit, 1u << core);
    submit.timeout = 500;
    memset(out, 0xa5, sizeof(out));
    if (npu_submit(b, &submit) == 0) CHECK(gemm_wrong(&spy) == spy.shape.m * spy.shape.n, "(it ran as the stranger's task would)");
    CHECK(memcmp((char *)spy.data.map + spy.out_offset, out, sizeof(out)) == 0, "(it wrote something)");
    gemm_destroy(&victim);
    gemm_destroy(&spy);
    REQUIRE(gemm_small(&victim, a, 0, true, 712) == 0);
    CHECK_EQ(gemm_run(&victim, 1u << core), 0);
    gemm_destroy(&victim);
  }
}

/* --- memory that is freed while a core is busy --------------------------------------------------------------------------------------------- */

static long long state_number(const char *name) {
  char text[8192];
  const char *at;

  mount_debugfs();
  if (read_file("/sys/kernel/debug/rknpu/npud/state", text, sizeof(text)) <= 0 || !(at = strstr(text, name))) return -1;
  return atoll(at + strlen(name));
}

/*
 * An MMU refuses to stall while its core is in DMA. A client that frees memory while its own jobs run is no attacker, and its jobs go on; nor can it
 * make the driver keep memory for ever, however often it does that.
 */
static void test_freeing_memory_under_a_job(void) {
  enum { BUFFERS = 24 };
  const int fd = npu_open_or_die();
  const long long leaks = state_number("leaks ");
  struct rknpu_npud_device_info info;
  int fences[NPU_CORES * 2];
  struct gemm g[NPU_CORES];
  struct bo bo[BUFFERS];
  unsigned n = 0;

  NEEDS_BOARD();
  REQUIRE(leaks >= 0 && query_device(fd, &info) == 0);
  for (unsigned core = 0; core < info.cores; core++) REQUIRE(gemm_long(&g[core], fd, 0, 300000000, 720 + core) == 0);
  for (unsigned i = 0; i < BUFFERS; i++) REQUIRE(bo_create(fd, &bo[i], 64 << 10, RKNPU_MEM_NON_CONTIGUOUS, 0) == 0);
  for (uint32_t bank = 0; bank < VBOARD_BANKS; bank++) board_fault(VBOARD_FAULT_STALL_REFUSED, bank, 0, 0);
  for (unsigned round = 0; round < 2; round++)
    for (unsigned core = 0; core < info.cores; core++, n++) {
      fences[n] = gemm_start(&g[core], 1u << core, NPU_TIMEOUT_MS, 0);
      REQUIRE(fences[n] >= 0, "(%s)", strerror(errno));
    }
  for (unsigned i = 0; i < BUFFERS; i++) bo_destroy(&bo[i]);
  for (unsigned i = 0; i < n; i++) {
    CHECK_EQ(fence_wait(fences[i], NPU_TIMEOUT_MS), 1);
    close(fences[i]);
  }
  board_clear_faults();
  for (unsigned core = 0; core < info.cores; core++) CHECK_EQ(gemm_wrong(&g[core]), 0);
  CHECK_EQ(state_number("leaks "), leaks);
}

const struct test isolation_tests[] = {
    {"isolation-each-bank-is-programmed", test_each_bank_is_programmed, 0},
    {"isolation-registers-of-another-file", test_registers_of_another_file, 0},
    {"isolation-freeing-memory-under-a-job", test_freeing_memory_under_a_job, 0},
};
const unsigned isolation_test_count = sizeof(isolation_tests) / sizeof(isolation_tests[0]);
