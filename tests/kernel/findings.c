// SPDX-License-Identifier: Apache-2.0
/*
 * rknpu-findings: whether npud-board-check names what deviates. The virtual board gets each setting in turn, all others as npud assumes them, and the
 * report must say exactly that.
 *
 *   rknpu-findings PROGRAM       PROGRAM is npud-board-check
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "board.h"
#include "npu.h"

#define REPORT "/tmp/npud-board-check.txt"

static const struct {
  const char *key, *value;
  const char *unknown; /* what then can't be told */
} settings[] = {
    {"int-raw", "done-bits", NULL}, /* all as assumed */
    {"int-raw", "plain", NULL},
    {"reset-values", "zero", NULL},
    {"s-status", "zero", NULL},
    {"short-height", "ok", NULL},
    {"chained-int", "clear", NULL},
    {"fp16-k128", "ok", NULL},
    {"cbuf", "strict", NULL},
    {"cbuf", "off", NULL},
    {"mrdma", "optional", NULL},
    {"cbuf-state", "cleared", "reset-cbuf"},
    {"reset-cbuf", "clears", NULL},
    {"core-pointer", "optional", NULL},
    {"stall-in-fault", "works", NULL},
    {"reset-mmu", "keeps", NULL},
    /* Last: a core learns what its counter means, and unlearns it over a few jobs that fail, which no board makes it do. */
    {"task-status", "count", NULL},
    {"task-status", "stuck", NULL},
};
static const struct {
  const char *key, *value;
  bool option;
} assumed[] = {
    {"jobs", "right", false},         {"task-status", "modulo", true},    {"int-raw", "done-bits", true},    {"reset-values", "silicon", true},
    {"s-status", "running", true},    {"short-height", "wrong", true},    {"chained-int", "accumulate", true}, {"fp16-k128", "refuse", true},
    {"cbuf", "garbage", true},        {"mrdma", "needed", true},          {"cbuf-state", "survives", true},  {"reset-cbuf", "keeps", true},
    {"core-pointer", "required", true}, {"fault", "reported", false},     {"stall-in-fault", "fails", true}, {"reset-mmu", "clears", true},
    {"spaces", "apart", false},
};
enum { SETTINGS = sizeof(settings) / sizeof(settings[0]), ASSUMED = sizeof(assumed) / sizeof(assumed[0]) };

static bool set_option(const char *key, const char *value) {
  char text[64] = "";
  size_t length;

  snprintf(text, sizeof(text), "%s=%s", key, value);
  length = strlen(text) + 1;
  for (size_t at = 0; at < length; at += 4) {
    uint32_t piece;

    memcpy(&piece, text + at, 4);
    board_write(VBOARD_OPTION, piece);
  }
  return board_read(VBOARD_OPTION) == 0;
}

static const char *found(const char *report, const char *key) {
  static char value[32];
  char wanted[64];
  const char *at;

  snprintf(wanted, sizeof(wanted), "\nfinding %s = ", key);
  at = strstr(report, wanted);
  snprintf(value, sizeof(value), "nothing");
  if (at) sscanf(at + strlen(wanted), "%31s", value);
  return value;
}

static bool agrees(const char *report, const char *deviating, const char *value, const char *unknown) {
  bool good = true;

  for (unsigned i = 0; i < ASSUMED; i++) {
    const char *const wanted = strcmp(assumed[i].key, deviating) == 0                 ? value
                               : unknown && strcmp(assumed[i].key, unknown) == 0 ? "unknown"
                                                                                  : assumed[i].value;
    const char *const got = found(report, assumed[i].key);

    if (strcmp(got, wanted) == 0) continue;
    printf("# %s is said to be %s, the board has %s\n", assumed[i].key, got, wanted);
    good = false;
  }
  return good;
}

int main(int argc, char **argv) {
  char command[256];
  unsigned failed = 0;

  if (argc != 2) {
    fprintf(stderr, "usage: rknpu-findings PROGRAM\n");
    return 2;
  }
  if (!board_present()) {
    printf("Bail out! no virtual board here\n");
    return 1;
  }
  snprintf(command, sizeof(command), "%s --yes --output " REPORT " >/dev/null", argv[1]);
  printf("1..%d\n", SETTINGS);
  for (unsigned i = 0; i < SETTINGS; i++) {
    static char report[1 << 16];
    bool good = true;

    for (unsigned a = 0; a < ASSUMED; a++)
      if (assumed[a].option) good = set_option(assumed[a].key, assumed[a].value) && good;
    good = set_option(settings[i].key, settings[i].value) && good;
    good = system(command) == 0 && good;
    good = read_file(REPORT, report, sizeof(report) - 1) > 0 && good;
    good = agrees(report, settings[i].key, settings[i].value, settings[i].unknown) && good;
    if (!good) printf("%s\n", report);
    printf("%sok %u - %s=%s\n", good ? "" : "not ", i + 1, settings[i].key, settings[i].value);
    fflush(stdout);
    failed += !good;
  }
  return failed > 0;
}
