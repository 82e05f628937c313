// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/pci_config.h"

#include <gtest/gtest.h>

#include "client.h"

namespace npud::vfio_user::testing {
namespace {

class PciConfigTest : public ::testing::Test {
 protected:
  PciConfigTest() : config_(*PciConfig::create(MemoryDevice().spec)) {}
  template <typename T>
  T get(uint64_t offset) {
    T value{};
    config_.read(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  template <typename T>
  bool put(uint64_t offset, T value) {
    return config_.write(offset, std::as_bytes(std::span(&value, 1)));
  }
  PciConfig config_;
};

TEST_F(PciConfigTest, shows_the_identity) {
  EXPECT_EQ(get<uint32_t>(0x00), 0x35881d87u);
  EXPECT_EQ(get<uint32_t>(0x08), 0x12000000u);
  EXPECT_EQ(get<uint32_t>(0x2c), 0x22221111u);
  EXPECT_EQ(get<uint8_t>(0x3d), 1);
  EXPECT_EQ(get<uint8_t>(0x0e), 0) << "a type 0 header, single function";
}

TEST_F(PciConfigTest, keeps_read_only_registers) {
  std::array<uint8_t, 256> before, after;
  for (size_t i = 0; i < 256; i++) before[i] = get<uint8_t>(i);
  for (const size_t i :
       {0x00, 0x02, 0x06, 0x08, 0x09, 0x0e, 0x14, 0x2c, 0x30, 0x34, 0x3d, 0x40, 0x44, 0x48, 0x80, 0xfc})
    put<uint8_t>(i, 0xff);
  for (size_t i = 0; i < 256; i++) after[i] = get<uint8_t>(i);
  EXPECT_EQ(before, after);
}

TEST_F(PciConfigTest, sizes_and_places_bars) {
  put<uint32_t>(0x10, 0xffffffff);
  EXPECT_EQ(get<uint32_t>(0x10), 0xfffff000u);
  put<uint32_t>(0x18, 0xffffffff);
  EXPECT_EQ(get<uint32_t>(0x18), 0xffffe000u);
  put<uint32_t>(0x14, 0xffffffff);
  EXPECT_EQ(get<uint32_t>(0x14), 0u) << "an absent BAR";
  put<uint32_t>(0x10, 0xfe123456);
  EXPECT_EQ(get<uint32_t>(0x10), 0xfe123000u);
}

TEST_F(PciConfigTest, decodes_the_command_register) {
  EXPECT_FALSE(config_.bus_master());
  put<uint16_t>(0x04, 0xffff);
  EXPECT_EQ(get<uint16_t>(0x04), 0x0546);
  EXPECT_TRUE(config_.bus_master());
  EXPECT_TRUE(config_.intx_disabled());
  put<uint8_t>(0x05, 0);
  EXPECT_TRUE(config_.bus_master()) << "a byte's write leaves the other byte alone";
  EXPECT_FALSE(config_.intx_disabled());
  config_.reset();
  EXPECT_FALSE(config_.bus_master());
}

TEST_F(PciConfigTest, offers_msix) {
  EXPECT_EQ(get<uint16_t>(0x06) & 0x10, 0x10);
  EXPECT_EQ(get<uint8_t>(0x34), 0x40);
  EXPECT_EQ(get<uint16_t>(0x40), 0x5011);
  EXPECT_EQ(get<uint16_t>(0x42), 2) << "vectors minus one";
  EXPECT_EQ(get<uint32_t>(0x44), 4u);
  EXPECT_EQ(get<uint32_t>(0x48), 0x804u);
  put<uint16_t>(0x42, 0xffff);
  EXPECT_EQ(get<uint16_t>(0x42), 0xc002);
  EXPECT_TRUE(config_.msix_enabled());
  EXPECT_TRUE(config_.msix_function_masked());
}

TEST_F(PciConfigTest, offers_function_level_reset) {
  EXPECT_EQ(get<uint32_t>(0x50), 0x03060013u) << "the last capability";
  EXPECT_FALSE(put<uint8_t>(0x54, 0xfe));
  EXPECT_TRUE(put<uint8_t>(0x54, 1));
  EXPECT_TRUE(put<uint32_t>(0x52, 0x00010000)) << "a wider access reaches the control byte, too";
  EXPECT_EQ(get<uint16_t>(0x54), 0);
}

TEST_F(PciConfigTest, ignores_what_is_beyond_its_end) {
  put<uint64_t>(0xfc, ~0ull);
  put<uint64_t>(0xffffffffffffffff, ~0ull);
  EXPECT_EQ(get<uint64_t>(0xfc), 0u);
  EXPECT_EQ(get<uint64_t>(0xffffffffffffffff), 0u);
}

TEST(PciConfig, refuses_functions_that_can_not_be) {
  const auto refused = [](auto change) {
    FunctionSpec spec = MemoryDevice().spec;
    change(spec);
    const auto config = PciConfig::create(spec);
    return config ? std::string() : config.error();
  };
  EXPECT_NE(refused([](auto& s) { s.bar_bytes[0] = 0x1800; }).find("power of two"), std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.bar_bytes[0] = 8; }).find("power of two"), std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.bar_bytes[0] = 1ull << 33; }).find("power of two"), std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.class_code = 0x1000000; }).find("24 bits"), std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.msix_vectors = 2049; }).find("2048"), std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.msix_bar = 5; }).find("don't fit"), std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.msix_bar = 7; }).find("don't fit"), std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.msix_pba_offset = 0xffc; }).find("don't fit"), std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.msix_pba_offset = 0x28; }).find("overlap"), std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.msix_table_offset = 4; }).find("aligned"), std::string::npos);
  EXPECT_EQ(refused([](auto& s) { s.msix_vectors = 0; }), "");
}

}  // namespace
}  // namespace npud::vfio_user::testing
