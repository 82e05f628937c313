// SPDX-License-Identifier: Apache-2.0
/*
 * Whether everything came back: what the whole device holds (files, spaces, IOVA bytes, jobs) before a test and after it, and whether it works.
 */
#ifndef NPUD_TESTS_KERNEL_BASELINE_H
#define NPUD_TESTS_KERNEL_BASELINE_H

#include <stdbool.h>

#include "npu.h"

struct baseline {
  struct rknpu_npud_device_info device;
};

/* Takes it through `fd`, which must stay open until the comparison. False: the driver has no such query. */
bool baseline_take(int fd, struct baseline *baseline);
/* Waits up to 20 s (the last close of a killed process is not at its death) for it to be as it was; says what differs if not. */
bool baseline_restored(int fd, const struct baseline *baseline);

/* A test of its own, behind others: no core is dead, and each computes right. */
void device_works(void);

#endif
