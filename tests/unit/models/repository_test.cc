// SPDX-License-Identifier: Apache-2.0
// The repository with the real engine and server.
#include "models/repository.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <latch>
#include <thread>

#include "engine_fixture.h"

namespace npud {
namespace {

using test::float_tensor;
using ::testing::HasSubstr;

class RepositoryTest : public ::testing::Test {
 protected:
  void put(const std::string& model, int version, float factor) {
    // By renaming, as careful people deploy; others are simulated where a test says so.
    const auto path = root / model / std::to_string(version) / "model.onnx";
    test::write_model(engine.directory.path() / "staged", test::scale_model({-1}, factor));
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::rename(engine.directory.path() / "staged", path);
  }
  void put_config(const std::string& model, const std::string& text) {
    test::write_file(root / model / "config.pbtxt", text);
  }

  Repository& open(ControlMode mode, std::vector<std::string> startup = {}) {
    std::filesystem::create_directories(root);
    RepositoryOptions options{
        .root = root, .mode = mode, .poll_interval = std::chrono::hours(1), .startup_models = std::move(startup)};
    auto opened = Repository::open(options, *engine.loader, server, engine.events);
    EXPECT_TRUE(opened) << opened.error().message;
    repository = std::move(*opened);
    auto started = repository->start();
    EXPECT_TRUE(started) << started.error().message;
    return *repository;
  }

  // The factor by which the model multiplies, or the error.
  Result<float> ask(const std::string& model, std::optional<std::int64_t> version = {}) {
    auto promise = std::make_shared<std::promise<Result<float>>>();
    auto future = promise->get_future();
    Request request;
    request.model = model;
    request.version = version;
    request.tenant = engine.tenants.for_uid(1000).value();
    request.inputs.push_back(float_tensor("x", {1}, {1}));
    request.done = [promise](Result<Response> response) {
      if (response) {
        promise->set_value(test::floats(response->outputs.at(0)).at(0));
      } else {
        promise->set_value(std::unexpected(response.error()));
      }
    };
    server.submit(std::move(request));
    return future.get();
  }

  IndexEntry entry(const std::string& model, std::optional<std::int64_t> version) {
    for (auto& entry : repository->index(false))
      if (entry.model == model && entry.version == version) return entry;
    return {.model = "no such entry"};
  }

  void TearDown() override {
    repository.reset();
    for (const auto& servable : server.all()) (void)server.remove(servable->model(), servable->version());
  }

  test::EngineParts engine{4};
  std::filesystem::path root = engine.directory.path() / "models";
  Server server{{.workers = 4}, engine.clock, engine.tenants, engine.events};
  std::unique_ptr<Repository> repository;
};

TEST_F(RepositoryTest, ServesEverythingWithoutAnyConfiguration) {
  put("double", 1, 2);
  put("triple", 1, 2.5);
  put("triple", 3, 3);
  auto& repository = open(ControlMode::none);
  EXPECT_EQ(ask("double").value(), 2);
  EXPECT_EQ(ask("triple").value(), 3);
  EXPECT_EQ(ask("triple", 1).error().code, ErrorCode::not_found) << "latest: 1 is the default policy";
  EXPECT_TRUE(repository.ready("triple", 3));
  EXPECT_FALSE(repository.ready("triple", 1));
  EXPECT_EQ(repository.index(true).size(), 2u);
  EXPECT_EQ(repository.config("double", {})->input(0).name(), "x");
  auto metadata = repository.metadata("triple", {});
  ASSERT_TRUE(metadata);
  EXPECT_EQ(metadata->versions, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(metadata->platform, "onnxruntime_onnx");
  EXPECT_EQ(repository.load("double").error().code, ErrorCode::failed_precondition);
  EXPECT_EQ(repository.unload("double").error().code, ErrorCode::failed_precondition);
}

TEST_F(RepositoryTest, LoadsWhatIsAskedFor) {
  put("double", 1, 2);
  put("triple", 1, 3);
  put("quadruple", 1, 4);
  auto& repository = open(ControlMode::on_request, {"double"});
  EXPECT_EQ(ask("double").value(), 2);
  EXPECT_EQ(entry("triple", {}).state, ModelState::unavailable);
  ASSERT_TRUE(repository.load("triple"));
  EXPECT_EQ(ask("triple").value(), 3);
  EXPECT_EQ(repository.load("none").error().code, ErrorCode::not_found);
  EXPECT_EQ(repository.load("../models/double").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(repository.load("..").error().code, ErrorCode::invalid_argument);
  EXPECT_FALSE(repository.load(std::string("a\0b", 3)));
  ASSERT_TRUE(repository.unload("triple", {{"unload_dependents", "true"}}));
  EXPECT_EQ(ask("triple").error().code, ErrorCode::not_found);
  EXPECT_EQ(repository.unload("triple").error().code, ErrorCode::not_found);
  EXPECT_EQ(repository.unload("never").error().code, ErrorCode::not_found);
  EXPECT_THAT(repository.config("triple", {}).error().message, HasSubstr("unloaded"));
  ASSERT_TRUE(repository.load("triple"));
  EXPECT_EQ(ask("triple").value(), 3);
}

TEST_F(RepositoryTest, AVersionThatFailsLeavesTheOldOneServing) {
  put("m", 1, 2);
  auto& repository = open(ControlMode::on_request, {"m"});
  auto events = engine.events.subscribe();
  test::write_file(root / "m/2/model.onnx", "not a model");
  auto result = repository.load("m");
  ASSERT_FALSE(result);
  EXPECT_EQ(ask("m").value(), 2);
  EXPECT_EQ(entry("m", 1).state, ModelState::ready);
  EXPECT_EQ(entry("m", 2).state, ModelState::unavailable);
  EXPECT_THAT(entry("m", 2).reason, HasSubstr("not a complete ONNX model"));
  bool told = false;
  while (auto event = events->try_next()) told = told || (event->kind == EventKind::load_failed && event->version == 2);
  EXPECT_TRUE(told);

  // The same version overwritten by something broken.
  std::filesystem::remove_all(root / "m/2");
  test::write_file(root / "m/1/model.onnx", "broken");
  EXPECT_FALSE(repository.load("m"));
  EXPECT_EQ(ask("m").value(), 2);
  EXPECT_EQ(entry("m", 1).state, ModelState::ready);
  EXPECT_THAT(entry("m", 1).reason, HasSubstr("ONNX"));

  // And a broken configuration.
  put("m", 1, 2);
  put_config("m", "name: 'm'\nnonsense: 1\n");
  auto bad_config = repository.load("m");
  ASSERT_FALSE(bad_config);
  EXPECT_THAT(bad_config.error().message, HasSubstr("m/config.pbtxt:2:"));
  EXPECT_EQ(ask("m").value(), 2);
  EXPECT_THAT(entry("m", 1).reason, HasSubstr("config.pbtxt:2:"));

  put_config("m", "name: 'm'");
  put("m", 2, 7);
  ASSERT_TRUE(repository.load("m"));
  EXPECT_EQ(ask("m").value(), 7);
  EXPECT_EQ(entry("m", 2).reason, "");
}

TEST_F(RepositoryTest, PoliciesChooseAndReplaceVersions) {
  put("m", 1, 1);
  put("m", 2, 2);
  put("m", 4, 4);
  put_config("m", "version_policy { all { } }");
  auto& repository = open(ControlMode::on_request, {"*"});
  EXPECT_EQ(ask("m", 1).value(), 1);
  EXPECT_EQ(ask("m", 2).value(), 2);
  EXPECT_EQ(ask("m").value(), 4);
  put_config("m", "version_policy { specific { versions: [2] } }");
  ASSERT_TRUE(repository.load("m"));
  EXPECT_EQ(ask("m").value(), 2);
  EXPECT_FALSE(ask("m", 4));
  EXPECT_THAT(entry("m", 4).reason, HasSubstr("policy"));
  put_config("m", "version_policy { specific { versions: [3] } }");
  EXPECT_FALSE(repository.load("m"));
  EXPECT_EQ(ask("m").value(), 2);
}

TEST_F(RepositoryTest, ReloadingWhatHasntChangedTouchesNothing) {
  put("m", 1, 2);
  auto& repository = open(ControlMode::on_request, {"m"});
  auto before = server.find("m", {}).value();
  ASSERT_TRUE(repository.load("m"));
  EXPECT_EQ(server.find("m", {}).value(), before);
  put_config("m", "parameters { key: 'x' value { string_value: 'y' } }");
  ASSERT_TRUE(repository.load("m"));
  EXPECT_NE(server.find("m", {}).value(), before);
}

TEST_F(RepositoryTest, TakesAConfigurationWithTheRequest) {
  put("m", 1, 2);
  auto& repository = open(ControlMode::on_request);
  ASSERT_TRUE(repository.load("m", {{"config", R"({"maxBatchSize": 4})"}}));
  EXPECT_EQ(repository.config("m", {})->max_batch_size(), 4);
  ASSERT_TRUE(repository.load("m"));
  EXPECT_EQ(repository.config("m", {})->max_batch_size(), 0);
  EXPECT_THAT(repository.load("m", {{"file:1/model.onnx", "bytes"}}).error().message,
              HasSubstr("put it into the repository"));
  EXPECT_THAT(repository.load("m", {{"colour", "red"}}).error().message, HasSubstr("'colour'"));
  EXPECT_FALSE(repository.load("m", {{"config", "{"}}));
  EXPECT_EQ(ask("m").value(), 2);
}

TEST_F(RepositoryTest, FollowsTheDirectoryAndWaitsForCopiesToEnd) {
  put("m", 1, 2);
  auto& repository = open(ControlMode::poll);
  EXPECT_EQ(ask("m").value(), 2);
  EXPECT_EQ(repository.poll_now(), 0u);

  // A copy under way: it grows with every look, and isn't touched.
  const std::string whole = test::scale_model({-1}, 5).SerializeAsString();
  for (std::size_t part = 1; part < 4; ++part) {
    test::write_file(root / "m/2/model.onnx", whole.substr(0, whole.size() * part / 4));
    EXPECT_EQ(repository.poll_now(), 0u);
    EXPECT_EQ(ask("m").value(), 2);
  }
  test::write_file(root / "m/2/model.onnx", whole);
  EXPECT_EQ(repository.poll_now(), 0u) << "seen, not settled";
  EXPECT_EQ(repository.poll_now(), 1u);
  EXPECT_EQ(ask("m").value(), 5);
  EXPECT_EQ(repository.poll_now(), 0u);

  // One that stalls longer than that fails, and the old one serves on until it is whole.
  test::write_file(root / "m/3/model.onnx", whole.substr(0, whole.size() / 2));
  repository.poll_now();
  EXPECT_EQ(repository.poll_now(), 1u);
  EXPECT_EQ(ask("m").value(), 5);
  EXPECT_NE(entry("m", 3).reason, "");
  EXPECT_EQ(repository.poll_now(), 0u) << "not tried again until it changes";
  put("m", 3, 9);
  repository.poll_now();
  EXPECT_EQ(repository.poll_now(), 1u);
  EXPECT_EQ(ask("m").value(), 9);

  put("new", 1, 4);
  std::filesystem::remove_all(root / "m");
  repository.poll_now();
  EXPECT_EQ(repository.poll_now(), 2u);
  EXPECT_EQ(ask("new").value(), 4);
  EXPECT_EQ(ask("m").error().code, ErrorCode::not_found);
  EXPECT_EQ(repository.load("m").error().code, ErrorCode::failed_precondition);
}

TEST_F(RepositoryTest, LooksSoonWhenAskedTo) {
  auto& repository = open(ControlMode::poll);  // its own interval is an hour
  put("m", 1, 3);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!repository.ready("m", {}) && std::chrono::steady_clock::now() < end) {
    repository.look_soon();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(ask("m").value(), 3);
}

TEST_F(RepositoryTest, LoadsNothingMoreOnceItGaveUpAndServesOn) {
  put("m", 1, 2);
  auto& repository = open(ControlMode::on_request, {"m"});
  put("n", 1, 4);
  repository.give_up_loading();
  EXPECT_EQ(repository.load("n").error().code, ErrorCode::unavailable);
  EXPECT_FALSE(repository.ready("n", {}));
  EXPECT_EQ(ask("m").value(), 2);
}

TEST_F(RepositoryTest, NoRequestIsLostWhileModelsAreReplaced) {
  put("m", 1, 1);
  auto& repository = open(ControlMode::on_request, {"m"});
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0, answered = 0;
  std::latch warm(3);
  {
    std::vector<std::jthread> clients;
    for (int t = 0; t < 3; ++t) {
      clients.emplace_back([&] {
        bool first = true;
        while (!stop || first) {
          auto factor = ask("m");
          if (!factor || *factor < 1 || *factor > 12) {
            ++wrong;
            ADD_FAILURE() << (factor ? "a wrong answer" : factor.error().message);
          }
          ++answered;
          if (first) warm.count_down();
          first = false;
        }
      });
    }
    warm.wait();
    for (int i = 2; i <= 12; ++i) {
      put("m", i % 2 == 0 ? 1 : 2, static_cast<float>(i));
      auto loaded = repository.load("m");
      EXPECT_TRUE(loaded) << loaded.error().message;
    }
    stop = true;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(answered, 3);
  ASSERT_TRUE(server.wait_retired("m", engine.clock.now() + std::chrono::seconds(60)));
}

TEST_F(RepositoryTest, LoadsSideBySide) {
  for (int i = 0; i < 8; ++i) put("m" + std::to_string(i), 1, static_cast<float>(i + 1));
  auto& repository = open(ControlMode::on_request);
  std::atomic<int> failed = 0;
  std::latch done(24);
  for (int i = 0; i < 24; ++i) {
    repository.load_async("m" + std::to_string(i % 8), {}, [&](Result<> result) {
      if (!result) ++failed;
      done.count_down();
    });
  }
  done.wait();
  EXPECT_EQ(failed, 0);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(ask("m" + std::to_string(i)).value(), i + 1);
}

TEST_F(RepositoryTest, HostileRepositoriesFailModelByModel) {
  put("good", 1, 2);
  test::write_file(engine.directory.path() / "outside/1/model.onnx", test::scale_model({-1}, 3).SerializeAsString());
  ASSERT_EQ(::symlink("../outside", (root / "linked").c_str()), 0);
  std::filesystem::create_directories(root / "empty");
  std::filesystem::create_directories(root / "hollow/1");
  test::write_model(root / "cyclic/1/model.onnx", test::cyclic_model());
  put("wrong_name", 1, 2);
  put_config("wrong_name", "name: 'other'");
  put("no_device", 1, 2);
  put_config("no_device", "parameters { key: 'npud.device' value { string_value: 'rknpu' } }");
  open(ControlMode::none);
  EXPECT_EQ(ask("good").value(), 2);
  EXPECT_THAT(entry("linked", {}).reason, HasSubstr("leads out"));
  EXPECT_THAT(entry("empty", {}).reason, HasSubstr("no version"));
  EXPECT_THAT(entry("hollow", 1).reason, HasSubstr("model.onnx"));
  EXPECT_THAT(entry("cyclic", 1).reason, HasSubstr("cycle"));
  EXPECT_THAT(entry("wrong_name", {}).reason, HasSubstr("'wrong_name'"));
  EXPECT_THAT(entry("no_device", 1).reason, HasSubstr("no such device"));
  EXPECT_EQ(repository->index(true).size(), 1u);
}

}  // namespace
}  // namespace npud
