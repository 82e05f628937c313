// SPDX-License-Identifier: Apache-2.0
// Packed models on disk: what comes back is what was put in, and what is torn, damaged, old or foreign never comes back
// at all.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "engine/offload_cache.h"
#include "npu_fixture.h"

namespace npud {
namespace {

using test::add_input;
using test::add_node;
using test::add_output;
using test::add_weight;
using ::testing::HasSubstr;

constexpr int kFloat = onnx::TensorProto::FLOAT;

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void overwrite(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

onnx::ModelProto small_model(float weight) {
  auto model = test::empty_model();
  add_input(model, "x", kFloat, {-1, 3, -1, -1});
  add_output(model, "y", kFloat, {-1, 5, -1, -1});
  add_weight(model, "w", {5, 3, 2, 2}, std::vector<float>(60, weight));
  add_weight(model, "b", {5}, {1, 2, 3, 4, 5});
  add_node(model, "Conv", {"x", "w", "b"}, {"c"}).set_name("conv");
  add_node(model, "Relu", {"c"}, {"y"});
  return model;
}

OffloadedGraph graph_of(float weight) {
  OffloadSettings settings;
  settings.wanted = true;
  auto graph = offload_graph(small_model(weight), settings, "rknpu0");
  EXPECT_TRUE(graph) << graph.error().message;
  return std::move(*graph);
}

class OffloadCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<OffloadCache> open(std::uint64_t most_bytes = 1 << 20) {
    auto cache = OffloadCache::open(directory_.path() / "packed", most_bytes);
    EXPECT_TRUE(cache) << cache.error().message;
    return cache ? std::move(*cache) : nullptr;
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path() / "packed"))
      found.push_back(entry.path());
    return found;
  }
  test::TempDirectory directory_;
};

TEST_F(OffloadCacheTest, WhatComesBackIsWhatWasPutIn) {
  const auto cache = open();
  const OffloadedGraph graph = graph_of(0.5f);
  EXPECT_FALSE(*cache->find("key"));
  ASSERT_TRUE(cache->store("key", graph));
  const auto found = open()->find("key");  // another opening: nothing is remembered
  ASSERT_TRUE(found && *found);
  EXPECT_EQ(offloaded_graph_to_bytes(**found), offloaded_graph_to_bytes(graph));
  EXPECT_EQ((*found)->nodes.at(0).packed.weights, graph.nodes.at(0).packed.weights);
  EXPECT_EQ((*found)->placements.at(0).name, "conv");
  EXPECT_FALSE(*cache->find("other"));
  EXPECT_EQ(files().size(), 1u) << "a part was left beside it";
}

TEST_F(OffloadCacheTest, TornFilesAreRefusedAtEveryLengthAndGone) {
  const auto cache = open();
  ASSERT_TRUE(cache->store("key", graph_of(0.5f)));
  const auto file = files().at(0);
  const std::string whole = contents(file);
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 16) {
    overwrite(file, whole.substr(0, length));
    const auto found = cache->find("key");
    ASSERT_FALSE(found) << length << " of " << whole.size() << " bytes";
    EXPECT_EQ(found.error().code, ErrorCode::data_loss);
    EXPECT_FALSE(std::filesystem::exists(file));
  }
  overwrite(file, whole + "x");
  EXPECT_FALSE(cache->find("key"));
}

TEST_F(OffloadCacheTest, EveryFlippedBitIsNoticed) {
  const auto cache = open();
  ASSERT_TRUE(cache->store("key", graph_of(0.5f)));
  const auto file = files().at(0);
  const std::string whole = contents(file);
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    if (at >= 12 && at < 16) continue;  // reserved
    std::string bad = whole;
    bad[at] = static_cast<char>(bad[at] ^ 1 << at % 8);
    overwrite(file, bad);
    EXPECT_FALSE(cache->find("key")) << "byte " << at;
  }
  overwrite(file, whole);
  EXPECT_TRUE(*cache->find("key"));
}

TEST_F(OffloadCacheTest, ContentsThatLieAboutTheirSizesAreRefused) {
  const std::string bytes = offloaded_graph_to_bytes(graph_of(0.5f));
  ASSERT_TRUE(offloaded_graph_from_bytes(bytes));
  for (std::size_t at = 0; at + 8 <= bytes.size(); ++at) {
    std::string bad = bytes;
    bad.replace(at, 8, 8, '\xff');
    offloaded_graph_from_bytes(bad);  // whatever it says, it must not read or allocate beyond what is there
  }
  EXPECT_FALSE(offloaded_graph_from_bytes(bytes.substr(0, bytes.size() - 1)));
  EXPECT_FALSE(offloaded_graph_from_bytes(bytes + '\0'));
  EXPECT_FALSE(offloaded_graph_from_bytes(std::string(8, '\xff')));
}

TEST_F(OffloadCacheTest, TheLeastRecentlyUsedMakesRoom) {
  const auto size = open()->store("a", graph_of(1)) ? std::filesystem::file_size(files().at(0)) : 0;
  const auto cache = open(2 * size + size / 2);
  ASSERT_TRUE(cache->store("b", graph_of(2)));
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(directory_.path() / "packed/a.npack", now - std::chrono::hours(2));
  std::filesystem::last_write_time(directory_.path() / "packed/b.npack", now - std::chrono::hours(1));
  ASSERT_TRUE(*cache->find("a"));  // used: now b is the older one
  ASSERT_TRUE(cache->store("c", graph_of(3)));
  EXPECT_TRUE(*cache->find("a"));
  EXPECT_FALSE(*cache->find("b"));
  EXPECT_TRUE(*cache->find("c"));
  ASSERT_TRUE(open(size / 2)->store("d", graph_of(4)));
  EXPECT_FALSE(*cache->find("d")) << "it is larger than the cache";
}

TEST_F(OffloadCacheTest, ADirectoryThatOthersMayWriteInIsRefused) {
  const auto where = directory_.path() / "packed";
  std::filesystem::create_directory(where);
  ::chmod(where.c_str(), 0777);
  const auto cache = OffloadCache::open(where, 1 << 20);
  ASSERT_FALSE(cache);
  EXPECT_THAT(cache.error().message, HasSubstr("only its owner"));
}

class CachedLoadTest : public test::NpuTest {};

TEST_F(CachedLoadTest, AModelFromTheCacheGivesTheSameBitsAndDamageIsRepaired) {
  test::TempDirectory directory;
  std::vector<std::string> notices;
  Options options;
  options.target.cache = *OffloadCache::open(directory.path() / "packed", 1 << 20);
  options.target.notice = [&](const std::string& text) { notices.push_back(text); };
  open(options);
  const auto input = noise_tensor("x", {2, 3, 20, 17});
  auto run = [&](const onnx::ModelProto& model, const Parameters& more = {}) {
    Parameters parameters{{"npud.device", "rknpu0"}};
    parameters.insert(parameters.end(), more.begin(), more.end());
    const auto npu = load("npu", model, parameters);
    if (!npu) return std::vector<float>{};
    EXPECT_EQ(npu->placements().size(), 1u);
    return test::floats(answer(*npu, {input}).outputs.at(0));
  };
  auto files = [&] {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path() / "packed"))
      found.push_back(entry.path());
    return found;
  };
  const auto first = run(small_model(0.25f));
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(run(small_model(0.25f)), first);
  EXPECT_EQ(files().size(), 1u) << "the second load found the first one's";
  EXPECT_NE(run(small_model(0.5f)), first) << "other weights are another model";
  EXPECT_EQ(files().size(), 2u);
  run(small_model(0.25f), {{"npud.precision", "int8"}});
  EXPECT_EQ(files().size(), 3u) << "another precision is packed otherwise";
  EXPECT_TRUE(notices.empty()) << notices.front();
  for (const auto& file : files()) overwrite(file, contents(file).substr(0, 300));
  EXPECT_EQ(run(small_model(0.25f)), first);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(notices[0], HasSubstr("is torn; it is made again"));
  EXPECT_EQ(run(small_model(0.25f)), first);
  EXPECT_EQ(notices.size(), 1u);
}

}  // namespace
}  // namespace npud
