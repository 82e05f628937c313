// SPDX-License-Identifier: Apache-2.0
#include "service/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/utf8.h"

namespace npud {
namespace {

namespace fs = std::filesystem;
using api::RegionInfo;
using api::RegionPart;
using ::testing::HasSubstr;

constexpr char owner[] = "uid:me";

class SharedMemoryTest : public ::testing::Test {
 protected:
  SharedMemoryTest() {
    std::string name = (fs::temp_directory_path() / "npud-shm-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~SharedMemoryTest() override { fs::remove_all(directory_); }

  UniqueFd object(const std::string& name, std::size_t size_bytes) {
    UniqueFd fd(::open((directory_ / name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
    return fd;
  }
  static std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

  fs::path directory_;
  SharedMemoryConfig config_{.max_regions_per_tenant = 3, .max_region_bytes = 1 << 20, .max_in_flight_bytes = 1 << 16};
};

TEST_F(SharedMemoryTest, ReadsAndWritesWhereTheRegionSays) {
  SharedMemory memory(config_, System::real(), directory_);
  UniqueFd fd = object("a", 8192);
  ASSERT_EQ(::pwrite(fd.get(), "hello", 5, 4096 + 10), 5);
  ASSERT_TRUE(memory.add(owner, ::getuid(), {"in", "/a", 4096, 4096}));
  auto data = memory.read(owner, {"in", 10, 5});
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(std::memcmp(data->bytes().data(), "hello", 5), 0);
  ASSERT_TRUE(memory.write(owner, {"in", 100, 5}, bytes("world")));
  char back[5];
  ASSERT_EQ(::pread(fd.get(), back, 5, 4096 + 100), 5);
  EXPECT_EQ(std::memcmp(back, "world", 5), 0);
}

TEST_F(SharedMemoryTest, AReadIsACopyThatTheClientCantChange) {
  SharedMemory memory(config_, System::real(), directory_);
  UniqueFd fd = object("a", 4096);
  ASSERT_TRUE(memory.add(owner, ::getuid(), {"in", "/a", 0, 4096}));
  auto data = memory.read(owner, {"in", 0, 4});
  ASSERT_EQ(::pwrite(fd.get(), "evil", 4, 0), 4);
  ASSERT_EQ(::ftruncate(fd.get(), 0), 0);
  EXPECT_EQ(std::memcmp(data->bytes().data(), "\0\0\0\0", 4), 0);
}

TEST_F(SharedMemoryTest, AShrunkRegionIsAnErrorAtEachUse) {
  SharedMemory memory(config_, System::real(), directory_);
  UniqueFd fd = object("a", 8192);
  ASSERT_TRUE(memory.add(owner, ::getuid(), {"in", "/a", 0, 8192}));
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  EXPECT_TRUE(memory.read(owner, {"in", 0, 4096}));
  for (const auto& error : {memory.read(owner, {"in", 4096, 1}).error(), memory.check(owner, {"in", 0, 8192}).error(),
                            memory.write(owner, {"in", 4095, 2}, bytes("xy")).error()}) {
    EXPECT_EQ(error.code, ErrorCode::failed_precondition);
    EXPECT_THAT(error.message, HasSubstr("truncated"));
  }
  struct stat st{};
  ::fstat(fd.get(), &st);
  EXPECT_EQ(st.st_size, 4096) << "a failed write made the client's object grow";
}

// The object is cut short between the check and the read.
class Shrinking : public System {
 public:
  ssize_t pread(int fd, std::span<std::byte> out, std::uint64_t offset_bytes) override {
    if (reads++ == 0) {
      return System::pread(fd, out.first(out.size() / 2), offset_bytes);
    }
    return System::pread(fd, out, 1 << 30);
  }
  int reads = 0;
};

TEST_F(SharedMemoryTest, ATruncationWhileReadingIsAnErrorAndHoldsNoBytes) {
  Shrinking system;
  SharedMemory memory(config_, system, directory_);
  UniqueFd fd = object("a", 4096);
  ASSERT_TRUE(memory.add(owner, ::getuid(), {"in", "/a", 0, 4096}));
  auto data = memory.read(owner, {"in", 0, 4096});
  ASSERT_FALSE(data);
  EXPECT_EQ(data.error().code, ErrorCode::failed_precondition);
  EXPECT_EQ(memory.bytes_in_flight(), 0u);
}

TEST_F(SharedMemoryTest, RegionsOfOthersDontExist) {
  SharedMemory memory(config_, System::real(), directory_);
  UniqueFd fd = object("a", 4096);
  ASSERT_TRUE(memory.add(owner, ::getuid(), {"in", "/a", 0, 4096}));
  EXPECT_EQ(memory.read("uid:other", {"in", 0, 1}).error().code, ErrorCode::not_found);
  EXPECT_EQ(memory.list("uid:other", "in").error().code, ErrorCode::not_found);
  memory.remove("uid:other", "in");
  memory.remove("uid:other", "");
  EXPECT_TRUE(memory.read(owner, {"in", 0, 1}));
}

TEST_F(SharedMemoryTest, LongNamesAreCutBetweenCharacters) {
  SharedMemory memory(config_, System::real(), directory_);
  const std::string name = std::string(63, 'a') + "é";  // its last character would be cut in two
  auto data = memory.read(owner, {name, 0, 4});
  ASSERT_FALSE(data);
  EXPECT_TRUE(is_utf8(data.error().message)) << data.error().message;
  EXPECT_THAT(data.error().message, HasSubstr(std::string(63, 'a') + "'"));
}

TEST_F(SharedMemoryTest, AnObjectOfAnotherUidIsRefused) {
  SharedMemory memory(config_, System::real(), directory_);
  UniqueFd fd = object("a", 4096);
  auto added = memory.add(owner, ::getuid() + 1, {"in", "/a", 0, 4096});
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::permission_denied);
}

TEST_F(SharedMemoryTest, LinksAndPathsAndOtherKindsOfFilesAreRefused) {
  SharedMemory memory(config_, System::real(), directory_);
  UniqueFd fd = object("a", 4096);
  fs::create_symlink("/etc/passwd", directory_ / "link");
  fs::create_symlink("a", directory_ / "near");
  fs::create_directory(directory_ / "dir");
  ASSERT_EQ(::mkfifo((directory_ / "fifo").c_str(), 0600), 0);
  for (const char* key :
       {"/link", "/near", "/dir", "/fifo", "/../a", "..", ".", "/", "", "/dir/../a", "//a", "/absent"}) {
    EXPECT_FALSE(memory.add(owner, ::getuid(), {"r", key, 0, 1})) << key;
  }
  EXPECT_FALSE(memory.add(owner, ::getuid(), {"r", std::string("a\0b", 3), 0, 1}));
  EXPECT_EQ(memory.region_count(), 0u);
}

TEST_F(SharedMemoryTest, PartsOutsideOfTheRegionAreRefusedWithoutOverflow) {
  SharedMemory memory(config_, System::real(), directory_);
  UniqueFd fd = object("a", 8192);
  ASSERT_TRUE(memory.add(owner, ::getuid(), {"in", "/a", 0, 4096}));
  for (const RegionPart& part :
       {RegionPart{"in", 4096, 1}, {"in", 0, 4097}, {"in", ~0ull, 2}, {"in", 2, ~0ull}, {"in", ~0ull, ~0ull}}) {
    EXPECT_EQ(memory.read(owner, part).error().code, ErrorCode::invalid_argument);
  }
  EXPECT_FALSE(memory.add(owner, ::getuid(), {"big", "/a", 0, 8193}));
  EXPECT_FALSE(memory.add(owner, ::getuid(), {"far", "/a", ~0ull, 8}));
  EXPECT_FALSE(memory.add(owner, ::getuid(), {"none", "/a", 0, 0}));
}

TEST_F(SharedMemoryTest, CountsAndBytesAreBounded) {
  SharedMemory memory(config_, System::real(), directory_);
  UniqueFd fd = object("a", 1 << 17);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(memory.add(owner, ::getuid(), {std::to_string(i), "/a", 0, 1 << 17}));
  }
  EXPECT_EQ(memory.add(owner, ::getuid(), {"4", "/a", 0, 1}).error().code, ErrorCode::resource_exhausted);
  EXPECT_EQ(memory.add(owner, ::getuid(), {"1", "/a", 0, 1}).error().code, ErrorCode::already_exists);
  {
    auto first = memory.read(owner, {"0", 0, 3 << 13});
    ASSERT_TRUE(first);
    EXPECT_EQ(memory.bytes_in_flight(), 3u << 13);
    auto second = memory.read(owner, {"0", 0, (1 << 13) + 1});
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::resource_exhausted);
    EXPECT_TRUE(second.error().retry_after);
    EXPECT_EQ(second.error().bytes_free, 1u << 13);
    EXPECT_TRUE(memory.read(owner, {"0", 0, 1 << 13}));
  }
  EXPECT_EQ(memory.bytes_in_flight(), 0u);
  memory.remove(owner, "");
  EXPECT_EQ(memory.region_count(), 0u);
}

TEST_F(SharedMemoryTest, WhatCanNeverFitIsNotToBeTriedAgain) {
  SharedMemory memory(config_, System::real(), directory_);
  UniqueFd fd = object("a", 1 << 17);
  ASSERT_TRUE(memory.add(owner, ::getuid(), {"in", "/a", 0, 1 << 17}));
  EXPECT_TRUE(memory.read(owner, {"in", 0, 1 << 15}));
  auto data = memory.read(owner, {"in", 0, (1 << 15) + 1});
  ASSERT_FALSE(data);
  EXPECT_EQ(data.error().code, ErrorCode::invalid_argument);
  EXPECT_FALSE(data.error().retry_after);
  EXPECT_EQ(memory.bytes_in_flight(), 0u);
}

TEST_F(SharedMemoryTest, NobodyHoldsMoreThanIsLeftForOthers) {
  SharedMemory memory(config_, System::real(), directory_);
  UniqueFd fd = object("a", 1 << 17);
  std::vector<Buffer> held;
  std::uint64_t before = 0;
  for (int user = 0; user < 4; ++user) {
    const std::string name = "uid:" + std::to_string(user);
    ASSERT_TRUE(memory.add(name, ::getuid(), {"in", "/a", 0, 1 << 17}));
    std::uint64_t taken = 0;
    while (auto data = memory.read(name, {"in", 0, 256})) {
      held.push_back(*std::move(data));
      taken += 256;
    }
    // Half of what the ones before left.
    EXPECT_EQ(taken, ((1u << 16) - before) / 2);
    before += taken;
    EXPECT_EQ(memory.bytes_in_flight(), before);
  }
  held.clear();
  EXPECT_EQ(memory.bytes_in_flight(), 0u);
  EXPECT_TRUE(memory.read("uid:0", {"in", 0, 1 << 15})) << "what was given back isn't there";
}

}  // namespace
}  // namespace npud
