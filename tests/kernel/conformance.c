// SPDX-License-Identifier: Apache-2.0
/*
 * rknpu-conformance: the RKNPU interface from end to end, against any driver that offers it.
 *
 *   rknpu-conformance [--driver npud|vendor] [PATTERN]
 *
 * `npud` (default) expects what kernel/include/uapi/drm/rknpu_drm.h promises. `vendor` expects the vendor's 0.9.8 where that differs,
 * and leaves out what that driver has no defence against: this program is no attack on it.
 */
#include <string.h>

#include "conformance.h"

bool vendor;

int main(int argc, char **argv) {
  const struct {
    const struct test *tests;
    unsigned count;
  } parts[] = {{base_tests, base_test_count},
               {memory_tests, memory_test_count},
               {job_tests, job_test_count},
               {sharing_tests, sharing_test_count},
               {power_tests, power_test_count},
               {line_tests, line_test_count},
               {npud_tests, npud_test_count},
               {replay_tests, replay_test_count},
               {observe_tests, observe_test_count},
               {bounce_tests, bounce_test_count}};
  struct test tests[128];
  unsigned count = 0;
  const char *pattern = NULL;

  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--driver") == 0 && i + 1 < argc) {
      i++;
      vendor = strcmp(argv[i], "vendor") == 0;
      if (!vendor && strcmp(argv[i], "npud")) {
        fprintf(stderr, "--driver is npud or vendor, not '%s'\n", argv[i]);
        return 2;
      }
    } else if (argv[i][0] == '-') {
      fprintf(stderr, "usage: rknpu-conformance [--driver npud|vendor] [PATTERN]\n");
      return 2;
    } else {
      pattern = argv[i];
    }
  }
  for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
    for (unsigned j = 0; j < parts[i].count && count < sizeof(tests) / sizeof(tests[0]); j++) tests[count++] = parts[i].tests[j];
  return tap_run(tests, count, pattern, NULL);
}
