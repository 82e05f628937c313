// SPDX-License-Identifier: Apache-2.0
#include "baseline.h"

#include "tap.h"

bool baseline_take(int fd, struct baseline *baseline) { return query_device(fd, &baseline->device) == 0; }

bool baseline_restored(int fd, const struct baseline *baseline) {
  const struct rknpu_npud_device_info *was = &baseline->device;
  struct rknpu_npud_device_info is;

  for (int i = 0; i < 2000; i++) {
    if (query_device(fd, &is)) {
      tap_note("the device query fails");
      return false;
    }
    if (is.files == was->files && is.spaces == was->spaces && is.iova_bytes == was->iova_bytes && is.jobs_queued == was->jobs_queued &&
        is.jobs_running == was->jobs_running)
      return true;
    sleep_ms(10);
  }
  tap_note("files %u (were %u), spaces %u (%u), IOVA bytes %llu (%llu), queued %u (%u), running %u (%u)", is.files, was->files, is.spaces,
           was->spaces, (unsigned long long)is.iova_bytes, (unsigned long long)was->iova_bytes, is.jobs_queued, was->jobs_queued,
           is.jobs_running, was->jobs_running);
  return false;
}

void device_works(void) {
  const int fd = npu_open_or_die();
  struct rknpu_npud_device_info device;
  struct gemm g;

  REQUIRE(query_device(fd, &device) == 0);
  CHECK_EQ(device.flags, 0);
  REQUIRE(gemm_small(&g, fd, 0, false, 3) == 0);
  for (unsigned core = 0; core < NPU_CORES; core++) CHECK_EQ(gemm_run(&g, 1u << core), 0);
}
