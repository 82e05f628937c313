// SPDX-License-Identifier: Apache-2.0
#include "tap.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_SKIPPED = 77 };

static int failures;
static int skipped;
static char skip_reason[256];

void tap_fail(const char *file, int line, const char *format, ...) {
  const char *base = strrchr(file, '/');
  char text[512];
  va_list arguments;

  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  /* A test that fails a thousand times says so ten times. */
  if (failures++ < 10) printf("# %s:%d: %s\n", base ? base + 1 : file, line, text);
  fflush(stdout);
}

void tap_note(const char *format, ...) {
  char text[512];
  va_list arguments;

  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  printf("# %s\n", text);
  fflush(stdout);
}

void tap_skip(const char *why, ...) {
  va_list arguments;

  va_start(arguments, why);
  vsnprintf(skip_reason, sizeof(skip_reason), why, arguments);
  va_end(arguments);
  skipped = 1;
}

int tap_failed(void) { return failures != 0; }

/* In the child: runs the test and turns what it noted into an exit status. */
static void run_child(const struct test *test, void (*epilogue)(void)) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  test->run();
  if (epilogue) epilogue();
  if (skipped && !failures) {
    printf("# skip: %s\n", skip_reason);
    fflush(stdout);
    _exit(EXIT_SKIPPED);
  }
  fflush(stdout);
  _exit(failures ? EXIT_FAILED : 0);
}

/* Waits for the child until the deadline; returns its status, or -1 after killing its whole group. */
static int wait_child(pid_t child, unsigned seconds) {
  struct timespec now, end;
  int status;

  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += seconds;
  for (;;) {
    const pid_t got = waitpid(child, &status, WNOHANG);

    if (got == child) return status;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec > end.tv_sec) break;
    usleep(2000);
  }
  kill(-child, SIGKILL);
  kill(child, SIGKILL);
  /* A child in an uninterruptible wait would keep us here for good: give it some seconds to die, then leave it. */
  for (int i = 0; i < 1000; i++) {
    if (waitpid(child, &status, WNOHANG) == child) return -1;
    usleep(10000);
  }
  printf("# the test's process cannot be killed\n");
  return -1;
}

unsigned tap_patience(void) {
  const char *text = getenv("TAP_PATIENCE");
  const unsigned long factor = text ? strtoul(text, NULL, 10) : 1;

  return factor >= 1 && factor <= 100 ? (unsigned)factor : 1;
}

static void say_if_long(const struct timespec *began) {
  struct timespec now;
  double seconds;

  clock_gettime(CLOCK_MONOTONIC, &now);
  seconds = (double)(now.tv_sec - began->tv_sec) + (double)(now.tv_nsec - began->tv_nsec) / 1e9;
  if (seconds > 3) printf("# took %.1f s\n", seconds);
}

int tap_run(const struct test *tests, unsigned count, const char *pattern, void (*epilogue)(void)) {
  unsigned planned = 0, number = 0, failed = 0;

  setvbuf(stdout, NULL, _IOLBF, 0);
  for (unsigned i = 0; i < count; i++) planned += !pattern || strstr(tests[i].name, pattern);
  if (!planned) {
    fprintf(stderr, "no test's name contains '%s'\n", pattern);
    return 2;
  }
  printf("TAP version 13\n1..%u\n", planned);
  for (unsigned i = 0; i < count; i++) {
    const unsigned seconds = (tests[i].seconds ? tests[i].seconds : (unsigned)TAP_DEFAULT_SECONDS) * tap_patience();
    struct timespec began;
    pid_t child;
    int status;

    if (pattern && !strstr(tests[i].name, pattern)) continue;
    fflush(stdout);
    clock_gettime(CLOCK_MONOTONIC, &began);
    child = fork();
    if (child == 0) run_child(&tests[i], epilogue);
    if (child < 0) {
      printf("Bail out! fork: %s\n", strerror(errno));
      return 1;
    }
    status = wait_child(child, seconds);
    kill(-child, SIGKILL); /* whatever the test left behind */
    number++;
    if (status == -1) {
      failed++;
      printf("not ok %u - %s # did not end within %u s\n", number, tests[i].name, seconds);
    } else if (WIFSIGNALED(status)) {
      failed++;
      printf("not ok %u - %s # died of signal %d\n", number, tests[i].name, WTERMSIG(status));
    } else if (WEXITSTATUS(status) == EXIT_SKIPPED) {
      printf("ok %u - %s # SKIP\n", number, tests[i].name);
    } else if (WEXITSTATUS(status)) {
      failed++;
      printf("not ok %u - %s\n", number, tests[i].name);
    } else {
      printf("ok %u - %s\n", number, tests[i].name);
    }
    say_if_long(&began);
  }
  printf("# %u passed, %u failed\n", number - failed, failed);
  return failed ? 1 : 0;
}
