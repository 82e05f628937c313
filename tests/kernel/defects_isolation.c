// SPDX-License-Identifier: Apache-2.0
/* What a core could carry from one file's jobs to another's: translations, registers, operands in its buffer, a stream that still runs. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

/* --- a core without a space --------------------------------------------------------------------------------------------------------------- */

enum { MMU_STATUS = 0x04, MMU_PAGING = 1 };

/* The board's registers, past all drivers; NULL where the kernel doesn't let anybody. */
static volatile uint32_t *board_window(void) {
  DIR *dir = opendir("/sys/bus/pci/devices");
  void *window = MAP_FAILED;
  struct dirent *entry;

  while (dir && window == MAP_FAILED && (entry = readdir(dir))) {
    char path[320], text[32];
    int fd;

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/device", entry->d_name);
    if (read_file(path, text, sizeof(text)) <= 0 || strtoul(text, NULL, 16) != VBOARD_PCI_DEVICE) continue;
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource%d", entry->d_name, VBOARD_BAR_REGS);
    fd = open(path, O_RDWR | O_SYNC | O_CLOEXEC);
    if (fd < 0) continue;
    window = mmap(NULL, VBOARD_CORES * VBOARD_CORE_STRIDE, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
  }
  if (dir) closedir(dir);
  return window == MAP_FAILED ? NULL : window;
}

/* When the space that was there goes, what is there then translates, too: by nothing. A pass-through would be the machine's memory. */
static void test_without_a_space_nothing_is_reached(void) {
  static const uint32_t banks[] = {VBOARD_BANK0, VBOARD_BANK1, VBOARD_BANK2, VBOARD_BANK3};
  const int fd = npu_open_or_die();
  volatile uint32_t *window = board_window();
  struct rknpu_npud_device_info info;

  NEEDS_BOARD();
  if (!window) SKIP("this kernel doesn't let the board's registers be mapped");
  REQUIRE(query_device(fd, &info) == 0 && info.cores == NPU_CORES);
  CHECK(npu_action(fd, RKNPU_POWER_ON, NULL) == 0);
  for (unsigned core = 0; core < info.cores; core++) {
    const int other = npu_open_or_die();
    struct gemm g;

    REQUIRE(gemm_small(&g, other, 0, true, 705) == 0);
    CHECK_EQ(gemm_run(&g, 1u << core), 0);
    gemm_destroy(&g);
    close(other);
    sleep_ms(50);
    for (unsigned bank = 0; bank < VBOARD_BANKS; bank++)
      CHECK(window[(banks[bank] + MMU_STATUS) / 4] & MMU_PAGING, "(bank %u, after a job on core %u)", bank, core);
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

/* --- operands ------------------------------------------------------------------------------------------------------------------------------- */

enum { CBUF_CON0 = 0x1040, WEIGHT_REUSE = 1u << 13, DATA_REUSE = 1u << 12 };

/* The task takes what the convolution buffer holds. */
static void reuse(struct gemm *g, uint32_t bits) {
  uint64_t words[NPU_GEMM_WORDS];

  memcpy(words, g->data.map, sizeof(words));
  for (unsigned i = 0; i < NPU_GEMM_WORDS; i++)
    if (words[i] >> 48 == NPU_OP_CNA && (words[i] & 0xffff) == CBUF_CON0) words[i] |= (uint64_t)bits << 16;
  memcpy(g->data.map, words, sizeof(words));
}

/*
 * A task with reuse bits computes with the operands of whoever was there before. The driver's defence is a reset, and what that does to the buffer
 * of silicon isn't known: where it is said to clear it ($NPU_RESET_CBUF), nothing of another file may be left; else this says what is.
 */
static void test_operands_of_another_file(void) {
  static const uint32_t bits[] = {DATA_REUSE, WEIGHT_REUSE, DATA_REUSE | WEIGHT_REUSE};
  const char *reset = getenv("NPU_RESET_CBUF");
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct rknpu_npud_device_info info;
  unsigned taken = 0;

  REQUIRE(query_device(b, &info) == 0);
  for (unsigned round = 0; round < info.cores * 3; round++) {
    const uint32_t core = 1u << round / 3;
    struct rknpu_submit submit;
    struct gemm victim, spy;

    REQUIRE(gemm_small(&victim, a, 0, true, 730) == 0 && gemm_small(&spy, b, 0, true, 731) == 0);
    CHECK_EQ(gemm_run(&victim, core), 0);
    reuse(&spy, bits[round % 3]);
    gemm_clear(&spy);
    gemm_prepare(&spy, &submit, core);
    submit.timeout = 300;
    /* Refused, or with its own operands, or with none: but not with the victim's. */
    if (npu_submit(b, &submit) == 0) taken += gemm_wrong(&spy) != 0 && !gemm_untouched(&spy);
    gemm_destroy(&victim);
    gemm_destroy(&spy);
  }
  if (reset && strcmp(reset, "clears") == 0)
    CHECK_EQ(taken, 0);
  else
    SKIP("what a reset does to the buffer isn't said; with operands of another file ran %u jobs of %u", taken, info.cores * 3);
}

/* --- memory that is freed while a core is busy --------------------------------------------------------------------------------------------- */

/*
 * An MMU refuses to stall while its core is in DMA. A client that frees memory while its own jobs run is no attacker, and its jobs go on; nor can it
 * make the driver keep memory for ever, however often it does that.
 */
static void test_freeing_memory_under_a_job(void) {
  enum { BUFFERS = 24 };
  const int fd = npu_open_or_die();
  const long long leaks = state_number("leaks");
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
  CHECK_EQ(state_number("leaks"), leaks);
}

/* --- a stream that runs on ------------------------------------------------------------------------------------------------------------------ */

enum { STREAM_US = 2000000 };

/*
 * A job of one file raises its last interrupt before it has written, and a job of another file follows on the core: how many bytes of
 * that one's memory, at the address where the first writes, changed. Spaces of all files begin alike. -1: the test itself failed.
 */
static long stream_runs_into(unsigned core, uint32_t seed) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct gemm streams, next;
  struct bo bystander;
  long changed = 0;
  uint32_t fired;
  uint64_t from;

  if (gemm_small(&streams, a, 0, true, seed) || bo_create(b, &bystander, streams.data.size, 0, 0) || bo_map(&bystander) ||
      gemm_small(&next, b, 0, true, seed + 1))
    return -1;
  CHECK_EQ(bystander.iova, streams.data.iova);
  memset(bystander.map, 0x3c, bystander.size);
  fired = board_fired();
  board_fault(VBOARD_FAULT_IRQ_EARLY, core, VBOARD_IRQ_EARLY_QUIET | STREAM_US, 1);
  from = now_ns();
  (void)gemm_run(&streams, 1u << core);
  CHECK_EQ(board_fired(), fired + 1);
  CHECK(gemm_untouched(&streams) && now_ns() - from < STREAM_US * 1000ull, "(core %u: the job wasn't over before it had written)", core);
  CHECK_EQ(gemm_run(&next, 1u << core), 0);
  /* What is left of the stream, if anything, has its time. */
  sleep_ms(STREAM_US / 1000 + 200);
  for (uint64_t i = 0; i < bystander.size; i++) changed += ((const unsigned char *)bystander.map)[i] != 0x3c;
  CHECK_EQ(gemm_wrong(&next), 0);
  gemm_destroy(&streams);
  gemm_destroy(&next);
  bo_destroy(&bystander);
  close(a);
  close(b);
  return changed;
}

#define SCRUB "/sys/module/npud_rknpu/parameters/scrub"

/* Hostile commands can raise the last task's bits early: the core must be at rest before the next file's space is there. */
static void test_a_stream_ends_with_its_space(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_device_info info;
  long into_next;

  NEEDS_BOARD();
  REQUIRE(query_device(fd, &info) == 0);
  for (unsigned core = 0; core < info.cores; core++) CHECK_EQ(stream_runs_into(core, 770 + 2 * core), 0);
  /* That the test finds what it looks for. */
  if (write_file(SCRUB, "N\n") == 0) {
    into_next = stream_runs_into(info.cores - 1, 780);
    write_file(SCRUB, "Y\n");
    CHECK(into_next > 0, "(without a scrub nothing happens either)");
  }
}

const struct test isolation_tests[] = {
    {"isolation-each-bank-is-programmed", test_each_bank_is_programmed, 0},
    {"isolation-without-a-space-nothing-is-reached", test_without_a_space_nothing_is_reached, 0},
    {"isolation-registers-of-another-file", test_registers_of_another_file, 0},
    {"isolation-operands-of-another-file", test_operands_of_another_file, 0},
    {"isolation-a-stream-ends-with-its-space", test_a_stream_ends_with_its_space, 0},
    {"isolation-freeing-memory-under-a-job", test_freeing_memory_under_a_job, 0},
};
const unsigned isolation_test_count = sizeof(isolation_tests) / sizeof(isolation_tests[0]);
