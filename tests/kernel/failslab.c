// SPDX-License-Identifier: Apache-2.0
/*
 * rknpu-failslab: every allocation of every operation fails once. Each operation is repeated with the first, second, third … slab
 * allocation of the calling thread failing (/proc/thread-self/fail-nth), until it gets through without one. It may fail with -ENOMEM or
 * succeed all the same; afterwards nothing is held and everything works. Needs CONFIG_FAILSLAB and CONFIG_FAULT_INJECTION_DEBUG_FS.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "baseline.h"
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
static void each_allocation_fails(const char *name, int (*operation)(void *), void (*undo)(void *), void *argument) {
  unsigned nth, refused = 0;

  for (nth = 1; nth < MOST_ALLOCATIONS; nth++) {
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

static const struct test tests[] = {{"every-allocation-fails-once", test_failslab, 600}};

int main(int argc, char **argv) { return tap_run(tests, 1, argc > 1 ? argv[1] : NULL, NULL); }
