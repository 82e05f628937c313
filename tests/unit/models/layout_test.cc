// SPDX-License-Identifier: Apache-2.0
#include "models/layout.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx_models.h"

namespace npud {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ModelName, IsOnePathComponent) {
  EXPECT_TRUE(check_model_name("resnet-50_v1.5"));
  for (std::string name : {"", ".", "..", ".hidden", "a/b", "/etc", "../x", "a\nb"})
    EXPECT_FALSE(check_model_name(name)) << name;
  EXPECT_FALSE(check_model_name(std::string_view("a\0b", 3)));
  EXPECT_FALSE(check_model_name(std::string(256, 'a')));
  for (const char* name : {"modèle", "模型", "\U0001f600", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(check_model_name(name)) << name;
  for (const char* name : {"mod\xe8le", "\x80", "a\xc3", "\xe6\xa8", "\xc0\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                           "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"})
    EXPECT_FALSE(check_model_name(name)) << "not UTF-8";
}

class LayoutTest : public ::testing::Test {
 protected:
  Layout layout(bool follow_links = false) { return Layout::open(root, follow_links).value(); }
  void SetUp() override { std::filesystem::create_directories(root); }
  test::TempDirectory directory;
  std::filesystem::path root = directory.path() / "models";
};

TEST_F(LayoutTest, FindsModelsAndVersions) {
  test::write_file(root / "b/1/model.onnx", "");
  test::write_file(root / "a/10/model.onnx", "");
  test::write_file(root / "a/9/model.onnx", "");
  for (std::string name : {"0", "01", "-1", "1x", "x", "99999999999999999999"})
    std::filesystem::create_directories(root / "a" / name);
  test::write_file(root / "a/7", "a file");
  test::write_file(root / "README", "");
  test::write_file(root / ".git/1/x", "");
  EXPECT_THAT(layout().models().value(), ElementsAre("a", "b"));
  EXPECT_THAT(layout().versions(root / "a"), ElementsAre(9, 10));
}

TEST_F(LayoutTest, LinksLeadOutOnlyWhereConfigured) {
  test::write_file(directory.path() / "outside/1/model.onnx", "x");
  ASSERT_EQ(::symlink("../outside", (root / "linked").c_str()), 0);
  EXPECT_EQ(layout().model_directory("linked").error().code, ErrorCode::permission_denied);
  EXPECT_TRUE(layout(true).model_directory("linked"));
  test::write_file(root / "m/1/other.onnx", "x");
  ASSERT_EQ(::symlink("other.onnx", (root / "m/1/model.onnx").c_str()), 0);
  EXPECT_TRUE(layout().fingerprint(root / "m")) << "a link inside is fine";
  ASSERT_EQ(::symlink("/etc/passwd", (root / "m/1/secret").c_str()), 0);
  EXPECT_EQ(layout().fingerprint(root / "m").error().code, ErrorCode::permission_denied);
  ASSERT_EQ(::symlink("/etc/passwd", (root / "m/config.pbtxt").c_str()), 0);
  EXPECT_EQ(layout().config_text(root / "m").error().code, ErrorCode::permission_denied);
}

TEST_F(LayoutTest, FingerprintsChangeWithTheFiles) {
  test::write_file(root / "m/1/model.onnx", "one");
  const auto first = layout().fingerprint(root / "m").value();
  EXPECT_EQ(layout().fingerprint(root / "m").value(), first);
  test::write_file(root / "m/1/model.onnx", "other");
  const auto second = layout().fingerprint(root / "m").value();
  EXPECT_NE(second, first);
  test::write_file(root / "m/config.pbtxt", "");
  EXPECT_NE(layout().fingerprint(root / "m").value(), second);
}

TEST_F(LayoutTest, OddFilesAreErrorsThatSaySo) {
  std::filesystem::create_directories(root / "m");
  EXPECT_EQ(layout().config_text(root / "m").value(), std::nullopt);
  ASSERT_EQ(::mkfifo((root / "m/config.pbtxt").c_str(), 0600), 0);
  EXPECT_THAT(layout().config_text(root / "m").error().message, HasSubstr("not a regular file"));
  std::filesystem::remove(root / "m/config.pbtxt");
  test::write_file(root / "m/config.pbtxt", std::string(5 << 20, ' '));
  EXPECT_THAT(layout().config_text(root / "m").error().message, HasSubstr("4 MiB"));
  EXPECT_THAT(Layout::open(directory.path() / "none", false).error().message, HasSubstr("repository.path"));
}

TEST(VersionPolicy, ChoosesVersions) {
  const std::vector<std::int64_t> there{1, 2, 5};
  auto choose = [&](const std::string& text) {
    inference::ModelVersionPolicy policy;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &policy));
    return choose_versions(policy, there);
  };
  EXPECT_THAT(choose("").value(), ElementsAre(5));
  EXPECT_THAT(choose("latest { num_versions: 2 }").value(), ElementsAre(2, 5));
  EXPECT_THAT(choose("latest { num_versions: 9 }").value(), ElementsAre(1, 2, 5));
  EXPECT_THAT(choose("all { }").value(), ElementsAre(1, 2, 5));
  EXPECT_THAT(choose("specific { versions: [5, 1, 5] }").value(), ElementsAre(1, 5));
  EXPECT_THAT(choose("specific { versions: [3] }").error().message, HasSubstr("version 3"));
  EXPECT_FALSE(choose("specific { }"));
  EXPECT_FALSE(choose_versions({}, {}));
}

}  // namespace
}  // namespace npud
