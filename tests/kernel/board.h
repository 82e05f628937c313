// SPDX-License-Identifier: Apache-2.0
/*
 * The virtual board from inside the guest: its control BAR through kernel/vboard's debugfs file `npud_vboard/regs`, a 4-byte register at
 * each file offset (kernel/include/vboard/vboard_regs.h). Every function may be called from several processes at once.
 */
#ifndef NPUD_TESTS_KERNEL_BOARD_H
#define NPUD_TESTS_KERNEL_BOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "../../kernel/include/vboard/vboard_regs.h"

bool board_present(void);
uint32_t board_read(uint32_t offset);
void board_write(uint32_t offset, uint32_t value);

/* Arms a fault `count` times (0: until cleared) on a core, or for MMU kinds a bank, or VBOARD_FAULT_ANY_CORE. */
void board_fault(enum vboard_fault kind, uint32_t core, uint32_t arg, uint32_t count);
void board_clear_faults(void);
uint32_t board_fired(void); /* strikes since device reset */
uint32_t board_armed(void);
uint64_t board_counter(unsigned core, enum vboard_counter counter);
uint64_t board_counter_sum(enum vboard_counter counter); /* of all cores */
/* What no driver may do: touching a core without power, writing a live table's register, … */
uint32_t board_driver_faults(void);
const char *board_fault_name(enum vboard_fault kind);

#endif
