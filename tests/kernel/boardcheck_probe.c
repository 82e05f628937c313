// SPDX-License-Identifier: Apache-2.0
/* What the driver noted, and tasks that are not as they should be. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boardcheck.h"

#define PARAMETER "/sys/module/npud_rknpu/parameters/board_check"
#define OBSERVED "/sys/kernel/debug/%s/npud/%s"
enum { OBSERVE = 1, UNMAPPED = 0xf0000000u, DATA_REUSE = 1u << 12 };

static char observed_path[96], state_path[96];

bool observe_begin(void) {
  static const char *const names[] = {"rknpu", "npud_rknpu"};

  mount_debugfs();
  for (unsigned i = 0; i < 2; i++) {
    snprintf(observed_path, sizeof(observed_path), OBSERVED, names[i], "observed");
    snprintf(state_path, sizeof(state_path), OBSERVED, names[i], "state");
    if (access(observed_path, R_OK | W_OK) == 0) return write_file(PARAMETER, "1") == 0;
  }
  return false;
}

void observe_end(void) { write_file(PARAMETER, "0"); }

void observe_also(unsigned what) {
  char text[16];

  snprintf(text, sizeof(text), "%u", OBSERVE | what);
  write_file(PARAMETER, text);
}

void observe_forget(void) { write_file(observed_path, "0"); }

static const char *observed_line(unsigned core, const char *moment, char *text, size_t size) {
  char wanted[32];
  const char *line;

  snprintf(wanted, sizeof(wanted), "%u %s ", core, moment);
  if (read_file(observed_path, text, size) <= 0) return NULL;
  for (line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    if (strncmp(line, wanted, strlen(wanted)) == 0) return line + strlen(wanted);
  return NULL;
}

bool observe_core(unsigned core, const char *moment, struct seen *seen) {
  char text[8192];
  const char *const line = observed_line(core, moment, text, sizeof(text));

  memset(seen, 0, sizeof(*seen));
  if (!line ||
      sscanf(line, "count=%u running=%x data_addr=%x int_mask=%x int_raw=%x task_control=%x task_status=%x stall=%d", &seen->count, &seen->running,
             &seen->data_addr, &seen->int_mask, &seen->int_raw, &seen->task_control, &seen->task_status, &seen->stall) != 8)
    return false;
  for (unsigned bank = 0; bank < 2; bank++) {
    char name[24];
    const char *at;

    snprintf(name, sizeof(name), " mmu%u_status=", bank);
    at = strstr(line, name);
    if (!at || (strchr(line, '\n') && at > strchr(line, '\n'))) break;
    if (sscanf(at + strlen(name), "%x mmu%*u_dir=%x", &seen->mmu_status[bank], &seen->mmu_dir[bank]) == 2) seen->banks = bank + 1;
  }
  return seen->count > 0;
}

bool observe_version(unsigned core, unsigned *version, unsigned *number) {
  char text[8192];
  const char *const line = observed_line(core, "version", text, sizeof(text));

  return line && sscanf(line, "%x %x", version, number) == 2;
}

void observe_report(const char *title) { report_file(title, observed_path); }

long driver_count(const char *name) {
  char text[4096], wanted[64];
  const char *at = text;

  snprintf(wanted, sizeof(wanted), "%s ", name);
  if (read_file(state_path, text, sizeof(text)) <= 0) return -1;
  while (at && strncmp(at, wanted, strlen(wanted))) at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
  return at ? strtol(at + strlen(wanted), NULL, 0) : -1;
}

/* --- tasks ---------------------------------------------------------------------------------------------------------------------------- */

static size_t pages(size_t bytes) { return (bytes + NPU_PAGE - 1) / NPU_PAGE * NPU_PAGE; }

static void emit(const struct probe *p, const struct npu_gemm *shape, unsigned task, uint32_t next, uint64_t *words) {
  npu_gemm_emit((__u64 *)words, shape, next);
  for (unsigned i = 0; i < NPU_GEMM_WORDS; i++) {
    const unsigned target = (unsigned)(words[i] >> 48), reg = words[i] & 0xffff;
    uint32_t value = (uint32_t)(words[i] >> 16);

    if (target == NPU_OP_CNA && reg == 0x1040) {
      if (p->data_banks) value = (NPU_CBUF_BANKS - p->data_banks) << 4 | p->data_banks;
      if (p->reuse && task == 0) value |= DATA_REUSE;
      words[i] = npu_gemm_word(target, reg, value);
    }
    /* DMA_CON2: below four rows the step from surface to surface is negative, in 28 bits. */
    if (target == NPU_OP_CNA && reg == 0x1080) words[i] = npu_gemm_word(target, reg, value & 0xfffffff);
    /* Written twice is written once. */
    if (p->without_rdma && target == NPU_OP_RDMA) words[i] = npu_gemm_word(NPU_OP_CNA, 0x1184, 0);
    if (p->without_rdma && target == NPU_OP_ENABLE) words[i] = npu_gemm_word(target, reg, value & ~0x10u);
  }
}

static void compare(const struct probe *p, const struct npu_gemm *shape, const uint32_t *out, struct result *result) {
  const size_t each = npu_gemm_out_bytes(shape) / 4;

  result->first_wrong_task = p->tasks;
  for (unsigned task = 0; task < p->tasks; task++)
    for (unsigned m = 0; m < shape->m; m++)
      for (unsigned n = 0; n < shape->n; n++) {
        result->results++;
        if (out[task * each + npu_gemm_out_index(shape, m, n)] == npu_gemm_expected(shape, m, n)) continue;
        result->wrong++;
        result->last_rows_wrong += m >= shape->m / 2;
        if (result->first_wrong_task == p->tasks) result->first_wrong_task = task;
      }
}

bool probe_run(int fd, const struct probe *p, uint32_t core_mask, struct result *result) {
  struct npu_gemm shape = p->shape, stored = p->shape;
  const size_t commands = pages((size_t)p->tasks * NPU_GEMM_SLOT_BYTES), features = pages(npu_gemm_feature_bytes(&shape)),
               weights = pages(npu_gemm_weight_bytes(&shape)), each = npu_gemm_out_bytes(&shape);
  struct bo data = {.fd = -1}, array = {.fd = -1};
  struct rknpu_submit submit;
  struct rknpu_task *tasks;
  struct gemm job;
  bool ready = false;

  memset(result, 0, sizeof(*result));
  if (bo_create(fd, &data, commands + features + weights + p->tasks * each, 0, 0) || bo_map(&data) ||
      bo_create(fd, &array, p->tasks * sizeof(*tasks), RKNPU_MEM_KERNEL_MAPPING, 0) || bo_map(&array))
    goto out;
  shape.features = p->unmapped ? UNMAPPED : (uint32_t)(data.iova + commands);
  shape.weights = (uint32_t)(data.iova + commands + features);
  if (p->other_seed) stored.seed = p->other_seed;
  npu_gemm_fill(&stored, (char *)data.map + commands, (char *)data.map + commands + features);
  if (p->other_seed) {
    /* Only the features are another's. */
    void *const scratch = malloc(features);

    if (!scratch) goto out;
    npu_gemm_fill(&shape, scratch, (char *)data.map + commands + features);
    free(scratch);
  }
  memset((char *)data.map + commands + features + weights, 0xa5, p->tasks * each);
  tasks = array.map;
  for (unsigned i = 0; i < p->tasks; i++) {
    const uint64_t address = data.iova + (uint64_t)i * NPU_GEMM_SLOT_BYTES;
    uint64_t words[NPU_GEMM_WORDS];

    shape.out = (uint32_t)(data.iova + commands + features + weights + i * each);
    emit(p, &shape, i, i + 1 < p->tasks ? (uint32_t)address + NPU_GEMM_SLOT_BYTES : 0, words);
    memcpy((char *)data.map + (size_t)i * NPU_GEMM_SLOT_BYTES, words, sizeof(words));
    tasks[i] = (struct rknpu_task){.enable_mask = p->without_rdma ? NPU_GEMM_ENABLE_MASK & ~0x10u : NPU_GEMM_ENABLE_MASK,
                                   .int_mask = NPU_GEMM_INT_MASK,
                                   .int_clear = 0x1ffff,
                                   .regcfg_amount = NPU_GEMM_BODY_WORDS,
                                   .regcmd_addr = address};
  }
  memset(&job, 0, sizeof(job));
  job.tasks = p->tasks;
  job.array = array;
  gemm_prepare(&job, &submit, core_mask);
  submit.timeout = PROBE_MS;
  ready = true;
  if (npu_submit(fd, &submit)) {
    result->error = errno;
  } else {
    compare(p, &p->shape, (const uint32_t *)((const char *)data.map + commands + features + weights), result);
  }
out:
  bo_destroy(&data);
  bo_destroy(&array);
  return ready;
}
