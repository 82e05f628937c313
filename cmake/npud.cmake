# SPDX-License-Identifier: Apache-2.0
# What every target of the project shares.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# Flags of our own code; generated code is linked from targets that don't use this.
add_library(npud_flags INTERFACE)
target_compile_options(npud_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
if(NPUD_WERROR)
  target_compile_options(npud_flags INTERFACE -Werror)
endif()
target_include_directories(npud_flags INTERFACE ${PROJECT_SOURCE_DIR}/daemon ${PROJECT_SOURCE_DIR})
target_link_libraries(npud_flags INTERFACE Threads::Threads)

if(NPUD_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(NPUD_SANITIZE STREQUAL "thread")
  # Debian's libraries are built without it: what their headers would lay out otherwise for it has to stay as it is there.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -O1 -U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
  add_link_options(-fsanitize=thread)
elseif(NPUD_SANITIZE)
  message(FATAL_ERROR "NPUD_SANITIZE is '${NPUD_SANITIZE}': it takes address or thread")
endif()
if(NPUD_COVERAGE)
  add_compile_options(--coverage -O1)
  add_link_options(--coverage)
endif()

# npud_add_library(name SOURCES a.cc … [LIBS lib…])
function(npud_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC npud_flags ${ARG_LIBS})
endfunction()

# npud_add_test(name SOURCES a_test.cc … [LIBS lib…]): a GoogleTest program, one CTest entry, label "unit"
function(npud_add_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LIBS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE npud_flags ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 300)
endfunction()

# npud_add_fuzzer(name SOURCES … LIBS … CORPUS dir): a libFuzzer program where NPUD_FUZZ is on; its short run over the seeds is a
# CTest entry, label "fuzz"
add_custom_target(npud_fuzzers)
function(npud_add_fuzzer name)
  cmake_parse_arguments(ARG "" "CORPUS;RUNS" "SOURCES;LIBS" ${ARGN})
  if(NOT NPUD_FUZZ)
    return()
  endif()
  if(NOT ARG_RUNS)
    set(ARG_RUNS 20000)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE npud_flags ${ARG_LIBS})
  add_dependencies(npud_fuzzers ${name})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -DFUZZER=$<TARGET_FILE:${name}> -DCORPUS=${ARG_CORPUS} -DRUNS=${ARG_RUNS}
           -DWORK=${CMAKE_BINARY_DIR}/fuzz/${name} -P ${PROJECT_SOURCE_DIR}/cmake/run_fuzzer.cmake)
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 300)
endfunction()
