// SPDX-License-Identifier: Apache-2.0
#include "engine/bytes_tensor.h"

#include <gtest/gtest.h>

#include <string>

namespace npud {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(BytesTensor, ComesBackAsItWas) {
  const std::string with_zero("a\0b", 3);
  std::vector<std::string_view> elements{"", "text", with_zero};
  Buffer raw = encode_bytes_tensor(elements);
  ASSERT_EQ(raw.size_bytes(), 4 + 8 + 7u);
  auto back = decode_bytes_tensor(raw.bytes(), 3);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, elements);
  EXPECT_EQ(bytes_tensor_prefix(raw.bytes(), 2), 12u);
}

TEST(BytesTensor, RefusesWhatDoesntAddUp) {
  using namespace std::string_literals;
  const auto good = bytes_of("\3\0\0\0abc"s);
  EXPECT_TRUE(decode_bytes_tensor(good, 1));
  EXPECT_FALSE(decode_bytes_tensor(good, 0));
  EXPECT_FALSE(decode_bytes_tensor(good, 2));
  EXPECT_FALSE(decode_bytes_tensor(std::span(good).first(6), 1));
  EXPECT_FALSE(decode_bytes_tensor(std::span(good).first(3), 1));
  EXPECT_FALSE(decode_bytes_tensor(bytes_of("\xff\xff\xff\xff"s), 1));
  EXPECT_FALSE(decode_bytes_tensor(good, 1ull << 48)) << "a count must not become an allocation";
  EXPECT_TRUE(decode_bytes_tensor({}, 0));
}

}  // namespace
}  // namespace npud
