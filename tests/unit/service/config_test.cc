// SPDX-License-Identifier: Apache-2.0
#include "service/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace npud {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class ConfigFiles : public ::testing::Test {
 protected:
  ConfigFiles() {
    std::string name = (fs::temp_directory_path() / "npud-config-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~ConfigFiles() override { fs::remove_all(directory_); }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name) << text;
  }
  ConfigSources sources() const {
    return {.file = {}, .directories = {directory_ / "etc", directory_ / "run", directory_ / "lib"}};
  }
  fs::path directory_;
};

std::string error_of(std::string_view text) {
  Config config;
  auto result = apply_config_text(config, text, "test.toml");
  return result ? "no error" : result.error().message;
}

TEST(Config, HasDefaultsThatPassItsOwnChecks) { EXPECT_TRUE(check_config(Config{})); }

TEST(Config, ReadsEveryKindOfValue) {
  Config config;
  auto result = apply_config_text(config, R"(
[server]
socket = "/tmp/x.sock"
max_connections = 7
handshake_timeout_ms = 250
max_message_bytes = "8 MiB"
[log]
target = "stderr"
level = "debug"
[repository]
mode = "explicit"
load = ["a", "b"]
follow_links = true
[devices.host]
slots = 4
aperture_bytes = 1048576
[admin]
uids = [1000, 1001]
[[tenant]]
name = "camera"
uids = [2000]
weight = 300
max_class = "realtime"
)",
                                  "test.toml");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(config.server.socket, "/tmp/x.sock");
  EXPECT_EQ(config.server.max_connections, 7u);
  EXPECT_EQ(config.server.handshake_timeout.count(), 250);
  EXPECT_EQ(config.server.max_message_bytes, 8u << 20);
  EXPECT_EQ(config.log.target, LogTarget::stderr_text);
  EXPECT_EQ(config.log.level, LogLevel::debug);
  EXPECT_THAT(config.repository.load, ElementsAre("a", "b"));
  EXPECT_TRUE(config.repository.follow_links);
  EXPECT_EQ(config.host.slots, 4u);
  EXPECT_EQ(config.host.aperture_bytes, 1048576u);
  EXPECT_THAT(config.admin.uids, ElementsAre(1000, 1001));
  ASSERT_EQ(config.tenants.size(), 1u);
  EXPECT_EQ(config.tenants[0].weight, 300u);
  EXPECT_EQ(config.tenants[0].max_class, "realtime");
}

TEST(Config, NamesFileAndLineOfWhatIsUnknown) {
  EXPECT_THAT(error_of("[server]\nsokcet = \"/x\"\n"), AllOf(StartsWith("test.toml:2:1:"), HasSubstr("server.sokcet")));
  EXPECT_THAT(error_of("\n\n[serverr]\n"), AllOf(StartsWith("test.toml:3:"), HasSubstr("unknown key serverr")));
  EXPECT_THAT(error_of("[devices.gpu]\nslots = 1\n"), HasSubstr("unknown key devices.gpu"));
  EXPECT_THAT(error_of("[[tenant]]\nname = \"a\"\nuid = 1\n"),
              AllOf(StartsWith("test.toml:3:1:"), HasSubstr("tenant.uid")));
}

TEST(Config, SaysWhatWasExpectedOfAWrongValue) {
  EXPECT_THAT(error_of("[server]\nmax_connections = 0\n"),
              AllOf(StartsWith("test.toml:2:"), HasSubstr("from 1 to 65536")));
  EXPECT_THAT(error_of("[server]\nmax_connections = \"many\"\n"), HasSubstr("a string that doesn't fit"));
  EXPECT_THAT(error_of("[server]\nmax_message_bytes = \"8 MB\"\n"), HasSubstr("64 MiB"));
  EXPECT_THAT(error_of("[server]\nmax_message_bytes = \"99999999999 TiB\"\n"), HasSubstr("expected bytes"));
  EXPECT_THAT(error_of("[log]\nlevel = \"loud\"\n"), HasSubstr("\"warning\""));
  EXPECT_THAT(error_of("[repository]\nmode = \"sometimes\"\n"), HasSubstr("\"poll\""));
  EXPECT_THAT(error_of("[admin]\nuids = [-1]\n"), HasSubstr("user ids"));
  EXPECT_THAT(error_of("[admin]\nuids = [\"root\"]\n"), HasSubstr("user ids"));
  EXPECT_THAT(error_of("server = 3\n"), HasSubstr("it must be a table"));
  EXPECT_THAT(error_of("tenant = 3\n"), HasSubstr("[[tenant]]"));
  EXPECT_THAT(error_of("[[tenant]]\nuids = [1]\n"), HasSubstr("no name"));
  EXPECT_THAT(error_of("[server\n"), StartsWith("test.toml:1:"));
}

TEST(Config, ChangesNothingWhenAFileIsWrong) {
  Config config;
  EXPECT_FALSE(apply_config_text(config, "[server]\nmax_connections = 9\nnonsense = 1\n", "test.toml"));
  EXPECT_EQ(config.server.max_connections, Config{}.server.max_connections);
}

TEST(Config, ChecksAcrossKeys) {
  Config config;
  config.tls.address = "localhost:1";
  EXPECT_THAT(check_config(config).error().message, HasSubstr("tls.certificate_file"));
  config = {};
  config.tenants = {{.name = "a", .uids = {5}}, {.name = "b", .uids = {5}}};
  EXPECT_THAT(check_config(config).error().message, HasSubstr("uid 5 is in both tenants 'a' and 'b'"));
  config.tenants = {{.name = "a", .uids = {5}}, {.name = "a", .uids = {6}}};
  EXPECT_THAT(check_config(config).error().message, HasSubstr("two tenants are named 'a'"));
  config.tenants = {{.name = "a"}};
  EXPECT_THAT(check_config(config).error().message, HasSubstr("nobody could be it"));
  config = {};
  config.server.socket_mode = "rw";
  EXPECT_FALSE(check_config(config));
  config = {};
  config.server.socket = "relative.sock";
  EXPECT_FALSE(check_config(config));
  config = {};
  config.repository.load = {"a"};
  EXPECT_THAT(check_config(config).error().message, HasSubstr("explicit"));
}

TEST(Config, DumpReadsBackAsTheSame) {
  Config config;
  config.server.socket = "/tmp/with \"quotes\" and \\ and \x01.sock";
  config.repository.load = {"a", "b\"c"};
  config.repository.mode = "explicit";
  config.admin.uids = {1, 2};
  config.tenants = {
      {.name = "x", .uids = {7}, .certificates = {"cam"}, .weight = 3, .max_class = "batch", .max_bytes = 5}};
  const std::string text = dump_config(config);
  Config again;
  auto result = apply_config_text(again, text, "dump.toml");
  ASSERT_TRUE(result) << result.error().message << "\n" << text;
  EXPECT_EQ(dump_config(again), text);
  EXPECT_EQ(again.server.socket, config.server.socket);
}

TEST_F(ConfigFiles, AnEarlierDirectoryHidesMainFilesAndDropInsOfTheSameName) {
  write("lib/npud.toml", "[server]\nmax_connections = 1\nmax_streams_per_connection = 1\n");
  write("etc/npud.toml", "[server]\nmax_connections = 2\n");
  write("lib/npud.toml.d/50-a.toml", "[server]\nmax_silent_connections = 3\n");
  write("etc/npud.toml.d/50-a.toml", "[server]\nmax_silent_connections = 4\n");
  write("lib/npud.toml.d/60-b.toml", "[server]\nmax_tenant_servers = 5\n");
  write("lib/npud.toml.d/70-c.conf", "nonsense");
  auto config = load_config(sources());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server.max_connections, 2u);
  EXPECT_EQ(config->server.max_streams_per_connection, Config{}.server.max_streams_per_connection);
  EXPECT_EQ(config->server.max_silent_connections, 4u);
  EXPECT_EQ(config->server.max_tenant_servers, 5u);
  EXPECT_EQ(config->files.size(), 3u);
}

TEST_F(ConfigFiles, LaterDropInsChangeTenantsByName) {
  write("etc/npud.toml", "[[tenant]]\nname = \"a\"\nuids = [1]\nweight = 10\n");
  write("etc/npud.toml.d/1.toml", "[[tenant]]\nname = \"a\"\nweight = 20\n[[tenant]]\nname = \"b\"\nuids = [2]\n");
  auto config = load_config(sources());
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->tenants.size(), 2u);
  EXPECT_EQ(config->tenants[0].weight, 20u);
  EXPECT_THAT(config->tenants[0].uids, ElementsAre(1));
}

TEST_F(ConfigFiles, AnExplicitFileMustExistAndBringsItsDropIns) {
  auto missing = load_config({.file = directory_ / "no.toml", .directories = {}});
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("no.toml"));
  write("my.toml", "[server]\nmax_connections = 2\n");
  write("my.toml.d/x.toml", "[server]\nmax_connections = 3\n");
  auto config = load_config({.file = directory_ / "my.toml", .directories = {}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server.max_connections, 3u);
}

TEST_F(ConfigFiles, WithoutAnyFileTheDefaultsHold) {
  auto config = load_config(sources());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(dump_config(*config), dump_config(Config{}));
}

TEST(Config, KnowsWhichSectionsNeedARestart) {
  Config a, b;
  b.log.level = LogLevel::debug;
  b.tenants = {{.name = "a", .uids = {1}}};
  b.admin.uids = {4};
  EXPECT_THAT(sections_needing_restart(a, b), IsEmpty());
  b.server.max_connections = 3;
  b.host.slots = 1;
  EXPECT_THAT(sections_needing_restart(a, b), ElementsAre("devices.host", "server"));
}

}  // namespace
}  // namespace npud
