// SPDX-License-Identifier: Apache-2.0
#include "devices/rknn/model_file.h"

#include "rknn_models.h"

namespace npud::rknn {
namespace {

Result<ModelFile> inspect(const std::string& bytes) { return inspect_model_file(std::as_bytes(std::span(bytes))); }

TEST(ModelFile, is_taken_apart_in_both_layouts) {
  for (const std::uint64_t version : {1, 2, 4, 6, 0x1001, 0x1004}) {
    const std::string file = test::rknn_file("a model", (version & 0xfff) == 1 ? 1 : version);
    const auto found = inspect(file);
    ASSERT_TRUE(found) << version << ": " << found.error().message;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(found->data.data()), found->data.size()), "a model");
    EXPECT_EQ(found->description.front(), std::byte{'{'});
    EXPECT_EQ(found->description.back(), std::byte{'}'});
  }
}

TEST(ModelFile, cut_short_anywhere_is_refused) {
  const std::string file = test::rknn_file(std::string(100, 'm'));
  for (std::size_t size = 0; size < file.size(); ++size) {
    // A buffer of exactly this size, so that a read beyond it is seen.
    const auto found = inspect(std::string(file.data(), size));
    ASSERT_FALSE(found) << size;
    ASSERT_EQ(found.error().code, ErrorCode::data_loss);
  }
}

TEST(ModelFile, whose_sizes_lie_is_refused) {
  const std::string file = test::rknn_file(std::string(100, 'm'));
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{99}, std::uint64_t{101}, std::uint64_t{1} << 32,
                                   ~std::uint64_t{0}, ~std::uint64_t{0} - 63}) {
    std::string lie = file;
    lie.replace(16, 8, test::u64_text(size));
    EXPECT_FALSE(inspect(lie)) << size;
    lie = file;
    lie.replace(64 + 100, 8, test::u64_text(size));
    EXPECT_FALSE(inspect(lie)) << size;
  }
}

TEST(ModelFile, of_another_kind_is_named) {
  EXPECT_EQ(inspect("CYPTRKNN" + std::string(100, 'x')).error().code, ErrorCode::unimplemented);
  EXPECT_TRUE(inspect("VPMN" + std::string(100, 'x')).error().message.contains("RKNPU1"));
  EXPECT_EQ(inspect("\x08\x07 an ONNX file, perhaps").error().code, ErrorCode::data_loss);
  std::string strange = test::rknn_file("model");
  strange.replace(8, 8, test::u64_text(0xfffffff));
  EXPECT_TRUE(inspect(strange).error().message.contains("0xfffffff"));
}

}  // namespace
}  // namespace npud::rknn
