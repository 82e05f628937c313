// SPDX-License-Identifier: Apache-2.0
/* Compiled with -m32 and thrown away: the assertions of rknpu_drm_abi.h must hold for 32-bit user space too. */
#include "../../kernel/include/uapi/drm/rknpu_drm_abi.h"
