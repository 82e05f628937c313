// SPDX-License-Identifier: Apache-2.0
#include "npud/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace npud::client {
namespace {

using ::testing::HasSubstr;

// A file as NumPy writes it, from its header's dictionary and its data.
std::string npy(std::string dictionary, std::string_view data, char major = 1) {
  const std::size_t prefix = major == 1 ? 10 : 12;
  dictionary.append(63 - (dictionary.size() + prefix) % 64, ' ');
  dictionary += '\n';
  std::string file = "\x93NUMPY";
  file += major;
  file += '\0';
  for (std::size_t i = 0; i < prefix - 8; ++i) file += static_cast<char>(dictionary.size() >> (8 * i) & 0xff);
  return file + dictionary + std::string(data);
}

std::string bytes_of(std::initializer_list<float> values) {
  std::string out;
  for (float v : values) out.append(reinterpret_cast<const char*>(&v), sizeof(v));
  return out;
}

std::string refusal(const std::string& file) {
  auto tensor = parse_npy(file);
  return tensor ? "" : tensor.error().message;
}

TEST(Npy, ReadsWhatNumPyWrites) {
  auto tensor =
      parse_npy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", bytes_of({1, 2, 3, 4, 5, 6})));
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_EQ(tensor->type, DataType::fp32);
  EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(*tensor->values<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(Npy, ReadsScalarsVectorsAndEmptyArraysOfAllVersions) {
  auto scalar = parse_npy(
      npy("{'descr': '<i8', 'fortran_order': False, 'shape': (), }", std::string("\x07\0\0\0\0\0\0\0", 8), 2));
  ASSERT_TRUE(scalar);
  EXPECT_TRUE(scalar->shape.empty());
  EXPECT_EQ(*scalar->values<std::int64_t>(), std::vector<std::int64_t>{7});
  auto vector = parse_npy(npy("{\"descr\": \"|u1\", \"fortran_order\": True, \"shape\": (3L,)}", "abc", 3));
  ASSERT_TRUE(vector);
  EXPECT_EQ(vector->shape, std::vector<std::int64_t>{3});
  auto empty = parse_npy(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4, 0), }", ""));
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->data.size(), 0u);
}

TEST(Npy, WritesWhatItReadsForEveryType) {
  for (auto type :
       {DataType::boolean, DataType::uint8, DataType::uint16, DataType::uint32, DataType::uint64, DataType::int8,
        DataType::int16, DataType::int32, DataType::int64, DataType::fp16, DataType::fp32, DataType::fp64}) {
    Tensor tensor{"x", type, {2, 1, 3}, std::string(6 * data_type_size(type), '\1'), {}};
    auto file = format_npy(tensor);
    ASSERT_TRUE(file);
    EXPECT_EQ((file->find('\n') + 1) % 64, 0u) << "NumPy wants the data aligned";
    auto back = parse_npy(*file);
    ASSERT_TRUE(back) << data_type_name(type) << ": " << back.error().message;
    EXPECT_EQ(back->type, type);
    EXPECT_EQ(back->shape, tensor.shape);
    EXPECT_EQ(back->data, tensor.data);
  }
}

TEST(Npy, StringsOfBothKindsBecomeBytes) {
  auto narrow = parse_npy(npy("{'descr': '|S3', 'fortran_order': False, 'shape': (2,), }", std::string("ab\0xyz", 6)));
  ASSERT_TRUE(narrow);
  EXPECT_EQ(*narrow->strings(), (std::vector<std::string>{"ab", "xyz"}));
  auto wide = parse_npy(
      npy("{'descr': '<U2', 'fortran_order': False, 'shape': (1,), }", std::string("\xe9\0\0\0\x42\x04\0\0", 8)));
  ASSERT_TRUE(wide);
  EXPECT_EQ(*wide->strings(), std::vector<std::string>{"\xc3\xa9\xd1\x82"});
  auto file = format_npy(Tensor::of_strings("s", {2}, std::vector<std::string>{"", "four"}));
  ASSERT_TRUE(file);
  EXPECT_EQ(*parse_npy(*file)->strings(), (std::vector<std::string>{"", "four"}));
  EXPECT_FALSE(format_npy(Tensor::of_strings("s", {1}, std::vector<std::string>{std::string("a\0", 2)})));
}

TEST(Npy, RefusesWhatIsNoArrayOrCannotBeSent) {
  const std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  EXPECT_THAT(refusal(""), HasSubstr("mark"));
  EXPECT_THAT(refusal("\x93NUMPY\x01"), HasSubstr("mark"));
  EXPECT_THAT(refusal(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "abcd").replace(6, 1, "\x09")),
              HasSubstr("version"));
  EXPECT_THAT(refusal(npy(head + "(2,), }", bytes_of({1}))), HasSubstr("need 8 bytes"));
  EXPECT_THAT(refusal(npy(head + "(1,), }", bytes_of({1, 2}))), HasSubstr("need 4 bytes"));
  EXPECT_THAT(refusal(npy(head + "(-1,), }", "")), HasSubstr("shape"));
  EXPECT_THAT(refusal(npy(head + "(1), }", bytes_of({1}))), HasSubstr("shape"));
  EXPECT_THAT(refusal(npy(head + "(9223372036854775807, 9223372036854775807), }", "")), HasSubstr("2^48"));
  EXPECT_THAT(refusal(npy(head + "(99999999999999999999,), }", "")), HasSubstr("shape"));
  EXPECT_THAT(refusal(npy(head + "(1,), 'shape': (1,), }", bytes_of({1}))), HasSubstr("twice"));
  EXPECT_THAT(refusal(npy(head + "(1,), 'more': 1, }", bytes_of({1}))), HasSubstr("unknown key"));
  EXPECT_THAT(refusal(npy("{'descr': '<f4', 'shape': (1,), }", bytes_of({1}))), HasSubstr("lacks"));
  EXPECT_THAT(refusal(npy(head + "(1,), } import os", bytes_of({1}))), HasSubstr("follows"));
  EXPECT_THAT(refusal(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "\x80\x04N.")),
              HasSubstr("Python objects"));
  EXPECT_THAT(refusal(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", bytes_of({1}))),
              HasSubstr("big-endian"));
  EXPECT_THAT(refusal(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", bytes_of({1}))),
              HasSubstr("structures"));
  EXPECT_THAT(refusal(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }", bytes_of({1}))),
              HasSubstr("Fortran"));
  EXPECT_THAT(refusal(npy("{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", "\x02")),
              HasSubstr("neither 0 nor 1"));
  EXPECT_THAT(refusal(npy("{'descr': '<U1', 'fortran_order': False, 'shape': (1,), }", std::string("\0\xd8\0\0", 4))),
              HasSubstr("Unicode"));
  EXPECT_THAT(refusal(npy("{'descr': '|S0', 'fortran_order': False, 'shape': (281474976710656,), }", "")),
              HasSubstr("don't make up"));
}

TEST(Npy, EveryTruncationIsRefused) {
  const std::string file = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", bytes_of({1, 2}));
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(parse_npy(std::string_view(file).substr(0, size))) << size;
}

TEST(Npy, FilesAreNamedInErrors) {
  auto directory = std::filesystem::path(::testing::TempDir()) / "npud-npy";
  std::filesystem::create_directories(directory);
  EXPECT_THAT(read_npy((directory / "missing.npy").string()).error().message, HasSubstr("missing.npy"));
  EXPECT_THAT(read_npy(directory.string()).error().message, HasSubstr("directory"));
  std::string path = (directory / "x.npy").string();
  Tensor tensor = Tensor::of<float>("x", {2}, std::vector<float>{1, 2});
  ASSERT_TRUE(write_npy(path, tensor));
  EXPECT_EQ(read_npy(path)->data, tensor.data);
  EXPECT_FALSE(write_npy((directory / "no" / "such").string(), tensor));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace npud::client
