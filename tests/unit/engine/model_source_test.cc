// SPDX-License-Identifier: Apache-2.0
#include "engine/model_source.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx_models.h"

namespace npud {
namespace {

using ::testing::HasSubstr;

onnx::ModelProto external_model(const std::string& location) {
  auto model = test::matmul_model(3, 5, 1);
  auto* weight = model.mutable_graph()->mutable_initializer(0);
  weight->clear_raw_data();
  weight->set_data_location(onnx::TensorProto::EXTERNAL);
  auto* entry = weight->add_external_data();
  entry->set_key("location");
  entry->set_value(location);
  return model;
}

class ModelSourceTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const ModelSource>> open(std::uint64_t max_bytes = 1 << 20, bool snapshot = true) {
    return ModelSource::open(version / "model.onnx", snapshot ? snapshots : "", max_bytes);
  }
  static std::string why(const Result<std::shared_ptr<const ModelSource>>& result) {
    return result ? "it was accepted" : result.error().message;
  }
  void SetUp() override {
    std::filesystem::create_directories(version);
    std::filesystem::create_directories(snapshots);
  }
  test::TempDirectory directory;
  std::filesystem::path version = directory.path() / "m" / "1", snapshots = directory.path() / "snapshots";
};

TEST_F(ModelSourceTest, TakesExternalDataBesideTheModel) {
  test::write_model(version / "model.onnx", external_model("weights.bin"));
  EXPECT_THAT(why(open()), HasSubstr("missing"));
  test::write_file(version / "weights.bin", std::string(59, 'x'));
  EXPECT_THAT(why(open()), HasSubstr("has 59 bytes, a weight needs 60"));
  test::write_file(version / "weights.bin", std::string(60, 'x'));
  auto source = open();
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->external_bytes(), 60u);
  EXPECT_THAT(why(open(100)), HasSubstr("than the 100"));
}

TEST_F(ModelSourceTest, RefusesALinkOutOfTheDirectory) {
  test::write_model(version / "model.onnx", external_model("weights.bin"));
  test::write_file(directory.path() / "secret", std::string(60, 'x'));
  ASSERT_EQ(::symlink((directory.path() / "secret").c_str(), (version / "weights.bin").c_str()), 0);
  EXPECT_THAT(why(open()), HasSubstr("leads out"));
}

TEST_F(ModelSourceTest, ASnapshotStaysWhatItWasAndGoesWithItsObject) {
  test::write_model(version / "model.onnx", test::add_model({2}));
  auto source = open();
  ASSERT_TRUE(source);
  test::write_file(version / "model.onnx", "something else");
  EXPECT_TRUE((*source)->check_unchanged());
  EXPECT_FALSE(std::filesystem::is_empty(snapshots));
  source->reset();
  EXPECT_TRUE(std::filesystem::is_empty(snapshots));
}

TEST_F(ModelSourceTest, WithoutASnapshotAChangeIsNoticed) {
  test::write_model(version / "model.onnx", test::add_model({2}));
  auto source = open(1 << 20, false);
  ASSERT_TRUE(source);
  EXPECT_TRUE((*source)->check_unchanged());
  test::write_model(version / "model.onnx", test::add_model({3}));
  EXPECT_FALSE((*source)->check_unchanged());
}

TEST_F(ModelSourceTest, AFailureLeavesNoSnapshot) {
  test::write_file(version / "model.onnx", "not a model");
  EXPECT_FALSE(open());
  EXPECT_TRUE(std::filesystem::is_empty(snapshots));
  std::filesystem::remove(version / "model.onnx");
  EXPECT_EQ(open().error().code, ErrorCode::not_found);
  ASSERT_EQ(::mkfifo((version / "model.onnx").c_str(), 0600), 0);
  EXPECT_FALSE(open()) << "a pipe must not be waited for";
}

TEST_F(ModelSourceTest, ClearsAwayWhatAKilledDaemonLeft) {
  test::write_file(snapshots / "model-abcdef" / "model.onnx", "old");
  test::write_file(snapshots / "mine", "not a snapshot");
  auto claim = claim_snapshot_directory(snapshots);
  ASSERT_TRUE(claim);
  EXPECT_FALSE(std::filesystem::exists(snapshots / "model-abcdef"));
  EXPECT_TRUE(std::filesystem::exists(snapshots / "mine"));
  test::write_file(snapshots / "model-ghijkl" / "model.onnx", "of the daemon that runs");
  auto second = claim_snapshot_directory(snapshots);
  ASSERT_TRUE(second);
  EXPECT_TRUE(std::filesystem::exists(snapshots / "model-ghijkl"));
  ::close(*claim);
  ::close(*second);
}

}  // namespace
}  // namespace npud
