// SPDX-License-Identifier: Apache-2.0
#include "npud/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace npud::client {
namespace {

TEST(Tensor, TypesHaveNamesAndSizes) {
  for (int i = 0; i <= static_cast<int>(DataType::bytes); ++i) {
    auto type = static_cast<DataType>(i);
    EXPECT_EQ(data_type_from_name(data_type_name(type)), type);
  }
  EXPECT_EQ(data_type_size(DataType::fp16), 2u);
  EXPECT_EQ(data_type_size(DataType::bytes), 0u);
  EXPECT_FALSE(data_type_from_name("FLOAT"));
}

TEST(Tensor, CountsElements) {
  EXPECT_EQ(*element_count(std::vector<std::int64_t>{}), 1u);
  EXPECT_EQ(*element_count(std::vector<std::int64_t>{2, 3, 4}), 24u);
  EXPECT_EQ(*element_count(std::vector<std::int64_t>{1 << 30, 1 << 18, 0}), 0u);
  EXPECT_FALSE(element_count(std::vector<std::int64_t>{2, -1}));
  EXPECT_TRUE(element_count(std::vector<std::int64_t>{std::int64_t{1} << 48}));
  EXPECT_FALSE(element_count(std::vector<std::int64_t>{std::int64_t{1} << 48, 2}));
  EXPECT_FALSE(element_count(std::vector<std::int64_t>{INT64_MAX, INT64_MAX, INT64_MAX}));
}

TEST(Tensor, GivesItsValuesOnlyAsWhatTheyAre) {
  Tensor tensor = Tensor::of<float>("x", {2}, std::vector<float>{1.5f, -2});
  EXPECT_EQ(*tensor.values<float>(), (std::vector<float>{1.5f, -2}));
  auto wrong = tensor.values<std::int32_t>();
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, ::testing::AllOf(::testing::HasSubstr("'x'"), ::testing::HasSubstr("FP32"),
                                                      ::testing::HasSubstr("INT32")));
  tensor.data.pop_back();
  EXPECT_FALSE(tensor.values<float>());
}

TEST(Tensor, StringsCarryTheirLengths) {
  Tensor tensor = Tensor::of_strings("s", {3}, std::vector<std::string>{"", "a", std::string("\0b", 2)});
  EXPECT_EQ(tensor.data, std::string("\0\0\0\0\1\0\0\0a\2\0\0\0\0b", 15));
  EXPECT_EQ(*tensor.strings(), (std::vector<std::string>{"", "a", std::string("\0b", 2)}));
  tensor.data.pop_back();
  EXPECT_FALSE(tensor.strings());
  tensor.data = "\x01\x02";
  EXPECT_FALSE(tensor.strings());
  tensor.data = "\xff\xff\xff\xff";
  EXPECT_FALSE(tensor.strings());
}

}  // namespace
}  // namespace npud::client
