# SPDX-License-Identifier: Apache-2.0
# CMake toolchain: from the build root (amd64) to Debian 13 on arm64, with the libraries of tools/sysroot arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# Kept in the environment, since CMake reads this file anew for each of its compiler checks.
if(NOT DEFINED ENV{NPUD_SYSROOT_ARM64})
  execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/sysroot arm64 OUTPUT_VARIABLE sysroot OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "tools/sysroot arm64 failed")
  endif()
  set(ENV{NPUD_SYSROOT_ARM64} ${sysroot})
endif()
set(CMAKE_SYSROOT $ENV{NPUD_SYSROOT_ARM64})
set(CMAKE_FIND_ROOT_PATH ${CMAKE_SYSROOT})

# Programs run here; what is compiled against and linked is the target's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_PATH} "")
