// SPDX-License-Identifier: Apache-2.0
/*
 * npud-board-check: walks an owner of a board through what npud assumes of it. man/npud-board-check.8 says how.
 *
 *   npud-board-check [--yes] [--output FILE]
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "boardcheck.h"

static const char kUsage[] =
    "usage: npud-board-check [--yes] [--output FILE]\n"
    "\n"
    "Looks at the NPU of this board through the driver npud_rknpu, runs jobs whose results are known, and writes what it found to FILE\n"
    "(npud-board-check.txt), to attach to a report. Run it as root, with nothing else on the NPU.\n"
    "\n"
    "  --yes   also resets, page faults and tasks that may hang a core until its reset. Save your work first: others saw boards lock up.\n";

static void environment(int fd, unsigned *cores) {
  struct rknpu_npud_device_info info;
  struct utsname system;
  char text[256];
  int length;

  report("npud-board-check, one file to attach to a report\n");
  if (uname(&system) == 0) report("kernel: %s %s %s\n", system.sysname, system.release, system.machine);
  length = read_file("/proc/device-tree/model", text, sizeof(text));
  report("board: %s\n", length > 0 ? text : "no device tree");
  length = read_file("/proc/device-tree/compatible", text, sizeof(text) - 1);
  for (int i = 0; i < length - 1; i++)
    if (!text[i]) text[i] = ' ';
  if (length > 0) report("compatible: %s\n", text);
  memset(&info, 0, sizeof(info));
  *cores = query_device(fd, &info) == 0 && info.cores ? info.cores : 1;
  report("cores: %u\n", *cores);
  report_file("driver", "/sys/kernel/debug/rknpu/npud/state");
}

int main(int argc, char **argv) {
  const char *path = "npud-board-check.txt";
  bool yes = false;
  unsigned cores;
  int fd;

  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--yes") == 0) {
      yes = true;
    } else if (strcmp(argv[i], "--output") == 0 && i + 1 < argc) {
      path = argv[++i];
    } else {
      const bool help = strcmp(argv[i], "--help") == 0;

      fputs(kUsage, help ? stdout : stderr);
      return help ? 0 : 2;
    }
  }
  fd = npu_open(NPU_RENDER);
  if (fd < 0) {
    fprintf(stderr, "npud-board-check: no render node in /dev/dri is an RKNPU's: is npud_rknpu loaded, and does the device tree have the NPU?\n");
    return 1;
  }
  if (!npu_has_private(fd) || !observe_begin()) {
    fprintf(stderr, "npud-board-check: needs root, debugfs, and npud_rknpu as the driver: %s\n",
            npu_has_private(fd) ? "debugfs npud/observed can't be used" : "another driver has this NPU");
    return 1;
  }
  if (report_open(path)) {
    fprintf(stderr, "npud-board-check: %s: %s\n", path, strerror(errno));
    observe_end();
    return 1;
  }
  environment(fd, &cores);
  steps_harmless(fd, cores);
  if (yes)
    steps_dangerous(fd, cores);
  else
    report("\nleft out, since they may hang the NPU or the board: faults, resets, the CBUF, doubted encodings. Run with --yes for them.\n");
  report("\nnever tried, since others lost their boards to it: a change of the clock without power, a read of page 0x2000 of a core.\n");
  observe_end();
  if (report_close()) {
    fprintf(stderr, "npud-board-check: %s: %s\n", path, strerror(errno));
    return 1;
  }
  printf("\nwritten: %s\n", path);
  return 0;
}
