// SPDX-License-Identifier: Apache-2.0
#include "board.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "npu.h"

#define BOARD_REGS "/sys/kernel/debug/npud_vboard/regs"

/* One descriptor a process: file locks belong to the open file, and a child would share its parent's. */
static int regs_fd(void) {
  static int fd = -1;
  static pid_t owner;

  if (fd >= 0 && owner == getpid()) return fd;
  mount_debugfs();
  fd = open(BOARD_REGS, O_RDWR | O_CLOEXEC);
  owner = getpid();
  return fd;
}

bool board_present(void) { return regs_fd() >= 0 && board_read(VBOARD_MAGIC) == VBOARD_MAGIC_VALUE; }

uint32_t board_read(uint32_t offset) {
  uint32_t value = 0;

  if (pread(regs_fd(), &value, sizeof(value), offset) != sizeof(value)) {
    printf("Bail out! " BOARD_REGS " at 0x%x: %s\n", offset, strerror(errno));
    fflush(stdout);
    _exit(1);
  }
  return value;
}

void board_write(uint32_t offset, uint32_t value) {
  if (pwrite(regs_fd(), &value, sizeof(value), offset) != sizeof(value)) {
    printf("Bail out! " BOARD_REGS " at 0x%x: %s\n", offset, strerror(errno));
    fflush(stdout);
    _exit(1);
  }
}

void board_fault(enum vboard_fault kind, uint32_t core, uint32_t arg, uint32_t count) {
  flock(regs_fd(), LOCK_EX); /* the five writes belong together */
  board_write(VBOARD_FAULT_KIND, kind);
  board_write(VBOARD_FAULT_CORE, core);
  board_write(VBOARD_FAULT_ARG, arg);
  board_write(VBOARD_FAULT_COUNT, count);
  board_write(VBOARD_FAULT_ARM, 1);
  flock(regs_fd(), LOCK_UN);
}

void board_clear_faults(void) { board_write(VBOARD_FAULT_CLEAR, 1); }

uint32_t board_fired(void) { return board_read(VBOARD_FAULT_FIRED); }

uint32_t board_armed(void) { return board_read(VBOARD_FAULT_ARM); }

uint64_t board_counter(unsigned core, enum vboard_counter counter) {
  const uint32_t at = VBOARD_COUNTER(core, counter);
  uint32_t high, low;

  /* Two reads of a moving number: again if the upper half moved. */
  do {
    high = board_read(at + 4);
    low = board_read(at);
  } while (board_read(at + 4) != high);
  return (uint64_t)high << 32 | low;
}

uint64_t board_counter_sum(enum vboard_counter counter) {
  uint64_t sum = 0;

  for (unsigned core = 0; core < VBOARD_CORES; core++) sum += board_counter(core, counter);
  return sum;
}

uint32_t board_driver_faults(void) { return board_read(VBOARD_DRIVER_FAULTS); }

const char *board_fault_name(enum vboard_fault kind) {
  static const char *const names[] = {
      [VBOARD_FAULT_NONE] = "none",
      [VBOARD_FAULT_DISPATCH_DROP] = "dispatch-drop",
      [VBOARD_FAULT_STALL] = "stall",
      [VBOARD_FAULT_IRQ_LATE] = "irq-late",
      [VBOARD_FAULT_IRQ_LOST] = "irq-lost",
      [VBOARD_FAULT_IRQ_SPURIOUS] = "irq-spurious",
      [VBOARD_FAULT_IRQ_EARLY] = "irq-early",
      [VBOARD_FAULT_MMU_NO_READBACK] = "mmu-no-readback",
      [VBOARD_FAULT_DEAD_UNTIL_RESET] = "dead-until-reset",
      [VBOARD_FAULT_DEAD] = "dead",
      [VBOARD_FAULT_UNMAPPED_HANGS] = "unmapped-hangs",
      [VBOARD_FAULT_WRONG_BIT] = "wrong-bit",
      [VBOARD_FAULT_STALL_REFUSED] = "stall-refused",
      [VBOARD_FAULT_STALE_OPERANDS] = "stale-operands",
      [VBOARD_FAULT_NEVER_STARTS] = "never-starts",
      [VBOARD_FAULT_RATE_UNPOWERED] = "rate-unpowered",
      [VBOARD_FAULT_STATUS_LAGS] = "status-lags",
  };

  return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "unknown";
}
