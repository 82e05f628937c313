# SPDX-License-Identifier: Apache-2.0
# Runs a libFuzzer program for a bounded number of inputs over a copy of its seeds; a crash fails and leaves its input in WORK.
file(MAKE_DIRECTORY ${WORK}/corpus)
execute_process(COMMAND ${FUZZER} -runs=${RUNS} -max_total_time=60 -seed=1 -rss_limit_mb=2048 -artifact_prefix=${WORK}/ ${WORK}/corpus ${CORPUS}
                RESULT_VARIABLE result ERROR_VARIABLE log OUTPUT_VARIABLE log)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${log}")
endif()
