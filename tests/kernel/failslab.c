// SPDX-License-Identifier: Apache-2.0
/*
 * rknpu-failslab: every allocation of every operation fails once. Each operation is repeated with the first, second, third … slab
 * allocation of the calling thread failing (/proc/thread-self/fail-nth), until it gets through without one. It may fail with -ENOMEM or
 * succeed all the same; afterwards nothing is held and everything works. Needs CONFIG_FAILSLAB and CONFIG_FAULT_INJECTION_DEBUG_FS.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "baseline.h"
#include "board.h"
#include "npu.h"
#include "tap.h"

enum { MOST_ALLOCATIONS = 2000 };

static int nth_fd = -1;

static bool injection_ready(void) {
  mount_debugfs();
  if (access("/sys/kernel/debug/failslab", F_OK)) return false;
  /* Allocations that may sleep are most of ours. */
  write_file("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
  write_file("/sys/kernel/debug/failslab/verbose", "0");
  nth_fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
  return nth_fd >= 0;
}

static void arm(unsigned nth) {
  char text[16];
  const int length = snprintf(text, sizeof(text), "%u", nth);

  if (pwrite(nth_fd, text, (size_t)length, 0) != length) tap_fail(__FILE__, __LINE__, "fail-nth cannot be written: %s", strerror(errno));
}

/* Whether the armed allocation was reached; disarms. */
static bool struck(void) {
  char text[16] = "";

  if (pread(nth_fd, text, sizeof(text) - 1, 0) <= 0) return false;
  arm(0);
  return atoi(text) == 0;
}

/* Runs the operation with each of its allocations failing in turn. `operation` returns 0 or -1 with errno; `undo` follows a success. */
static void each_allocation_fails_from(unsigned first, const char *name, int (*operation)(void *), void (*undo)(void *), void *argument) {
  unsigned nth, refused = 0;

  for (nth = first; nth < MOST_ALLOCATIONS; nth++) {
    int result, error;
    bool hit;

    arm(nth);
    result = operation(argument);
    error = errno;
    hit = struck();
    if (result == 0) {
      undo(argument);
    } else {
      refused++;
      CHECK(hit, "(%s fails without a reason: %s)", name, strerror(error));
      CHECK(error == ENOMEM || error == EAGAIN || error == ENFILE || error == ENOSPC, "(%s, allocation %u: %s)", name, nth, strerror(error));
    }
    if (!hit) break;
  }
  CHECK(nth < MOST_ALLOCATIONS, "(%s never gets through)", name);
  tap_note("%s: %u allocations, %u times refused", name, nth - 1, refused);
}

static void each_allocation_fails(const char *name, int (*operation)(void *), void (*undo)(void *), void *argument) {
  each_allocation_fails_from(1, name, operation, undo, argument);
}

struct work {
  int fd, other, dmabuf;
  int opened, exported, fence;
  uint32_t imported;
  struct bo bo;
  struct gemm gemm;
};

static int do_open(void *argument) { return (((struct work *)argument)->opened = npu_open(NPU_RENDER)) >= 0 ? 0 : (errno = ENOMEM, -1); }
static void undo_open(void *argument) { close(((struct work *)argument)->opened); }

static int do_create(void *argument) {
  struct work *w = argument;

  return bo_create(w->fd, &w->bo, 300000, RKNPU_MEM_CACHEABLE, 7);
}
static void undo_create(void *argument) { bo_destroy(&((struct work *)argument)->bo); }

static int do_create_in_new_space(void *argument) {
  struct work *w = argument;
  const int fd = w->other;

  return bo_create(fd, &w->bo, 4096, 0, (int)(now_ns() % RKNPU_MAX_DOMAINS));
}

static int do_submit(void *argument) {
  struct work *w = argument;

  return (w->fence = gemm_start(&w->gemm, 7, NPU_TIMEOUT_MS, 0)) >= 0 ? 0 : -1;
}
static void undo_submit(void *argument) {
  struct work *w = argument;

  CHECK_EQ(fence_wait(w->fence, NPU_TIMEOUT_MS), 1);
  CHECK_EQ(gemm_wrong(&w->gemm), 0);
  gemm_clear(&w->gemm);
  close(w->fence);
}

static int do_export(void *argument) {
  struct work *w = argument;

  return (w->exported = bo_export(&w->gemm.data)) >= 0 ? 0 : -1;
}
static void undo_export(void *argument) { close(((struct work *)argument)->exported); }

static int do_import(void *argument) {
  struct work *w = argument;
  uint32_t domain = 3;

  if (npu_action(w->other, RKNPU_ACT_SET_DOMAIN, &domain)) return -1;
  if (bo_import(w->other, w->dmabuf, &w->imported)) return -1;
  if (bo_lookup(w->other, &w->bo, w->imported, 3) == 0) return 0;
  {
    struct drm_gem_close gem_close = {.handle = w->imported};
    const int error = errno;

    arm(0);
    ioctl(w->other, DRM_IOCTL_GEM_CLOSE, &gem_close);
    errno = error;
    return -1;
  }
}

static void test_failslab(void) {
  const int fd = npu_open_or_die();
  const struct npu_gemm shape = {.m = 8, .k = 64, .n = 32, .fp16 = 1, .seed = 1};
  struct baseline before;
  struct work w;

  if (!injection_ready()) SKIP("this kernel has no fault injection for slabs");
  REQUIRE(baseline_take(fd, &before));
  memset(&w, 0, sizeof(w));
  w.fd = npu_open_or_die();
  w.other = npu_open_or_die();
  REQUIRE(gemm_create(&w.gemm, w.fd, 0, &shape, 6) == 0);
  w.dmabuf = bo_export(&w.gemm.data);
  REQUIRE(w.dmabuf >= 0);
  each_allocation_fails("open", do_open, undo_open, &w);
  each_allocation_fails("create", do_create, undo_create, &w);
  each_allocation_fails("create in a new space", do_create_in_new_space, undo_create, &w);
  each_allocation_fails("submit", do_submit, undo_submit, &w);
  each_allocation_fails("export", do_export, undo_export, &w);
  each_allocation_fails("import", do_import, undo_create, &w);
  CHECK_EQ(gemm_run(&w.gemm, 7), 0);
  gemm_destroy(&w.gemm);
  close(w.dmabuf);
  close(w.fd);
  close(w.other);
  CHECK(baseline_restored(fd, &before));
}

/* --- bind -------------------------------------------------------------------------------------------------------------------------------- */

#define DRIVER "/sys/bus/platform/drivers/npud-rknpu"

static unsigned how_many(const char *pattern) {
  unsigned count = 0;
  glob_t found;

  if (glob(pattern, 0, NULL, &found) == 0) {
    count = (unsigned)found.gl_pathc;
    globfree(&found);
  }
  return count;
}

/* Nothing of the driver is there but the driver: no device, no node, no interrupt line taken, no core with power. */
static void nothing_is_bound(void) {
  char text[16384] = "";

  CHECK_EQ(how_many("/sys/bus/platform/devices/rknpu-facade*"), 0);
  CHECK(npu_open(NPU_RENDER) < 0);
  CHECK_EQ(how_many("/sys/kernel/debug/rknpu/npud"), 0);
  CHECK(read_file("/proc/interrupts", text, sizeof(text)) > 0 && !strstr(text, "rknpu"));
  if (board_present()) CHECK_EQ(board_read(VBOARD_POWER) & 7, 0);
}

static int do_bind(void *argument) {
  if (write_file(DRIVER "/bind", argument) == 0) return 0;
  {
    const int error = errno;

    nothing_is_bound();
    errno = error;
  }
  return -1;
}

static void undo_bind(void *argument) {
  const int fd = npu_open(NPU_RENDER);
  struct gemm g;

  /* What it came up without, it can do without. */
  if (fd < 0) {
    tap_fail(__FILE__, __LINE__, "bound, but there is no node: %s", strerror(errno));
  } else {
    if (gemm_small(&g, fd, 0, true, 1) == 0) {
      CHECK_EQ(gemm_run(&g, 7), 0);
      gemm_destroy(&g);
    } else {
      tap_fail(__FILE__, __LINE__, "no memory for a job: %s", strerror(errno));
    }
    close(fd);
  }
  CHECK(write_file(DRIVER "/unbind", argument) == 0);
  nothing_is_bound();
}

/*
 * How many allocations there are until a core has no window: those of DRM's device are among them, and must not fail, for
 * drm_minor_alloc_release() puts the error pointer that is left where a minor's device couldn't be made (Linux 7.3, drivers/gpu/drm/drm_drv.c).
 */
static unsigned allocations_of_a_bad_bind(void) {
  char text[16] = "";
  int result;

  arm(MOST_ALLOCATIONS * 10);
  result = write_file(DRIVER "/bind", "rk3588-rknpu-bank.1");
  if (pread(nth_fd, text, sizeof(text) - 1, 0) <= 0 || result == 0) return 0;
  arm(0);
  return MOST_ALLOCATIONS * 10 - (unsigned)atoi(text);
}

static void test_bind(void) {
  unsigned first;
  glob_t found;
  char *name;

  if (!injection_ready()) SKIP("this kernel has no fault injection for slabs");
  if (access("/sys/module/rknpu_bad_nodes", F_OK)) SKIP("rknpu_bad_nodes.ko isn't loaded");
  if (glob(DRIVER "/rk3588-rknpu-bank*", 0, NULL, &found) || found.gl_pathc != 1) SKIP("not for device trees");
  name = strdup(strrchr(found.gl_pathv[0], '/') + 1);
  globfree(&found);
  CHECK(write_file(DRIVER "/unbind", name) == 0);
  nothing_is_bound();
  first = allocations_of_a_bad_bind();
  REQUIRE(first > 0);
  tap_note("from allocation %u on", first);
  each_allocation_fails_from(first, "bind", do_bind, undo_bind, name);
  REQUIRE(write_file(DRIVER "/bind", name) == 0);
  free(name);
  device_works();
}

static const struct test tests[] = {
    {"every-allocation-fails-once", test_failslab, 600},
    {"every-allocation-of-a-bind-fails-once", test_bind, 600},
};

int main(int argc, char **argv) { return tap_run(tests, sizeof(tests) / sizeof(tests[0]), argc > 1 ? argv[1] : NULL, NULL); }
