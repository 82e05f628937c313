// SPDX-License-Identifier: Apache-2.0
/*
 * Test Anything Protocol for guest programs. A test is a function; it runs in a process of its own with a deadline, so that one that
 * hangs or dies fails alone. CHECK notes a failure and goes on, REQUIRE notes it and leaves the function, SKIP says why a test does not
 * apply here. tap_run() prints the plan and one line a test and returns the exit status: 0 only if nothing failed.
 */
#ifndef NPUD_TESTS_KERNEL_TAP_H
#define NPUD_TESTS_KERNEL_TAP_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct test {
  const char *name;
  void (*run)(void);
  unsigned seconds; /* deadline, times $TAP_PATIENCE; 0: TAP_DEFAULT_SECONDS */
};

enum { TAP_DEFAULT_SECONDS = 120 };

void tap_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void tap_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void tap_skip(const char *why, ...) __attribute__((format(printf, 1, 2)));
int tap_failed(void); /* whether the running test (this process) has failed already */

/* What $TAP_PATIENCE multiplies deadlines with, for machines and kernels on which everything is slow: 1 to 100. */
unsigned tap_patience(void);

/* Runs the tests whose name contains `pattern` (all if NULL). `epilogue`, if not NULL, runs behind each test, in its process. */
int tap_run(const struct test *tests, unsigned count, const char *pattern, void (*epilogue)(void));

#define CHECK(condition, ...)                                                \
  do {                                                                       \
    if (!(condition)) TAP_FAIL_(#condition, "" __VA_ARGS__);                 \
  } while (0)
#define REQUIRE(condition, ...)                    \
  do {                                             \
    if (!(condition)) {                            \
      TAP_FAIL_(#condition, "" __VA_ARGS__);       \
      return;                                      \
    }                                              \
  } while (0)
#define TAP_FAIL_(text, format, ...) tap_fail(__FILE__, __LINE__, "not true: %s " format, text __VA_OPT__(, ) __VA_ARGS__)

/* The call must fail with this errno. */
#define CHECK_ERRNO(call, code)                                                                                 \
  do {                                                                                                          \
    errno = 0;                                                                                                  \
    long tap_result_ = (long)(call);                                                                            \
    if (tap_result_ != -1 || errno != (code))                                                                   \
      tap_fail(__FILE__, __LINE__, "%s: got %ld (%s), wanted %s", #call, tap_result_,                           \
               tap_result_ == -1 ? strerror(errno) : "no error", #code);                                        \
  } while (0)
#define CHECK_EQ(got, wanted)                                                                                   \
  do {                                                                                                          \
    unsigned long long tap_got_ = (unsigned long long)(got), tap_wanted_ = (unsigned long long)(wanted);        \
    if (tap_got_ != tap_wanted_)                                                                                \
      tap_fail(__FILE__, __LINE__, "%s: got %llu (0x%llx), wanted %llu (0x%llx)", #got, tap_got_, tap_got_,     \
               tap_wanted_, tap_wanted_);                                                                       \
  } while (0)
#define SKIP(...)          \
  do {                     \
    tap_skip(__VA_ARGS__); \
    return;                \
  } while (0)

#endif
