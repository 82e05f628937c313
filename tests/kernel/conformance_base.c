// SPDX-License-Identifier: Apache-2.0
/* Nodes, numbers and actions. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "conformance.h"

static uint32_t get_u32(const unsigned char *at) {
  uint32_t value;

  memcpy(&value, at, sizeof(value));
  return value;
}

static uint64_t get_u64(const unsigned char *at) {
  uint64_t value;

  memcpy(&value, at, sizeof(value));
  return value;
}

static void put_u32(unsigned char *at, uint32_t value) { memcpy(at, &value, sizeof(value)); }
static void put_u64(unsigned char *at, uint64_t value) { memcpy(at, &value, sizeof(value)); }


static void test_version(void) {
  char name[32] = "", description[128] = "";
  struct drm_version version = {.name = name, .name_len = 31, .desc = description, .desc_len = 127};
  const int fd = npu_open_or_die();

  REQUIRE(ioctl(fd, DRM_IOCTL_VERSION, &version) == 0);
  CHECK(strcmp(name, "rknpu") == 0, "(name '%s')", name);
  CHECK_EQ(version.version_major, 0);
  CHECK_EQ(version.version_minor, 9);
  CHECK_EQ(version.version_patchlevel, 8);
}

static void test_both_nodes(void) {
  for (int kind = NPU_CARD; kind <= NPU_RENDER; kind++) {
    const int fd = npu_open((enum npu_node)kind);
    struct gemm g;
    uint32_t value = 0;

    REQUIRE(fd >= 0, "(%s node)", kind == NPU_CARD ? "card" : "render");
    CHECK(npu_action(fd, RKNPU_GET_DRV_VERSION, &value) == 0);
    CHECK_EQ(value, 908);
    REQUIRE(gemm_small(&g, fd, 0, false, 3) == 0, "(%s)", strerror(errno));
    CHECK_EQ(gemm_run(&g, 1), 0);
    gemm_destroy(&g);
    close(fd);
  }
}

/* The interface byte by byte, with numbers and offsets from the table, so that a wrong header cannot hide. */
static void test_raw_numbers(void) {
  const int fd = npu_open_or_die();
  unsigned char action[8] = {0}, create[48] = {0}, map[16] = {0}, sync[32] = {0}, destroy[16] = {0}, submit[104] = {0};
  uint64_t cookie;
  void *memory;

  put_u32(action, 1);
  REQUIRE(ioctl(fd, 0xC0086440u, action) == 0);
  CHECK_EQ(get_u32(action + 4), 908);

  put_u32(create + 4, 0x403);
  put_u64(create + 8, 5000);
  REQUIRE(ioctl(fd, 0xC0306442u, create) == 0, "(%s)", strerror(errno));
  CHECK(get_u32(create) != 0);
  CHECK(get_u64(create + 8) >= 5000);
  CHECK(get_u64(create + 24) != 0);
  CHECK(get_u64(create + 24) + 8192 <= UINT64_C(1) << 32);
  cookie = get_u64(create + 16);
  CHECK(cookie != 0);

  put_u32(map, get_u32(create));
  REQUIRE(ioctl(fd, 0xC0106443u, map) == 0, "(%s)", strerror(errno));
  memory = mmap(NULL, 5000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)get_u64(map + 8));
  REQUIRE(memory != MAP_FAILED, "(%s)", strerror(errno));
  memset(memory, 0x5a, 5000);

  put_u32(sync, 3);
  put_u64(sync + 8, cookie);
  put_u64(sync + 16, 4096);
  put_u64(sync + 24, 904);
  CHECK(ioctl(fd, 0xC0206445u, sync) == 0, "(%s)", strerror(errno));

  /* A submit whose task array is empty of sense must reach the driver and be refused: number and size are known. */
  put_u64(submit + 24, cookie);
  put_u32(submit + 60, (uint32_t)-1);
  CHECK_ERRNO(ioctl(fd, 0xC0686441u, submit), EINVAL);

  munmap(memory, 5000);
  put_u32(destroy, get_u32(create));
  put_u64(destroy + 8, cookie);
  CHECK(ioctl(fd, 0xC0106444u, destroy) == 0, "(%s)", strerror(errno));
}

static void test_actions(void) {
  const int fd = npu_open_or_die();
  static const uint32_t zero[] = {RKNPU_GET_DT_WR_AMOUNT, RKNPU_GET_DT_RD_AMOUNT, RKNPU_GET_WT_RD_AMOUNT, RKNPU_GET_TOTAL_RW_AMOUNT,
                                  RKNPU_GET_TOTAL_SRAM_SIZE, RKNPU_GET_FREE_SRAM_SIZE};
  static const uint32_t unsupported[] = {RKNPU_SET_VOLT,      RKNPU_GET_BW_PRIORITY, RKNPU_SET_BW_PRIORITY, RKNPU_GET_BW_EXPECT,
                                         RKNPU_SET_BW_EXPECT, RKNPU_GET_BW_TW,       RKNPU_SET_BW_TW};
  uint32_t value = 0;

  CHECK(npu_action(fd, RKNPU_GET_HW_VERSION, &value) == 0);
  CHECK(value != 0);
  CHECK(npu_action(fd, RKNPU_GET_DRV_VERSION, &value) == 0);
  CHECK_EQ(value, 908);
  CHECK(npu_action(fd, RKNPU_GET_IOMMU_EN, &value) == 0);
  CHECK_EQ(value, 1);
  CHECK(npu_action(fd, RKNPU_ACT_CLR_TOTAL_RW_AMOUNT, NULL) == 0 || vendor);
  for (unsigned i = 0; i < sizeof(zero) / sizeof(zero[0]); i++) {
    value = 0xdeadbeef;
    CHECK(npu_action(fd, zero[i], &value) == 0, "(action %u: %s)", zero[i], strerror(errno));
    CHECK_EQ(value, 0);
  }
  value = 0;
  CHECK(npu_action(fd, RKNPU_SET_IOMMU_DOMAIN_ID, &value) == 0);
  value = 99;
  CHECK(npu_action(fd, RKNPU_GET_IOMMU_DOMAIN_ID, &value) == 0);
  CHECK_EQ(value, 0);
  CHECK(npu_action(fd, RKNPU_POWER_ON, NULL) == 0);
  CHECK(npu_action(fd, RKNPU_POWER_OFF, NULL) == 0);
  if (vendor) return;
  for (unsigned i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++) {
    value = 1;
    CHECK_ERRNO(npu_action(fd, unsupported[i], &value), EOPNOTSUPP);
  }
  /* With a clock or a regulator they have a value, without they say so: never a made-up number. */
  value = 0;
  CHECK(npu_action(fd, RKNPU_GET_FREQ, &value) == 0 ? value != 0 : errno == EOPNOTSUPP);
  value = 0;
  CHECK(npu_action(fd, RKNPU_GET_VOLT, &value) == 0 ? value != 0 : errno == EOPNOTSUPP);
  for (uint32_t action = 26; action < 0x100; action++) CHECK_ERRNO(npu_action(fd, action, NULL), EINVAL);
  CHECK_ERRNO(npu_action(fd, 0x103, NULL), EINVAL);
  CHECK_ERRNO(npu_action(fd, 0xffffffff, NULL), EINVAL);
}

static void test_actions_power_is_counted_per_file(void) {
  const int a = npu_open_or_die(), b = npu_open_or_die();
  struct gemm g;

  NPUD_ONLY();
  /* Another file's POWER_OFF, or one too many of our own, must not take the power from under anyone. */
  CHECK(npu_action(a, RKNPU_POWER_ON, NULL) == 0);
  for (int i = 0; i < 3; i++) npu_action(b, RKNPU_POWER_OFF, NULL);
  for (int i = 0; i < 3; i++) npu_action(a, RKNPU_POWER_OFF, NULL);
  REQUIRE(gemm_small(&g, a, 0, true, 4) == 0);
  CHECK_EQ(gemm_run(&g, 2), 0);
}

static void test_set_domain_action(void) {
  const int fd = npu_open_or_die();
  uint32_t value;

  NPUD_ONLY();
  for (uint32_t domain = 0; domain < RKNPU_MAX_DOMAINS; domain++) {
    value = domain;
    CHECK(npu_action(fd, domain % 2 ? RKNPU_SET_IOMMU_DOMAIN_ID : RKNPU_ACT_SET_DOMAIN, &value) == 0);
    value = 99;
    CHECK(npu_action(fd, RKNPU_GET_IOMMU_DOMAIN_ID, &value) == 0);
    CHECK_EQ(value, domain);
  }
  value = 16;
  CHECK_ERRNO(npu_action(fd, RKNPU_SET_IOMMU_DOMAIN_ID, &value), EINVAL);
  value = 0xffffffff;
  CHECK_ERRNO(npu_action(fd, RKNPU_ACT_SET_DOMAIN, &value), EINVAL);
}

const struct test base_tests[] = {
    {"version", test_version, 0},
    {"both-nodes", test_both_nodes, 0},
    {"raw-numbers", test_raw_numbers, 0},
    {"actions", test_actions, 0},
    {"actions-power-is-counted-per-file", test_actions_power_is_counted_per_file, 0},
    {"actions-set-domain", test_set_domain_action, 0},
};
const unsigned base_test_count = sizeof(base_tests) / sizeof(base_tests[0]);
